"""Does it fit, phase by phase, and how long will it take? Nothing here loads a model or imports torch."""

from __future__ import annotations

from spark_rl.fit.report import FitReport, Remedy, fit_report

__all__ = ["FitReport", "Remedy", "fit_report"]
