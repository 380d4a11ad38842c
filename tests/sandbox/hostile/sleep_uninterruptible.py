# Blocks every signal, then sleeps.
import signal
import time

signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))


def solve(n):
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass
