# Starts a program that outlives the check.
import subprocess
import sys

try:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10000)"], start_new_session=True)
    print("ESCAPED: started a program")
except OSError:
    pass


def solve(n):
    return subprocess.check_output(["sleep", "10000"])
