"""The reference pages say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from opsmith.backends.manifest import KernelEntry
from opsmith.core import run, timing, verdict
from opsmith.core.environment import Environment
from opsmith.dispatch.activity import Active, ServedClass, ServedOp
from opsmith.dispatch.exclusions import REASONS
from opsmith.dispatch.guards import Fallback
from opsmith.dispatch.plans.plan import Refusal
from opsmith.reviews.records import Review
from opsmith.runner.processes.children import KEPT_VARIABLES

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def terms(page: str, *, under: str) -> list[str]:
    """The first cells of the table below the heading ``under``, without their backquotes."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    section = re.split(r"^#+ ", text.partition(f"# {under}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^\| `([^`]+)`", section, flags=re.MULTILINE)


def test_every_status_is_explained_in_the_order_of_the_enum() -> None:
    """A reader who meets a status in a table finds it on the page."""
    assert [status.value for status in verdict.Status] == terms("statuses.md", under="All of them")


@pytest.mark.parametrize(
    ("record", "page", "heading"),
    [
        (run.RunManifest, "run-directory.md", "run.json"),
        (run.Options, "run-directory.md", "Options"),
        (run.UsedDevice, "run-directory.md", "Devices"),
        (run.Selection, "run-directory.md", "Selection"),
        (run.PlannedOp, "run-directory.md", "plan.json"),
        (verdict.Verdict, "run-directory.md", "verdicts.jsonl"),
        (verdict.ErrorFigures, "run-directory.md", "Figures"),
        (run.TimedCase, "run-directory.md", "timings.jsonl"),
        (run.ColumnResult, "run-directory.md", "columns.jsonl"),
        (run.ColumnSummary, "run-directory.md", "One column of the summary"),
        (timing.Timing, "run-directory.md", "Timings"),
        (timing.RankSpread, "run-directory.md", "Spreads"),
        (timing.Undecided, "run-directory.md", "Undecided"),
        (timing.Work, "run-directory.md", "Work"),
        (timing.Clock, "run-directory.md", "Clock"),
        (timing.ControlPair, "run-directory.md", "Control pairs"),
        (timing.Ceilings, "run-directory.md", "Ceilings"),
        (Review, "run-directory.md", "reviews.jsonl"),
        (run.Summary, "run-directory.md", "summary.json"),
        (run.OpSummary, "run-directory.md", "One op of the summary"),
        (run.LevelScores, "run-directory.md", "Levels"),
        (run.SpeedScores, "run-directory.md", "Speed of a level"),
        (Environment, "environment.md", "What a run records"),
        (Active, "dispatch.md", "Active"),
        (ServedOp, "dispatch.md", "One op"),
        (ServedClass, "dispatch.md", "One class"),
    ],
)
def test_every_field_of_a_record_is_on_its_page(record: type[msgspec.Struct], page: str, heading: str) -> None:
    """The tables list the fields of the records, all of them and in their order."""
    assert [field.encode_name for field in msgspec.structs.fields(record)] == terms(page, under=heading)


def test_every_variable_that_reaches_a_worker_is_on_its_page() -> None:
    """Whoever keeps a secret in the environment can see that it stays outside."""
    assert list(KEPT_VARIABLES) == terms("environment.md", under="Variables")


def test_every_reason_for_a_fallback_is_explained_in_the_order_of_the_enum() -> None:
    """A reader who meets a reason in ``opsmith.active()`` finds it on the page."""
    assert [reason.value for reason in Fallback] == terms("dispatch.md", under="Fallbacks")


def test_every_reason_against_a_launch_plan_is_explained_in_the_order_of_the_enum() -> None:
    """As above."""
    assert [reason.value for reason in Refusal] == terms("dispatch.md", under="Refusals")


def test_every_field_of_a_manifests_entry_is_on_its_page() -> None:
    """What an author may write about a kernel."""
    fields = [field.encode_name for field in msgspec.structs.fields(KernelEntry)]
    assert fields == terms("kernel-directory.md", under="The manifest")


def test_every_reason_to_leave_an_op_alone_is_on_its_page() -> None:
    """As above."""
    assert [*REASONS] == terms("dispatch.md", under="Never overridden")
