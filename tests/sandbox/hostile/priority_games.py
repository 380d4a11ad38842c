# Slows other processes down: niceness, scheduler and affinity of others.
import os

for pid in (1, os.getppid()):
    for action in (
        lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        lambda: os.sched_setaffinity(pid, {0}),
        lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
    ):
        try:
            action()
            print("ESCAPED: changed the scheduling of", pid)
        except (OSError, ValueError):
            pass


def solve(n):
    return n
