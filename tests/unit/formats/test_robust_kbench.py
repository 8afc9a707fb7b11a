from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.calls.live import rebuild
from opsmith.errors import BadInput
from opsmith.formats.readers import problems_from

CPU = torch.device("cpu")
TASK = "gated_rows"


@pytest.fixture
def task(data: Path, tmp_path: Path) -> Path:
    """A copy of a task to change."""
    return Path(shutil.copytree(data / "robust_kbench" / "tasks" / TASK, tmp_path / "set" / TASK))


def test_every_combination_of_settings_is_a_case(asked: Callable[..., Any], data: Path) -> None:
    """With the arguments that Model hands to the function, in its order."""
    records, skipped = asked(data / "robust_kbench" / "tasks").calls(TASK)
    assert not skipped
    shapes = [tuple(records[f"setting:{number}"].args[0].shape) for number in range(8)]
    assert sorted([(32, 8), (32, 20), (3, 8), (3, 20)] * 2) == sorted(shapes)
    assert "setting:8" not in records
    assert 0.1 == records["setting:0"].args[3]


def test_small_sizes_are_the_smallest_settings(asked: Callable[..., Any], data: Path) -> None:
    """On a CPU."""
    records, _ = asked(data / "robust_kbench" / "tasks", small=True).calls(TASK)
    assert {(3, 8)} == {tuple(records[f"setting:{number}"].args[0].shape) for number in range(2)}


def test_weights_are_other_ones_than_the_task_initialises(asked: Callable[..., Any], data: Path) -> None:
    """A shift of ones and a gate of zeros say little about a kernel."""
    records, _ = asked(data / "robust_kbench" / "tasks").calls(TASK)
    for name in [name for name in records if name.startswith("setting")]:
        _, gate, shift, _ = rebuild(records[name], CPU).args
        assert not torch.equal(shift, torch.ones_like(shift))
        assert bool(gate.any())
        assert not gate.requires_grad


def test_functions_and_extensions_answer_a_task(asked: Callable[..., Any], data: Path) -> None:
    """In the places where the project keeps them."""
    tasks = asked(data / "robust_kbench" / "tasks")
    records, _ = tasks.calls(TASK)
    extension, function = tasks.kernels(TASK, data / "robust_kbench" / "kernels")
    assert ("cuda", {"kernel.cu", "opsmith_adapter.py"}) == (extension.dsl, set(extension.files))
    torch.testing.assert_close(*tasks.answers(TASK, function, records["setting:0"]))
    [alone] = tasks.kernels(TASK, data / "robust_kbench" / "kernels" / TASK / "forward" / "kernel.cu")
    assert extension.files == alone.files


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"single_init_configs": [{"init_method": "normal"}]', '"single_init_configs": 3', ":3: single_init_configs"),
        ('[{"width": 8}, {"width": 20}]', "[8]", ":10: multi_shared_configs[0]: Expected `object`, got `int`"),
        ('"single_input_configs"', '"inputs"', ":1: the field 'single_input_configs' is missing"),
    ],
)
def test_what_settings_get_wrong_is_told_with_its_line(task: Path, old: str, new: str, complaint: str) -> None:
    """Before anything is judged."""
    config = task / "config_forward.json"
    config.write_text(config.read_text().replace(old, new))
    with pytest.raises(BadInput) as refused:
        problems_from(task.parent)
    assert str(refused.value).startswith(f"{config}{complaint}")


def test_a_setting_that_the_task_does_not_take_stays_and_says_so(asked: Callable[..., Any], task: Path) -> None:
    """One of the project's own tasks is like that."""
    config = task / "config_forward.json"
    config.write_text(config.read_text().replace('"rows": 32', '"lines": 32'))
    _, [reason] = asked(task).calls(TASK)
    assert "got an unexpected keyword argument 'lines'" in reason
