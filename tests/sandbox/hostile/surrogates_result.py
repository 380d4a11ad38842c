# Answers with text that cannot be encoded.
def solve(n):
    return "\ud800\udfff\udcff\x00" * 10
