from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.errors import BadInput
from opsmith.formats.readers import problems_from
from opsmith.tasks import registry

pytest.importorskip("yaml")


@pytest.fixture
def task(data: Path, tmp_path: Path) -> Path:
    """A copy of a task to change."""
    shutil.copytree(data / "kernelbot", tmp_path / "set")
    return tmp_path / "set" / "row_means"


def test_tests_and_benchmarks_are_cases_on_the_runs_device(asked: Callable[..., Any], data: Path) -> None:
    """Though the task writes `cuda` wherever it makes a tensor."""
    tasks = asked(data / "kernelbot")
    assert ["pair_max", "row_means"] == list(tasks.files)
    records, skipped = tasks.calls("row_means")
    assert not skipped
    shapes = {name: record.args[0].items[0].shape for name, record in records.items()}
    assert {"test:0": (40, 12), "test:1": (3, 8), "benchmark:0": (64, 256)}.items() <= shapes.items()


def test_at_small_sizes_test_cases_are_asked_the_small_ones_first(asked: Callable[..., Any], data: Path) -> None:
    """Benchmarks fill a GPU."""
    records, _ = asked(data / "kernelbot", small=True).calls("row_means")
    named = [name for name in records if name.startswith(("test", "benchmark"))]
    assert ["test:0", "test:1"] == named
    assert (3, 8) == records["test:0"].args[0].items[0].shape


def test_seeds_are_the_runs_own(asked: Callable[..., Any], data: Path) -> None:
    """The seeds of a task are public."""
    tasks = asked(data / "kernelbot")
    one, other = (tasks.calls("row_means", seed=seed)[0]["test:0"].storages[0] for seed in (1, 2))
    assert one != other


def test_submissions_of_a_task_are_its_samples(asked: Callable[..., Any], data: Path) -> None:
    """They import what the task's files give them: one writes into the memory for results, one makes its own."""
    tasks = asked(data / "kernelbot")
    records, _ = tasks.calls("row_means")
    kernels = tasks.kernels("row_means", data / "kernelbot")
    assert ["submission", "first_value", "new_tensor"] == [Path(each.provenance.note or "").stem for each in kernels]
    for kernel in (kernels[0], kernels[2]):
        expected, found = tasks.answers("row_means", kernel, records["test:0"])
        assert torch.float32 == expected.dtype
        torch.testing.assert_close(expected, found)


def test_a_submission_is_found_by_itself_and_in_a_folder(asked: Callable[..., Any], data: Path, task: Path) -> None:
    """People keep them apart from the tasks."""
    tasks = asked(data / "kernelbot")
    (task.parent / "mine").mkdir()
    shutil.copy(task / "submission.py", task.parent / "mine" / "row_means.py")
    for path in (task / "submission.py", task.parent / "mine", task):
        assert "submission.py" in tasks.kernels("row_means", path)[0].files


def test_a_plain_module_answers_a_task_too(asked: Callable[..., Any], data: Path, tmp_path: Path) -> None:
    """Models that write kernels for a task are asked for `ModelNew`."""
    (tmp_path / "row_means.py").write_text("import torch\nclass ModelNew(torch.nn.Module): ...\n")
    [kernel] = asked(data / "kernelbot").kernels("row_means", tmp_path)
    assert "row_means.py:ModelNew" == kernel.entry


def test_the_check_of_the_task_is_asked_too(asked: Callable[..., Any], task: Path) -> None:
    """It may know more than the reference's values."""
    reference = task / "reference.py"
    reference.write_text(reference.read_text().replace("return not reason, reason", "return output[0] > 0, 'negative'"))
    asked(task.parent)
    check = registry.own_check("row_means")
    assert check is not None
    data = (torch.ones(2, 2), torch.empty(2))
    assert "check_implementation refuses it: negative" == check([data], -torch.ones(2))
    assert check([data], torch.ones(2)) is None


def test_memory_for_results_may_be_overwritten(asked: Callable[..., Any], data: Path) -> None:
    """The reference returns a new tensor, and submissions write where they are told to."""
    records, _ = asked(data / "kernelbot").calls("row_means")
    record = records["test:0"]
    assert {record.args[0].items[1].storage} == registry.scratch_of(record)


def test_a_task_for_several_gpus_stays_and_says_so(asked: Callable[..., Any], data: Path) -> None:
    """It is no reason to leave it out of the score."""
    records, [reason] = asked(data / "kernelbot").calls("pair_max")
    assert not records
    assert "is for several GPUs" in reason


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("task.yml", '"columns": 8', '"width": 8', "task.yml:15: tests[1]: generate_input takes no width"),
        ("task.yml", "tests:\n", "tests: 3\nrest:\n", "task.yml:13: tests: Expected `array`"),
        ("task.yml", "reference.py", "refs.py", "task.yml:2: files: no file is called reference.py"),
        ("task.yml", "../common.py", "../none.py", "none.py cannot be read: No such file"),
        ("reference.py", "def ref_kernel(", "def ref_kernel((", "reference.py:11: does not parse"),
    ],
)
def test_what_a_task_gets_wrong_is_told_with_its_line(
    task: Path, file: str, old: str, new: str, complaint: str
) -> None:
    """Before anything is judged."""
    (task / file).write_text((task / file).read_text().replace(old, new))
    with pytest.raises(BadInput) as refused:
        problems_from(task)
    assert complaint in str(refused.value)


def test_a_reference_without_its_parts_stays_and_says_so(asked: Callable[..., Any], task: Path) -> None:
    """Some tasks have another protocol."""
    (task / "reference.py").write_text("def run(): ...\n")
    _, [reason] = asked(task.parent).calls("row_means")
    assert "defines no ref_kernel, generate_input, check_implementation" in reason
