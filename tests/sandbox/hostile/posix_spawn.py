# Starts a program through posix_spawn, which needs no fork.
import os
import sys

try:
    os.posix_spawn(sys.executable, [sys.executable, "-c", "print('ESCAPED: spawned')"], {})
    print("ESCAPED: posix_spawn")
except OSError:
    pass


def solve(n):
    return n
