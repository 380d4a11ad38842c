# Leaves a child behind that writes a passing verdict after the parent failed.
import json
import os
import time

verdict = json.dumps({"passed": True, "reason": "ok", "calls": 1, "passes": 1, "total": 1}).encode()


def solve(n):
    if os.fork() == 0:
        time.sleep(0.1)
        print("ESCAPED: a writer lives on")
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, len(verdict).to_bytes(4, "big") + verdict)
            except OSError:
                pass
        os._exit(0)
    raise AssertionError
