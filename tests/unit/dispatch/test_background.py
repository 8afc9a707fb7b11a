"""Kernels compiled in processes of their own, while PyTorch's kernels answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.shipped import Shipped
from opsmith.core.case import NamedValue, SequenceValue, TensorValue
from opsmith.core.compile_job import GPU
from opsmith.core.kernel import Kernel, Loader, is_shipped
from opsmith.core.task import Task
from opsmith.dispatch.choice import background
from opsmith.dispatch.choice.background import BackgroundCompiler, described
from opsmith.dispatch.choice.choosing import EAGER, KERNEL, Allowance, Choices, Decision
from opsmith.prewarm.fake_calls import fake_arguments
from opsmith.trials.book import Trial, TrialBook

HOPPER = GPU(architecture=90, multiprocessors=132, name="NVIDIA H200")
X = torch.zeros(4, 8, dtype=torch.bfloat16)
#: Answers as a process that compiles does, or ends when it is told a job.
ANSWERS = """
import sys
from opsmith.core.compile_job import receive, send
receive(sys.stdin.buffer)
while receive(sys.stdin.buffer) is not None:
    send(sys.stdout.buffer, "")
"""
ENDS = """
import sys
from opsmith.core.compile_job import receive
receive(sys.stdin.buffer), receive(sys.stdin.buffer)
"""


def waited_for(compiler: BackgroundCompiler, key: str, entry: str = "file.py:kernel", *args: Any) -> None:
    """Until a call's kernels are there; a minute at most."""
    ends = time.monotonic() + 60
    while not compiler.ready(key, entry, args or (X,), {}):
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a script in place of the process that compiles."""
    return lambda script: monkeypatch.setattr(background, "_COMMAND", (sys.executable, "-c", script))


def test_what_was_compiled_is_known_to_the_next_process(tmp_path: Path, answering: Callable[[str], None]) -> None:
    """As long as the compiled kernels are there, which the file lies beside."""
    answering(ANSWERS)
    compiler = BackgroundCompiler(HOPPER, tmp_path / "done.txt", 1)
    assert not compiler.ready("one", "file.py:kernel", (X,), {})
    waited_for(compiler, "one")
    again = BackgroundCompiler(HOPPER, tmp_path / "done.txt", 1)
    assert again.ready("one", "file.py:kernel", (X,), {})
    assert not again.ready("two", "file.py:kernel", (X,), {})
    (tmp_path / "done.txt").unlink()
    assert not BackgroundCompiler(HOPPER, tmp_path / "done.txt", 1).ready("one", "file.py:kernel", (X,), {})


@pytest.mark.parametrize("script", [ENDS, "raise SystemExit"], ids=["at a job", "at once"])
def test_calls_wait_for_no_process_that_is_gone(script: str, tmp_path: Path, answering: Callable[[str], None]) -> None:
    """The kernel is compiled where it is called, as it is without such processes."""
    answering(script)
    compiler = BackgroundCompiler(HOPPER, tmp_path / "done.txt", 1)
    waited_for(compiler, "one")
    assert not (tmp_path / "done.txt").exists()


def test_a_program_that_is_no_python_is_not_started_again(
    tmp_path: Path, answering: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was frozen with its modules would run itself."""
    started = tmp_path / "started"
    answering(f"open({str(started)!r}, 'w')")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    waited_for(BackgroundCompiler(HOPPER, tmp_path / "done.txt", 1), "one")
    assert not started.exists()


def test_a_call_that_cannot_be_told_waits_for_nobody(tmp_path: Path, answering: Callable[[str], None]) -> None:
    """A generator has a state that no other process has."""
    answering(ANSWERS)
    compiler = BackgroundCompiler(HOPPER, tmp_path / "done.txt", 1)
    assert compiler.ready("one", "file.py:kernel", (X, torch.Generator()), {})


