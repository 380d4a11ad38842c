# Answers with a value of hundreds of megabytes.
def solve(n):
    return ["z" * 1_000_000] * 300
