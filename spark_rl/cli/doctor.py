"""`spark-rl doctor` and `spark-rl bench`: is this machine ready, and how fast is it."""

from __future__ import annotations

import argparse
from pathlib import Path

from spark_rl.cli.options import add_gpu_option
from spark_rl.cli.output import emit, emit_json, say
from spark_rl.errors import ExitCode

DOCTOR_EPILOG = """exit codes: 0 ready or ready-with-warnings, 5 blocked
The ten DGX Spark checks G1-G10 say "not applicable" elsewhere. The same findings go to env-report.json."""


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="machine, stack, sensors, the ten DGX Spark checks; env-report.json",
        epilog=DOCTOR_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.add_argument("--json", action="store_true", help="one JSON object on stdout")
    doctor.add_argument("--replay", type=Path, metavar="FILE", help="judge recorded readings (telemetry.jsonl) in place of this machine")  # fmt: skip
    doctor.add_argument("--report", type=Path, default=Path("env-report.json"), metavar="FILE", help="default env-report.json; '-' writes none")  # fmt: skip
    doctor.add_argument("--runs", metavar="DIR", help="where runs will be written (disk check)")
    doctor.set_defaults(run=run_doctor)
    bench = commands.add_parser("bench", help="measured memory bandwidth, matrix rate, disk; feeds fit's forecast")
    bench.add_argument("--json", action="store_true", help="one JSON object on stdout")
    bench.add_argument(
        "--disk", type=Path, default=Path(), metavar="DIR", help="folder for the disk test (default: here)"
    )
    add_gpu_option(bench)
    bench.set_defaults(run=run_bench_command)


def run_doctor(args: argparse.Namespace) -> int:
    from spark_rl.doctor import Environment, examine
    from spark_rl.doctor.environment import environment_from_recording
    from spark_rl.doctor.gather import gather
    from spark_rl.errors import RunDirError
    from spark_rl.rundir import runs_root, write_json
    from spark_rl.telemetry.replay import read_recording
    from spark_rl.telemetry.watcher import Watcher

    environment: Environment
    if args.replay is not None:
        recording = read_recording(args.replay)
        if recording.num_skipped:
            say(f"{args.replay}: {recording.num_skipped} lines could not be read and were skipped")
        watcher = Watcher(spacing_seconds=0.0)
        for reading in recording.readings:
            watcher.observe(reading)
        environment = environment_from_recording(recording.machine, recording.readings, watcher.standing)
    else:
        environment = gather(runs_root(args.runs))
    report = examine(environment)
    if str(args.report) != "-":
        try:
            write_json(args.report, report.to_json())
        except RunDirError as error:
            say(f"{error.message}: no report file was written")
    if args.json:
        emit_json(report.to_json())
    else:
        emit(report.to_text())
    return ExitCode.MISSING_PACKAGE if report.verdict == "blocked" else ExitCode.OK


def run_bench_command(args: argparse.Namespace) -> int:
    from spark_rl.bench import run_bench
    from spark_rl.bench.measure import result_file
    from spark_rl.host import detect_host

    result = run_bench(args.disk, detect_host(args.gpu), say=say)
    if args.json:
        emit_json(result.to_json())
        return ExitCode.OK

    def gb(value: float | None) -> str:
        return "N/A" if value is None else f"{value / 1e9:.1f} GB/s"

    emit(f"device            {result.device}")
    emit(
        f"device memory     read {gb(result.device_read_bytes_per_second)}, copy {gb(result.device_copy_bytes_per_second)}"
    )
    emit(
        f"host memory       read {gb(result.host_read_bytes_per_second)}, copy {gb(result.host_copy_bytes_per_second)}"
    )
    emit(f"matrix product    {result.matmul_flops / 1e12:.2f} TFLOPS ({result.matmul_dtype})")
    emit(f"disk write        {gb(result.disk_write_bytes_per_second)}")
    emit(f"reference loop    {result.reference_loop_seconds * 1000:.0f} ms (1,000,000 rounds of plain Python)")
    for judgement in result.judgements:
        emit(f"{judgement['verdict']:<18}{judgement['what']}: {judgement['words']}")
    for note in result.notes:
        emit(f"{'note':<18}{note}")
    if not any("not kept" in note for note in result.notes):
        say(f"kept in {result_file()}: fit's forecast and doctor read it there")
    return ExitCode.OK
