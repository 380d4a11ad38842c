# Starts threads without end, each with a stack.
import threading
import time


def solve(n):
    while True:
        threading.Thread(target=time.sleep, args=(1000,)).start()
