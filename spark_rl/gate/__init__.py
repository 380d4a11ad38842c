"""The inspection gate: a person reads 50-100 scored samples and signs before anything is trained.

Sampling itself is the worker's; everything here is light and reads or writes the run directory only.
"""

from spark_rl.gate.fingerprint import fingerprint
from spark_rl.gate.samples import Sample, draw_prompts, make_samples, read_samples, scoring_row, write_samples
from spark_rl.gate.signoff import SignOff, adopt_signoff, is_signed, require_signoff, sign, sign_with_oracle

__all__ = [
    "Sample",
    "SignOff",
    "adopt_signoff",
    "draw_prompts",
    "fingerprint",
    "is_signed",
    "make_samples",
    "read_samples",
    "require_signoff",
    "scoring_row",
    "sign",
    "sign_with_oracle",
    "write_samples",
]
