# Overflows the C stack through repr of a deeply nested list.
import sys

sys.setrecursionlimit(10**9)


def solve(n):
    nested = []
    for _ in range(10**6):
        nested = [nested]
    return repr(nested)
