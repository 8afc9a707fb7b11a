"""What a worker says that a call returned, held against eager's answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from opsmith.calls.live import item_bytes
from opsmith.calls.observer import MAX_RESULT_BYTES
from opsmith.calls.outcomes import HeldOutcome
from opsmith.calls.transfer import Content, size_of
from opsmith.core.case import Outcome, OutputTensor, SummarisedOutcome
from opsmith.core.dtypes import TENSOR_DTYPES
from opsmith.core.evidence import ErrorMap
from opsmith.core.verdict import Status
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement
from opsmith.runner.child.outcome_files import read_outcome, read_outcome_of_ranks
from opsmith.runner.protocol.referee_messages import Compare, ComparedCase, CompareTimed
from opsmith.runner.protocol.worker_messages import OUT_OF_PROTOCOL

#: What :func:`read_told` raises.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError, EOFError)


def compared(
    held: CaseUnderJudgement, outcomes: Sequence[msgspec.Raw], request: Compare | CompareTimed
) -> ComparedCase | None:
    """What was found for one case; None where a summary leaves it open."""
    try:
        told = [read_told(outcome, request, held.device) for outcome in outcomes]
    except UNREADABLE:
        told = []
    candidate = [outcome for outcome in told if isinstance(outcome, HeldOutcome)]
    if len(told) != held.repeats or not all(map(_is_well_formed, candidate)):
        return ComparedCase(Status.CRASHED, OUT_OF_PROTOCOL, None, layout_differs=False)
    if len(candidate) < len(told):
        summaries = [outcome.summary for outcome in told if isinstance(outcome, SummarisedOutcome)]
        equal = not candidate and all(map(held.is_equal_to, summaries))
        return ComparedCase(Status.PASSED, "", None, layout_differs=False) if equal else None
    found = held.judge(candidate, tolerance=request.tolerance, layout=request.layout)
    return ComparedCase(found.status, found.detail, found.figures, found.layout_differs)


def mapped(held: CaseUnderJudgement, outcome: msgspec.Raw, request: Compare) -> ErrorMap | None:
    """Where an outcome is off; None where it is not, or says nothing that can be compared."""
    try:
        told = read_told(outcome, request, held.device)
    except UNREADABLE:
        return None
    if not isinstance(told, HeldOutcome) or not _is_well_formed(told):
        return None
    return held.error_map(told, tolerance=request.tolerance, layout=request.layout)


def read_told(
    message: msgspec.Raw, request: Compare | CompareTimed, device: torch.device
) -> HeldOutcome | SummarisedOutcome:
    """What a worker, or all ranks together, said of one execution; large content goes to ``device``.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is no outcome.
        OSError, EOFError: a file that is named is not there, or is no plain file of that size.
    """
    if request.rank_folders:
        return read_outcome_of_ranks(message, [Path(folder) for folder in request.rank_folders], device)
    return read_outcome(message, Path(request.folder), device)


def _is_well_formed(outcome: HeldOutcome) -> bool:
    """Whether a worker's outcome has as many leaves, and its tensors the bytes, that it claims.

    A kernel can write its own reply.
    """
    form = outcome.form
    return form.structure.count("*") == len(form.outputs) == len(outcome.elements) and all(
        _has_its_bytes(output, content) if isinstance(output, OutputTensor) else not size_of(content)
        for output, content in zip(form.outputs, outcome.elements, strict=True)
    )


def _has_its_bytes(output: OutputTensor, content: Content) -> bool:
    if output.layout != "strided" or output.device == "meta":
        return not size_of(content)
    if len(output.strides) != len(output.shape) or min(output.shape, default=0) < 0:
        return False
    if output.dtype not in TENSOR_DTYPES:
        return True  # Of no dtype that a record has, so it will differ from eager's.
    size_bytes = tensor_bytes(output)
    return size_of(content) == (size_bytes if size_bytes <= MAX_RESULT_BYTES else 0)


def tensor_bytes(output: OutputTensor) -> int:
    """Bytes of a result's elements; none of one that has no strided memory."""
    if output.layout != "strided" or output.dtype not in TENSOR_DTYPES:
        return 0
    return math.prod(output.shape) * item_bytes(output.dtype)


def result_bytes(form: Outcome) -> tuple[int, ...]:
    """Bytes of each result tensor's elements."""
    return tuple([tensor_bytes(output) for output in form.outputs if isinstance(output, OutputTensor)])
