"""What all comparisons share: one result as a plain tensor, and findings put together."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from opsmith.core.verdict import ErrorFigures, Status
from opsmith.evaluation.criteria.judged_call import LARGE_ELEMENTS, Finding, Result

PASSED = Finding(status=Status.PASSED)


def as_tensor(result: Result) -> torch.Tensor | None:
    """A result as a strided tensor on the CPU; a number becomes one of no dimensions.

    Strings and None have no elements to compare: they give None.
    """
    if isinstance(result, torch.Tensor):
        dense = result if result.layout is torch.strided else result.to_dense()
        return dense.resolve_conj().resolve_neg() if dense.is_complex() or dense.is_neg() else dense
    if isinstance(result, float):
        return torch.tensor(result, dtype=torch.float64)
    if isinstance(result, complex):
        return torch.tensor(result, dtype=torch.complex128)
    return None if result is None or isinstance(result, str) else torch.tensor(result)


_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements, none of them complex, as signed integers of their size.

    For what moves elements: torch selects and gathers no unsigned ones of more than 8 bits.
    """
    return tensor.view(_SIGNED[tensor.element_size()])


def in_double(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, a complex one in complex128."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def near_the_work(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor where comparing it is fast: a large one on the GPU, in a process that uses one."""
    return tensor.cuda() if tensor.numel() >= LARGE_ELEMENTS and torch.cuda.is_initialized() else tensor


def wrong(detail: str, figures: ErrorFigures | None = None) -> Finding:
    """The finding of a result whose values are not what was promised."""
    return Finding(status=Status.WRONG_VALUE, detail=detail, figures=figures)


def position(flat_index: int, shape: Iterable[int]) -> str:
    """Flat index ``flat_index`` of a row-major ``shape``, as a reader would write it."""
    coordinates: list[int] = []
    for size in reversed(tuple(shape)):
        flat_index, coordinate = divmod(flat_index, size)
        coordinates.insert(0, coordinate)
    return f"[{', '.join(map(str, coordinates))}]"


def merge(findings: list[Finding]) -> Finding:
    """One finding for all results of a call: the first failure, with the figures of all of them."""
    if len(findings) == 1:
        return findings[0]
    index = next((index for index, finding in enumerate(findings) if not finding.passed), None)
    figures = _merge_figures([finding.figures for finding in findings if finding.figures is not None])
    if index is None:
        return Finding(status=Status.PASSED, figures=figures)
    return Finding(status=findings[index].status, detail=f"result {index}: {findings[index].detail}", figures=figures)


def _merge_figures(figures: list[ErrorFigures]) -> ErrorFigures | None:
    if not figures:
        return None
    return ErrorFigures(
        max_abs=max(each.max_abs for each in figures),
        max_rel=max(each.max_rel for each in figures),
        mismatched=sum(each.mismatched for each in figures),
        elements=sum(each.elements for each in figures),
        rtol=max(each.rtol for each in figures),
        atol=max(each.atol for each in figures),
        oracle_excused=sum(each.oracle_excused for each in figures),
    )
