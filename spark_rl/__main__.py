"""`python -m spark_rl`: the same as the `spark-rl` command."""

from spark_rl.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
