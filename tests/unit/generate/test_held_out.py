"""The last judging: what it refuses is delivered nowhere, and a kill or a removed folder costs no more than time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign
from tests.unit.generate.test_campaign import Scripted

from opsmith.backends.directory import KernelDirectory
from opsmith.backends.manifest import read
from opsmith.core.run import Options, PlannedOp, RunDirectory, RunManifest, RunPlan, Summary
from opsmith.core.task import Task
from opsmith.core.verdict import Status, Verdict
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.chat import Request
from opsmith.generate.held_out import LastJudged, judge_again
from opsmith.generate.journal import Journal
from opsmith.generate.results import CampaignSummary, summarise_campaign, write_directory, write_kernels
from opsmith.report.publish import publish

TASKS = ["relu.default", "exp.default"]


class Last:
    """The end of a campaign whose last judging refuses kernels that hold ``later``.

    Args:
        out: directory of the campaign.
        works: task -> comments of the kernels that are written for it, attempt by attempt of all models.
        models: who writes them.
        timing: whether they are timed in the campaign.
    """

    def __init__(
        self,
        out: Path,
        works: dict[str, list[str]],
        *,
        models: tuple[str, ...] = ("openai:m",),
        timing: str = "off",
    ) -> None:
        self.out = out
        self.session = ReadingSession(list(works), timing=timing)

        def say(request: Request) -> str:
            op = request.messages[1].text.partition("kernel for `")[2].partition("`")[0]
            return reply(op, works[op][request.number * len(models) + models.index(request.model)])

        judging = msgspec.structs.replace(campaign_options().judging, timing=timing)
        attempts = max(map(len, works.values())) // len(models)
        self.options = campaign_options(strategy="best-of-n", attempts=attempts, models=models, judging=judging)
        self.histories: list[TaskHistory] = run_campaign(
            out, self.options, [Scripted(name, say) for name in models], self.session
        )
        self.asked: list[tuple[str, ...]] = []
        self.dies: Callable[[], None] = lambda: None

    def evaluate(self, options: Options, out: Path, *, resume: bool) -> Summary:
        """A run whose verdicts stand in the sources."""
        self.asked.append(options.ops)
        run = RunDirectory(out)
        run.create(7)
        manifest = RunManifest(
            command=(), options=options, environment=self.session.environment, sandbox=(), started_utc="x",
        )  # fmt: skip
        run.write("run.json", manifest)
        self.dies()
        planned, kernels = [], KernelDirectory(Path(options.backend))
        with run.appender("verdicts.jsonl") as append:
            for op in options.ops:
                schema = self.session.tasks[op].op
                kernel = kernels.kernel_for(Task(name=op, op=schema, suite="opinfo"))
                assert kernel is not None
                assert kernel.root is not None
                source = (Path(kernel.root) / kernel.entry.partition(":")[0]).read_text()
                status = Status.WRONG_VALUE if "later" in source else Status.PASSED
                planned.append(
                    PlannedOp(
                        op=op, schema=schema.schema, cases=1, error_cases=0, kernel=kernel,
                        kernel_hash=kernel.content_hash,
                    )
                )  # fmt: skip
                append(
                    Verdict(
                        op=op, case=f"{op} 0", content_hash="0", dtype="f32", kernel=kernel.content_hash,
                        status=status, detail="wrong ten seconds later", inputs="",
                    )
                )  # fmt: skip
        run.write("plan.json", RunPlan(ops=tuple(planned)))
        run.write("run.json", msgspec.structs.replace(manifest, finished_utc="y", seed=7))
        run.forget_seed()
        return publish(run)

    def judge(self) -> tuple[dict[str, LastJudged], CampaignSummary]:
        """Judge what was chosen again, and write what a campaign leaves."""
        with closing(Journal(self.out / "journal.sqlite")) as journal:
            journal.keep_attempts((history.task, each) for history in self.histories for each in history.attempts)
            last = judge_again(
                self.options.judging, self.out, self.histories, journal, evaluate=self.evaluate,
                write_directory=lambda folder, chosen: write_directory(folder, self.out, self.session.tasks, chosen),
            )  # fmt: skip
            write_kernels(self.out / "kernels", self.out, self.session.tasks, last)
            return last, summarise_campaign(self.options, self.histories, last, journal)


def kernels_of(out: Path) -> dict[str, str]:
    """Task -> source, of what is delivered."""
    entries = read(out / "kernels").kernels if (out / "kernels" / "manifest.json").exists() else {}
    return {
        op: next((out / "kernels").glob(f"{op.replace('.', '__')}/*_v{entry.best}.py")).read_text()
        for op, entry in entries.items()
    }


@pytest.mark.slow
def test_a_kernel_that_is_refused_last_is_not_delivered(tmp_path: Path) -> None:
    """Right at first and wrong ten seconds later: no kernel in the folder, and every figure says so."""
    campaign = Last(tmp_path, {"relu.default": ["right later"]})
    _, summary = campaign.judge()
    assert {} == kernels_of(tmp_path)
    run = RunDirectory.open(tmp_path / "run").summary()
    assert 0 == summary.accepted == run.ops["correct"] == summary.by_model["all"].solved
    assert 0.0 == summary.by_model["all"].fast_p["0"] == summary.by_model["openai:m"].solved_after[-1]
    assert "wrong ten seconds later" in (summary.tasks["relu.default"].reason or "")


@pytest.mark.slow
def test_the_next_best_takes_its_place(tmp_path: Path) -> None:
    """It is judged on those values too, and the others' runs are kept."""
    campaign = Last(
        tmp_path, {"relu.default": ["right later 1", "right later 2", "right"], "exp.default": ["right"] * 3}
    )
    _, summary = campaign.judge()
    assert [("relu.default", "exp.default"), ("relu.default",), ("relu.default",)] == campaign.asked
    assert {"relu.default", "exp.default"} == set(kernels_of(tmp_path))
    assert "# right\n" in kernels_of(tmp_path)["relu.default"]
    run = RunDirectory.open(tmp_path / "run")
    assert {"asked": 2, "answered": 2, "correct": 2} == run.summary().ops
    assert 2 == summary.accepted == summary.by_model["all"].solved
    assert 2 == len(list(run.verdicts()))


