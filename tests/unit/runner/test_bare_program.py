"""What the bare program repeats of opsmith's own modules comes to the same: arguments, outcomes, adapters, modules."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import msgspec
import pytest
import torch

from opsmith.aten.derivation import DerivedKernel
from opsmith.aten.schemas import overload
from opsmith.calls.live import LiveCall, rebuild
from opsmith.calls.observer import Observer
from opsmith.calls.recording import CallRecorder
from opsmith.core.case import CallRecord, Outcome, StoredOutcome
from opsmith.errors import ProtocolError
from opsmith.runner.protocol.bare_messages import described, read_answer
from opsmith.tasks.module_call import CONSTRUCTION_SEED, ModuleCall

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """The program, imported as nobody does who runs it."""
    with mock.patch.dict(os.environ):
        from opsmith.runner.bare import program

    return program


def recorded(function: Any, *args: Any, **kwargs: Any) -> CallRecord:
    """The last call of ATen that a function makes."""
    with CallRecorder(lambda _op, _signature: True) as recorder, torch.no_grad():
        function(*args, **kwargs)
    record = recorder.calls[-1].record
    assert isinstance(record, CallRecord)
    return record


def sent(program: ModuleType, record: CallRecord) -> Any:
    """Its arguments as the program makes them of what it is sent."""
    values = b"".join(storage for storage in record.storages if isinstance(storage, bytes))
    return program.Arguments(json.loads(json.dumps(described(record))), values, CPU)


BASE = torch.arange(48.0).view(6, 8)
RECORDS = {
    "strides and an offset": lambda: recorded(torch.add, BASE.t()[1:, 2:], 3.5, alpha=2),
    "arguments that share memory": lambda: recorded(torch.mul, BASE[:3], BASE[3:]),
    "lists": lambda: recorded(torch.cat, [BASE, BASE[:1]], 0),
    "infinities": lambda: recorded(torch.clamp, BASE, -float("inf"), float("inf")),
    "a dtype": lambda: recorded(torch.sum, BASE, [0, 1], dtype=torch.float64),
    "complex numbers": lambda: recorded(torch.add, torch.ones(3, dtype=torch.complex64), 2j),
    "conjugation": lambda: recorded(torch.add, torch.ones(3, dtype=torch.complex64).conj(), 1),
    "bfloat16 and nothing": lambda: recorded(torch.relu, torch.empty(0, 4, dtype=torch.bfloat16)),
    "in place": lambda: recorded(lambda x: x.add_(1), BASE.clone()),
    "several results": lambda: recorded(torch.max, BASE, 1),
}


@pytest.mark.parametrize("name", RECORDS)
def test_arguments_and_outcomes_are_those_of_a_worker(program: ModuleType, name: str, tmp_path: Path) -> None:
    """Else honest kernels would be wrong in a bare process."""
    record = RECORDS[name]()
    function = overload(record.op)
    live, own = rebuild(record, CPU), sent(program, record)
    observer = Observer()
    observer.keep([observer.describe(function(*live.args, **live.kwargs), live, record.storages)])
    told = program.Outcomes(tmp_path).describe(function(*own.args, **own.kwargs), own)
    (tmp_path / "answer").write_text(json.dumps([[told]]))
    answer = read_answer(tmp_path / "answer")
    assert isinstance(answer, list)
    [reply] = answer
    assert isinstance(reply, list)
    [stored] = reply
    assert isinstance(stored, StoredOutcome)
    content = (tmp_path / stored.name).read_bytes()
    assert observer.outcomes() == [filled(stored.form, content, stored.elements_bytes, stored.changed_bytes)]


def filled(form: Outcome, content: bytes, elements: tuple[int, ...], changed: dict[int, int]) -> Outcome:
    """An outcome with the content that its file holds."""
    parts = []
    for size in (*elements, *changed.values()):
        parts.append(content[:size])
        content = content[size:]
    outputs = tuple(
        msgspec.structs.replace(output, data=part) if hasattr(output, "data") else output
        for output, part in zip(form.outputs, parts, strict=False)
    )
    changes = dict(zip(changed, parts[len(elements) :], strict=True))
    return msgspec.structs.replace(form, outputs=outputs, changed=changes)


@pytest.mark.parametrize(
    ("variant", "functional", "args"),
    [
        ("relu_.default", "relu.default", lambda: (BASE.clone(),)),
        ("add.out", "add.Tensor", lambda: (BASE, BASE)),
        ("max.dim_max", "max.dim", lambda: (BASE, 1)),
        ("arange.start_out", "arange.start", lambda: (0, 5)),
        ("_foreach_neg_.default", "_foreach_neg.default", lambda: ([BASE.clone(), BASE.clone()],)),
    ],
)
def test_adapters_of_variants_write_and_return_as_in_a_worker(
    program: ModuleType, variant: str, functional: str, args: Any
) -> None:
    """In place, into what is given, into lists, and where a factory is told dtype and device by its ``out=``."""
    outs = {
        "add.out": lambda: {"out": torch.empty(0)},
        "arange.start_out": lambda: {"out": torch.empty(0, dtype=torch.float64)},
        "max.dim_max": lambda: {"max": torch.empty(0), "max_values": torch.empty(0, dtype=torch.int64)},
    }
    told = []
    for make in (DerivedKernel, program.Derived):
        positional, named = args(), outs.get(variant, dict)()
        result = make(overload(functional), overload(variant), overload(functional))(*positional, **named)
        told.append((result, positional, named))
    assert str(told[0]) == str(told[1])


class Counting(torch.nn.Module):
    """Has a parameter, a buffer and a plain tensor, and changes the buffer."""

    calls: torch.Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size))
        self.register_buffer("calls", torch.zeros(()))
        self.shift = torch.ones(size)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls.add_(1)
        return {"scaled": x * self.weight + self.shift, "bare": x}


def test_a_module_runs_under_a_state_as_in_a_worker(program: ModuleType) -> None:
    """It takes parameters, buffers and plain tensors, and gives back what it has changed."""
    assert CONSTRUCTION_SEED == program.CONSTRUCTION_SEED
    told = []
    for make in (ModuleCall, program.Module):
        state = {"weight": torch.full((3,), 2.0), "calls": torch.full((), 7.0), "shift": torch.full((3,), 5.0)}
        with torch.no_grad():
            told.append((make(Counting(3))(torch.ones(3), state=state), state))
    assert str(told[0]) == str(told[1])


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[[{"type": "stored"}]]', "[" * 100_000, '"x"', "[NaN]"])
def test_what_is_no_answer_is_refused(text: str, tmp_path: Path) -> None:
    """The kernel can write what it likes."""
    (tmp_path / "answer").write_text(text)
    with pytest.raises(ProtocolError):
        read_answer(tmp_path / "answer")


def test_a_link_is_no_answer(tmp_path: Path) -> None:
    """It could lead anywhere."""
    (tmp_path / "secret").write_text("[]")
    (tmp_path / "answer").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        read_answer(tmp_path / "answer")


def test_the_program_imports_nothing_of_opsmiths_nor_of_others() -> None:
    """A kernel that looks for either would find its judge; Triton is there where kernels import it."""
    import ast
    import sys

    tree = ast.parse((Path(__file__).parents[3] / "src/opsmith/runner/bare/program.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "torch", "triton"}


def test_a_call_is_sent_whole(program: ModuleType) -> None:
    """Names and numbers as they were."""
    record = recorded(torch.sum, BASE, [0, 1], dtype=torch.float64)
    own: LiveCall = sent(program, record)
    assert {"dtype": torch.float64} == own.kwargs
    assert [0, 1] == list(own.args[1])