def test_a_call_is_told_without_its_memory() -> None:
    """Types, sizes, strides and how addresses are aligned: what a kernel is compiled for."""
    whole = torch.zeros(40, dtype=torch.bfloat16)
    odd = whole[3:35].view(4, 8).t()
    record = described((odd, [X, None], 2.5), {"dtype": torch.float32, "memory_format": torch.channels_last})
    assert record is not None
    [tensor, several, number] = record.args
    assert isinstance(tensor, TensorValue)
    assert ("bf16", (8, 4), (1, 8), 3) == (tensor.dtype, tensor.shape, tensor.strides, tensor.offset)
    assert isinstance(several, SequenceValue)
    assert (2, 2.5) == (len(several.items), number)
    assert NamedValue("memory_format", "channels_last") == record.kwargs["memory_format"]
    with FakeTensorMode(allow_non_fake_inputs=True):
        args, kwargs = fake_arguments(record)
    assert (odd.shape, odd.stride(), odd.dtype) == (args[0].shape, args[0].stride(), args[0].dtype)
    assert (torch.float32, torch.channels_last) == (kwargs["dtype"], kwargs["memory_format"])


@pytest.mark.slow
def test_a_shipped_kernel_is_compiled_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a GPU that is not here; Triton finds it in its cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    op = "_softmax.default"
    record = Shipped().kernel_for(Task(name=op, op=aten_schemas()[op], suite="dispatch"))
    assert record is not None
    assert is_shipped(record)
    compiler = BackgroundCompiler(HOPPER, tmp_path / "done.txt", 1)
    waited_for(compiler, "softmax", record.entry, torch.zeros(64, 128), -1, False)
    assert [path.stem for path in tmp_path.glob("*/*.cubin")]


class TestChoices:
    """Which calls PyTorch answers until a kernel is compiled."""

    class Asked:
        """Stands for a compiler."""

        def __init__(self) -> None:
            self.keys: list[str] = []
            self.is_ready = False

        def __call__(self, key: str, args: Any, kwargs: Any) -> bool:
            """Whether it is compiled."""
            self.keys.append(key)
            return self.is_ready

    def choices(self, asked: Asked, folder: Path, known: Trial | None = None) -> Choices:
        """Of a kernel, with a book of its own."""
        kernel = Kernel(task="relu.default", backend="x", loader=Loader.FILE, entry="a.py:b")
        book = TrialBook(folder / "book.jsonl")
        return Choices("relu.default", "cuda", kernel, lambda: book, Allowance(), lambda *_: known, asked)

    def test_a_class_is_tried_once_its_kernel_is_compiled(self, tmp_path: Path) -> None:
        """And a class that is met once is not compiled for."""
        asked, held = self.Asked(), list[str]()
        choices = self.choices(asked, tmp_path)

        def hold(text: str) -> Trial:
            held.append(text)
            return Trial(call=text, us={EAGER: 2.0, KERNEL: 1.0})

        assert choices.decide("signature", (X,), {}, hold) is Decision.OPEN
        assert not asked.keys
        assert choices.decide("signature", (X,), {}, hold) is Decision.WAITING
        assert (1, []) == (len(asked.keys), held)
        asked.is_ready = True
        assert choices.decide("signature", (X,), {}, hold) is Decision.KERNEL
        assert 1 == len(held)

    def test_a_kernel_that_is_known_to_be_faster_answers_once_it_is_compiled(self, tmp_path: Path) -> None:
        """What trials found before is kept meanwhile."""
        asked = self.Asked()
        choices = self.choices(asked, tmp_path, Trial(call="", us={EAGER: 2.0, KERNEL: 1.0}))
        for _ in range(2):
            assert choices.decide("signature", (X,), {}, lambda _text: None) is Decision.WAITING
        assert choices.known("signature") is None
        asked.is_ready = True
        assert choices.decide("signature", (X,), {}, lambda _text: None) is Decision.KERNEL
        assert choices.known("signature")

    def test_a_kernel_that_is_known_to_be_slower_is_not_compiled(self, tmp_path: Path) -> None:
        """PyTorch's answers from the first call on."""
        asked = self.Asked()
        choices = self.choices(asked, tmp_path, Trial(call="", us={EAGER: 1.0, KERNEL: 2.0}))
        assert choices.decide("signature", (X,), {}, lambda _text: None) is Decision.EAGER
        assert not asked.keys
