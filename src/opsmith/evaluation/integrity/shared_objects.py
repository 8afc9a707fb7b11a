"""The shared objects of this process, as the dynamic linker has them: what they are bound to, and by which slots."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_LIBC = ctypes.CDLL(None)
_LOAD, _DYNAMIC, _RELRO = 1, 2, 0x6474E552
_EXECUTABLE, _WRITABLE = 1, 2
# Of an object's dynamic section.
_PLT_BYTES, _STRINGS, _SYMBOLS, _RELA, _RELA_BYTES, _STRINGS_BYTES, _PLT = 2, 5, 6, 7, 8, 10, 23
#: x86-64's relocations that put a symbol's address into a slot: R_X86_64_64, GLOB_DAT, JUMP_SLOT.
_SLOTS = frozenset({1, 6, 7})
_FUNCTION = 2
_DYNAMIC_ENTRY = struct.Struct("<qQ")
_RELOCATION = struct.Struct("<QQq")
_SYMBOL = struct.Struct("<IBBHQQ")


class _Segment(ctypes.Structure):
    _fields_ = (
        *(("type", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("offset", ctypes.c_uint64)),
        *(("address", ctypes.c_uint64), ("physical", ctypes.c_uint64), ("file_bytes", ctypes.c_uint64)),
        *(("memory_bytes", ctypes.c_uint64), ("alignment", ctypes.c_uint64)),
    )


class _Listed(ctypes.Structure):
    _fields_ = (
        *(("base", ctypes.c_uint64), ("name", ctypes.c_char_p), ("segments", ctypes.POINTER(_Segment))),
        *(("count", ctypes.c_uint16), ("loaded_ever", ctypes.c_uint64)),
    )


class _Place(ctypes.Structure):
    _fields_ = (
        *(("file", ctypes.c_char_p), ("base", ctypes.c_void_p)),
        *(("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Listed), ctypes.c_size_t, ctypes.c_void_p)


class SharedObject(NamedTuple):
    """One that is loaded.

    Attributes:
        path: as it was opened.
        base: what its addresses are relative to.
        code: the ranges of its machine code.
        data: the ranges that it writes to.
        dynamic: address of its dynamic section; 0 if it has none.
        read_only: what the linker makes read-only when the slots are filled, as a range.
    """

    path: str
    base: int
    code: tuple[range, ...]
    data: tuple[range, ...]
    dynamic: int
    read_only: range


class Slot(NamedTuple):
    """A place that holds the address of a symbol that an object imports."""

    symbol: str
    address: int


def loaded_ever() -> int:
    """How many objects were loaded so far, those that are gone included; takes some microseconds."""
    counts: list[int] = []

    def first(listed: Any, _size: int, _data: Any) -> int:
        counts.append(listed.contents.loaded_ever)
        return 1

    _LIBC.dl_iterate_phdr(_CALLBACK(first), None)
    return counts[0]


def loaded() -> list[SharedObject]:
    """All that are loaded now."""
    found: list[SharedObject] = []

    def add(listed: Any, _size: int, _data: Any) -> int:
        found.append(_described(listed.contents))
        return 0

    _LIBC.dl_iterate_phdr(_CALLBACK(add), None)
    return found


def _described(listed: Any) -> SharedObject:
    code: list[range] = []
    data: list[range] = []
    dynamic, read_only = 0, range(0)
    for number in range(listed.count):
        segment = listed.segments[number]
        start = listed.base + segment.address
        if segment.type == _LOAD:
            part = range(start, start + segment.memory_bytes)
            (code if segment.flags & _EXECUTABLE else data if segment.flags & _WRITABLE else []).append(part)
        elif segment.type == _DYNAMIC:
            dynamic = start
        elif segment.type == _RELRO:
            read_only = range(start, start + segment.memory_bytes)
    path = (listed.name or b"").decode(errors="replace")
    return SharedObject(path, listed.base, tuple(code), tuple(data), dynamic, read_only)


class Tables:
    """The dynamic tables of a loaded object."""

    def __init__(self, item: SharedObject) -> None:
        self._base = item.base
        self._entries = dict(_dynamic_entries(item.dynamic)) if item.dynamic else {}
        self.strings = self._memory(_STRINGS, self._entries.get(_STRINGS_BYTES, 0))

    def _memory(self, tag: int, size: int) -> bytes:
        return ctypes.string_at(self._address(tag), size) if tag in self._entries and size else b""

    def _address(self, tag: int) -> int:
        """What the linker has relocated, but of the object that the kernel of the system provides."""
        value = self._entries.get(tag, 0)
        return value if value >= self._base else self._base + value

    def imports(self) -> Iterator[Slot]:
        """The slots of symbols that it does not define itself."""
        for tag, size in ((_RELA, _RELA_BYTES), (_PLT, _PLT_BYTES)):
            table = self._memory(tag, self._entries.get(size, 0))
            for offset, info, _ in _RELOCATION.iter_unpack(table[: len(table) // 24 * 24]):
                if info & 0xFFFFFFFF in _SLOTS and (number := info >> 32):
                    name, section = self._symbol(number)
                    if section == 0:
                        yield Slot(name, self._base + offset)

    def defines(self, symbol: str) -> bool:
        """Whether it has a symbol of that name that is its own."""
        encoded = symbol.encode()
        if b"\0" + encoded + b"\0" not in self.strings:
            return False
        return any(section and name == symbol for name, section in map(self._symbol, range(self._count)))

    def functions(self, *beginnings: bytes) -> tuple[list[range], ...]:
        """For each of these beginnings of names, where its own functions lie that are called so.

        A torch with CUDA has a million symbols: with a tuple for each, and a pass for each beginning, they took 11 s of
        a slow processor.
        """
        groups = {
            match.start() + 1: group
            for group, beginning in enumerate(beginnings)
            for match in re.finditer(rb"\0" + re.escape(beginning), self.strings)
        }
        found: tuple[list[range], ...] = tuple([] for _ in beginnings)
        table = ctypes.string_at(self._address(_SYMBOLS), self._count * _SYMBOL.size)
        names = memoryview(table).cast("I")[:: _SYMBOL.size // 4].tolist()
        for number in [number for number, name in enumerate(names) if name in groups]:
            name, kind, _, section, value, size = _SYMBOL.unpack_from(table, number * _SYMBOL.size)
            if section and kind & 15 == _FUNCTION:
                found[groups[name]].append(range(self._base + value, self._base + value + size))
        return found

    @property
    def _count(self) -> int:
        """Of symbols. Their table does not say; in every object that linkers make, the strings follow it."""
        return max(self._address(_STRINGS) - self._address(_SYMBOLS), 0) // _SYMBOL.size

    def _symbol(self, number: int) -> tuple[str, int]:
        """Name and section of a symbol; section 0 is another object's."""
        entry = ctypes.string_at(self._address(_SYMBOLS) + number * _SYMBOL.size, _SYMBOL.size)
        name, _, _, section, _, _ = _SYMBOL.unpack(entry)
        return self.strings[name : self.strings.find(b"\0", name)].decode(errors="replace"), section


