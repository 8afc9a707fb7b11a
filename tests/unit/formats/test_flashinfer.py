from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.errors import BadInput
from opsmith.formats.flashinfer import ConstAxis, Definition, ExprAxis, VarAxis, extents
from opsmith.formats.flashinfer_files import problem_texts
from opsmith.formats.flashinfer_inputs import drawn
from opsmith.formats.readers import problems_from

Axis = ConstAxis | VarAxis | ExprAxis
NORM, GEMM = "norm/rmsnorm_h64", "gemm/gemm_n16_k24"


def test_definitions_are_tasks_by_their_op_types(asked: Callable[..., Any], data: Path) -> None:
    """Scores by level are scores by op type."""
    assert [GEMM, NORM] == list(asked(data / "flashinfer").files)


def test_every_workload_is_a_case_the_small_ones_first(asked: Callable[..., Any], data: Path) -> None:
    """With the scalars that it says."""
    records, skipped = asked(data / "flashinfer").calls(NORM)
    assert not skipped
    workloads = [records[f"workload:{number}"].args for number in range(2)]
    assert [((4, 64), 1e-6), ((33, 64), 1e-5)] == [(args[0].shape, args[2]) for args in workloads]
    assert "workload:2" not in records


@pytest.mark.parametrize(("task", "number"), [(NORM, 0), (GEMM, 0)])
def test_solutions_answer_as_the_reference_does(asked: Callable[..., Any], data: Path, task: str, number: int) -> None:
    """One returns its result and has two files, the other writes into the output that it is given."""
    tasks = asked(data / "flashinfer")
    records, _ = tasks.calls(task)
    kernel = tasks.kernels(task, data / "flashinfer")[number]
    torch.testing.assert_close(*tasks.answers(task, kernel, records["workload:1"]))


def test_solutions_of_one_definition_are_its_samples(asked: Callable[..., Any], data: Path) -> None:
    """With their names and authors in the record."""
    kernels = asked(data / "flashinfer").kernels(NORM, data / "flashinfer")
    assert [(NORM, "rmsnorm_two_files"), (f"{NORM}@1", "rmsnorm_without_weight")] == [
        (kernel.task, kernel.provenance.note) for kernel in kernels
    ]
    assert ["someone", "someone else"] == [kernel.provenance.author for kernel in kernels]


def sol_task(folder: Path, **changes: Any) -> Path:
    """A SOL-ExecBench problem with an axis that is an expression and inputs that the reference makes."""
    definition = {
        "name": "pair_sums",
        "axes": {
            "rows": {"type": "var"},
            "pairs": {"type": "const", "value": 6},
            "width": {"type": "expr", "expression": "2 * pairs"},
        },
        "custom_inputs_entrypoint": "make",
        "inputs": {"x": {"shape": ["rows", "width"], "dtype": "float32"}},
        "outputs": {"sums": {"shape": ["rows", "pairs"], "dtype": "float32"}},
        "reference": (
            "import torch\n\n\ndef make(axes_and_scalars, device):\n"
            "    return {'x': torch.rand(axes_and_scalars['rows'], axes_and_scalars['width'], device=device)}\n\n\n"
            "def run(x):\n    return x[:, ::2] + x[:, 1::2]\n"
        ),
    }
    folder.mkdir(parents=True)
    (folder / "definition.json").write_text(json.dumps(definition | changes, indent=2))
    workload = {"uuid": "u", "axes": {"rows": 5}, "inputs": {"x": {"type": "custom"}}, "tolerance": {"max_atol": 0.1}}
    (folder / "workload.jsonl").write_text(json.dumps(workload) + "\n")
    spec = {"languages": ["pytorch"], "target_hardware": ["LOCAL"], "entry_point": "k.py::run"}
    sources = [{"path": "k.py", "content": "def run(x, sums):\n    sums += x[:, ::2] + x[:, 1::2]\n"}]
    solution = {"name": "s", "definition": "pair_sums", "author": "a", "spec": spec, "sources": sources}
    (folder / "solution.json").write_text(json.dumps(solution))
    return folder


