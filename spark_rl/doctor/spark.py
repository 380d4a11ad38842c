"""The ten DGX Spark checks, G1 to G10: what each looks at, how it shows, what to do. Pure functions of the environment.

On a machine that is no DGX Spark they say "not applicable"; what holds elsewhere too is among the general checks.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_rl.doctor.environment import Environment, version_tuple
from spark_rl.doctor.report import Check, CheckFunction, Status
from spark_rl.telemetry.bandwidth import GB10_PEAK_BYTES_PER_SECOND, GB10_SUSTAINED_BYTES_PER_SECOND
from spark_rl.telemetry.rules_gpu import GB10_COOL_C, GB10_STUCK_MHZ, GB10_STUCK_WATTS
from spark_rl.units import GIB, format_bytes

START_GIB = 20.0
"""MemAvailable a person should see before a large run: the level others require before they start a load."""
HOT_MARGIN_C = 8.0
GB10_CAPABILITY = (12, 1)
BANDWIDTH_LOW = 150e9
"""Below the worst published read figure of a healthy unit (161 GB/s) something is wrong."""


def cuda_mismatch(environment: Environment) -> Check:
    cuda = environment.torch_cuda
    figures = {"torch_cuda": cuda, "driver_cuda": environment.driver_cuda}
    if cuda is None:
        return _check(
            "G1", "CUDA 12/13 mismatch", "unknown", "which CUDA torch was built for is not known", "", figures
        )
    if cuda == "" or version_tuple(cuda)[:1] != (13,):
        shown = "the CPU alone" if cuda == "" else f"CUDA {cuda}"
        return _check(
            "G1", "CUDA 12/13 mismatch", "blocked", f"torch is built for {shown}; the machine has CUDA 13",
            "install the CUDA 13 build (scripts/setup chooses it) or use a matching container; otherwise libcudart.so.12 is missing, or it crashes at the first kernel",
            figures,
        )  # fmt: skip
    ptxas = environment.variables.get("TRITON_PTXAS_PATH", "")
    if "12." in ptxas:
        return _check(
            "G1", "CUDA 12/13 mismatch", "warning", f"TRITON_PTXAS_PATH points at {ptxas}", "CUDA 12's ptxas does not know sm_121a: export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas", figures
        )  # fmt: skip
    return _check("G1", "CUDA 12/13 mismatch", "ok", f"torch is built for CUDA {cuda}", "", figures)


def flash_attention(environment: Environment) -> Check:
    if environment.packages is None:
        return _check("G2", "flash-attn", "unknown", "installed packages are not known")
    version = environment.packages.get("flash-attn") or environment.packages.get("flash_attn")
    if version:
        return _check(
            "G2", "flash-attn", "warning", f"flash-attn {version} is installed; there are no kernels of it for sm_121",
            "pip uninstall flash-attn: PyTorch's own attention (SDPA) is used then, and is not slower here",
            {"version": version},
        )  # fmt: skip
    return _check("G2", "flash-attn", "ok", "not installed, as it should be: SDPA is used")


def memory_accounting(environment: Environment) -> Check:
    title = "memory headroom"
    host = None if environment.reading is None else environment.reading.host
    if host is None or host.mem_available_bytes is None or host.mem_total_bytes is None:
        return _check("G3", title, "unknown", "MemAvailable could not be read")
    figures = {
        "mem_available_bytes": host.mem_available_bytes,
        "mem_free_bytes": host.mem_free_bytes,
        "page_cache_bytes": host.page_cache_bytes,
        "swap_used_bytes": host.swap_used_bytes,
    }
    shown = (
        f"{format_bytes(host.mem_available_bytes)} of {format_bytes(host.mem_total_bytes)} can be had (MemAvailable)"
    )
    if host.mem_available_bytes < START_GIB * GIB:
        return _check(
            "G3", title, "warning", shown, "stop other programs (ps aux --sort=-rss | head) and wait until MemAvailable is back: memory of a stopped container comes late", figures
        )  # fmt: skip
    if (host.swap_used_bytes or 0) >= 2 * GIB:
        return _check(
            "G3", title, "warning", f"{shown}; {format_bytes(host.swap_used_bytes)} are swapped out",
            "with swap a shortage becomes hours of thrashing in place of the end of a program: sudo swapoff -a before a long run",
            figures,
        )  # fmt: skip
    free = host.mem_free_bytes
    if (
        free is not None
        and free < 0.1 * host.mem_total_bytes
        and (host.page_cache_bytes or 0) > 0.2 * host.mem_total_bytes
    ):
        return _check(
            "G3", title, "info", f"{shown}, though only {format_bytes(free)} is free: the rest is page cache",
            "nothing to do; if an allocator insists on free memory: sync; echo 3 | sudo tee /proc/sys/vm/drop_caches", figures,
        )  # fmt: skip
    return _check("G3", title, "ok", shown, "", figures)


def heat_and_power(environment: Environment) -> Check:
    title = "heat and power"
    for rule in ("thermal_throttling", "stuck_low", "power_cap", "hot"):
        for finding in environment.findings:
            if finding.rule == rule and finding.severity != "info":
                return _check("G4", title, "warning", finding.summary, finding.advice, dict(finding.evidence))
    reading = environment.reading
    gpu = reading.gpus[0] if reading is not None and reading.gpus else None
    if gpu is None or gpu.temperature_c is None:
        return _check("G4", title, "unknown", "temperature and clock could not be read")
    figures = {
        "temperature_c": gpu.temperature_c, "margin_c": gpu.margin_c, "power_watts": gpu.power_watts, "sm_clock_mhz": gpu.sm_clock_mhz,
    }  # fmt: skip
    shown = f"{gpu.temperature_c:.0f} °C"
    shown += "" if gpu.margin_c is None else f", {gpu.margin_c:.0f} below slowdown"
    shown += "" if gpu.power_watts is None else f", {gpu.power_watts:.0f} W"
    shown += "" if gpu.sm_clock_mhz is None else f", {gpu.sm_clock_mhz:.0f} MHz"
    if gpu.margin_c is not None and gpu.margin_c < HOT_MARGIN_C:
        return _check("G4", title, "warning", shown, "give it air; cap the clock: sudo nvidia-smi -lgc 300,2200 (decoding loses nothing measurable)", figures)  # fmt: skip
    busy = (gpu.utilization_percent or 0) >= 80 and gpu.temperature_c < GB10_COOL_C
    if busy and ((gpu.sm_clock_mhz or 9999) < GB10_STUCK_MHZ or (gpu.power_watts or 999) < GB10_STUCK_WATTS):
        return _check(
            "G4", title, "warning", f"busy, cool and slow: {shown}", "pull the power brick from wall and box for 60 s; a reboot is not enough", figures
        )  # fmt: skip
    return _check("G4", title, "ok", f"{shown}; expect at most about 100 W of GPU power", "", figures)


def bandwidth(environment: Environment) -> Check:
    title = "memory bandwidth"
    low, high = (figure / 1e9 for figure in GB10_SUSTAINED_BYTES_PER_SECOND)
    plan = f"plan with {low:.0f}-{high:.0f} GB/s, not {GB10_PEAK_BYTES_PER_SECOND / 1e9:.0f}"
    measured = (environment.bench or {}).get("device_read_bytes_per_second")
    if measured is None:
        return _check("G5", title, "unknown", f"not measured on this machine; {plan}", "spark-rl bench measures it")
    figures = {"device_read_bytes_per_second": measured}
    if measured < BANDWIDTH_LOW:
        return _check(
            "G5", title, "warning", f"{measured / 1e9:.0f} GB/s measured, a healthy unit reads 160-245; {plan}",
            "stop what else uses memory and measure again; if it stays: power off at the wall for 60 s", figures,
        )  # fmt: skip
    return _check("G5", title, "ok", f"{measured / 1e9:.0f} GB/s measured; {plan}", "", figures)


def contention(environment: Environment) -> Check:
    title = "other users of the one pool"
    gpus = () if environment.reading is None else environment.reading.gpus
    if not gpus or all(gpu.other_memory_bytes is None for gpu in gpus):
        return _check("G6", title, "unknown", "the driver does not name the GPU's processes")
    other = max(gpus, key=lambda gpu: gpu.other_memory_bytes or 0)
    size = other.other_memory_bytes or 0
    figures = {"other_memory_bytes": size, "process": other.other_process}
    if size >= GIB:
        return _check(
            "G6", title, "warning", f"{other.other_process or 'another process'} holds {format_bytes(size)} of GPU memory",
            "one GPU server at a time: stop it before a run that counts on the pool", figures,
        )  # fmt: skip
    return _check("G6", title, "ok", "no other program holds GPU memory", "", figures)


def low_precision(environment: Environment) -> Check:
    title = "NVFP4 and kernels for sm_121"
    capability = next((gpu.compute_capability for gpu in environment.gpus if gpu.compute_capability), None)
    architectures = environment.variables.get("TORCH_CUDA_ARCH_LIST", "")
    figures = {"compute_capability": capability, "TORCH_CUDA_ARCH_LIST": architectures or None}
    if architectures and not any(part in architectures for part in ("12.1", "12.0f", "12.0+PTX")):
        return _check(
            "G7", title, "warning", f"TORCH_CUDA_ARCH_LIST={architectures} leaves sm_121 out: extensions built now will not run",
            "export TORCH_CUDA_ARCH_LIST=12.1a (the a: FP4 conversion instructions), or unset it", figures,
        )  # fmt: skip
    if environment.variables.get("VLLM_USE_FLASHINFER_MOE_FP4", "") == "1":
        return _check(
            "G7", title, "warning", "VLLM_USE_FLASHINFER_MOE_FP4=1: FP4 kernels are missing for sm_121",
            "set it to 0; stay with FP8 or bf16 unless the build targets sm_121a (NVFP4 is about a third slower than FP8 otherwise)", figures,
        )  # fmt: skip
    if capability is not None and capability != GB10_CAPABILITY:
        return _check(
            "G7", title, "unknown", f"compute capability {capability[0]}.{capability[1]}, expected 12.1", "", figures
        )
    return _check("G7", title, "ok", "nothing asks for FP4; bf16 and FP8 are the sound choices here", "", figures)


def stale_recipes(environment: Environment) -> Check:
    title = "versions from an old recipe"
    old: list[str] = []
    driver = version_tuple(environment.driver_version or "")
    if driver and driver[0] == 590:
        old.append(
            f"driver {environment.driver_version}: reported to deadlock in CUDA graphs; the 580 line is what works"
        )
    if (environment.kernel or "").startswith("6.17.0-1008"):
        old.append(f"kernel {environment.kernel}: panics reported; update DGX OS")
    for package, minimum, why in (
        ("nvidia-ml-py", (13, 580, 82), "older ones do not know this chip"),
        ("bitsandbytes", (0, 48), "no kernels for this chip before"),
        ("transformers", (5,), "playbooks of 2025 pin 4.x; this release needs 5"),
    ):
        found = environment.version(package)
        if found is not None and found < minimum:
            old.append(f"{package} {(environment.packages or {})[package]}: {why}")
    if old:
        return _check(
            "G8", title, "warning", "; ".join(old), "published playbooks age within months: take this release's set (scripts/setup) and look at the playbook's open issues before following it"
        )  # fmt: skip
    if environment.packages is None and not driver:
        return _check("G8", title, "unknown", "neither driver nor packages are known")
    return _check("G8", title, "ok", "nothing here is known to be broken")


def drift(environment: Environment) -> Check:
    title = "environment that drifts"
    if environment.packages is None:
        return _check("G9", title, "unknown", "installed packages are not known")
    moved = [
        f"{name} {environment.packages[name]} (pinned {pin})"
        for name, pin in sorted(environment.pins.items())
        if name in environment.packages and environment.packages[name].split("+")[0] != pin
    ]
    where = (
        f"in a container ({environment.container})" if environment.container else "a virtual environment on the host"
    )
    if moved:
        return _check(
            "G9", title, "warning", f"{where}; {len(moved)} packages are not the pinned ones: {', '.join(moved[:4])}",
            "scripts/setup puts the pinned set back; install nothing else beside it, or use a container",
        )  # fmt: skip
    return _check("G9", title, "ok", f"{where}, all pinned packages as pinned")


def two_sparks(environment: Environment) -> Check:
    title = "two Sparks"
    variables = environment.variables
    tensor = [
        name
        for name in ("VLLM_TENSOR_PARALLEL_SIZE", "TENSOR_PARALLEL_SIZE", "TP_SIZE")
        if variables.get(name, "1") not in ("", "1")
    ]
    world = variables.get("WORLD_SIZE", "")
    figures = {"WORLD_SIZE": world or None, **{name: variables[name] for name in tensor}}
    if tensor:
        return _check(
            "G10", title, "warning", f"{tensor[0]}={variables[tensor[0]]}: tensor parallelism across two Sparks",
            "data parallel (DDP) or FSDP between the two: the link is too thin for tensor parallelism. spark-rl launch-plan prints the commands", figures,
        )  # fmt: skip
    shown = f"{world} processes, no tensor parallelism" if world.isdigit() and int(world) > 1 else "one machine"
    return _check("G10", title, "ok", shown, "", figures)


def _check(
    id: str, title: str, status: Status, evidence: str, fix: str = "", figures: Mapping[str, object] | None = None
) -> Check:
    return Check(id, title, status, evidence, fix, figures or {})


def _on_spark(id: str, title: str, check: CheckFunction) -> CheckFunction:
    def on_spark(environment: Environment) -> Check:
        if not environment.is_spark:
            return Check(id, title, "not applicable", "this is not a DGX Spark")
        return check(environment)

    return on_spark


SPARK_CHECKS: tuple[CheckFunction, ...] = tuple(
    _on_spark(f"G{number}", title, check)
    for number, (title, check) in enumerate(
        (
            ("CUDA 12/13 mismatch", cuda_mismatch),
            ("flash-attn", flash_attention),
            ("memory headroom", memory_accounting),
            ("heat and power", heat_and_power),
            ("memory bandwidth", bandwidth),
            ("other users of the one pool", contention),
            ("NVFP4 and kernels for sm_121", low_precision),
            ("versions from an old recipe", stale_recipes),
            ("environment that drifts", drift),
            ("two Sparks", two_sparks),
        ),
        start=1,
    )
)
