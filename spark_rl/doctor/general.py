"""Checks that hold on every machine: platform, driver, sensors, memory, disk, packages, version conflicts. Pure."""

from __future__ import annotations

from spark_rl.doctor.conflicts import standing_conflicts
from spark_rl.doctor.environment import Environment, version_tuple
from spark_rl.doctor.report import Check, CheckFunction
from spark_rl.telemetry.reading import REASONS
from spark_rl.units import GIB, format_bytes

TRAINING_PACKAGES = ("torch", "transformers", "trl", "datasets", "peft", "accelerate")
RUN_DISK_BYTES = 20 * GIB
"""A run keeps a few checkpoints with optimizer state: about 20 GiB for a 1.5B model fully fine-tuned."""
CACHE_DISK_BYTES = 10 * GIB

STRONGEST = "bubblewrap"
WEAKER = {
    "namespaces": "Unit-test rewards run, with the same namespaces from our own launcher in place of a tool that many use",
    "bare_root": "Unit-test rewards run, with the system-call filter and another user in place of namespaces",
    "landlock": "Unit-test rewards run, with the system-call filter and Landlock in place of namespaces: programs may see which "
    "paths exist, not what they hold",
}
"""Isolation method -> what it means that it is this one."""
BUBBLEWRAP = (
    "for the strongest one install bubblewrap (sudo apt install bubblewrap) and let this user, or this container, make "
    "namespaces; docs/sandbox.md says what each method covers"
)


def platform(environment: Environment) -> Check:
    title = "platform"
    shown = f"{environment.system} {environment.architecture}, Python {'.'.join(map(str, environment.python))}"
    shown += f", {environment.product_name}" if environment.product_name else ""
    shown += f", in a container ({environment.container})" if environment.container else ""
    if environment.system != "Linux":
        return Check("platform", title, "blocked", f"{shown}: training needs Linux (WSL2 counts)", "the light commands work here; train on Linux, or in WSL2")  # fmt: skip
    if not (3, 11) <= environment.python < (3, 13):
        return Check("platform", title, "blocked", f"{shown}: needs Python 3.11 or 3.12", "scripts/setup finds or says where to get one")  # fmt: skip
    if environment.is_wsl:
        return Check("platform", title, "info", f"{shown}, WSL2: no thermal zones, no PSI on older kernels, memory is what .wslconfig gives", "raise memory= in .wslconfig for runs that offload to the host")  # fmt: skip
    return Check("platform", title, "ok", shown)


def driver(environment: Environment) -> Check:
    title = "GPU driver"
    if environment.gpu_state == "ok" and environment.gpus:
        names = ", ".join(gpu.name or "unnamed GPU" for gpu in environment.gpus)
        return Check("driver", title, "ok", f"{names}; driver {environment.driver_version or 'N/A'}, CUDA {environment.driver_cuda or 'N/A'}")  # fmt: skip
    words = REASONS.get(environment.gpu_state, environment.gpu_state)
    if environment.gpu_state in ("no_driver", "no_device", "not_used"):
        return Check("driver", title, "info", f"no GPU: {words}", "small models train on the CPU; with a card: install its driver, then nvidia-smi must work")  # fmt: skip
    return Check("driver", title, "blocked", f"the driver does not answer: {words}", "dmesg | grep -i xid; reload the driver or reboot")  # fmt: skip


def sensors(environment: Environment) -> Check:
    title = "sensors"
    reading = environment.reading
    if reading is None:
        return Check("sensors", title, "unknown", "nothing was read")
    wanted = ("host.mem_available_bytes", "host.psi_memory_full_percent", "host.hottest_zone_c")
    absent = {path.split(".", 1)[1]: reading.missing[path] for path in wanted if path in reading.missing}
    first = f"gpus.{reading.gpus[0].index if reading.gpus else 0}."
    absent |= {path.split(".", 2)[2]: code for path, code in reading.missing.items() if path.startswith(first)}
    figures = dict(absent)
    if not environment.has_sysfs:
        return Check("sensors", title, "info", "/sys is not there: no temperatures of the host", "mount /sys read-only into the container", figures)  # fmt: skip
    if "mem_available_bytes" in absent:
        return Check("sensors", title, "warning", "MemAvailable cannot be read: the memory guard is blind", "mount /proc into the container", figures)  # fmt: skip
    for finding in environment.findings:
        if finding.rule in ("dead_sensor", "frozen_sensor"):
            return Check("sensors", title, "warning", finding.summary, finding.advice, dict(finding.evidence))
    shown = "all there" if not absent else f"N/A here: {', '.join(sorted(absent))}"
    return Check("sensors", title, "ok", shown, "", figures)


def memory(environment: Environment) -> Check:
    title = "host memory"
    reading = environment.reading
    if reading is None or reading.headroom_bytes is None:
        return Check("memory", title, "unknown", "could not be read")
    shown = f"{format_bytes(reading.headroom_bytes)} left ({reading.headroom_source})"
    figures = {"headroom_bytes": reading.headroom_bytes, "source": reading.headroom_source}
    for finding in environment.findings:
        if finding.rule in ("swap_thrash", "memory_falling"):
            return Check("memory", title, "warning", finding.summary, finding.advice, dict(finding.evidence))
    if reading.headroom_bytes < 2 * GIB:
        return Check("memory", title, "warning", f"{shown}: too little even for the smallest run", "close other programs; in a container raise its memory limit", figures)  # fmt: skip
    return Check("memory", title, "ok", shown, "", figures)


