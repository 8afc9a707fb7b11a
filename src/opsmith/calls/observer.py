"""Observing a call: everything it returned and every input byte it changed, as plain data.

Worker and referee use the same code, so a difference between their outcomes is a difference
between kernel and eager. A generated input is generated again to see whether it changed: that takes
its size once more for a moment; a large input on a device is held against a copy that :func:`before_call` makes there.
Only what did change is kept. Large results on a
device can be told by a summary instead, which is equal where outcomes are (:mod:`.digests`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import torch

from opsmith.calls.digests import digest_memory
from opsmith.calls.live import LiveCall, dtype_name
from opsmith.calls.outcomes import HeldOutcome
from opsmith.calls.synthetic import generate, same_content
from opsmith.calls.transfer import LARGE_BYTES, Content, HostBytes, are_equal
from opsmith.core.case import ComplexValue, GeneratedStorage, Outcome, OutputOther, OutputTensor, Storage

#: Results above this are described but not copied: no case asks for one, so the shape is wrong.
MAX_RESULT_BYTES = 16 << 30
#: Outcomes with more than this on a device are summarised where that is enough.
SUMMARISED_BYTES = 1 << 20


class Observer:
    """Takes in calls one after another and describes them all, with one wait for the device."""

    def __init__(self) -> None:
        self._memory = HostBytes()
        self._kept: list[Observed] = []

    def describe(self, result: Any, call: LiveCall, before: Before) -> Observed:
        """Take a snapshot of what a call returned and of its inputs.

        Args:
            result: the call's return value.
            call: the live arguments, after the call.
            before: the storages of the arguments as they were before; none if nobody asks what has changed.
        """
        leaves: list[Any] = []
        structure = _flatten(result, leaves)
        outputs = _describe_leaves(leaves, call, self._memory)
        inputs = [self._look_at(storage, then) for storage, then in zip(call.storages, before, strict=False)]
        return Observed(structure, outputs, inputs, [then if isinstance(then, bytes) else None for then in before])

    def _look_at(self, storage: torch.UntypedStorage, before: Storage | torch.UntypedStorage) -> int | None:
        """Number of the piece that holds a storage's content, or None if it is known not to have changed."""
        if isinstance(before, bytes):
            return self._memory.add_storage(storage)
        content = generate(before, storage.device) if isinstance(before, GeneratedStorage) else before
        return None if same_content(storage, content) else self._memory.add_storage(storage)

    def keep(self, observed: Sequence[Observed]) -> None:
        """Add to what :meth:`outcomes` gives."""
        self._kept.extend(observed)

    def outcomes(self) -> list[Outcome]:
        """The outcomes that were kept, in order, with all of their content."""
        return [held.outcome() for held in self.all_held()]

    def all_held(self) -> list[HeldOutcome]:
        """The outcomes that were kept, in order; what is large stays where it is."""
        contents = self._memory.contents()
        return [observed.resolve(contents) for observed in self._kept]

    def forms(self) -> list[Outcome]:
        """The outcomes without their content, which takes no waiting."""
        return [observed.form() for observed in self._kept]

    def held(self, number: int) -> HeldOutcome:
        """One of them; what is large, and what the others hold, stays where it is."""
        observed = self._kept[number]
        return observed.resolve(self._memory.contents(observed.pieces()))

    def writes(self) -> list[bool]:
        """For each call whether it gave a result in memory of its own, or changed an argument."""
        kept = [{} if observed.has_new_result() else observed.inputs_before() for observed in self._kept]
        unsure = [number for pieces in kept for number, before in pieces.items() if before is not None]
        contents = self._memory.contents(unsure) if unsure else {}
        return [
            observed.has_new_result()
            or any(before is None or not are_equal(contents[number], before) for number, before in pieces.items())
            for observed, pieces in zip(self._kept, kept, strict=True)
        ]

    def summaries(self) -> list[bytes | None]:
        """For each outcome its summary, or None where it is small: equal outcomes have equal summaries."""
        digests: dict[int, torch.Tensor] = {}
        for observed in self._kept:
            if self._is_large(observed):
                for number in observed.pieces():
                    piece = self._memory.piece(number)
                    assert isinstance(piece, torch.Tensor)
                    digests[number] = digest_memory(piece)
        known = torch.stack(list(digests.values())).tolist() if digests else []
        # With its size: zeros at the end of a storage do not show in a digest.
        told = {
            number: (self._memory.size_bytes(number), *digest) for number, digest in zip(digests, known, strict=True)
        }
        return [observed.summary(told) if self._is_large(observed) else None for observed in self._kept]

    def _is_large(self, observed: Observed) -> bool:
        """Whether an outcome lies on a device as a whole, and is worth leaving there."""
        pieces = [self._memory.piece(number) for number in observed.pieces()]
        size = sum(piece.numel() for piece in pieces if isinstance(piece, torch.Tensor))
        return size > SUMMARISED_BYTES and not any(isinstance(piece, bytes) for piece in pieces)


#: The storages of a call before it ran: by their content, by what that follows from, or as they are kept.
Before: TypeAlias = Sequence[bytes | GeneratedStorage | torch.UntypedStorage]


def before_call(storages: Sequence[torch.UntypedStorage], contents: Sequence[Storage]) -> Before:
    """What to hold the storages of a call against after it, given what they hold now.

    Large ones on a device are copied there: else each would have to come to the host to show that it has not changed.
    """
    return [
        storage.clone()
        if isinstance(content, bytes) and storage.device.type != "cpu" and storage.nbytes() > LARGE_BYTES
        else content
        for storage, content in zip(storages, contents, strict=True)
    ]


