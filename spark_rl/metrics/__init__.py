"""What the numbers of a GRPO run are called, and reading them from anybody's log. Imports nothing heavy.

catalogue   names, units, axes        log   canonical rows        readers   files -> Log
groups      what the saved completions add
"""

from spark_rl.metrics.catalogue import CATALOGUE, Metric, canonical_key, metric_of, part_key
from spark_rl.metrics.groups import StepSamples, group_columns, read_sample_file, read_samples, with_columns
from spark_rl.metrics.log import Log, Row, log_from_rows
from spark_rl.metrics.readers import read_log

__all__ = [
    "CATALOGUE",
    "Log",
    "Metric",
    "Row",
    "StepSamples",
    "canonical_key",
    "group_columns",
    "log_from_rows",
    "metric_of",
    "part_key",
    "read_log",
    "read_sample_file",
    "read_samples",
    "with_columns",
]
