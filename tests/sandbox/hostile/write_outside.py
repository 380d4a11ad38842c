# Writes and deletes outside its scratch folder.
import os
import sys

for path in ("/written", "/etc/cron.d/spark", "/root/.ssh/authorized_keys", "/usr/lib/written", "/var/tmp/spark-rl-written", "/dev/shm/spark-rl-written", "/code/written", os.path.dirname(os.__file__) + "/written.py"):
    try:
        with open(path, "w") as file:
            file.write("x")
        print("ESCAPED: wrote", path)
    except OSError:
        pass
for path in (os.__file__, sys.executable, "/dev/null", "/usr/lib"):
    for action in (os.unlink, os.rmdir, lambda path: os.rename(path, path + "2"), lambda path: os.chmod(path, 0o777), lambda path: os.utime(path), lambda path: os.truncate(path, 0), lambda path: os.chown(path, 0, 0), lambda path: os.setxattr(path, "user.x", b"y")):
        try:
            action(path)
            print("ESCAPED: changed", path)
        except OSError:
            pass


def solve(n):
    return n