class Observed(NamedTuple):
    """A call whose memory is on its way to the host."""

    structure: str
    #: An output and the number of the piece of memory that holds its elements.
    outputs: list[tuple[OutputTensor | OutputOther, int | None]]
    #: For each input the piece with its content, or None if it has not changed.
    inputs: list[int | None]
    #: What each input was, or None if a piece is kept of it only where it has changed.
    before: list[bytes | None]

    def pieces(self) -> list[int]:
        """Numbers of all pieces of memory that belong to it."""
        return [piece for piece in (*(piece for _, piece in self.outputs), *self.inputs) if piece is not None]

    def has_new_result(self) -> bool:
        """Whether a result has elements in memory that is no argument's."""
        tensors = [output for output, _ in self.outputs if isinstance(output, OutputTensor)]
        return any(output.input_storage is None and 0 not in output.shape for output in tensors)

    def inputs_before(self) -> dict[int, bytes | None]:
        """What the inputs were that may have changed, by the numbers of the pieces with what they are."""
        return {piece: self.before[number] for number, piece in enumerate(self.inputs) if piece is not None}

    def form(self) -> Outcome:
        """The outcome without any content, which is there without waiting for the device."""
        return Outcome(structure=self.structure, outputs=tuple([output for output, _ in self.outputs]), changed={})

    def summary(self, digests: Mapping[int, Sequence[int]]) -> bytes:
        """What stands for the whole of it, given the digests of its pieces."""
        contents = [None if piece is None else digests[piece] for _, piece in self.outputs]
        changed = [None if piece is None else digests[piece] for piece in self.inputs]
        return hashlib.blake2b(msgspec.msgpack.encode((self.form(), contents, changed)), digest_size=16).digest()

    def resolve(self, contents: Mapping[int, Content]) -> HeldOutcome:
        """The outcome, given the content of its pieces."""
        changed = {}
        for number, (piece, before) in enumerate(zip(self.inputs, self.before, strict=False)):
            if piece is not None and (before is None or not are_equal(contents[piece], before)):
                changed[number] = contents[piece]
        elements = [b"" if piece is None else contents[piece] for _, piece in self.outputs]
        return HeldOutcome(form=self.form(), elements=tuple(elements), changed=changed)


def _flatten(result: Any, leaves: list[Any]) -> str:
    # ATen's lists and tuples are one thing to a caller, so they are not told apart.
    if isinstance(result, (list, tuple)):
        return "(" + ",".join([_flatten(item, leaves) for item in result]) + ")"
    if isinstance(result, dict):  # Of a module; its own order means nothing.
        items = [f"{key!a}:{_flatten(value, leaves)}" for key, value in sorted_items(result)]
        return "{" + ",".join(items) + "}"
    leaves.append(result)
    return "*"


def _describe_leaves(
    leaves: list[Any], call: LiveCall, memory: HostBytes
) -> list[tuple[OutputTensor | OutputOther, int | None]]:
    described: list[tuple[OutputTensor | OutputOther, int | None]] = []
    spans: list[tuple[int, int]] = []
    input_spans = [_span(storage) for storage in call.storages]
    for leaf in leaves:
        if type(leaf) is torch.Tensor or type(leaf) is torch.nn.Parameter:
            span = _span(leaf.untyped_storage()) if leaf.layout is torch.strided else (0, 0)
            output = _describe_tensor(leaf, _overlapping(span, input_spans), _overlapping(span, spans))
            described.append((output, memory.add_elements(leaf) if _is_readable(leaf) else None))
            spans.append(span)
        else:
            described.append((_describe_other(leaf), None))
            spans.append((0, 0))
    return described


def _describe_tensor(tensor: torch.Tensor, input_storage: int | None, output: int | None) -> OutputTensor:
    strided = tensor.layout is torch.strided
    return OutputTensor(
        dtype=dtype_name(tensor.dtype),
        shape=tuple(tensor.shape),
        strides=tensor.stride() if strided else (),
        offset=int(tensor.storage_offset()) if strided else 0,
        device=tensor.device.type,
        layout=str(tensor.layout).removeprefix("torch."),
        input_storage=input_storage,
        output=output,
        data=b"",
        is_conj=tensor.is_conj(),
        is_neg=tensor.is_neg(),
        requires_grad=tensor.requires_grad,
        is_parameter=type(tensor) is torch.nn.Parameter,
    )


def _is_readable(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return False
    return tensor.numel() * tensor.element_size() <= MAX_RESULT_BYTES


def _describe_other(leaf: Any) -> OutputOther:
    kind = type(leaf).__name__
    if isinstance(leaf, complex):
        return OutputOther(kind, ComplexValue(leaf.real, leaf.imag))
    return OutputOther(kind, leaf if type(leaf) in (bool, int, float, str) else None)


def _span(storage: torch.UntypedStorage) -> tuple[int, int]:
    start = storage.data_ptr()
    return start, start + storage.nbytes()


def _overlapping(span: tuple[int, int], others: list[tuple[int, int]]) -> int | None:
    # By address, not by storage object: a kernel can wrap the same memory in another storage.
    for number, other in enumerate(others):
        if max(span[0], other[0]) < min(span[1], other[1]):
            return number
    return None


def sorted_items(result: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """The items of a result in the order of their keys' text."""
    return sorted(result.items(), key=lambda item: ascii(item[0]))
