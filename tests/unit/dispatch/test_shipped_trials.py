"""Tables of trials that opsmith ships: which calls a kernel answers on a GPU that others have measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from benchmarks.dispatch import shipped_trials as writing
from tests.dispatch_tables import kernel_file

import opsmith
from opsmith.dispatch import install
from opsmith.dispatch.choice import shipped_trials
from opsmith.dispatch.choice.choosing import EAGER, KERNEL, subject, timed_content
from opsmith.dispatch.choice.shipped_trials import ShippedTrials, TimedKernel, find_shipped, table_file
from opsmith.trials import book
from opsmith.trials.book import Trial, TrialBook

RELU = "calls = []\ndef kernel(x):\n    calls.append(1)\n    return x.clamp_min(0)"
X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A book and a folder of tables that nobody else has."""
    monkeypatch.setattr(book, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(shipped_trials, "FOLDER", tmp_path / "tables")
    (tmp_path / "tables").mkdir()
    shipped_trials._table.cache_clear()
    yield
    shipped_trials._table.cache_clear()


def ship(op: str, kernel: str, **classes: tuple[float, float | None]) -> None:
    """A table of this machine's device with one kernel."""
    table = ShippedTrials(device="cpu", torch="2.13.0", ops={op: TimedKernel(kernel=kernel, classes=classes)})
    table_file("cpu").write_bytes(msgspec.json.encode(table))


def content_of(path: Path) -> str:
    """Of the kernel of relu in a directory or file."""
    with opsmith.enabled(path, ops="relu.default", device="cpu"):
        choice = install._installed.choice
        assert choice is not None
        return timed_content(choice.servings[0].record)


@pytest.mark.parametrize(
    ("us", "served"), [((2.0, 1.0), True), ((2.0, 2.0), False), ((2.0, None), False)], ids=["faster", "equal", "wrong"]
)
def test_a_class_of_the_table_is_decided_at_its_first_call(
    us: tuple[float, float | None], *, served: bool, tmp_path: Path
) -> None:
    """And nothing is tried out."""
    path = kernel_file(tmp_path, "relu.default", RELU)
    content_hash = content_of(path)
    ship("relu.default", content_hash, **{"f32[3,4]": us})
    with opsmith.enabled(path, ops="relu.default", device="cpu", choose="measured"):
        torch.relu(X)
        op = next(one for one in opsmith.active().ops if one.op == "relu.default")
    assert (int(served), int(not served)) == (op.calls, op.left)
    assert not (tmp_path / "cache").exists()


def test_the_table_is_of_one_content_of_a_kernel() -> None:
    """A kernel that was changed since has to be timed again."""
    ship("relu.default", "old", **{"f32[3,4]": (2.0, 1.0)})
    assert find_shipped("cpu", "relu.default", "new", "f32[3,4]") is None
    assert find_shipped("cpu", "relu.default", "old", "f32[3,4]") is not None
    assert find_shipped("cpu", "relu.default", "old", "f32[3,8]") is None
    assert find_shipped("cpu", "neg.default", "old", "f32[3,4]") is None


def test_a_neighbours_change_costs_no_row(tmp_path: Path) -> None:
    """A row is about an entry and the files that it imports."""
    entries = '{"kernels": {"relu.default": {"entry": "a.py:kernel"}, "neg.default": {"entry": "b.py:kernel"}}}'
    (tmp_path / "manifest.json").write_text(entries)
    (tmp_path / "common.py").write_text("LEAST = 0\n")
    (tmp_path / "a.py").write_text("from .common import LEAST\ndef kernel(x):\n    return x.clamp_min(LEAST)\n")
    (tmp_path / "b.py").write_text("def kernel(x):\n    return 0 - x\n")
    before = content_of(tmp_path)
    (tmp_path / "b.py").write_text("def kernel(x):\n    return x * -1\n")
    assert before == content_of(tmp_path)
    (tmp_path / "common.py").write_text("LEAST = 0.0\n")
    assert before != content_of(tmp_path)


def test_what_a_machine_found_itself_goes_before(tmp_path: Path) -> None:
    """Its own device may be slower or faster than that of the table."""
    path = kernel_file(tmp_path, "relu.default", RELU)
    content_hash = content_of(path)
    ship("relu.default", content_hash, **{"f32[3,4]": (2.0, 1.0)})
    own = Trial(call="f32[3,4]", us={EAGER: 1.0, KERNEL: 2.0})
    book.book_of("choices", torch.device("cpu")).keep(f"{subject('relu.default', 'cpu', content_hash)} f32[3,4]", own)
    with opsmith.enabled(path, ops="relu.default", device="cpu", choose="kept"):
        torch.relu(X)
        op = next(one for one in opsmith.active().ops if one.op == "relu.default")
    assert (0, 1) == (op.calls, op.left)


def test_a_table_is_written_from_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of kernels that were changed since are dropped, those of the table before stay."""
    monkeypatch.setattr(writing, "kernels", lambda: {"relu.default": "new", "neg.default": "same"})
    tried = TrialBook(tmp_path / "book.jsonl")
    for kernel, text, us in [
        ("new", "f32[16]", {EAGER: 4.0, KERNEL: 2.0}),
        ("new", "f32[32]", {EAGER: 4.0}),
        ("old", "f32[64]", {EAGER: 4.0, KERNEL: 1.0}),
    ]:
        tried.keep(f"{subject('relu.default', 'cuda', kernel)} {text}", Trial(call=text, us=us))
    before = {
        "neg.default": TimedKernel(kernel="same", classes={"f32[8]": (3.0, 1.0)}),
        "relu.default": TimedKernel(kernel="old", classes={"f32[128]": (3.0, 1.0)}),
    }
    file = table_file("NVIDIA H200")
    assert "nvidia-h200.json" == file.name
    file.write_bytes(msgspec.json.encode(ShippedTrials(device="NVIDIA H200", torch="2.11", ops=before)))
    monkeypatch.setattr(
        sys, "argv", ["shipped_trials", str(tried.file), "--device", "NVIDIA H200", "--torch", "2.11.0+cu130"]
    )
    assert 0 == writing.main()
    table = msgspec.json.decode(file.read_bytes(), type=ShippedTrials)
    assert {
        "neg.default": TimedKernel(kernel="same", classes={"f32[8]": (3.0, 1.0)}),
        "relu.default": TimedKernel(kernel="new", classes={"f32[16]": (4.0, 2.0), "f32[32]": (4.0, None)}),
    } == table.ops
    assert "3 classes of 2 overloads; the kernel is faster in 2" in capsys.readouterr().out


def test_trials_of_other_contents_are_taken_where_somebody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment was changed."""
    monkeypatch.setattr(writing, "kernels", lambda: {"relu.default": "new"})
    tried = TrialBook(tmp_path / "book.jsonl")
    tried.keep(f"{subject('relu.default', 'cuda', 'old')} f32[16]", Trial(call="f32[16]", us={EAGER: 4.0, KERNEL: 2.0}))
    arguments = ["shipped_trials", str(tried.file), "--device", "NVIDIA H200", "--torch", "2.11.0+cu130"]
    for extra, classes in ([], {}), (["--any-content"], {"f32[16]": (4.0, 2.0)}):
        monkeypatch.setattr(sys, "argv", [*arguments, *extra])
        assert 0 == writing.main()
        ops = msgspec.json.decode(table_file("NVIDIA H200").read_bytes(), type=ShippedTrials).ops
        assert classes == (ops["relu.default"].classes if ops else {})


@pytest.mark.slow
def test_shipped_tables_are_of_shipped_kernels() -> None:
    """Each can be read, and names overloads that opsmith has kernels for."""
    folder = Path(shipped_trials.__file__).with_name("tables")
    for file in folder.glob("*.json"):
        table = msgspec.json.decode(file.read_bytes(), type=ShippedTrials)
        assert table_file(table.device).name == file.name
        assert table.ops.keys() <= writing.kernels().keys()
