"""What campaigns find out before they ask: contexts that can be switched off, and that stay what they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns import ReadingSession

from opsmith.core.case import CallRecord, TensorValue
from opsmith.core.evidence import CallProfile, Span
from opsmith.generate import background
from opsmith.generate.background import Background, backgrounds
from opsmith.generate.contexts import CONTEXTS, Setting, selected
from opsmith.generate.eager_profile import EagerProfile, counters, eager_profiles, read_counters
from opsmith.pipeline import Silent

CSV = """==PROF== Connected to process 1
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","void vectorized_elementwise_kernel<4>","Duration","us","3.20"
"0","1","void vectorized_elementwise_kernel<4>","DRAM Throughput","%","41.5"
"0","1","void vectorized_elementwise_kernel<4>","SM Frequency","Ghz","1.5"
"""
TIMELINE = CallProfile(device="cpu", spans=(Span("aten::relu", 0.0, 3.0),))
CALL = CallRecord(
    op="relu.default",
    args=(TensorValue(0, "f32", (2, 3), (3, 1), 0, "cpu"),),
    kwargs={},
    storages=(bytes(24),),
)


class AskedSession(ReadingSession):
    """A session that has calls."""

    def calls(self, _task: str) -> list[CallRecord]:
        """One."""
        return [CALL]


def setting(found: Background) -> Setting:
    """Of a task that something was found out about."""
    session = ReadingSession(["relu.default"])
    return Setting(task=session.tasks["relu.default"], dsl="cpp", environment=session.environment, background=found)


def test_each_finding_is_a_context_of_its_own() -> None:
    """So that one can be left out to see what it is worth."""
    found = Background(compiler="KERNEL", profiler="- aten::relu", counters="- DRAM")
    for name, word in (("compiler", "KERNEL"), ("profiler", "aten::relu"), ("counters", "DRAM")):
        text = CONTEXTS[name](setting(found))
        assert text is not None
        assert word in text
        assert CONTEXTS[name](setting(Background())) is None
        assert name in selected("all")
        assert name not in selected(f"all,-{name}")


def test_what_was_found_is_not_found_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times differ between two runs, and a prompt that is taken up again may not."""
    session = AskedSession(["relu.default"])
    asked: list[str] = []

    def profiled(_calls: object, device: str) -> dict[str, EagerProfile]:
        asked.append(device)
        return {"relu.default": EagerProfile("x", TIMELINE)}

    monkeypatch.setattr(background, "eager_profiles", profiled)

    def find(*contexts: str) -> object:
        return backgrounds(session, contexts, dsl="cpp", out=tmp_path, progress=Silent())  # type: ignore[arg-type]

    assert {} == find("cases")
    first = find("cases", "profiler")
    assert {"relu.default": Background(profiler="x", timeline=TIMELINE)} == first
    assert first == find("cases", "profiler")
    assert ["cpu"] == asked


@pytest.mark.slow
def test_eager_is_profiled_in_a_process_of_its_own() -> None:
    """Its ops by the time that they take themselves."""
    found = eager_profiles({"relu": CALL}, "cpu")
    assert found["relu"].text.startswith("- aten::")
    assert "us a call" in found["relu"].text
    [span] = found["relu"].timeline.spans
    assert 0.0 == span.start_us
    assert span.name.startswith("aten::")
    assert span.duration_us > 0


def test_counters_of_a_kernel_make_a_line() -> None:
    """Without those that say nothing to a writer of kernels."""
    assert "- void vectorized_elementwise_kernel<4>: Duration 3.20 us, DRAM Throughput 41.5 %" == read_counters(CSV)
    assert read_counters("==ERROR== ERR_NVGPUCTRPERM") is None


@pytest.mark.parametrize(("device", "program"), [("cuda", None), ("cpu", "/usr/bin/true")])
def test_without_the_program_or_the_device_nothing_is_counted(
    device: str, program: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context is empty then, and nothing fails."""
    monkeypatch.setattr("shutil.which", lambda _name: program)
    assert counters(CALL, device) is None


def test_a_profiler_that_may_not_count_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting takes a right that most users do not have; the program ends with a status then."""
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _name: str(program))
    assert counters(CALL, "cuda") is None
