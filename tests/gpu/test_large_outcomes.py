"""Results and inputs of many megabytes: compared where they lie, and what crosses a process arrives whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.calls import transfer
from opsmith.calls.live import rebuild
from opsmith.calls.observer import Observer, before_call
from opsmith.calls.outcomes import HeldOutcome
from opsmith.calls.transfer import as_bytes, to_device
from opsmith.core.case import CallRecord, TensorValue
from opsmith.core.verdict import Status
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement
from opsmith.evaluation.criteria.rules import rule_for
from opsmith.evaluation.eager.answers import answers_of
from opsmith.evaluation.eager.reference import repetitions
from opsmith.runner.child.outcome_files import OutcomeWriter, read_outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CUDA = torch.device("cuda")
#: Of four bytes: more than crosses a process in one piece, and no multiple of the buffer.
ELEMENTS = transfer.LARGE_BYTES + 3


def call_on(op: str, elements: int) -> CallRecord:
    """A call on normal numbers."""
    values = torch.randn(elements, generator=torch.Generator().manual_seed(3))
    tensor = TensorValue(0, "f32", (elements,), (1,), 0, "cuda")
    return CallRecord(op=op, args=(tensor,), kwargs={}, storages=(values.numpy().tobytes(),))


def observed(record: CallRecord, function: Callable[..., object]) -> Observer:
    """What a function does with the arguments, seen as referee and worker see it."""
    live = rebuild(record, CUDA)
    before = before_call(live.storages, record.storages)
    observer = Observer()
    observer.keep([observer.describe(function(*live.args), live, before)])
    return observer


@pytest.mark.parametrize("size_bytes", [0, 1, transfer.STAGED_BYTES, 2 * transfer.STAGED_BYTES + 5])
def test_bytes_reach_the_device_and_come_back(tmp_path: Path, size_bytes: int) -> None:
    """Through the buffer, in as many parts as it takes."""
    data = torch.randint(256, (size_bytes,), dtype=torch.uint8).numpy().tobytes()
    there = to_device(data, CUDA)
    assert data == as_bytes(there)
    file = tmp_path / "content"
    with file.open("wb") as stream:
        transfer.write_content(stream, there)
    assert data == file.read_bytes()
    with file.open("rb") as stream:
        assert data == as_bytes(transfer.read_content(stream, size_bytes, CUDA))


@pytest.mark.parametrize("op", ["sigmoid.default", "sigmoid_.default"])
@pytest.mark.parametrize("elements", [ELEMENTS, 1000])
@pytest.mark.parametrize(
    ("status", "candidate"),
    [
        (Status.PASSED, lambda result: result),
        (Status.PASSED, lambda result: result.mul_(1 + 1e-7)),
        (Status.WRONG_VALUE, lambda result: result.add_(1e-2)),
    ],
)
def test_a_result_is_judged_alike_whatever_its_size(
    tmp_path: Path, op: str, elements: int, status: Status, candidate: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Eager's never leaves the device, the candidate's goes through a file."""
    record, schema = call_on(op, elements), aten_schemas()[op]
    function = overload(op)
    [answer] = answers_of(observed(record, function))
    case = CaseUnderJudgement(
        record,
        schema,
        rule_for(schema),
        lambda: [answer.outcome()],
        device=CUDA,
        tolerance=None,
        run_again=lambda: repetitions(record, [4 * elements], 0, CUDA, surround=True),
    )
    sent = observed(record, lambda x: candidate(function(x))).held(0)
    arrived = read_outcome(OutcomeWriter(tmp_path).encode(sent), tmp_path, CUDA)
    assert isinstance(arrived, HeldOutcome)
    large = elements == ELEMENTS
    assert [large] == [isinstance(content, torch.Tensor) for content in answer.outcome().elements]
    assert [large] == [isinstance(content, torch.Tensor) for content in arrived.elements]
    assert status is case.judge([arrived], tolerance="strict", layout="dense").status


@pytest.mark.parametrize("elements", [ELEMENTS, 1000])
def test_an_input_that_did_not_change_is_known_not_to_have(elements: int) -> None:
    """Without bringing a large one to the host; one that did change is found."""
    record = call_on("relu.default", elements)
    assert {} == observed(record, torch.relu).held(0).changed
    assert [0] == list(observed(record, torch.relu_).held(0).changed)
    assert [True, True] == [*observed(record, torch.relu).writes(), *observed(record, torch.relu_).writes()]
    assert [False] == observed(record, lambda x: x.view(-1)).writes()


def test_repetitions_find_their_inputs_as_they_were() -> None:
    """They are made once, and an op that writes to one writes to a copy."""
    record = call_on("relu_.default", ELEMENTS)
    first = observed(record, torch.relu_).held(0)
    for surround in (False, True):
        for again in itertools.islice(repetitions(record, [4 * ELEMENTS], 0, CUDA, surround=surround), 3):
            assert as_bytes(first.elements[0]) == as_bytes(again.elements[0])
