# Recurses until the stack is gone.
import sys

sys.setrecursionlimit(10**9)


def solve(n):
    return solve(n + 1) + 1