def _dynamic_entries(address: int) -> Iterator[tuple[int, int]]:
    while True:
        tag, value = _DYNAMIC_ENTRY.unpack(ctypes.string_at(address, _DYNAMIC_ENTRY.size))
        if tag == 0:
            return
        yield tag, value
        address += _DYNAMIC_ENTRY.size


def file_of(address: int) -> str:
    """The object that an address lies in; empty if it lies in none."""
    place = _Place()
    found = _LIBC.dladdr(ctypes.c_void_p(address), ctypes.byref(place))
    return place.file.decode(errors="replace") if found and place.file else ""


def function_at(address: int) -> str:
    """The exported function that begins at an address; empty if none does."""
    place = _Place()
    found = _LIBC.dladdr(ctypes.c_void_p(address), ctypes.byref(place))
    return place.symbol.decode(errors="replace") if found and place.symbol and place.address == address else ""


@functools.cache
def writer() -> Callable[[int, bytes, range], None]:
    """What writes to memory that may be read-only: an address, the bytes, and the range that is read-only."""
    page = _LIBC.getpagesize()

    def write(address: int, content: bytes, read_only: range) -> None:
        start = address // page * page
        size = (address + len(content) - start + page - 1) // page * page
        protected = address in read_only
        if protected and _LIBC.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), 3):
            return
        ctypes.memmove(address, content, len(content))
        if protected:
            _LIBC.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), 1)

    return write
