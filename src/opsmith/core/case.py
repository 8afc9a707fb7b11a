"""Cases: one set of inputs of a task, where it came from, and its serialized arguments.

A call's arguments travel between processes as plain data: a tree of :data:`Value` nodes plus every
distinct storage, so that strides, offsets and aliasing survive the trip. A storage travels as its
raw bytes, or as the rule and the seed that it is generated from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias

import msgspec

from opsmith.core.domains import Domain
from opsmith.core.fresh_values import FreshDraw


class CaseAddress(msgspec.Struct, frozen=True, order=True):
    """Where a case comes from; with the run's seed enough to make it again.

    Attributes:
        suite: the suite's name.
        entry: the generator inside the suite (an OpInfo's full name, a trace row).
        dtype: the dtype asked of the generator, in short form (``bf16``).
        source: which of the entry's generators: ``sample``, ``inplace``, ``out``, ``backward``,
            ``reference``, ``error`` or ``probe``.
        sample: index of the sample inside the source.
        call: index of the ATen call inside the sample.
    """

    suite: str
    entry: str
    dtype: str
    source: str
    sample: int
    call: int

    def __str__(self) -> str:
        return ":".join(map(str, msgspec.structs.astuple(self)))

    @classmethod
    def parse(cls, text: str) -> CaseAddress:
        """Read an address back from its text.

        Raises:
            ValueError: the text is not six fields joined by ``:`` with two trailing numbers.
        """
        head, entry_and_rest = text.split(":", 1)
        entry, dtype, source, sample, call = entry_and_rest.rsplit(":", 4)
        return cls(head, entry, dtype, source, int(sample), int(call))


class CaseRef(msgspec.Struct, frozen=True, kw_only=True):
    """A case as the judge knows it: everything except the values.

    Attributes:
        address: where it comes from.
        op: the overload that it calls.
        signature: hash over op, structure, dtypes, shapes, strides and scalars; equal signatures
            are the same case and are judged once.
        content_hash: hash over the serialized call, values included.
        size_bytes: bytes of all input storages.
        expects_error: eager raises on these arguments, so a kernel must raise too.
        spool: number of the spool file that holds the serialized call.
        offset: first byte of the serialized call in that file.
        length: its number of bytes.
        tolerance: (rtol, atol) that the suite's author declared for this op, or None.
        again: offset and length of the same call with other values, or None if there are none.
        variant: what was varied in a call of the suite to make this one, or None for a call of the suite.
        ranks: processes that make the call together, or None: one makes it.
    """

    address: CaseAddress
    op: str
    signature: str
    content_hash: str
    size_bytes: int
    spool: int
    offset: int
    length: int
    expects_error: bool = False
    tolerance: tuple[float, float] | None = None
    again: tuple[int, int] | None = None
    variant: str | None = None
    ranks: int | None = None


#: What :attr:`CaseRef.variant` is of a variant on large tensors.
LARGE_LABELS = ("vast", "long_row", "many_rows")


class TensorValue(msgspec.Struct, frozen=True, tag="tensor", array_like=True):
    """A tensor: a window on storage number ``storage``; strides and offset count elements."""

    storage: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str
    is_conj: bool = False
    is_neg: bool = False


class SequenceValue(msgspec.Struct, frozen=True, tag="sequence", array_like=True):
    """A list or tuple."""

    items: tuple[Value, ...]
    is_tuple: bool


class NamedValue(msgspec.Struct, frozen=True, tag="named", array_like=True):
    """A torch constant by name: ``kind`` is dtype, device, layout or memory_format."""

    kind: str
    name: str


class ComplexValue(msgspec.Struct, frozen=True, tag="complex", array_like=True):
    """A complex number."""

    real: float
    imag: float


class MappingValue(msgspec.Struct, frozen=True, tag="mapping", array_like=True):
    """A dict with string keys."""

    items: dict[str, Value]


#: One node of an argument tree. Plain numbers, strings and None stand for themselves.
Value: TypeAlias = (
    TensorValue | SequenceValue | NamedValue | ComplexValue | MappingValue | bool | int | float | str | None
)


def tensor_values(values: Sequence[Value]) -> list[TensorValue]:
    """Every tensor of an argument tree, in order."""
    found: list[TensorValue] = []
    for value in values:
        if isinstance(value, TensorValue):
            found.append(value)
        elif isinstance(value, SequenceValue):
            found.extend(tensor_values(value.items))
        elif isinstance(value, MappingValue):
            found.extend(tensor_values(tuple(value.items.values())))
    return found


def map_tensors(value: Value, change: Callable[[TensorValue], TensorValue]) -> Value:
    """An argument tree with every tensor changed."""
    if isinstance(value, TensorValue):
        return change(value)
    if isinstance(value, SequenceValue):
        return SequenceValue(tuple([map_tensors(item, change) for item in value.items]), value.is_tuple)
    if isinstance(value, MappingValue):
        return MappingValue({name: map_tensors(item, change) for name, item in value.items.items()})
    return value


def tensors_by_storage(record: CallRecord) -> dict[int, list[TensorValue]]:
    """The tensors that look at each storage of a call, in order."""
    found: dict[int, list[TensorValue]] = {}
    for tensor in tensor_values((*record.args, *record.kwargs.values())):
        found.setdefault(tensor.storage, []).append(tensor)
    return found


class GeneratedStorage(msgspec.Struct, frozen=True, tag="generated", array_like=True):
    """A storage that is generated where it is needed.

    Attributes:
        size_bytes: all of the storage, which may be more than the window.
        dtype: of its elements.
        shape: of the window through which its tensor looks at it.
        strides: of the window, in elements.
        offset: of the window, in elements.
        domain: what its values are.
        seed: what they follow from; the same seed gives the same values in every process on the
            same device model and torch version.
        fresh: the values of a timed call that are made of these, or None: they are these.
    """

    size_bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    domain: Domain
    seed: int
    fresh: FreshDraw | None = None


#: A storage by its content, or by what the content follows from.
Storage: TypeAlias = bytes | GeneratedStorage


def storage_size(storage: Storage) -> int:
    """Size of a storage in bytes."""
    return storage.size_bytes if isinstance(storage, GeneratedStorage) else len(storage)


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The serialized arguments of one ATen call: an argument tree and its storages."""

    op: str
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    storages: tuple[Storage, ...]


class OutputTensor(msgspec.Struct, frozen=True, tag="tensor"):
    """A result tensor.

    Attributes:
        layout: torch's name of the layout; ``data`` is empty unless it is ``strided``.
        input_storage: number of the input storage whose memory it uses, or None.
        output: number of the earlier result whose memory it shares, or None.
        data: its elements in row-major order.
        is_conj: its elements are the conjugates of what lies in memory.
        is_neg: its elements are what lies in memory, negated.
        requires_grad: autograd follows it.
        is_parameter: it is a ``torch.nn.Parameter``; no other subclass of a tensor is told as a tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str
    layout: str
    input_storage: int | None
    output: int | None
    data: bytes
    is_conj: bool = False
    is_neg: bool = False
    requires_grad: bool = False
    is_parameter: bool = False


class OutputOther(msgspec.Struct, frozen=True, tag="other"):
    """A result that is no tensor.

    A number, a bool, a string or None; for anything else ``value`` is None and ``kind`` its type's
    name.
    """

    kind: str
    value: bool | int | float | str | ComplexValue | None


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome"):
    """What one call returned and changed.

    Attributes:
        structure: nesting of the result with ``*`` for each leaf: ``*``, ``(*,*)``, ``(*,(*,*))``,
            ``{'loss':*}``.
        outputs: the leaves in order.
        changed: input storage number -> its bytes after the call, where they differ.
    """

    structure: str
    outputs: tuple[OutputTensor | OutputOther, ...]
    changed: dict[int, bytes]


class StoredOutcome(msgspec.Struct, frozen=True, tag="stored"):
    """An :class:`Outcome` whose content lies in a file, because it is large.

    Attributes:
        name: of the file in the folder of the process that wrote it.
        form: the outcome without its content.
        elements_bytes: sizes of the results' elements, which stand in the file one after another; 0 for what is no
            tensor.
        changed_bytes: number -> size of each changed input storage, whose contents follow in this order.
    """

    name: str
    form: Outcome
    elements_bytes: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    changed_bytes: dict[int, Annotated[int, msgspec.Meta(ge=0)]]

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return sum((*self.elements_bytes, *self.changed_bytes.values()))


class SummarisedOutcome(msgspec.Struct, frozen=True, tag="summary"):
    """What stands for an :class:`Outcome` that stays on the device: equal outcomes have equal summaries.

    Attributes:
        summary: over form and content of everything that the call returned and changed.
    """

    summary: bytes


def digest(data: bytes) -> str:
    """The 16 hex digits by which opsmith names content (BLAKE2b, 64 bits)."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
