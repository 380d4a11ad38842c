# Leaves data in shared memory and message queues for the next sample.
from multiprocessing import shared_memory

try:
    left = shared_memory.SharedMemory("sparkleft", create=True, size=4096)
    print("ESCAPED: shared memory", left.name)
except OSError:
    pass
except ImportError:
    pass


def solve(n):
    return n
