"""Namespaces: a network without a connection, shared memory of its own, and a file system that is read-only.

A nursery enters them once; the workers that it forks are born in them.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from opsmith.runner.sandbox.kernel_calls import mount_tmpfs, syscall, unshare

_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x40000000

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE = -100  # AT_FDCWD
_EMPTY_PATH, _RECURSIVE = 0x1000, 0x8000
_CLONE_TREE = 1
_FROM_EMPTY_PATH = 4
_READ_ONLY = 1
_PRIVATE = 1 << 18

#: ``SIOCSIFFLAGS`` and ``IFF_UP``; the request is a ``struct ifreq``.
_SET_INTERFACE_FLAGS, _INTERFACE_UP = 0x8914, 0x1

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the place that shm_open uses, not a temporary file
#: Memory that is counted for no process: a few semaphores and queues, not tensors. Of NCCL each rank wants some 32 MiB.
SHARED_MIB, SHARED_BY_RANKS_MIB = 64, 1024


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def leave_network() -> None:
    """Enter new user, network and IPC namespaces; the user stays who it is, and gets power over these only.

    The process must have one thread and own the files of ``/proc/self``.
    """
    user, group = os.getuid(), os.getgid()
    unshare(_NEW_USER | _NEW_NETWORK | _NEW_IPC)
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(line)


def raise_loopback() -> None:
    """Let the processes of a new network talk to each other: its loopback device goes up."""
    request = struct.pack("16sH14x", b"lo", _INTERFACE_UP)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_INTERFACE_FLAGS, request)


def make_read_only(writable: Iterable[str], *, shared_mib: int = SHARED_MIB) -> None:
    """Make every mount read-only but those of the folders ``writable``, for this process and its children.

    Devices can still be written to. ``/dev/shm`` becomes a memory file system of its own, of ``shared_mib`` at most.
    """
    unshare(_NEW_MOUNTS)
    _set_attributes(_HERE, b"/", _RECURSIVE, _MountAttributes(_READ_ONLY, 0, _PRIVATE, 0))
    # Of the files in there, a process may write those that are about itself.
    _set_attributes(_HERE, b"/proc", 0, _MountAttributes(0, _READ_ONLY, 0, 0))
    for folder in writable:
        name = folder.encode()
        tree = syscall("open_tree", _OPEN_TREE, _HERE, name, _CLONE_TREE)
        _set_attributes(tree, b"", _EMPTY_PATH, _MountAttributes(0, _READ_ONLY, 0, 0))
        syscall("move_mount", _MOVE_MOUNT, tree, b"", _HERE, name, _FROM_EMPTY_PATH)
        os.close(tree)
    if Path(SHARED_MEMORY).is_dir():
        mount_tmpfs(SHARED_MEMORY, f"size={shared_mib}m,mode=1777")


def _set_attributes(folder: int, path: bytes, flags: int, attributes: _MountAttributes) -> None:
    syscall("mount_setattr", _MOUNT_SETATTR, folder, path, flags, attributes, ctypes.sizeof(attributes))
