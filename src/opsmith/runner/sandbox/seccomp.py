"""The system-call filter: what no kernel, compiler or device driver needs is refused.

The program is classic BPF as in ``linux/seccomp.h``. It is a list of refusals, not of permissions: what
compilers and drivers call changes with their versions.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from opsmith.runner.sandbox.kernel_calls import filter_system_calls, filter_with_listener

_ALLOW = 0x7FFF0000
_ASK = 0x7FC00000  # SECCOMP_RET_USER_NOTIF
_ERRNO = 0x00050000

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

#: Offsets in ``struct seccomp_data``; of an argument, the lower half on a little-endian machine.
_NUMBER, _ARCHITECTURE, _ARGUMENTS, _ARGUMENT_BYTES = 0, 4, 16, 8

#: ``os.uname().machine`` -> the ``AUDIT_ARCH`` constant that the kernel reports.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: Number of ``seccomp`` itself.
_NUMBERS = {"x86_64": 317, "aarch64": 277}

#: x86-64 numbers above this are calls of the x32 ABI: other names for the same calls.
_X32_BIT = 0x40000000

#: Bits of the CLONE_NEW* flags that ``clone`` takes.
_NEW_NAMESPACES = 0x7E020000

#: name -> number on x86-64, number on aarch64; None where the architecture has no such call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # Other processes: their memory, their descriptors.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    # Work that the kernel does for a process, past this filter.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # The kernel itself.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    # The machine.
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    # File systems and namespaces.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "unshare": (272, 97),
    "setns": (308, 268),
}

#: Calls that may concern this process only: name -> (number on x86-64, on aarch64, argument that is a pid).
#: With another's pid, limits, priority or cores of the judge and the referee could be changed.
_OWN_PROCESS_ONLY = {
    "prlimit64": (302, 261, 0),
    "sched_setparam": (142, 118, 0),
    "sched_setscheduler": (144, 119, 0),
    "sched_setaffinity": (203, 122, 0),
    "sched_setattr": (314, 274, 0),
    "setpriority": (141, 140, 1),
    "ioprio_set": (251, 30, 1),
    "migrate_pages": (256, 238, 0),
    "move_pages": (279, 239, 0),
}
#: What a kernel could change of how it is timed: name -> number on x86-64, on aarch64. A thread on another core works
#: beside the clock, one of low priority leaves its work to others, and a signal that a timer sends lets a stopped
#: process go on.
_REFUSED_TO_KERNELS: dict[str, tuple[int | None, int | None]] = {
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "timer_create": (222, 107),
}
#: socketpair is another call, and remains: both of its ends are here.
_SOCKET = (41, 198)
_UNIX = 1
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_THREAD = 0x00010000  # CLONE_THREAD
_MADVISE = (28, 233)
_INHERIT_AGAIN = 11  # MADV_DOFORK
#: Calls that run another program, each with the argument that is its path: ``execve``, ``execveat``.
EXECUTING = {"x86_64": {59: 0, 322: 1}, "aarch64": {221: 0, 281: 1}}
#: Calls that make a process: ``fork`` and ``vfork``, where they are calls of their own.
_FORKING = {"x86_64": (57, 58), "aarch64": ()}

_Instruction = tuple[int, int, int, int]


class _SockFilter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_SockFilter)))


def refuse_system_calls(*, connects: bool = False) -> None:
    """Install the filter on this thread and all that it starts; it needs no-new-privs.

    Sockets within the machine remain: CUDA's driver makes one when it makes a context. Where it ``connects`` others
    remain, too.

    Raises:
        OSError: this architecture is not known here, or the kernel takes no filter.
    """
    filter_system_calls(_NUMBERS[_machine()], compiled().connecting if connects else compiled().alone)


def refuse_to_kernels() -> None:
    """Refuse the sockets that remained, and what changes how threads are scheduled, to all threads of this process.

    Raises:
        OSError: as :func:`refuse_system_calls`.
    """
    filter_system_calls(_NUMBERS[_machine()], compiled().for_kernels)


def described() -> tuple[int, list[str]]:
    """What a program needs that has not this module: the call's number, and the filters' programs as hex.

    They are those that :func:`refuse_system_calls` and :func:`refuse_to_kernels` install.

    Raises:
        OSError: this architecture is not known here.
    """
    machine = _machine()
    listings = [
        b"".join(bytes(_SockFilter(*instruction)) for instruction in listing)
        for listing in (program(machine), kernel_program(machine))
    ]
    return _NUMBERS[machine], [listing.hex() for listing in listings]


def ask_about_processes() -> int:
    """Have the judge asked about every process that this thread and all that it starts want to make.

    Returns:
        the descriptor from which the questions are read.

    Raises:
        OSError: as :func:`refuse_system_calls`.
    """
    return filter_with_listener(_NUMBERS[_machine()], compiled().asking)


class Filters(NamedTuple):
    """The filters for a machine: of a worker that runs kernels alone, of a rank, and what either gets as well."""

    alone: ctypes.Structure
    connecting: ctypes.Structure
    for_kernels: ctypes.Structure
    asking: ctypes.Structure


@cache
def compiled() -> Filters:
    """The filters for this machine, made once for all that are forked from here.

    Raises:
        OSError: this architecture is not known here.
    """
    machine = _machine()
    return Filters(
        *(
            _compiled(listing)
            for listing in (
                program(machine),
                program(machine, connects=True),
                kernel_program(machine),
                process_program(machine),
            )
        )
    )


def _compiled(instructions: Sequence[_Instruction]) -> ctypes.Structure:
    array = (_SockFilter * len(instructions))(*[_SockFilter(*instruction) for instruction in instructions])
    return _SockFprog(len(instructions), array)


def _machine() -> str:
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no filter is written for {machine}")
    return machine


def program(machine: str, *, connects: bool = False) -> list[_Instruction]:
    """The filter for a machine of :data:`ARCHITECTURES`: (code, offset if true, offset if false, value) each.

    Where a process ``connects`` every kind of socket remains.
    """
    column = list(ARCHITECTURES).index(machine)
    listing = [
        *_unless(_ARCHITECTURE, _IF_EQUAL, ARCHITECTURES[machine], errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        listing += [(_IF_AT_LEAST, 0, 1, _X32_BIT), _refuse(errno.ENOSYS)]
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            listing += [(_IF_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    if not connects:
        listing += _for_call(_SOCKET[column], _unless(_argument(0), _IF_EQUAL, _UNIX, errno.EPERM))
    # The C library falls back to clone, whose flags a filter can see.
    listing += [(_IF_EQUAL, 0, 1, _CLONE3[column]), _refuse(errno.ENOSYS)]
    for call in _OWN_PROCESS_ONLY.values():
        listing += _for_call(call[column], _unless(_argument(call[2]), _IF_EQUAL, 0, errno.EPERM))
    clone_flags = [(_LOAD, 0, 0, _argument(0)), (_IF_ANY_BIT, 0, 1, _NEW_NAMESPACES), _refuse(errno.EPERM)]
    listing += _for_call(_CLONE[column], clone_flags)
    # What is kept from forked processes stays kept from them.
    advice = [(_LOAD, 0, 0, _argument(2)), (_IF_EQUAL, 0, 1, _INHERIT_AGAIN), _refuse(errno.EPERM)]
    listing += _for_call(_MADVISE[column], advice)
    return [*listing, (_RETURN, 0, 0, _ALLOW)]


def kernel_program(machine: str) -> list[_Instruction]:
    """The filter of a process that runs kernels; what other filters refuse remains refused."""
    column = list(ARCHITECTURES).index(machine)
    numbers = [_SOCKET[column], *(numbers[column] for numbers in _REFUSED_TO_KERNELS.values())]
    refused = [part for number in numbers if number for part in ((_IF_EQUAL, 0, 1, number), _refuse(errno.EPERM))]
    return [(_LOAD, 0, 0, _NUMBER), *refused, (_RETURN, 0, 0, _ALLOW)]


def process_program(machine: str) -> list[_Instruction]:
    """The filter that asks about new processes; a new thread is none."""
    column = list(ARCHITECTURES).index(machine)
    ask = (_RETURN, 0, 0, _ASK)
    listing = [(_LOAD, 0, 0, _NUMBER)]
    for number in (*EXECUTING[machine], *_FORKING[machine]):
        listing += [(_IF_EQUAL, 0, 1, number), ask]
    listing += [(_IF_EQUAL, 0, 1, _CLONE3[column]), _refuse(errno.ENOSYS)]
    return [
        *listing,
        *_for_call(_CLONE[column], [(_LOAD, 0, 0, _argument(0)), (_IF_ANY_BIT, 1, 0, _THREAD), ask]),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _unless(offset: int, test: int, value: int, error: int) -> list[_Instruction]:
    return [(_LOAD, 0, 0, offset), (test, 1, 0, value), _refuse(error)]


def _for_call(number: int, body: Iterable[_Instruction]) -> list[_Instruction]:
    """Instructions for one call only: others jump over them, and what is left over is allowed."""
    inside = [*body, (_RETURN, 0, 0, _ALLOW)]
    return [(_IF_EQUAL, 0, len(inside), number), *inside]


def _refuse(error: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | error)


def _argument(index: int) -> int:
    return _ARGUMENTS + index * _ARGUMENT_BYTES
