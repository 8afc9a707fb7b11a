"""Running eager: the reference for a case, and the same again where it may not agree with itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from opsmith.aten.low_precision import readable
from opsmith.calls.live import LiveCall, item_bytes, live_call, make_storages
from opsmith.calls.observer import Observer, before_call
from opsmith.calls.outcomes import HeldOutcome
from opsmith.calls.seeding import seed_generators
from opsmith.calls.synthetic import flat_view
from opsmith.core.case import CallRecord, TensorValue, map_tensors
from opsmith.tasks import registry
from opsmith.tasks.module_call import ReferenceCall

#: Garbage put around inputs and into free memory: NaN as a float of any width, then a small number.
GARBAGE_BYTES = (0xFF, 0x40)
#: At most this much garbage on each side of an input, bytes; a multiple of every element's size.
MAX_MARGIN_BYTES = 4 << 20
FREED_BLOCKS = 8
#: Answers that differ by less, relative to the largest number, differ by rounding.
_NEAR = 0.05
#: All blocks of one size together; one block of every size is freed in any case.
MAX_FREED_BYTES = 1 << 30


def run_eager(record: CallRecord, live: LiveCall, seed: int, device: torch.device) -> object:
    """Call what a record names on live arguments under a random state that follows from ``seed``."""
    return _run(registry.reference(record.op), live, seed, device)


def _run(function: Callable[..., Any], live: LiveCall, seed: int, device: torch.device) -> object:
    seed_generators(seed, device)
    with torch.no_grad():
        return function(*live.args, **live.kwargs)


def misreads(record: CallRecord, device: torch.device) -> bool:
    """Whether eager's answer to a call is another one than to the same call on dense tensors, beyond any rounding.

    What it writes into arguments is part of the answer. On a CPU ``triu.out`` into some permutations of a batch is, and
    so are a batch norm with ``out=`` and the noise of ``rrelu_with_noise_``.

    Raises:
        Exception: what eager raises.
    """
    laid_out, dense = (live_call(record, make_storages([record], device)[0], device) for _ in range(2))
    dense.args, dense.kwargs = tree_map_only(torch.Tensor, _dense, (dense.args, dense.kwargs))
    ours, theirs = (
        tree_leaves((run_eager(record, live, 0, device), live.args, live.kwargs)) for live in (laid_out, dense)
    )
    return not all(_is_near(*pair) for pair in zip(ours, theirs, strict=True))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _is_near(one: object, other: object) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or one.shape != other.shape:
        return True  # Numbers, and what is compared by its form.
    one, other = readable(one), readable(other)
    if not one.numel() or not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    wide = torch.complex128 if one.is_complex() else torch.float64
    left, right = one.to(wide), other.to(wide)
    scale = float(right.abs().nan_to_num(0, 0, 0).max())
    return torch.allclose(left, right, rtol=_NEAR, atol=_NEAR * scale, equal_nan=True)


def reference_calls(record: CallRecord) -> tuple[str, ...]:
    """The overloads that the Model of a module task called when it ran last, in order; of an op none.

    Top-level calls as a dispatch mode meets them, those inside an overload left out.
    """
    function = registry.reference(record.op)
    return function.calls if isinstance(function, ReferenceCall) else ()


def observe_eager(
    record: CallRecord, lives: Sequence[LiveCall], seeds: Iterable[int], device: torch.device
) -> list[HeldOutcome]:
    """Run a call on several copies of its arguments, each under a random state that follows from a seed of its own."""
    return observe(registry.reference(record.op), record, lives, seeds, device)


def observe(
    function: Callable[..., Any],
    record: CallRecord,
    lives: Sequence[LiveCall],
    seeds: Iterable[int],
    device: torch.device,
) -> list[HeldOutcome]:
    """As :func:`observe_eager`, of any function in eager's place."""
    observer = Observer()
    for seed, live in zip(seeds, lives, strict=True):
        before = before_call(live.storages, record.storages)
        observer.keep([observer.describe(_run(function, live, seed, device), live, before)])
    return observer.all_held()


def repetitions(
    record: CallRecord, result_bytes: Sequence[int], seed: int, device: torch.device, *, surround: bool
) -> Iterator[HeldOutcome]:
    """Eager again and again on the same values, each time with other garbage in the memory that it has not written.

    The inputs are made once, when the first one is asked for; each repetition gets copies of them.

    Args:
        record: the call.
        result_bytes: its results' sizes; memory of these sizes is filled with garbage and given back.
        seed: of the random state, the same as the first time.
        device: where the call runs.
        surround: put the inputs into the middle of garbage too. Reads beyond an input then show,
            but an explicit storage offset among the arguments would mean another place.
    """
    storages = make_storages([record], device)[0]
    for garbage in itertools.cycle(GARBAGE_BYTES):
        for size in filter(None, result_bytes):
            count = max(1, min(FREED_BLOCKS, MAX_FREED_BYTES // size))
            blocks = [torch.full((size,), garbage, dtype=torch.uint8, device=device) for _ in range(count)]
            del blocks
        if surround:
            live = _surrounded(record, storages, garbage, device)
        else:
            live = live_call(record, [storage.clone() for storage in storages], device)
        observer = Observer()
        # Nobody asks what changed, and among garbage nobody could tell.
        observer.keep([observer.describe(run_eager(record, live, seed, device), live, ())])
        yield observer.held(0)


def _surrounded(
    record: CallRecord, storages: list[torch.UntypedStorage], garbage: int, device: torch.device
) -> LiveCall:
    """Live arguments on larger storages, with each of the given ones in the middle."""
    margins = [min(-(-storage.nbytes() // 64) * 64, MAX_MARGIN_BYTES) for storage in storages]

    def moved(tensor: TensorValue) -> TensorValue:
        elements = margins[tensor.storage] // item_bytes(tensor.dtype)
        return msgspec.structs.replace(tensor, offset=tensor.offset + elements)

    moved_record = msgspec.structs.replace(
        record,
        args=tuple([map_tensors(value, moved) for value in record.args]),
        kwargs={name: map_tensors(value, moved) for name, value in record.kwargs.items()},
    )
    larger = [_with_margins(storage, margin, garbage) for storage, margin in zip(storages, margins, strict=True)]
    return live_call(moved_record, larger, device)


def _with_margins(storage: torch.UntypedStorage, margin: int, garbage: int) -> torch.UntypedStorage:
    size = storage.nbytes()
    larger = torch.full((margin + size + margin,), garbage, dtype=torch.uint8, device=storage.device)
    larger[margin : margin + size] = flat_view(storage, torch.uint8)
    return larger.untyped_storage()
