"""``opsmith review``, and who takes approved kernels only."""

from __future__ import annotations

import contextlib
import io
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
import torch
from tests.dispatch_tables import kernel_file
from tests.reviewed_kernels import run_of_kernel

import opsmith
from opsmith.cli import main
from opsmith.errors import BadInput
from opsmith.packaging.kernels import collect
from opsmith.reviews.book import ReviewBook
from opsmith.serve.store.database import Database
from opsmith.serve.store.imports import keep_run
from opsmith.serve.store.reviews import standings
from opsmith.serve.store.runs import list_judgements

RELU = "def kernel(self): return torch.where(self > 0, self, torch.zeros_like(self))"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A directory with two kernels."""
    kernel_file(tmp_path / "mine", "relu.default", RELU)
    return kernel_file(tmp_path / "mine", "exp.default", "def kernel(self): return torch.exp(self)")


def opsmith_(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    """The command line, in this process."""
    monkeypatch.setattr(sys, "argv", ["opsmith", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code in {0, None}


def listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, str]:
    """Task -> state."""
    capsys.readouterr()
    opsmith_(monkeypatch, "review", path, "--json")
    return {each["task"]: each["state"] for each in msgspec.json.decode(capsys.readouterr().out)}


def packaged(kernels: Path) -> dict[str, str]:
    """What `package --approved` leaves out, with the reason."""
    return collect(kernels, license="MIT", approved=True).left_out


def test_approved_changed_and_approved_again(
    kernels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package takes what people approved as it is now; a neighbour's change costs nothing."""
    opsmith_(monkeypatch, "review", kernels, "relu.default", "--approve", "--as", "mara")
    assert {"exp.default": "not reviewed", "relu.default": "approved"} == listed(monkeypatch, capsys, kernels)
    assert "not reviewed" == packaged(kernels)["exp.default"]
    assert "relu.default" not in packaged(kernels)
    assert "relu_.default" not in packaged(kernels)
    source = kernels / "relu__default" / "relu__default_implementation_v1.py"
    source.write_text(source.read_text() + "# faster\n")
    neighbour = kernels / "exp__default" / "exp__default_implementation_v1.py"
    neighbour.write_text(neighbour.read_text() + "# faster\n")
    with pytest.raises(BadInput, match="no kernel of"):
        packaged(kernels)
    opsmith_(monkeypatch, "review", kernels, "relu.default")
    shown = capsys.readouterr().out
    assert "changed since it was approved by mara" in shown
    assert "+# faster" in shown
    assert "torch-compute" in shown
    opsmith_(monkeypatch, "review", kernels, "relu.default", "--approve", "--as", "jo")
    data = collect(kernels, license="MIT", approved=True).wheel()
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert ["reviews.jsonl"] == [Path(name).name for name in names if name.endswith("jsonl")]


def test_a_comment_has_a_place_and_a_rejection_a_reason(
    kernels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are shown with the kernel, to the next reviewer and to its writer."""
    opsmith_(monkeypatch, "review", kernels, "relu*", "--reject", "--comment", "2: use clamp", "--comment", "slow")
    (review,) = ReviewBook(kernels).reviews()
    assert [(None, "slow"), (2, "use clamp")] == [(comment.line, comment.text) for comment in review.comments]
    assert "rejected" == listed(monkeypatch, capsys, kernels)["relu.default"]
    opsmith_(monkeypatch, "review", kernels, "relu.default")
    assert "2: use clamp" in capsys.readouterr().out


def test_what_is_another_by_now_is_not_approved(
    kernels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody approves what they have not seen."""
    monkeypatch.setattr(sys, "argv", ["opsmith", "review", str(kernels), "relu.default", "--approve", "--of", "00"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code not in {0, None}
    assert "look at it again" in capsys.readouterr().err
    assert [] == ReviewBook(kernels).reviews()


def test_eager_mode_takes_approved_kernels_only(kernels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``enable(approved=True)``; without an approved kernel there is nothing to install."""
    with pytest.raises(BadInput, match="no approved kernel"):
        opsmith.enable(kernels, approved=True)
    opsmith_(monkeypatch, "review", kernels, "relu.default", "--approve")
    with opsmith.enabled(kernels, approved=True, choose="all", device="cpu"):
        served = {op.op for op in opsmith.active().ops}
        left_out = opsmith.active().excluded
        assert torch.equal(torch.relu(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
    assert {"relu.default", "relu_.default", "relu.out"} == served
    assert "not reviewed" == left_out["exp.default"]


def test_solutions_of_module_problems_are_reviewed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They lie where their problems do; a file without `ModelNew` is none."""
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "23_Softmax.py").write_text("class ModelNew: ...\n")
    (tmp_path / "level1" / "notes.py").write_text("x = 1\n")
    opsmith_(monkeypatch, "review", tmp_path, "L1/23_Softmax", "--approve")
    assert {"L1/23_Softmax": "approved"} == listed(monkeypatch, capsys, tmp_path)
    (tmp_path / "level1" / "23_Softmax.py").write_text("class ModelNew: pass\n")
    assert {"L1/23_Softmax": "changed since it was approved"} == listed(monkeypatch, capsys, tmp_path)


def test_a_run_and_its_report_show_what_people_said(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the very kernels that were judged: those in the run."""
    run = run_of_kernel(kernels, tmp_path / "run")
    opsmith_(monkeypatch, "review", run.path, "--reject", "--as", "jo", "--comment", "3: why?")
    assert {"relu.default": "rejected"} == listed(monkeypatch, capsys, run.path)
    opsmith_(monkeypatch, "report", run.path)
    shown = capsys.readouterr().out
    assert "1 rejected" in shown
    assert "rejected by jo" in shown
    assert "Reviewed by people: 1 rejected." in (run.path / "report.html").read_text()
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'service.sqlite'}")) as database:
        database.migrate()
        number = keep_run(database, run)
        [row] = list_judgements(database, number)
        assert "rejected by jo" == standings(database, [row])[row.id].text


def test_what_a_kernel_imports_is_shown_and_marked_where_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody approves what they cannot see; another kernel's file costs this one nothing."""
    kernel_file(tmp_path / "mine", "relu.default", "from .shared import half\ndef kernel(self): return self * half")
    folder = tmp_path / "mine" / "relu__default"
    (folder / "shared.py").write_text("half = 0.5\n")
    (folder / "other.py").write_text("x = 1\n")
    opsmith_(monkeypatch, "review", tmp_path / "mine", "relu.default", "--approve", "--as", "mara")
    (folder / "other.py").write_text("x = 2\n")
    assert {"relu.default": "approved"} == listed(monkeypatch, capsys, tmp_path / "mine")
    (folder / "shared.py").write_text("half = 0.25\n")
    opsmith_(monkeypatch, "review", tmp_path / "mine", "relu.default", "--files")
    shown = capsys.readouterr().out
    assert "changed since it was approved by mara" in shown
    assert "shared.py (changed)" in shown
    assert "half = 0.25" in shown
    assert "other.py" not in shown
