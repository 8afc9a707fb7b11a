from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.calls.live import rebuild
from opsmith.errors import BadInput
from opsmith.formats.readers import problems_from
from opsmith.runner.worker.loading import load_kernel
from opsmith.tasks import registry

CPU = torch.device("cpu")
TASK = "gated_rows"
BACKWARD = "gated_rows_backward"


class Computed(TorchDispatchMode):
    """The names of the ops that are called with results that have elements."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not result.is_meta:
            self.names.append(func._schema.name)
        return result


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


def test_a_backward_case_is_the_gradient_of_the_result_and_the_arguments(asked: Callable[..., Any], data: Path) -> None:
    """Under every combination of its own settings, beside the forward task of the same folder."""
    tasks = asked(data / "robust_kbench" / "tasks")
    assert {TASK, BACKWARD} == set(tasks.files)
    records, skipped = tasks.calls(BACKWARD)
    assert not skipped
    assert "setting:4" not in records
    shapes = [[tuple(each.shape) for each in records[f"setting:{number}"].args[:4]] for number in range(4)]
    assert sorted([[(rows, width), (rows, width), (width,), (width,)] for rows in (3, 32) for width in (8, 20)]) == (
        sorted(shapes)
    )
    assert 0.1 == records["setting:0"].args[4]


def test_one_task_of_a_folder_is_named_by_its_settings(asked: Callable[..., Any], task: Path) -> None:
    """For `check --task`."""
    assert {BACKWARD} == set(asked(task / "config_backward.json").files)
    assert {TASK} == set(asked(task / "config_forward.json").files)


def test_right_are_the_gradients_of_autograd(asked: Callable[..., Any], data: Path) -> None:
    """Of the arguments for which AutogradFunction.backward returns one, so not of the shift."""
    tasks = asked(data / "robust_kbench" / "tasks")
    records, _ = tasks.calls(BACKWARD)
    grad_output, x, gate, shift, slope = rebuild(records["setting:1"], CPU).args
    for tensor in (x, gate):
        tensor.requires_grad_()
    torch.nn.functional.leaky_relu(x * gate.sigmoid() + shift, slope).backward(grad_output)
    [solution] = tasks.kernels(BACKWARD, data / "robust_kbench" / "kernels" / f"{BACKWARD}.py")
    expected, answered = tasks.answers(BACKWARD, solution, records["setting:1"])
    torch.testing.assert_close((x.grad, gate.grad), expected)
    torch.testing.assert_close(expected, answered)


def test_a_backward_function_is_called_as_the_task_calls_it(asked: Callable[..., Any], data: Path) -> None:
    """With tuples, numbers and an order of its own, and again at other shapes; no forward pass is computed."""
    tasks = asked(data / "robust_kbench" / "tasks")
    records, _ = tasks.calls(BACKWARD)
    [solution] = tasks.kernels(BACKWARD, data / "robust_kbench" / "kernels" / f"{BACKWARD}.py")
    assert solution.root is not None
    (schema,) = registry.loaded_schemas([BACKWARD])
    call = load_kernel(solution, Path(solution.root), schema)
    with torch.no_grad():
        for number in (0, 1, 2, 3, 0):
            live = rebuild(records[f"setting:{number}"], CPU)
            with Computed() as computed:
                call(*live.args, **live.kwargs)
            assert 1 == computed.names.count("aten::sigmoid")  # That of the solution.
            assert "aten::leaky_relu" not in computed.names


def test_backward_functions_and_extensions_have_their_own_places(asked: Callable[..., Any], data: Path) -> None:
    """And none is taken for one of the forward task."""
    folder = data / "robust_kbench" / "kernels"
    tasks = asked(data / "robust_kbench" / "tasks")
    extension, function = tasks.kernels(BACKWARD, folder)
    assert ("cuda", {"kernel.cu", "func_backward.py", "opsmith_adapter.py"}) == (extension.dsl, set(extension.files))
    assert extension.root is not None
    assert ").backward\n" in (Path(extension.root) / "opsmith_adapter.py").read_text()
    assert "solution.py" in function.files
    assert all("func_backward.py" not in kernel.files for kernel in tasks.kernels(TASK, folder))


def test_what_backward_settings_get_wrong_is_told_with_its_line(task: Path) -> None:
    """As of forward ones."""
    config = task / "config_backward.json"
    config.write_text(config.read_text().replace('[{"rows": 32}, {"rows": 3}]', '[{"rows": 32}, 3]'))
    with pytest.raises(BadInput) as refused:
        problems_from(task.parent)
    assert f"{config}:5: multi_input_configs[1]: Expected `object`, got `int`" == str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("class AutogradFunction", "class Autograd", "func_backward.py defines no AutogradFunction"),
        ("    def backward(ctx", "    def back(ctx", "func_backward.py:5: AutogradFunction defines no backward"),
        (
            "return grad_x, grad_gate, None, None",
            "return grad_x, grad_gate",
            "func_backward.py:19: AutogradFunction.backward returns 2 gradients, and AutogradFunction.forward takes 4 ",
        ),
        (
            "return grad_x, grad_gate, None, None",
            "ctx.done = grad_x",
            "func_backward.py:16: AutogradFunction.backward does not end with a return",
        ),
        (
            "ctx.save_for_backward(x, gate, shift)",
            "ctx.save_for_backward(x, gate.sigmoid(), shift)",
            "AutogradFunction.forward keeps a tensor that is none of its arguments",
        ),
        ("return nn.functional.leaky_relu(x * gate", "return nn.functional.leaky_relu(x.detach() * gate", "index 0"),
    ],
)
def test_a_backward_task_that_cannot_be_asked_says_why(
    asked: Callable[..., Any], task: Path, old: str, new: str, complaint: str
) -> None:
    """It stays in the denominator, with the file and line where its text shows it."""
    module = task / "func_backward.py"
    assert old in module.read_text()
    module.write_text(module.read_text().replace(old, new))
    _, [reason] = asked(task).calls(BACKWARD)
    assert complaint in reason
