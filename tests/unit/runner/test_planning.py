"""What of a suite's answers becomes a plan: void problems, and those that could not be asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.report_runs import manifest
from tests.unit.runner.test_slot import case

from opsmith.backends import Backend
from opsmith.core.audit import AuditFinding, Check
from opsmith.core.case import CaseAddress, CaseRef
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.run import Options, RunDirectory, RunPlan, Selection
from opsmith.core.task import Task
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.runner.fleet.fleet import Fleet
from opsmith.runner.plan.jobs import jobs_to_judge, timed_part
from opsmith.runner.plan.planning import Enumeration, enumerate_cases, make_plan
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import Enumerated, OpsListed

FINDING = AuditFinding(check=Check.CONSTANT, detail="the answer is zero everywhere")
OPTIONS = Options(
    suite="modules", backend="b", device="cpu", dtypes=("f32", "bf16"), selection=Selection(problems="problems")
)


def schema(task: str) -> OpSchema:
    """Of a module problem."""
    return OpSchema(name=task, schema=f"{task}.py", variant=Variant.FUNCTIONAL, kind=TaskKind.MODULE)


def case_of(task: str, dtype: str) -> CaseRef:
    """The one case of a problem in a dtype."""
    address = CaseAddress("modules", task, dtype, "inputs", 0, 0)
    return msgspec.structs.replace(case(0), op=task, address=address, signature=f"{task} {dtype}")


def reply(task: str, dtype: str, void: bool) -> Enumerated:  # noqa: FBT001 - of a table
    """What a referee says of a problem that it asked."""
    cases = (case_of(task, dtype),)
    return Enumerated(cases, {cases[0].signature: 1}, (task,), {}, (schema(task),), {task: FINDING} if void else {})


class StandInFleet:
    """Knows the replies."""

    options = OPTIONS

    def __init__(self, replies: dict[tuple[str, str], Enumerated]) -> None:
        self.replies = replies

    def enumerate(self, entries: Sequence[tuple[str, str]], _ops: Any) -> Iterator[tuple[int, Enumerated]]:
        yield from ((number, self.replies[entry]) for number, entry in enumerate(entries))


class Answers:
    """A backend that answers everything."""

    def kernel_for(self, task: Task) -> Kernel:
        return Kernel(task=task.name, backend="b", loader=Loader.ATEN, entry="own")


def planned(replies: dict[tuple[str, str], Enumerated], monkeypatch: pytest.MonkeyPatch) -> tuple[RunPlan, Enumeration]:
    """The plan of a run that gets these replies."""
    monkeypatch.setattr("opsmith.runner.plan.planning._save_index", lambda *_: None)
    entries = tuple(replies)
    fleet = cast("Fleet", StandInFleet(replies))
    listed = OpsListed(tuple(schema(task) for task, _ in entries), entries)
    enumeration = enumerate_cases(fleet, listed, None, torch_version="2", begin=lambda _: None, advance=lambda _: None)
    schemas = {each.name: each for each in listed.schemas}
    return make_plan(enumeration, schemas, cast("Backend", Answers()), OPTIONS), enumeration


def test_a_problem_is_void_if_it_is_in_every_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16 alone the tolerance may be what is wide; the cases in float32 are asked."""
    replies = {
        (task, dtype): reply(task, dtype, dtype in dtypes)
        for task, dtypes in {"L1/1_Both": "f32 bf16", "L1/2_One": "bf16", "L1/3_None": ""}.items()
        for dtype in OPTIONS.dtypes
    }
    plan, _ = planned(replies, monkeypatch)
    assert {"L1/1_Both": str(FINDING), "L1/2_One": None, "L1/3_None": None} == {op.op: op.void for op in plan.ops}
    assert [False, True, True] == [op.counts for op in plan.ops]


def test_a_problem_without_a_case_stays_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another dtype has some."""
    nothing = Enumerated((), {}, (), {"modules:x:f32:inputs:0:0": "Model raised"})
    replies = {
        ("L1/1_Broken", "f32"): nothing,
        ("L1/1_Broken", "bf16"): nothing,
        ("L1/2_Half", "f32"): nothing,
        ("L1/2_Half", "bf16"): reply("L1/2_Half", "bf16", False),
    }
    plan, _ = planned(replies, monkeypatch)
    assert {"L1/1_Broken": (0, "Model raised"), "L1/2_Half": (1, None)} == {
        op.op: (op.cases, op.not_asked) for op in plan.ops
    }
    assert all(op.counts for op in plan.ops)


def test_a_void_problem_has_one_job_and_no_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its verdicts are written once, also if the run is taken up again; one that cannot be asked has no job."""
    nothing = Enumerated((), {}, (), {"modules:x:f32:inputs:0:0": "Model raised"})
    replies = {("L1/1_Void", "f32"): reply("L1/1_Void", "f32", True), ("L1/2_Broken", "f32"): nothing}
    plan, enumeration = planned(replies, monkeypatch)
    run = RunDirectory(tmp_path)
    run.write("run.json", manifest(options=OPTIONS))
    schemas = enumeration.modules.values()
    [job] = jobs_to_judge(plan, enumeration, schemas, run, [], trusted=False)
    assert str(FINDING) == job.void
    assert timed_part(job, OPTIONS, interpreted=False) is None
    found = Verdict(
        op="L1/1_Void",
        case=str(job.cases[0].address),
        content_hash="0",
        dtype="f32",
        kernel="k",
        status=Status.VOID,
        part=Part.CASE,
    )
    assert [] == jobs_to_judge(plan, enumeration, schemas, run, [found], trusted=False)


@pytest.mark.parametrize(
    ("kind", "device", "timed"),
    [
        (TaskKind.PARALLEL, "cpu", [("inputs", 2), ("inputs", 4)]),
        (TaskKind.PARALLEL, "cuda", []),  # Ranks on devices would have to start together.
        (TaskKind.COLLECTIVE, "cpu", []),
    ],
)
def test_of_ranks_the_plain_case_is_timed(kind: TaskKind, device: str, timed: list[tuple[str, int]]) -> None:
    """On a CPU, for each number of ranks: no late rank, no calls in flight, no further size."""
    cases = tuple(
        [
            msgspec.structs.replace(
                case(0), address=CaseAddress("parallel", f"1_Sum@{ranks}", "f32", source, 0, 0), ranks=ranks
            )
            for ranks in (2, 4)
            for source in ("inputs", "large", "late", "in-flight")
        ]
    )
    job = Job(
        schema=msgspec.structs.replace(schema("1_Sum"), kind=kind),
        kernel=Kernel(task="1_Sum", backend="b", loader=Loader.FILE, entry="a.py:ModelNew"),
        root=None,
        cases=cases,
        counts={},
        policy="native",
    )
    part = timed_part(job, msgspec.structs.replace(OPTIONS, suite="parallel", device=device), interpreted=False)
    assert timed == ([] if part is None else [(one.address.source, one.ranks) for one in part.cases])
