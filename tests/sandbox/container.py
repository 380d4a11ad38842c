"""Runs a command as it would run in a container: fewer capabilities, and no new namespaces or mounts.

python container.py docker|bare COMMAND...
docker: Docker's default capabilities. bare: none at all. Either way unshare, setns, mount and their like answer EPERM,
and clone refuses new namespaces, as Docker's default seccomp profile does.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
import sys

from spark_rl.sandbox.inside import filter as seccomp
from spark_rl.sandbox.inside import kernel

# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod,
# audit_write, setfcap
DOCKER_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
# unshare, setns, mount, umount2, pivot_root, clone3, open_tree, move_mount, fsopen, fsmount, mount_setattr
REFUSED = {
    "x86_64": (272, 308, 165, 166, 155, 435, 428, 429, 430, 432, 442),
    "aarch64": (97, 268, 40, 39, 41, 435, 428, 429, 430, 432, 442),
}
CLONE = {"x86_64": 56, "aarch64": 220}


def container_filter(machine: str) -> bytes:
    """Docker's rules about namespaces as a seccomp program; everything else is allowed."""
    program: list[seccomp.Instruction] = [seccomp.statement(seccomp.LOAD_WORD, seccomp.OFFSET_NUMBER)]
    for number in REFUSED[machine]:
        answer = errno.ENOSYS if number == 435 else errno.EPERM
        program += [(seccomp.JUMP_EQUAL, 0, 1, number), seccomp.refuse(answer)]
    program += [
        (seccomp.JUMP_EQUAL, 0, 3, CLONE[machine]),
        seccomp.statement(seccomp.LOAD_WORD, seccomp.low_word(0)),
        (seccomp.JUMP_ANY_BIT, 0, 1, seccomp.CLONE_NEW_ANYTHING),
        seccomp.refuse(errno.EPERM),
        seccomp.statement(seccomp.RETURN, seccomp.ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def keep_capabilities(kept: tuple[int, ...]) -> None:
    for capability in range(41):
        if capability not in kept:
            kernel._prctl(kernel.PR_CAPBSET_DROP, capability)
    mask = sum(1 << capability for capability in kept)
    data = struct.pack("=6I", mask, mask, 0, 0, 0, 0)
    header = struct.pack("=Ii", kernel.CAPABILITY_VERSION_3, 0)
    kernel._checked(kernel._libc.syscall(kernel.NUMBER_OF[platform.machine()]["capset"], header, data), "capset")


def main() -> None:
    kind, *command = sys.argv[1:]
    program = container_filter(platform.machine())
    if os.geteuid() == 0:
        keep = DOCKER_CAPABILITIES if kind == "docker" else ()
        # The filter first: installing one without no_new_privs needs CAP_SYS_ADMIN, and no_new_privs is not Docker's default.
        kernel.install_filter(program)
        keep_capabilities(keep)
    else:
        kernel.forbid_new_privileges()
        kernel.install_filter(program)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
