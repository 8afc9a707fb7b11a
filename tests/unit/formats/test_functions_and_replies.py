"""KernelAgent's functions and MultiKernelBench's replies, as solutions of module problems."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.core.problems import problem_files
from opsmith.formats.readers import problems_from

PROBLEM = "scaled_linear"


def test_a_function_gets_weights_and_options_by_name(asked: Callable[..., Any], data: Path) -> None:
    """One by keyword, one with another default than the Model's, one that it does not need."""
    tasks = asked(data / "kernel_agent" / "problems")
    records, _ = tasks.calls(PROBLEM)
    [kernel] = tasks.kernels(PROBLEM, data / "kernel_agent" / "kernels")
    assert "opsmith_adapter.py:ModelNew" == kernel.entry
    torch.testing.assert_close(*tasks.answers(PROBLEM, kernel, records["inputs:0"]))


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("x, *args, **kwargs", "args[0]"),
        ("*args", "args[1]"),
        ("x, linear_weight, /", "linear_weight"),
        ("x, w", "w"),
    ],
)
def test_names_of_weights_and_the_rest_of_the_inputs(
    asked: Callable[..., Any], data: Path, tmp_path: Path, head: str, body: str
) -> None:
    """Ways in which the agent's kernels take a weight."""
    (tmp_path / f"{PROBLEM}.py").write_text(f"def kernel_function({head}):\n    return {body}.clone()\n")
    tasks = asked(data / "kernel_agent" / "problems")
    records, _ = tasks.calls(PROBLEM)
    [kernel] = tasks.kernels(PROBLEM, tmp_path)
    _, found = tasks.answers(PROBLEM, kernel, records["inputs:0"])
    assert (4, 6) == tuple(found.shape)


def test_a_bias_that_the_model_does_not_have_is_left_to_its_default(asked: Callable[..., Any], tmp_path: Path) -> None:
    """The constructor's `bias=False` is no bias."""
    (tmp_path / "p.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, n, bias=False):\n"
        "        super().__init__()\n"
        "        self.fc = torch.nn.Linear(n, n, bias=bias)\n    def forward(self, x):\n        return self.fc(x)\n"
        "def get_inputs():\n    return [torch.randn(2, 3)]\ndef get_init_inputs():\n    return [3]\n"
    )
    (tmp_path / "mine").mkdir()
    function = "def kernel_function(x, weight, bias=None):\n    assert bias is None\n    return x @ weight.T\n"
    (tmp_path / "mine" / "p.py").write_text(function)
    tasks = asked(tmp_path / "p.py")
    records, _ = tasks.calls("p")
    torch.testing.assert_close(*tasks.answers("p", tasks.kernels("p", tmp_path / "mine")[0], records["inputs:0"]))


def test_model_new_is_taken_as_it_is(asked: Callable[..., Any], data: Path, tmp_path: Path) -> None:
    """Files with both are written for KernelBench."""
    text = "import torch\ndef kernel_function(x): ...\nclass ModelNew(torch.nn.Module): ...\n"
    (tmp_path / f"{PROBLEM}.py").write_text(text)
    [kernel] = asked(data / "kernel_agent" / "problems").kernels(PROBLEM, tmp_path)
    assert f"{PROBLEM}.py:ModelNew" == kernel.entry


def test_a_checkout_is_its_references(data: Path) -> None:
    """By category."""
    files = problem_files(problems_from(data / "multi_kernel_bench"))
    assert ["activation/softsign", "npukernelbench_level0/1_scale"] == list(files)


def test_groups_of_inputs_are_cases(asked: Callable[..., Any], data: Path) -> None:
    """Each under the run's seed."""
    tasks = asked(data / "multi_kernel_bench")
    records, skipped = tasks.calls("npukernelbench_level0/1_scale")
    assert not skipped
    assert [((3,), 2.0), ((2, 7), -0.5)] == [
        (tuple(records[name].args[0].shape), records[name].args[1]) for name in ("group:0", "group:1")
    ]
    other, _ = tasks.calls("npukernelbench_level0/1_scale", seed=2)
    assert records["group:0"].storages != other["group:0"].storages


def test_replies_are_samples_by_their_runs(asked: Callable[..., Any], data: Path) -> None:
    """The first block of code, or all of it where there is none."""
    tasks = asked(data / "multi_kernel_bench")
    records, _ = tasks.calls("activation/softsign")
    right, wrong = tasks.kernels("activation/softsign", data / "multi_kernel_bench" / "output")
    torch.testing.assert_close(*tasks.answers("activation/softsign", right, records["inputs:0"]))
    expected, found = tasks.answers("activation/softsign", wrong, records["inputs:0"])
    assert not torch.allclose(expected, found)
    assert ["activation/softsign", "activation/softsign@1"] == [right.task, wrong.task]


def test_a_reply_is_found_by_itself_and_in_its_run(asked: Callable[..., Any], data: Path, tmp_path: Path) -> None:
    """`opsmith check reply.txt --task relu.py`."""
    shutil.copytree(data / "multi_kernel_bench" / "output", tmp_path / "output")
    tasks = asked(data / "multi_kernel_bench")
    for path in (tmp_path / "output" / "run0", tmp_path / "output" / "run0" / "softsign.txt"):
        [kernel] = tasks.kernels("activation/softsign", path)
        assert "solution.py:ModelNew" == kernel.entry
