"""What a worker may read: Python, the compilers, the device and the machine's facts, and nothing of anybody's.

Rules cannot take back what a rule about a folder above gives. So a folder that holds something secret is
not given as a whole: its other entries are.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from opsmith.runner.sandbox.landlock import EVERYTHING, READ, READ_DIR, USE_DEVICE, PathRule

#: Where programs, libraries and toolkits are installed.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store")
#: Of the machine's configuration what loaders, compilers, time and names need.
_CONFIGURATION = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "localtime", "timezone"),
    *("nsswitch.conf", "passwd", "group", "os-release", "ssl/openssl.cnf", "pki/tls/openssl.cnf", "crypto-policies"),
    *("nvidia", "OpenCL", "vulkan", "mime.types"),
)
#: Facts about the machine. Other processes' folders are not among them.
_PROCESSOR_AND_MEMORY = (
    *("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "devices", "filesystems", "modules"),
    *("interrupts", "sys", "driver"),
)
_HARDWARE = ("/sys/devices", "/sys/bus", "/sys/class", "/sys/module", "/sys/kernel/mm", "/sys/fs/cgroup")
_DEVICE_FILES = Path("/dev")
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia-caps")
_GRAPHICS = ("dri", "kfd")
#: Of what a compiler is installed with, the folders next to its ``bin``.
_BESIDE_PROGRAMS = ("include", "lib", "lib64", "libexec", "nvvm", "share", "targets")


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What a run tells its nurseries about places.

    Attributes:
        scratch: parent of all private folders and of the spool.
        builds: parent of the build caches.
        withheld: folders that no worker may read, even where they lie in one that it may.
        home: the user's home.
        started_in: where the command was started, for kernels that are imported from there; else None.
        one_kernel: a worker loads one kernel and sees no other's build cache.
        for_ranks: its workers run kernels together, so they get a network of their own, of the loopback device alone.
        hidden: files of NVIDIA's devices that no worker may use.
    """

    scratch: str
    builds: str
    withheld: tuple[str, ...]
    home: str
    started_in: str | None = None
    one_kernel: bool = True
    for_ranks: bool = False
    hidden: tuple[str, ...] = ()


def readable(reach: Reach) -> list[PathRule]:
    """Rules about what every worker of a run may read, and the devices that it may use."""
    withheld = [Path(folder).resolve() for folder in (*reach.withheld, reach.scratch, reach.builds)]
    installed = [*_SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, *_toolchains()]
    rules: list[PathRule] = []
    for folder in installed:
        if not _is_within(Path(folder), (Path(rule.path) for rule in rules if rule.rights == READ)):
            rules += _without(Path(folder), withheld)
    imported_from = [*sys.path, *_editable(), *([reach.started_in] if reach.started_in else [])]
    for folder in dict.fromkeys(imported_from):
        # The working directory is meant by an empty entry, and given only where kernels are imported from it.
        if folder and not _is_within(Path(folder), map(Path, installed)):
            rules += _project(Path(folder), withheld, home=Path(reach.home).resolve())
    facts = [*(f"/etc/{name}" for name in _CONFIGURATION), *(f"/proc/{name}" for name in _PROCESSOR_AND_MEMORY)]
    rules += [PathRule(path, READ) for path in (*facts, *_HARDWARE)]
    # Through the files of the graphics subsystem, too, a device can be used.
    devices = [_DEVICE_FILES / name for name in (*_DEVICES, *(() if reach.hidden else _GRAPHICS))]
    devices += [device for device in _DEVICE_FILES.glob("nvidia*") if str(device) not in reach.hidden]
    rules += [PathRule(str(device), USE_DEVICE) for device in devices]
    return [rule for rule in dict.fromkeys(rules) if os.access(rule.path, os.R_OK)]


def private(scratch: str, kernels: str, builds: str, rendezvous: str = "") -> list[PathRule]:
    """Rules about the folders of one worker, and what ``/proc`` says about itself; an empty name stands for no folder.

    Args:
        scratch: it may write to.
        kernels: with its kernel's files.
        builds: its build cache, or the parent of all.
        rendezvous: of a rank, where it meets the others.
    """
    return [
        *(PathRule(folder, EVERYTHING) for folder in (scratch, builds, rendezvous)),
        PathRule(kernels, READ),
        PathRule(f"/proc/{os.getpid()}", READ | USE_DEVICE),
    ]


def _toolchains() -> Iterator[str]:
    yield from os.environ.get("LD_LIBRARY_PATH", "").split(":")
    yield from (os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH"))
    named = (shutil.which(os.environ.get(name, "")) for name in ("CC", "CXX"))
    programs = [*os.environ.get("PATH", "").split(":"), *(str(Path(path).parent) for path in named if path)]
    for folder in programs:
        yield folder
        if Path(folder).name == "bin":
            yield from (str(Path(folder).parent / name) for name in _BESIDE_PROGRAMS)


def _editable() -> Iterator[str]:
    """Folders of packages that were installed editable and are found by a hook instead of ``sys.path``."""
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            yield from map(str, getattr(module, "MAPPING", {}).values())


def _without(path: Path, withheld: Iterable[Path]) -> Iterator[PathRule]:
    """Rules to read ``path`` and all below it but what is withheld.

    There is none for a relative path, nor for what the user cannot read.
    """
    if not path.is_absolute() or not os.access(path, os.R_OK) or _is_within(path, withheld):
        return
    path = path.resolve()
    if not any(folder.is_relative_to(path) for folder in withheld):
        yield PathRule(str(path), READ)
        return
    yield PathRule(str(path), READ_DIR)  # The names of what is withheld are no secret.
    for entry in sorted(path.iterdir()):
        yield from _without(entry, withheld)


def _project(folder: Path, withheld: Iterable[Path], *, home: Path) -> Iterator[PathRule]:
    """Rules to import from a folder of the user's: not its hidden files; of a home, Python's files only."""
    if not os.access(folder, os.R_OK):
        return
    if not folder.is_dir():
        yield from _without(folder, withheld)  # A zipped package.
        return
    yield PathRule(str(folder.resolve()), READ_DIR)
    is_home = home.is_relative_to(folder.resolve())
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith(".") and (not is_home or _is_module(entry)):
            yield from _without(entry, withheld)


def _is_module(path: Path) -> bool:
    return path.suffix in (".py", ".so") or os.access(path / "__init__.py", os.R_OK)


def _is_within(path: Path, folders: Iterable[Path]) -> bool:
    real = path.resolve()
    return any(real.is_relative_to(folder) for folder in folders)
