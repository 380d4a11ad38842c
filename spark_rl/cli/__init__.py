"""The `spark-rl` command: the only place that prints, exits, or maps errors to exit codes."""

from spark_rl.cli.main import main

__all__ = ["main"]