@pytest.mark.slow
@pytest.mark.parametrize("removed", ["run", "judged/held-out", None])
def test_it_is_not_judged_again_but_what_is_gone(tmp_path: Path, removed: str | None) -> None:
    """`run/` is made anew whenever a campaign ends; a folder that was removed blocks nothing."""
    campaign = Last(tmp_path, {"relu.default": ["right later", "right"]})
    _, before = campaign.judge()
    campaign.asked.clear()
    if removed is not None:
        shutil.rmtree(tmp_path / removed)
    _, after = campaign.judge()
    assert (2 if removed == "judged/held-out" else 0) == len(campaign.asked)
    times = msgspec.structs.replace(after.spent, last_judging_s=before.spent.last_judging_s)
    assert before == msgspec.structs.replace(after, spent=times)
    assert after.spent.last_judging_s > 0
    assert {"relu.default"} == set(RunDirectory.open(tmp_path / "run").summary().per_op)


@pytest.mark.slow
def test_a_kill_in_the_last_stage_leaves_no_fragment(tmp_path: Path) -> None:
    """`run/` is there whole or not at all; the same command makes it."""
    campaign = Last(tmp_path, {"relu.default": ["right"]})

    def die() -> None:
        raise KeyboardInterrupt

    campaign.dies = die
    with pytest.raises(KeyboardInterrupt):
        campaign.judge()
    assert not (tmp_path / "run").exists()
    [begun] = (tmp_path / "judged" / "held-out").glob("*/run")
    (begun / "run.json").unlink()  # As if it had died before it was there.
    (begun / "verdicts.jsonl").write_text("half a ver")
    campaign.dies = lambda: None
    campaign.judge()
    assert RunDirectory.open(tmp_path / "run").summary().accepted


@pytest.mark.slow
def test_run_follows_the_campaign(tmp_path: Path) -> None:
    """After a resume that found a better kernel `run/` is that kernel's, and there is no run-2."""
    campaign = Last(tmp_path, {"relu.default": ["right later", "wrong"]})
    campaign.judge()
    more: Any = Last(tmp_path / "more", {"relu.default": ["right later", "right"]})
    campaign.histories = more.histories
    shutil.copytree(tmp_path / "more" / "attempts", tmp_path / "attempts", dirs_exist_ok=True)
    campaign.judge()
    assert RunDirectory.open(tmp_path / "run").summary().accepted
    assert ["run"] == [path.name for path in tmp_path.glob("run*")]
