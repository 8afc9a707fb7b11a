"""Memory between device and host: many small pieces with one copy, large ones through one small buffer.

Every copy from a device waits for it; where many processes share one, each wait is a turn in a
queue. Pieces are snapshots: they are copied on the device when they are added, so what runs
afterwards changes nothing in them.

Host memory of a large piece's size would be new to the process each time: the kernel clears every page of it, which
takes longer than the copy. So large pieces go through a buffer that stays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator
from functools import cache
from io import BufferedIOBase, BufferedReader, BytesIO
from typing import TypeAlias

import torch

#: A larger piece is copied by itself: putting it together with others would take its size again.
LARGE_BYTES = 4 << 20
#: Size of the buffer between host and device.
STAGED_BYTES = 8 << 20

#: Bytes, or a flat tensor of bytes that lies somewhere.
Content: TypeAlias = bytes | torch.Tensor


class HostBytes:
    """Collects pieces of memory as bytes; those on the host are read at once."""

    def __init__(self) -> None:
        self._pieces: list[bytes | torch.Tensor] = []
        self._waiting_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes on a device that :meth:`collect` will bring."""
        return self._waiting_bytes

    def add_storage(self, storage: torch.UntypedStorage) -> int:
        """Add a storage's whole content; returns the piece's number."""
        if storage.device.type == "cpu":
            return self._add(storage_bytes(storage))
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
        flat.set_(storage, 0, (storage.nbytes(),), (1,))
        return self._add(flat.clone())

    def add_elements(self, tensor: torch.Tensor) -> int:
        """Add a tensor's elements in row-major order, conjugation and negation applied."""
        if tensor.numel() == 0:
            return self._add(b"")
        dense = tensor.detach().resolve_conj().resolve_neg()
        if tensor.device.type == "cpu":
            dense = dense.contiguous()
            return self._add(ctypes.string_at(dense.data_ptr(), dense.numel() * dense.element_size()))
        return self._add(dense.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8))

    def _add(self, piece: bytes | torch.Tensor) -> int:
        self._pieces.append(piece)
        if isinstance(piece, torch.Tensor):
            self._waiting_bytes += piece.numel()
        return len(self._pieces) - 1

    def piece(self, number: int) -> bytes | torch.Tensor:
        """A piece as it is kept: bytes, or a flat tensor of bytes on its device."""
        return self._pieces[number]

    def size_bytes(self, number: int) -> int:
        """Bytes of a piece."""
        piece = self._pieces[number]
        return len(piece) if isinstance(piece, bytes) else piece.numel()

    def collect(self, wanted: Collection[int] | None = None) -> dict[int, bytes]:
        """The content of pieces, by number; waits for the device once, and for each large piece.

        Args:
            wanted: numbers of pieces; None for all.
        """
        return {number: as_bytes(content) for number, content in self.contents(wanted).items()}

    def contents(self, wanted: Collection[int] | None = None) -> dict[int, Content]:
        """:meth:`collect`, but large pieces stay on their device: waits for it once."""
        chosen = range(len(self._pieces)) if wanted is None else sorted(wanted)
        pieces = {number: self._pieces[number] for number in chosen}
        small = [piece for piece in pieces.values() if isinstance(piece, torch.Tensor) and piece.numel() <= LARGE_BYTES]
        together = torch.cat(small).cpu() if small else torch.empty(0, dtype=torch.uint8)
        end = 0
        contents: dict[int, Content] = {}
        for number, piece in pieces.items():
            if isinstance(piece, bytes) or piece.numel() > LARGE_BYTES:
                contents[number] = piece
            else:
                contents[number] = as_bytes(together[end : end + piece.numel()])
                end += piece.numel()
        return contents


def as_bytes(content: Content) -> bytes:
    """A content as bytes of its own."""
    if isinstance(content, bytes):
        return content
    if content.numel() > LARGE_BYTES:
        stream = BytesIO()
        write_content(stream, content)
        return stream.getvalue()
    flat = content.cpu()
    return ctypes.string_at(flat.data_ptr(), flat.numel()) if flat.numel() else b""


def size_of(content: Content) -> int:
    """Size of a content in bytes."""
    return len(content) if isinstance(content, bytes) else content.numel()


def are_equal(one: Content, other: Content) -> bool:
    """Whether two contents are the same, bit for bit; two tensors lie on one device."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return as_bytes(one) == as_bytes(other)


def to_device(content: bytes, device: torch.device) -> torch.Tensor:
    """Bytes as a flat tensor of its own on a device other than the CPU."""
    flat = torch.empty(len(content), dtype=torch.uint8, device=device)
    copy_to_device(content, flat)
    return flat


def copy_to_device(content: bytes, flat: torch.Tensor) -> None:
    """Write bytes into a flat tensor of as many on a device other than the CPU."""
    source = memoryview(content)
    start = 0
    for part, buffer, view in _staged(flat):
        view[:] = source[start : start + len(view)]
        part.copy_(buffer)
        start += len(view)


def read_content(stream: BufferedReader, size_bytes: int, device: torch.device) -> Content:
    """The next bytes of a stream; what is large becomes a flat tensor on a device other than the CPU.

    Raises:
        EOFError: it has fewer.
    """
    if device.type == "cpu" or size_bytes <= LARGE_BYTES:
        data = stream.read(size_bytes)
        if len(data) != size_bytes:
            raise EOFError("the file ends too early")
        return data
    flat = torch.empty(size_bytes, dtype=torch.uint8, device=device)
    for part, buffer, view in _staged(flat):
        if stream.readinto(view) != len(view):
            raise EOFError("the file ends too early")
        part.copy_(buffer)
    return flat


def write_content(stream: BufferedIOBase, content: Content) -> None:
    """Write a content, wherever it lies."""
    if isinstance(content, bytes):
        stream.write(content)
        return
    for part, buffer, view in _staged(content):
        buffer.copy_(part)
        stream.write(view)


def _staged(flat: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, memoryview]]:
    """Each part of a flat tensor, with as much of the buffer, as a tensor and as memory."""
    buffer = _buffer(pinned=flat.device.type == "cuda")
    memory = buffer.numpy().data
    for part in flat.split(STAGED_BYTES) if flat.numel() else ():
        yield part, buffer[: part.numel()], memory[: part.numel()]


@cache
def _buffer(*, pinned: bool) -> torch.Tensor:
    return torch.empty(STAGED_BYTES, dtype=torch.uint8, pin_memory=pinned)


def storage_bytes(storage: torch.UntypedStorage) -> bytes:
    """A copy of a storage's content, from any device."""
    on_host = storage if storage.device.type == "cpu" else storage.cpu()
    return ctypes.string_at(on_host.data_ptr(), on_host.nbytes()) if on_host.nbytes() else b""
