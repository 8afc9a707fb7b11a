"""Looking at a call: spans of a profile, times of lines, what Triton's compiler says."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from opsmith.core.evidence import CallProfile, Span
from opsmith.evaluation.timing import compiled_kernels as compiled
from opsmith.evaluation.timing.line_times import line_times
from opsmith.evaluation.timing.profiles import profiled

SOURCE = """import time

def slow():
    time.sleep(0.02)

def run():
    for _ in range(3):
        x = 1
    slow()
    return x
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    """The source as a loaded file."""
    (tmp_path / "kernel.py").write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("looked_at_kernel", tmp_path / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["looked_at_kernel"] = loaded
    spec.loader.exec_module(loaded)
    yield loaded
    del sys.modules["looked_at_kernel"]


def test_the_line_that_waits_takes_the_time(module: ModuleType, tmp_path: Path) -> None:
    """Not the one that calls it; and the device is waited for on every line."""
    waits: list[int] = []
    before = sys.gettrace()
    found = line_times(module.run, tmp_path, ["kernel.py"], lambda: waits.append(1))
    assert before is sys.gettrace()
    assert found is not None
    assert "kernel.py" == found.file
    assert 4 == max(found.us, key=lambda line: found.us[line])
    assert found.us[4] > 15_000 > found.us[9]
    assert {6, 7, 8, 9, 10} < set(found.us)
    assert len(waits) > 10


def test_what_runs_no_line_of_the_kernel_has_none(tmp_path: Path) -> None:
    """A call into torch alone; and what raises leaves no trace function behind."""
    before = sys.gettrace()
    assert line_times(lambda: torch.ones(3).sum(), tmp_path, ["kernel.py"], lambda: None) is None

    def failing() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        line_times(failing, tmp_path, [], lambda: None)
    assert before is sys.gettrace()


def test_a_call_of_several_ops_has_a_span_for_each() -> None:
    """In order, from 0, and what lies in another op is not told twice."""
    x = torch.randn(64, 64)

    def run() -> object:
        first = torch.softmax(x, 1)
        time.sleep(0.002)
        return first @ x

    found = profiled(run, "cpu")
    names = [span.name for span in found.spans]
    assert ["aten::softmax", "aten::matmul"] == names
    assert 0.0 == found.spans[0].start_us
    assert found.whole_us - found.busy_us > 1_500


def test_spans_beside_each_other_are_busy_once() -> None:
    """Two streams of a device."""
    profile = CallProfile(device="cuda", spans=(Span("a", 0.0, 10.0), Span("b", 5.0, 10.0), Span("c", 20.0, 1.0)))
    assert (21.0, 16.0) == (profile.whole_us, profile.busy_us)
    assert (0.0, 0.0) == (CallProfile(device="cuda", spans=()).whole_us, CallProfile(device="cuda", spans=()).busy_us)


def test_compiled_kernels_of_a_folder_are_told(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were loaded onto a device, once each; other modules' are not."""
    from triton.runtime import jit

    class Function:
        __name__ = "kernel"

        def __init__(self, *compiled: SimpleNamespace) -> None:
            self.fn = lambda: None  # A kernel wraps a function of Python's.
            self.device_caches = {0: ({str(n): each for n, each in enumerate(compiled)}, None)}

    metadata = SimpleNamespace(name="kernel", shared=512, num_warps=8)
    loaded = SimpleNamespace(n_regs=40, n_spills=16, metadata=metadata)
    monkeypatch.setattr(jit, "JITFunction", Function)
    module.kernel = Function(loaded, loaded, SimpleNamespace(n_regs=None, metadata=metadata))  # type: ignore[attr-defined]
    module.tuned = SimpleNamespace(fn=module.kernel)  # type: ignore[attr-defined]
    [found] = compiled.compiled_kernels(tmp_path)
    assert ("kernel", 40, 16, 512, 8) == (
        found.name,
        found.registers,
        found.spills,
        found.shared_bytes,
        found.warps,
    )
    assert () == compiled.compiled_kernels(tmp_path / "other")
