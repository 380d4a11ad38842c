# Sleeps past every deadline.
import time


def solve(n):
    time.sleep(10_000)
    return n
