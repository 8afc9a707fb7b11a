"""What shared objects that came with a kernel call of torch's and of vendors' libraries, past the dispatcher.

These are the kernel's own and those of packages that it imports, such as CuPy's way to cuBLAS.

That an object imports ``at::cpu::relu`` or ``cblas_sgemm`` says what it could call, not that it does. So each slot of
such a symbol is pointed at a few instructions that note the call and jump on. Where an object looks a symbol up by its
name, ``dlsym`` is reached through instructions that note the name. It is done when an object is first seen: after the
kernel is loaded, when ctypes first looks something up, and after each call. Of what an object has looked up while it
was being opened, only what it keeps as it is in its own memory is found. On other machines than x86-64 nothing is.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from opsmith.evaluation.integrity.namespaces import installed_folders
from opsmith.evaluation.integrity.shared_objects import (
    SharedObject,
    Tables,
    file_of,
    function_at,
    loaded,
    loaded_ever,
    writer,
)
from opsmith.evaluation.integrity.symbols import HINTS, Computation, computation

#: Where systems keep theirs; what lies in neither these nor where packages are is the kernel's own.
_SYSTEM = ("/usr/", "/lib", "/opt/", "/nix/store/", "/run/opengl-driver/", "linux-vdso")
#: Packages that call libraries and look up symbols for themselves.
_OF_ITSELF = ("torch", "triton", "nvidia", "opsmith")
_LOOKUPS = frozenset({"dlsym", "dlvsym"})
_LIBRARIES_OF_TORCH = str(Path(torch.__file__).parent)

#: Room for what notes calls: stubs, a byte for each that says it was called, and the names that were looked up.
_STUBS_BYTES, _FLAGS_BYTES = 1 << 16, 1 << 12
_NAMES, _NAME_BYTES = 1024, 256
#: Of an object's memory, what is searched for functions that it has found.
_SEARCHED_BYTES = 1 << 20

_NOTE_CALL = "49bb{flag}41c60301 49bb{target}41ffe3"
"""mov r11, flag; mov byte [r11], 1; mov r11, target; jmp r11: the register that a procedure linkage table may use."""
_NOTE_NAME = (
    "57565150 48b8{count} b901000000 f0480fc108 81e1{mask} 48c1e108 48bf{names} 4801cf b9ff000000"
    "acaa84c0e0fa 58595e5f 49bb{target}41ffe3"
)
"""Keeps rdi, rsi, rcx and rax; takes the next place of the names, copies at most 255 bytes of rsi there, jumps on."""


class Called(NamedTuple):
    """A computation that a kernel's object called, or looked up by its name.

    Attributes:
        found: what it is.
        place: the object that did.
        of_torch: it lies in a library of torch's; else in a vendor's that anybody could link.
        looked_up: by its name at run time.
    """

    found: Computation
    place: str
    of_torch: bool
    looked_up: bool


class Bindings:
    """Notes these calls from its making on, for the rest of the process's life."""

    def __init__(self) -> None:
        self._seen = {item.base for item in loaded()}
        self._loaded_ever = loaded_ever()
        self._own: list[Tables] = []
        self._stubs: _Stubs | None = None
        self._flagged: list[Called] = []

    def look(self) -> None:
        """Take in the objects that were loaded since; 5 us if there are none."""
        if (count := loaded_ever()) == self._loaded_ever:
            return
        self._loaded_ever = count
        for item in loaded():
            if item.base not in self._seen:
                self._seen.add(item.base)
                self._take_in(item)

    def _take_in(self, item: SharedObject) -> None:
        own = is_own(item.path)
        if not own and not _is_of_other_package(item.path):
            return
        tables = Tables(item)
        if own:
            self._own.append(tables)
        if os.uname().machine != "x86_64" or not HINTS.search(tables.strings):
            return
        if own:
            self._take_in_pointers(item)
        for slot in tables.imports():
            target = ctypes.c_uint64.from_address(slot.address).value
            stub = self._room.noting_name(target) if slot.symbol in _LOOKUPS else None
            # What a package has from torch comes to the dispatcher, or is known by the ops that the package registers.
            if (found := computation(slot.symbol)) is not None and (own or not is_of_torch(file_of(target))):
                stub = self._flagging(found, item, target)
            if stub is not None:
                writer()(slot.address, struct.pack("<Q", stub), item.read_only)

    def _take_in_pointers(self, item: SharedObject) -> None:
        """Lead what an object has found while it was opened, and keeps in its own memory, over stubs as well."""
        others = [part for other in loaded() if not is_own(other.path) for part in other.code]
        lowest, highest = min(part.start for part in others), max(part.stop for part in others)
        for part in item.data:
            start, size = -(-part.start // 8) * 8, min(part.stop - part.start, _SEARCHED_BYTES)
            words = (ctypes.c_uint64 * (size // 8)).from_address(start)
            for place, word in enumerate(words):
                if lowest <= word < highest and (found := computation(function_at(word))) is not None:
                    stub = self._flagging(found, item, word)
                    if stub is not None:
                        writer()(start + 8 * place, struct.pack("<Q", stub), item.read_only)

    @property
    def _room(self) -> _Stubs:
        if self._stubs is None:
            self._stubs = _Stubs()
        return self._stubs

    def _flagging(self, found: Computation, item: SharedObject, target: int) -> int | None:
        """A stub for a function of somebody else's; None where the slot holds none."""
        file = file_of(target)
        if not file or is_own(file) or not _is_code(target) or len(self._flagged) == _FLAGS_BYTES:
            return None
        self._flagged.append(Called(found, Path(item.path).name, is_of_torch(file), looked_up=False))
        return self._room.noting_call(len(self._flagged) - 1, target)

    def called(self) -> Iterator[Called]:
        """What was called or looked up since this was asked last."""
        if self._stubs is None:
            return
        for number in self._stubs.take_flags():
            yield self._flagged[number]
        for name in self._stubs.take_names():
            found = computation(name)
            if found is not None and (item := self._definer(name)) is not None:
                yield Called(found, "a shared object", is_of_torch(item.path), looked_up=True)

    def _definer(self, symbol: str) -> SharedObject | None:
        """Whose symbol it is, unless nobody's or the kernel's own."""
        if any(tables.defines(symbol) for tables in self._own):
            return None
        return next((item for item in loaded() if not is_own(item.path) and Tables(item).defines(symbol)), None)


class _Stubs:
    """Memory for stubs and for what they note."""

    def __init__(self) -> None:
        self._code = mmap.mmap(-1, _STUBS_BYTES, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._notes = mmap.mmap(-1, _FLAGS_BYTES + 8 + _NAMES * _NAME_BYTES)
        self._code_at, self._notes_at = map(_address, (self._code, self._notes))
        self._used = self._taken = 0

    def noting_call(self, number: int, target: int) -> int:
        """A stub that says that the function ``number`` was called."""
        return self._made(_NOTE_CALL, flag=self._notes_at + number, target=target)

    def noting_name(self, target: int) -> int:
        """A stub for ``dlsym`` that keeps the name."""
        count = self._notes_at + _FLAGS_BYTES
        return self._made(_NOTE_NAME, count=count, names=count + 8, target=target, mask=_NAMES - 1)

    def _made(self, code: str, *, mask: int = 0, **addresses: int) -> int:
        parts = {name: struct.pack("<Q", value).hex() for name, value in addresses.items()}
        content = bytes.fromhex(code.format(**parts, mask=struct.pack("<I", mask).hex()))
        start = self._used
        if start + len(content) > _STUBS_BYTES:
            return addresses["target"]
        self._code[start : start + len(content)] = content
        self._used = (start + len(content) + 15) // 16 * 16
        return self._code_at + start

    def take_flags(self) -> list[int]:
        """The functions that were called, once each."""
        flags = self._notes[:_FLAGS_BYTES]
        if not any(flags):
            return []
        self._notes[:_FLAGS_BYTES] = bytes(_FLAGS_BYTES)
        return [number for number, flag in enumerate(flags) if flag]

    def take_names(self) -> Iterator[str]:
        """The names that were looked up; of more than a thousand the last ones."""
        first = _FLAGS_BYTES + 8
        count = struct.unpack_from("<Q", self._notes, _FLAGS_BYTES)[0]
        for place in range(max(self._taken, count - _NAMES), count):
            start = first + place % _NAMES * _NAME_BYTES
            yield self._notes[start : start + _NAME_BYTES].partition(b"\0")[0].decode(errors="replace")
        self._taken = count


def _address(memory: mmap.mmap) -> int:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # Slots lead here until the process ends.
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _is_code(address: int) -> bool:
    return any(address in part for item in loaded() for part in item.code)


def is_own(path: str) -> bool:
    """Whether an object is neither the system's nor a package's."""
    return bool(path) and not path.startswith((*_SYSTEM, *installed_folders(), sys.base_prefix))


def is_of_torch(path: str) -> bool:
    """Whether an object is torch's own, and not a vendor's that was installed for it."""
    return path.startswith(_LIBRARIES_OF_TORCH) and Path(path).name.startswith(("libtorch", "libc10", "libmkl", "_C"))


def _is_of_other_package(path: str) -> bool:
    """Whether it is a package's object that may compute or look up names for others, as array libraries do."""
    for folder in installed_folders():
        if path.startswith(folder):
            return not path.removeprefix(folder).startswith(_OF_ITSELF)
    return False
