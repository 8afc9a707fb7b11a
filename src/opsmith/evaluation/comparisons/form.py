"""The form of a result against eager's: kind, device, dtype, shape, aliasing and layout.

Each check yields the status and one line for what it finds, or nothing. After the kinds, only
results that are tensors on both sides have a form to check.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsmith.core.case import Outcome, OutputOther, OutputTensor
from opsmith.core.verdict import Status


def kind_problem(
    name: str, mine: OutputTensor | OutputOther, other: OutputTensor | OutputOther
) -> Iterator[tuple[Status, str]]:
    """A tensor where eager returns a number, or the other way round."""
    if _kind(mine) != _kind(other):
        yield Status.WRONG_STRUCTURE, f"{name} is a {_kind(other)}, eager's is a {_kind(mine)}"


def device_problem(name: str, mine: OutputTensor, other: OutputTensor) -> Iterator[tuple[Status, str]]:
    """A tensor on another device than eager's."""
    if mine.device != other.device:
        yield Status.WRONG_DEVICE, f"{name} is on {other.device}, eager's is on {mine.device}"


def dtype_problem(name: str, mine: OutputTensor, other: OutputTensor) -> Iterator[tuple[Status, str]]:
    """Another dtype than eager's."""
    if mine.dtype != other.dtype:
        yield Status.WRONG_DTYPE, f"{name} has dtype {other.dtype}, eager's has {mine.dtype}"


def shape_problem(name: str, mine: OutputTensor, other: OutputTensor) -> Iterator[tuple[Status, str]]:
    """Another shape than eager's."""
    if mine.shape != other.shape:
        yield Status.WRONG_SHAPE, f"{name} has shape {list(other.shape)}, eager's has {list(mine.shape)}"


def alias_problem(name: str, mine: OutputTensor, other: OutputTensor) -> Iterator[tuple[Status, str]]:
    """Memory shared with an input or another result where eager shares none, or the other way round."""
    if other.input_storage is not None and mine.input_storage is None:
        yield Status.ALIASED_OUTPUT, f"{name} shares memory with an input, eager's is a new tensor"
    elif mine.input_storage is not None and other.input_storage != mine.input_storage:
        yield Status.ALIASED_OUTPUT, f"{name} is a new tensor, eager's shares memory with an input"
    elif other.output is not None and mine.output is None:
        yield Status.ALIASED_OUTPUT, f"{name} shares memory with result {other.output}, eager's does not"
    elif mine.input_storage is not None and mine.offset != other.offset:
        yield Status.ALIASED_OUTPUT, f"{name} starts at element {other.offset} of its storage, eager's at {mine.offset}"


def stride_problem(name: str, mine: OutputTensor, other: OutputTensor, layout: str) -> Iterator[tuple[Status, str]]:
    """Strides that the layout rule (``dense`` or ``exact``) does not allow beside eager's."""
    if mine.layout != other.layout:
        yield Status.WRONG_STRIDE, f"{name} has layout {other.layout}, eager's has {mine.layout}"
    elif _significant(mine) == _significant(other):
        return
    elif layout == "exact" or mine.input_storage is not None:
        yield Status.WRONG_STRIDE, f"{name} has strides {other.strides}, eager's has {mine.strides}"
    elif _is_dense(mine) and not _is_dense(other):
        yield Status.WRONG_STRIDE, f"{name} has strides {other.strides}: not dense, as eager's {mine.strides} is"


def type_problem(name: str, mine: OutputTensor, other: OutputTensor) -> Iterator[tuple[Status, str]]:
    """Another class than eager's, or a result that autograd follows where it does not follow eager's."""
    if other.is_parameter and not mine.is_parameter:
        yield Status.WRONG_STRUCTURE, f"{name} is a torch.nn.Parameter, eager's is a torch.Tensor"
    elif other.requires_grad and not mine.requires_grad:
        yield Status.WRONG_STRUCTURE, f"{name} requires grad, eager's does not"


def bits_problem(name: str, mine: OutputTensor, other: OutputTensor) -> Iterator[tuple[Status, str]]:
    """Memory that its readers have to conjugate or negate, where eager's is as it is read, or the other way in a view.

    Kernels read memory as it is, and so do all who take its address.
    """
    for attribute, verb in (("is_conj", "conjugate"), ("is_neg", "negative")):
        theirs, ours = getattr(other, attribute), getattr(mine, attribute)
        if theirs and not ours:
            yield Status.WRONG_STRUCTURE, f"{name} has its {verb} bit set, eager's has not"
        elif ours and not theirs and other.input_storage is not None:
            yield Status.WRONG_STRUCTURE, f"{name} has no {verb} bit, eager's view has"


def layout_differs(ours: Outcome, theirs: Outcome) -> bool:
    """Whether some result is laid out otherwise than eager's."""
    return any(
        isinstance(mine, OutputTensor) and isinstance(other, OutputTensor) and _significant(mine) != _significant(other)
        for mine, other in zip(ours.outputs, theirs.outputs, strict=True)
    )


def _significant(output: OutputTensor) -> tuple[int, ...]:
    """Strides of the dimensions that have any: sizes of 0 and 1 leave them undefined."""
    if 0 in output.shape:
        return ()
    return tuple(stride for size, stride in zip(output.shape, output.strides, strict=True) if size != 1)


def _is_dense(output: OutputTensor) -> bool:
    """Whether the elements fill a block of memory without gaps or overlaps, in any order."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(output.shape, output.strides, strict=True)):
        if size == 0:
            return True
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _kind(output: OutputTensor | OutputOther) -> str:
    return "tensor" if isinstance(output, OutputTensor) else output.kind


def kinds(outcome: Outcome) -> str:
    """What an outcome's results are, in one line."""
    kinds = [_kind(output) for output in outcome.outputs]
    if "{" in outcome.structure:
        return outcome.structure
    return kinds[0] if outcome.structure == "*" else f"({', '.join(kinds)})"
