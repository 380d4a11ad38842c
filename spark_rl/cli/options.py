"""Options that several commands share."""

from __future__ import annotations

import argparse


def add_recipe_options(parser: argparse.ArgumentParser, task_required: bool = True) -> None:
    parser.add_argument(
        "--profile", required=True, metavar="P", help="shipped profile (spark-rl profiles ls) or a file"
    )
    parser.add_argument("--task", required=task_required, metavar="T", help="shipped task or a task file")
    add_sets(parser)


def add_sets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], dest="sets", metavar="S.K=V", help="override, e.g. grpo.max_steps=50"
    )


def add_gpu_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpu",
        metavar="INDEX|UUID",
        help="one GPU of several, as nvidia-smi -L names them (default: most free memory, no display)",
    )


def add_runs_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", metavar="DIR", help="where runs live (default: $SPARK_RL_RUNS, else ./runs)")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_name", metavar="RUN", nargs="?", default="last", help="path or name of a run (default: last)"
    )
    add_runs_option(parser)
