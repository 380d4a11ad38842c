# Preloads a library of its own into whatever starts next.
import ctypes
import os
import tempfile

os.environ["LD_PRELOAD"] = f"{tempfile.gettempdir()}/evil.so"
os.environ["PYTHONSTARTUP"] = os.environ["PYTHONPATH"] = tempfile.gettempdir()
try:
    with open(os.environ["LD_PRELOAD"], "wb") as file:
        file.write(b"\x7fELF" + bytes(200))
    ctypes.CDLL(os.environ["LD_PRELOAD"])
    print("ESCAPED: loaded a library")
except OSError:
    pass


def solve(n):
    os.execv("/python/bin/python3.11", ["python", "-c", "print('ESCAPED: exec')"])
