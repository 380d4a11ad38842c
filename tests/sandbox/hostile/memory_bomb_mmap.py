# Maps memory behind Python's back and touches it.
import mmap


def solve(n):
    maps = []
    while True:
        one = mmap.mmap(-1, 1 << 26)
        one.write(b"x" * (1 << 26))
        maps.append(one)
