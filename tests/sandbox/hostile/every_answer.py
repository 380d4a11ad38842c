# Answers with a list of all small numbers.
def solve(n):
    return list(range(100_000))
