"""What is written once a run has trained: diagnosis.json and report.html. A process of its own, so that the plotting
library never weighs on the supervisor, whose memory is locked. `python -m spark_rl.conclude RUN`."""

from __future__ import annotations

import sys
from pathlib import Path

from spark_rl.diagnose import write_diagnosis
from spark_rl.report import write_report
from spark_rl.rundir import RunDir


def conclude(run: RunDir) -> None:
    """Diagnosis first: the report shows it. Raises RunDirError when files of the run cannot be read or written."""
    write_diagnosis(run)
    write_report(run)


if __name__ == "__main__":
    conclude(RunDir(Path(sys.argv[1])))
