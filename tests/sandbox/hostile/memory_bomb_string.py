# Builds one string of terabytes.
def solve(n):
    return "x" * (1 << 42)
