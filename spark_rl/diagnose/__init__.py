"""What a GRPO log says: symptoms with their evidence, remedies, and which variant the evidence speaks for.

In: a `Log` (ours or a stranger's) and what is known of the settings. Out: a frozen `Diagnosis`. Pure but for
`diagnose_run`, which reads a run's files; imports nothing heavy.

finding   the answer's types      view      early, late, trends     rewards, policy, numbers   the symptoms
variants  when DAPO, Dr.GRPO or GSPO is worth a try                 context   settings
"""

from spark_rl.diagnose.context import Context, context_from_recipe
from spark_rl.diagnose.finding import Diagnosis, Evidence, Finding, VariantAdvice
from spark_rl.diagnose.judge import diagnose, diagnose_run, log_of_run, write_diagnosis

__all__ = [
    "Context",
    "Diagnosis",
    "Evidence",
    "Finding",
    "VariantAdvice",
    "context_from_recipe",
    "diagnose",
    "diagnose_run",
    "log_of_run",
    "write_diagnosis",
]
