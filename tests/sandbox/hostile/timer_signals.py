# Sets timers of every kind that go off later, perhaps in somebody else.
import os
import signal

signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
signal.alarm(1)
for action in (lambda: __import__("fcntl").fcntl(1, 8, 1), lambda: __import__("fcntl").fcntl(3, 8, os.getppid() or 1)):
    try:
        action()
        print("ESCAPED: another process gets this one's signals")
    except OSError:
        pass


def solve(n):
    signal.pause()
    return n
