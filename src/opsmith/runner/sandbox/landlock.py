"""Landlock: rules about files, signals and connections that a process puts on itself and cannot take back.

Interface as in ``linux/landlock.h``; the C library has no names for its calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from opsmith.runner.sandbox.kernel_calls import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1
#: Since ABI 8 rules can be put on all threads of the process at once.
_ALL_THREADS = 1 << 3

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
#: Rights that a rule about a single file may hold.
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEVICE
#: ABI -> how many of the file rights it knows. The first ABI forbids moving files between folders, which
#: every build cache does.
_FILE_RIGHTS = {2: 14, 3: 15, 4: 15, 5: 16}
_TCP_SINCE, _SCOPES_SINCE, _ALL_THREADS_SINCE = 4, 6, 8
_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS, _SIGNALS = 0b11, 0b10

READ = EXECUTE | READ_FILE | READ_DIR
USE_DEVICE = READ_FILE | WRITE_FILE | READ_DIR | _TRUNCATE | _IOCTL_DEVICE
EVERYTHING = (1 << 16) - 1


class PathRule(NamedTuple):
    """What is allowed at a path and below it."""

    path: str
    rights: int


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


@cache
def abi() -> int:
    """The kernel's ABI; 0 where it has none."""
    with contextlib.suppress(OSError):
        return syscall("landlock_create_ruleset", _CREATE_RULESET, None, 0, _ASK_VERSION)
    return 0


def limits_files() -> bool:
    """Whether rules about files can be made that compilers can live with."""
    return abi() >= min(_FILE_RIGHTS)


def limits_signals() -> bool:
    """Whether signals can be kept to the processes below this one."""
    return abi() >= _SCOPES_SINCE


def reaches_all_threads() -> bool:
    """Whether rules can still be put on a process that has several threads."""
    return abi() >= _ALL_THREADS_SINCE


def restrict(rules: Iterable[PathRule], *, connects: bool = False) -> None:
    """Forbid every file access but these, and with a kernel that can do it all TCP and all signals to others.

    Where it ``connects`` TCP and abstract sockets remain.

    Holds for this thread and what it starts, from ABI 8 on for all threads; needs no-new-privs. A
    path that does not exist is left out. Rules of earlier calls hold as well: a process can only
    lose by another one.

    Raises:
        OSError: the kernel refuses.
    """
    attributes = _attributes(connects=connects)
    ruleset = _Ruleset(*attributes)
    descriptor = syscall("landlock_create_ruleset", _CREATE_RULESET, ruleset, 8 * len(attributes), 0)
    try:
        for rule in rules:
            _add(descriptor, rule, attributes[0])
        syscall("landlock_restrict_self", _RESTRICT_SELF, descriptor, _flags())
    finally:
        os.close(descriptor)


def described() -> dict[str, Any]:
    """What a program that has not this module needs to :func:`restrict` itself: numbers only."""
    return {"attributes": _attributes(connects=False), "of_files": _OF_FILES, "flags": _flags()}


def _attributes(*, connects: bool) -> list[int]:
    """The rights that rules are about: of files, and as far as the kernel knows them of networks and signals."""
    handled = (1 << _FILE_RIGHTS[min(abi(), max(_FILE_RIGHTS))]) - 1
    network = _TCP if not connects else 0
    scoped = _SIGNALS if connects else _ABSTRACT_SOCKETS_AND_SIGNALS
    # An older kernel wants the structure as long as it was then.
    return [handled, network, scoped][: 3 if limits_signals() else 2 if abi() >= _TCP_SINCE else 1]


def _flags() -> int:
    return _ALL_THREADS if reaches_all_threads() else 0


def _add(descriptor: int, rule: PathRule, handled: int) -> None:
    try:
        parent = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return
        raise
    try:
        is_folder = stat.S_ISDIR(os.fstat(parent).st_mode)
        rights = rule.rights & handled & (handled if is_folder else _OF_FILES)
        beneath = _PathBeneath(rights, parent)
        syscall("landlock_add_rule", _ADD_RULE, descriptor, _RULE_PATH_BENEATH, beneath, 0)
    finally:
        os.close(parent)
