# Reads secrets from the environment.
import os

known = {"HOME", "TMPDIR", "LANG", "PATH", "LD_LIBRARY_PATH", "LC_CTYPE", "PWD"}
for name in os.environ:
    if name not in known:
        print("ESCAPED: environment", name, os.environ[name])


def solve(n):
    return dict(os.environ)
