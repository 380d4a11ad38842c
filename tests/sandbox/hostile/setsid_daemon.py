# Leaves its session and process group so that a group kill misses it.
import os

for action in (os.setsid, os.setpgrp, lambda: os.setpgid(0, 1), lambda: os.setpgid(0, os.getppid())):
    try:
        action()
        print("ESCAPED: left its process group")
    except OSError:
        pass


def solve(n):
    while True:
        pass
