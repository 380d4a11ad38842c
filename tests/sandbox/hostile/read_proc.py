# Reads environment, command lines and open files of other processes.
import glob
import os

for pattern in ("/proc/*/environ", "/proc/*/cmdline", "/proc/self/fd/*", "/proc/*/maps", "/proc/self/root/*", "/proc/1/cwd/*"):
    found = glob.glob(pattern)
    if found:
        print("ESCAPED: sees", pattern, len(found))
for path in ("/proc/self/environ", "/proc/1/environ", "/proc/cmdline", "/proc/kcore", "/proc/mounts", "/proc/self/mountinfo"):
    try:
        print("ESCAPED:", path, len(open(path, "rb").read(64)))
    except OSError:
        pass


def solve(n):
    return os.listdir("/proc")
