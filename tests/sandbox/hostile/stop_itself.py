# Stops itself instead of ending, so that a waiting parent waits for ever.
import os
import signal


def solve(n):
    os.kill(os.getpid(), signal.SIGSTOP)
    return n
