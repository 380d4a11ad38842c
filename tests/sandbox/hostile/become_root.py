# Becomes root again through set-user-id calls and programs.
import os

for action in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.seteuid(0)):
    try:
        action()
        print("ESCAPED: changed user")
    except OSError:
        pass
for path in ("/usr/bin/sudo", "/bin/su", "/usr/bin/pkexec"):
    try:
        os.execv(path, [path, "id"])
    except OSError:
        pass


def solve(n):
    return os.getuid()
