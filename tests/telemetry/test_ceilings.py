"""Which limits stand above a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from spark_rl.telemetry import Sampler

PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
CHILD = "import resource, time; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); print('ready', flush=True); time.sleep(60)"


def test_a_helpers_own_address_space_limit_is_no_ceiling_of_the_run():
    worker = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert worker.stdout is not None and worker.stdout.readline() == b"ready\n"
        sampler = Sampler()
        sampler.watch(worker.pid)
        reading = sampler.read()
        assert reading.worker is not None and reading.worker.num_processes == 2
        assert "address space" not in [ceiling.name for ceiling in reading.ceilings]
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
