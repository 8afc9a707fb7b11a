"""Linux calls that Python has no names for. Each raises ``OSError`` where the kernel refuses."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG = 1
_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_SET_MODE_FILTER, _SECCOMP_ALL_THREADS, _SECCOMP_NEW_LISTENER = 1, 1, 8
_CAPABILITY_VERSION_3 = 0x20080522


def prctl(option: int, *arguments: int) -> int:
    """Call ``prctl``; the kernel insists on zeros where an option takes no argument."""
    passed = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return _check("prctl", _LIBC.prctl(option, *passed))


def syscall(name: str, number: int, *arguments: int | bytes | ctypes.Structure | None) -> int:
    """Call by number what the C library may not know yet; ``name`` is for the error."""
    passed = [
        ctypes.c_long(a) if isinstance(a, int) else ctypes.byref(a) if isinstance(a, ctypes.Structure) else a
        for a in arguments
    ]
    return _check(name, _LIBC.syscall(ctypes.c_long(number), *passed))


def mount_tmpfs(folder: str, options: str) -> None:
    """Mount a fresh memory file system over ``folder``, for data only."""
    nosuid_nodev_noexec = 2 | 4 | 8
    _check("mount", _LIBC.mount(b"tmpfs", folder.encode(), b"tmpfs", nosuid_nodev_noexec, options.encode()))


def mount_proc() -> None:
    """Mount ``/proc`` anew: it shows the processes of this process's namespace and no others."""
    nosuid_nodev_noexec = 2 | 4 | 8
    _check("mount", _LIBC.mount(b"proc", b"/proc", b"proc", nosuid_nodev_noexec, None))


def unshare(flags: int) -> None:
    """Move this process, which must have one thread, into new namespaces."""
    _check("unshare", _LIBC.unshare(flags))


def die_with_parent(number: int) -> None:
    """Get the signal ``number`` when the parent ends."""
    prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of every process below this one that loses its own."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_readable(*, readable: bool) -> None:
    """Whether processes of the same user may look into this one's memory, descriptors and environment.

    While they may not, ``/proc/self`` belongs to root: its files cannot be written either.
    """
    prctl(_PR_SET_DUMPABLE, int(readable))


def is_readable() -> bool:
    """What :func:`set_readable` sets."""
    return prctl(_PR_GET_DUMPABLE) == 1


@contextlib.contextmanager
def unreadable() -> Iterator[None]:
    """While this lasts, this process is not readable; see :func:`set_readable`."""
    before = is_readable()
    set_readable(readable=False)
    try:
        yield
    finally:
        set_readable(readable=before)


def forgo_privileges() -> None:
    """Drop every capability, and with no-new-privs every way to get one back."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="utf-8"))
    # Who may not shrink the bounding set could not get anything out of it either.
    with contextlib.suppress(PermissionError):
        for capability in range(last + 1):
            prctl(_PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check("capset", _LIBC.capset(header, (ctypes.c_uint32 * 6)()))


def filter_system_calls(number: int, program: ctypes.Structure) -> None:
    """Install a seccomp program (a ``sock_fprog``) for all threads of this process and all that they start.

    ``number`` is that of ``seccomp`` on this architecture.
    """
    syscall("seccomp", number, _SECCOMP_SET_MODE_FILTER, _SECCOMP_ALL_THREADS, program)


def filter_with_listener(number: int, program: ctypes.Structure) -> int:
    """Install a program that asks on this thread and all that it starts; the descriptor of the questions."""
    return syscall("seccomp", number, _SECCOMP_SET_MODE_FILTER, _SECCOMP_NEW_LISTENER, program)


def _check(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