def guard(environment: Environment) -> Check:
    title = "guard"
    reading = environment.reading
    if reading is not None and "host.psi_memory_full_percent" in reading.missing:
        return Check(
            "guard",
            title,
            "info",
            "no PSI on this kernel: thrashing is seen by swap rates alone",
            "kernel option psi=1",
        )
    if environment.memlock_bytes is not None and not environment.is_root:
        return Check("guard", title, "ok", f"works without root; ulimit -l is {format_bytes(environment.memlock_bytes)}, so memory is pre-allocated in place of locked")  # fmt: skip
    return Check("guard", title, "ok", "can lock itself in memory; no root needed")


def disk(environment: Environment) -> Check:
    title = "disk"
    runs, cache = environment.runs_free_bytes, environment.cache_free_bytes
    figures = {"runs_free_bytes": runs, "cache_free_bytes": cache}
    if environment.runs_writable is False:
        return Check(
            "disk",
            title,
            "blocked",
            "the runs folder cannot be written",
            "choose another: --runs DIR or SPARK_RL_RUNS",
            figures,
        )
    if runs is None and cache is None:
        return Check("disk", title, "unknown", "free space is not known")
    shown = f"{format_bytes(runs)} free for runs, {format_bytes(cache)} for models"
    if (runs is not None and runs < RUN_DISK_BYTES) or (cache is not None and cache < CACHE_DISK_BYTES):
        return Check("disk", title, "warning", shown, "checkpoints of larger models need more: --runs DIR, HF_HOME for models", figures)  # fmt: skip
    return Check("disk", title, "ok", shown, "", figures)


def stack(environment: Environment) -> Check:
    title = "training stack"
    packages = environment.packages
    if packages is None:
        return Check("stack", title, "unknown", "installed packages are not known")
    absent = [name for name in TRAINING_PACKAGES if name not in packages]
    if absent:
        return Check(
            "stack",
            title,
            "blocked",
            f"not installed: {', '.join(absent)}",
            "scripts/setup (viewing, fit and rewards work without)",
        )
    extras = [name for name in ("unsloth", "vllm") if name not in packages and f"{name}-cpu" not in packages]
    shown = ", ".join(f"{name} {packages[name]}" for name in ("torch", "transformers", "trl"))
    shown += f"; without {' and '.join(extras)}" if extras else ""
    return Check("stack", title, "ok", shown, "", {"absent": extras})


def cuda_build(environment: Environment) -> Check:
    title = "torch and the driver"
    if environment.is_spark:
        return Check("cuda", title, "not applicable", "see G1")
    if environment.torch_cuda is None:
        return Check("cuda", title, "unknown", "torch is not installed or its build is not known")
    if environment.gpus and environment.torch_cuda == "":
        return Check(
            "cuda", title, "blocked", "there is a GPU, but torch is a CPU build", "scripts/setup chooses the CUDA build"
        )
    built, offered = version_tuple(environment.torch_cuda), version_tuple(environment.driver_cuda or "")
    if built and offered and built[0] > offered[0]:
        return Check(
            "cuda", title, "blocked", f"torch is built for CUDA {environment.torch_cuda}, the driver offers {environment.driver_cuda}", "update the driver, or install a torch for an older CUDA"
        )  # fmt: skip
    return Check("cuda", title, "ok", f"torch is built for {'the CPU' if environment.torch_cuda == '' else 'CUDA ' + environment.torch_cuda}")  # fmt: skip


def conflicts(environment: Environment) -> Check:
    title = "version conflicts"
    if environment.packages is None:
        return Check("conflicts", title, "unknown", "installed packages are not known")
    found = standing_conflicts(environment)
    if found:
        shown = "; ".join(f"{conflict.packages}: {conflict.symptom}" for conflict in found)
        return Check("conflicts", title, "warning", shown, "; ".join(dict.fromkeys(conflict.fix for conflict in found)))
    return Check("conflicts", title, "ok", "none of the known ones")


def code_sandbox(environment: Environment) -> Check:
    title = "sandbox for code rewards"
    found = environment.code_isolation
    if found is None:
        return Check("sandbox", title, "unknown", "was not tried")
    figures = {"method": found.method, "tried": dict(found.tried)}
    if found.method is None:
        return Check("sandbox", title, "warning", f"none: {found.says}. Unit-test rewards are refused here (exit 4); every other reward works", BUBBLEWRAP, figures)  # fmt: skip
    shown = found.says + "".join(f"; {method}: {reason}" for method, reason in found.tried.items())
    if found.method == STRONGEST:
        return Check("sandbox", title, "ok", shown, "", figures)
    return Check("sandbox", title, "info", f"{shown}. {WEAKER[found.method]}", BUBBLEWRAP, figures)


GENERAL_CHECKS: tuple[CheckFunction, ...] = (
    platform,
    driver,
    cuda_build,
    sensors,
    memory,
    guard,
    disk,
    stack,
    conflicts,
    code_sandbox,
)
