# Detaches a grandchild that outlives the check.
import os
import time


def detach():
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    print("ESCAPED: a detached grandchild")
    time.sleep(10_000)


try:
    detach()
except OSError:
    pass


def solve(n):
    detach()
