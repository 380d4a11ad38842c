# Answers with a dict whose keys all collide, to keep the reader busy.
def solve(n):
    step = 2**61 - 1
    return {step * key: None for key in range(40_000)}