def test_sol_execbench_is_read_with_its_own_fields(asked: Callable[..., Any], tmp_path: Path) -> None:
    """Expressions for axes, custom inputs, and outputs that are zeros when they are handed over."""
    folder = sol_task(tmp_path / "set" / "L1" / "pair_sums")
    tasks = asked(tmp_path / "set")
    assert ["L1/pair_sums"] == list(tasks.files)
    records, skipped = tasks.calls("L1/pair_sums")
    assert not skipped
    (kernel,) = tasks.kernels("L1/pair_sums", folder)
    torch.testing.assert_close(*tasks.answers("L1/pair_sums", kernel, records["workload:0"]))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"inputs": {"x": {"shape": ["rows", "wide"], "dtype": "float32"}}},
            ":20: inputs.x.shape[1]: there is no axis",
        ),
        ({"reference": "def walk(x): pass"}, "reference: it defines no function `run`"),
        ({"reference": "def run(y): pass"}, "reference: `run` takes y; inputs are x"),
        ({"reference": "def run(x:"}, "reference: line 1 of it does not parse"),
        ({"custom_inputs_entrypoint": "nothing"}, ":16: custom_inputs_entrypoint: the reference defines no"),
        ({"name": "../x"}, "the name '../x' is none for a file"),
    ],
)
def test_what_a_definition_gets_wrong_is_told_with_its_line(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    """The author sees the place in a file of a thousand lines."""
    folder = sol_task(tmp_path / "pair_sums", **changes)
    with pytest.raises(BadInput) as refused:
        problem_texts(folder)
    assert str(refused.value).startswith(str(folder / "definition.json"))
    assert complaint in str(refused.value)


def test_a_workload_that_lacks_an_axis_is_told_with_its_line(tmp_path: Path) -> None:
    """Of JSON Lines it is the line of the file."""
    folder = sol_task(tmp_path / "pair_sums")
    with (folder / "workload.jsonl").open("a") as lines:
        lines.write('{"uuid": "v", "axes": {}}\n')
    with pytest.raises(BadInput, match=r"workload.jsonl:2: axes: it says no extent of the axis 'rows'"):
        problems_from(folder)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"entry_point": "k.py"}, "spec.entry_point: write FILE::FUNCTION"),
        ({"entry_point": "m.py::run"}, "spec.entry_point: no source has the path 'm.py'"),
        ({"languages": ["cobol"]}, "unknown language 'cobol'"),
        ({"languages": []}, "it says no language"),
    ],
)
def test_what_a_solution_gets_wrong_is_told(
    asked: Callable[..., Any], tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    """Before anything is judged."""
    folder = sol_task(tmp_path / "pair_sums")
    file = folder / "solution.json"
    solution = json.loads(file.read_text())
    solution["spec"] |= change
    file.write_text(json.dumps(solution))
    tasks = asked(folder)
    with pytest.raises(BadInput) as refused:
        tasks.kernels("pair_sums", folder)
    assert complaint in str(refused.value)


def test_sources_stay_in_their_folder(asked: Callable[..., Any], tmp_path: Path) -> None:
    """A path that leads out of it would write over files of the user's."""
    folder = sol_task(tmp_path / "pair_sums")
    file = folder / "solution.json"
    file.write_text(file.read_text().replace('"path": "k.py"', '"path": "../k.py"').replace("k.py::", "../k.py::"))
    with pytest.raises(BadInput, match=r"sources\[0\].path: '../k.py' leads out of the solution's folder"):
        asked(folder).kernels("pair_sums", folder)


def test_a_definition_without_workloads_stays_and_says_so(asked: Callable[..., Any], tmp_path: Path) -> None:
    """It is asked for and cannot be: that is no reason to leave it out of the score."""
    folder = sol_task(tmp_path / "pair_sums")
    (folder / "workload.jsonl").unlink()
    records, [reason] = asked(folder).calls("pair_sums")
    assert not records
    assert "definition.json has no workload" in reason


def test_expressions_are_calculated_and_never_run() -> None:
    """A definition is a stranger's text."""
    axes: dict[str, Axis] = {
        "a": ConstAxis(7),
        "b": ExprAxis("a // 2 + c"),
        "c": ExprAxis("-(a % 4) + n ** 2"),
        "n": VarAxis(),
    }
    definition = Definition("d", axes, {}, {}, "def run(): pass")
    assert {"a": 7, "n": 3, "c": 6, "b": 9} == extents(definition, {"n": 3})


@pytest.mark.parametrize("expression", ["n / 2", "n % 0", "abs(n)", "n +", "9 ** 9 ** 9 ** n", "'a'"])
def test_expressions_without_a_whole_number_are_refused(expression: str) -> None:
    """And one that would take for ever is no sooner begun."""
    axes: dict[str, Axis] = {"a": ExprAxis(expression), "n": VarAxis(), "abs": ConstAxis(1)}
    with pytest.raises(BadInput, match="has no whole number for a value"):
        extents(Definition("d", axes, {}, {}, "def run(): pass"), {"n": 3})


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("running_var", lambda values: bool((values > 0).all())),
        ("cos", lambda values: bool((values.abs() <= 1).all())),
        ("x", lambda values: bool((values < 0).any())),
    ],
)
def test_names_say_which_values_mean_something(name: str, holds: Callable[[torch.Tensor], bool]) -> None:
    """The square root of a negative variance is no question."""
    [values] = drawn({name: (["n", 8], "bfloat16")}, {"n": 16}, {})
    assert (torch.bfloat16, (16, 8)) == (values.dtype, values.shape)
    assert holds(values)


def test_stored_values_are_read_from_safetensors(asked: Callable[..., Any], tmp_path: Path) -> None:
    """Page tables and masks are recorded, because random ones mean nothing."""
    safetensors = pytest.importorskip("safetensors.torch")
    folder = sol_task(tmp_path / "pair_sums", custom_inputs_entrypoint=None)
    stored = torch.arange(60.0).view(5, 12)
    safetensors.save_file({"first": stored}, folder / "values.safetensors")
    given = {"x": {"type": "safetensors", "path": "values.safetensors", "tensor_key": "first"}}
    (folder / "workload.jsonl").write_text(json.dumps({"uuid": "u", "axes": {"rows": 5}, "inputs": given}))
    [tensor] = drawn(
        {"x": (["rows", 12], "float32")}, {"rows": 5}, {"x": given["x"] | {"path": folder / "values.safetensors"}}
    )
    torch.testing.assert_close(stored, tensor)
    assert not asked(folder).calls("pair_sums")[1]
