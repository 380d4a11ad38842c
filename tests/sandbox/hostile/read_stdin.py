# Waits for input that never comes.
import sys


def solve(n):
    return input("a number, please") + sys.stdin.read()
