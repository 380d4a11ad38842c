# Ignores every signal that can be ignored and catches the rest.
import signal

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass


def solve(n):
    while True:
        try:
            signal.pause()
        except BaseException:
            pass
