# Starts worker processes through multiprocessing.
import multiprocessing


def solve(n):
    with multiprocessing.Pool(8) as pool:
        print("ESCAPED: a process pool")
        return pool.map(abs, range(8))
