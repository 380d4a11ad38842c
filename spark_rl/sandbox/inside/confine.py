"""How a process of the sandbox gives up what it does not need, once and for good.

`drop_to` is done by the warm worker before any sample; `lock_down` by each sample's process before untrusted code.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

from . import filter as seccomp
from . import kernel


@dataclass(frozen=True)
class ProcessLimits:
    """What one process of one sample may use."""

    cpu_seconds: int
    memory_bytes: int
    file_bytes: int
    open_files: int
    threads: int | None
    """None where other processes of the same user would count too."""


def drop_to(user: int | None) -> None:
    """Become an unprivileged user (None: stay who we are) without capabilities, closed to debuggers."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.drop_capabilities()
    kernel.forbid_new_privileges()
    kernel.hide_from_debuggers()


def lock_down(limits: ProcessLimits, filter_template: seccomp.Template) -> None:
    """Resource limits, then the seccomp filter. Raises OSError when any of it cannot be had."""
    for kind, value in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.threads),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        if value is not None:
            resource.setrlimit(kind, (value, value))
    kernel.install_filter(filter_template.program(os.getpid()))
