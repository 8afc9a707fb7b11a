"""The kernels after public projects, and what the benchmark that judges them says of verdicts."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.judging.specificity import (
    MODULES,
    PUBLIC,
    REFUSED,
    Line,
    Outcome,
    PublicKernel,
    Round,
    figures,
    module_rounds,
    outcomes,
    public_kernels,
    public_rounds,
    table,
)
from tests.evaluation_calls import judge
from tests.report_runs import planned, verdict, write_run

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.directory import KernelDirectory
from opsmith.core.task import Task
from opsmith.core.verdict import Part, Status
from opsmith.report.scores import summarise

# The interpreter's numbers meet infinities.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = public_kernels()
CAUSES = tomllib.loads((PUBLIC / REFUSED / "causes.toml").read_text())


def test_the_kernels_are_as_many_and_as_varied_as_they_have_to_be() -> None:
    """Sixty kernels of one project would be one author's habits."""
    right = [kernel for kernel in KERNELS if kernel.project != REFUSED]
    assert len(right) >= 60
    assert len({kernel.project for kernel in right}) >= 6
    assert len({kernel.op for kernel in right}) >= 60
    assert all(kernel.entry["provenance"]["note"] for kernel in KERNELS)


def test_every_project_is_on_the_page() -> None:
    """The page says what each is after."""
    page = (PUBLIC / "README.md").read_text()
    assert {kernel.project for kernel in KERNELS} | {MODULES.name} == {
        path.name for path in PUBLIC.iterdir() if path.is_dir() and f"`{path.name}`" in page
    }


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_an_entry_names_a_function(kernel: PublicKernel) -> None:
    """A kernel that does not load would be refused for that."""
    file, _, function = kernel.entry["entry"].rpartition(":")
    tree = ast.parse((PUBLIC / kernel.project / file).read_bytes())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_rounds_are_kernel_directories_that_answer_each_kernel_once_a_dtype(tmp_path: Path) -> None:
    """Kernels of two projects for one op are judged in two runs."""
    rounds = public_rounds(KERNELS, ["f32", "bf16"], tmp_path)
    answered = [(round_.dtype, name) for round_ in rounds for name in (round_.kernels or {}).values()]
    assert sorted(answered) == sorted((d, k.name) for k in KERNELS for d in ("f32", "bf16") if d in k.dtypes)
    for round_ in rounds:
        directory = KernelDirectory(Path(round_.backend))
        for op in round_.kernels or {}:
            assert directory.kernel_for(Task(name=op, op=aten_schemas()[op], suite="opinfo")) is not None


def test_every_problem_has_a_solution() -> None:
    """And the command names both."""
    (round_,) = module_rounds(["f32"], "cpu", ["*"])
    assert {path.stem for path in (MODULES / "problems").glob("*.py")} == set(round_.kernels or {})
    assert {"small"} == {size for size in ("small", "full") if size in round_.asked}
    assert [] == module_rounds(["bf16"], "cpu", ["*"])


def function_of(kernel: PublicKernel) -> Callable[..., Any]:
    """A kernel's function, its file imported as a module of its project."""
    file, _, name = kernel.entry["entry"].rpartition(":")
    package = f"public_kernels_{kernel.project}"
    for module, path in ((package, None), (f"{package}.{file[:-3]}", PUBLIC / kernel.project / file)):
        if module not in sys.modules:
            spec = (
                importlib.util.spec_from_loader(module, loader=None, is_package=True)
                if path is None
                else importlib.util.spec_from_file_location(module, path)
            )
            assert spec is not None
            sys.modules[module] = loaded = importlib.util.module_from_spec(spec)
            if path is None:
                loaded.__path__ = [str(PUBLIC / kernel.project)]
            elif spec.loader is not None:
                spec.loader.exec_module(loaded)
    return getattr(sys.modules[f"{package}.{file[:-3]}"], name)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.project == REFUSED], ids=lambda kernel: kernel.op)
def test_a_refused_kernel_has_an_input_on_which_it_is_wrong(kernel: PublicKernel) -> None:
    """Otherwise it might be the judge that is wrong."""
    cause = CAUSES[kernel.op]
    packet, _, overload = kernel.op.partition(".")
    call = getattr(getattr(torch.ops.aten, packet), overload)
    arguments = eval(cause["arguments"], {"torch": torch})
    torch.manual_seed(1)
    expected, actual = call(*arguments), function_of(kernel)(*arguments)
    expected, actual = (each[0] if isinstance(each, tuple) else each for each in (expected, actual))
    if kernel.op == "bernoulli.default":
        torch.manual_seed(2)
        assert torch.equal(actual, function_of(kernel)(*arguments))
        assert not torch.equal(expected, call(*arguments))
    else:
        assert not torch.allclose(actual, expected, rtol=1e-3, atol=0, equal_nan=True)
    assert set(CAUSES) == {other.op for other in KERNELS if other.project == REFUSED}


def line(*outcomes_: Outcome, kernel: str = "flag_gems/relu.default") -> Line:
    """What seeds 1, 2, ... said."""
    return Line(kernel, "f32", {seed: (outcome, "") for seed, outcome in enumerate(outcomes_, 1)})


def test_a_verdict_that_depends_on_the_seed_is_unexpected() -> None:
    """Right or wrong, a kernel has one verdict."""
    assert line(Outcome.ACCEPTED, Outcome.ACCEPTED).as_expected
    assert not line(Outcome.ACCEPTED, Outcome.REFUSED).as_expected
    assert not line(Outcome.REFUSED, Outcome.REFUSED).as_expected
    assert line(Outcome.NOT_ASKED, Outcome.NOT_ASKED).as_expected
    assert line(Outcome.REFUSED, Outcome.REFUSED, kernel="refused/relu.default").as_expected
    assert not line(Outcome.ACCEPTED, Outcome.ACCEPTED, kernel="refused/relu.default").as_expected
    assert not line(Outcome.REFUSED, Outcome.ACCEPTED, kernel="refused/relu.default").as_expected


def test_the_table_has_a_line_for_each_kernel_and_what_was_said() -> None:
    """A refusal is read with its reason."""
    refused = Line("liger/x", "bf16", {1: (Outcome.REFUSED, "WRONG_VALUE: by 1"), 2: (Outcome.ACCEPTED, "")})
    text = table([line(Outcome.ACCEPTED, Outcome.ACCEPTED), refused], [1, 2])
    assert "| liger/x | bf16 | refused | accepted |" in text
    assert "- liger/x, bf16: WRONG_VALUE: by 1" in text
    assert figures([line(Outcome.ACCEPTED), refused]) == {
        "kernels": 2,
        "lines": 2,
        "accepted": 1,
        "flips": 1,
        "unexpected": 1,
    }


def test_what_a_run_says_of_a_kernel_follows_from_its_verdicts(tmp_path: Path) -> None:
    """To decline another dtype, or calls of this one, is no fault; a wrong variant is one."""
    ops = ("relu.default", "neg.default", "exp.default", "log.default", "abs.default")
    wide = "(T([3], f64),)"
    verdicts = [verdict(op, 0) for op in ops]
    verdicts += [
        verdict("relu.default", 1),
        verdict("neg.default", 1, Status.UNSUPPORTED, inputs=wide),
        verdict("exp.default", 1, Status.UNSUPPORTED),
        verdict("log.default", 1),
        verdict("log.default", 2, Status.WRONG_VALUE, part=Part.VARIANT, variant="nan", detail="by 1"),
        verdict("abs.default", 1, Status.UNSUPPORTED),
        verdict("abs.default", 2, Status.WRONG_VALUE, part=Part.VARIANT, variant="nan", detail="by 1"),
    ]
    run = write_run(tmp_path / "run", [planned(op) for op in ops], verdicts)
    run.write("summary.json", summarise(run.manifest(), run.plan(), verdicts))
    round_ = Round("one", "folder", "native", "f32", {op: f"mine/{op}" for op in (*ops, "tanh.default")})
    found = outcomes(round_, run.path)
    assert {name.removeprefix("mine/"): outcome for name, (outcome, _) in found.items()} == {
        "relu.default": Outcome.ACCEPTED,
        "neg.default": Outcome.ACCEPTED_FOR,
        "exp.default": Outcome.DECLINES,
        "log.default": Outcome.REFUSED,
        "abs.default": Outcome.REFUSED,
        "tanh.default": Outcome.NOT_ASKED,
    }
    assert found["mine/abs.default"][1].startswith("WRONG_VALUE (nan): by 1")


X = torch.linspace(-3, 3, 60).view(3, 20)
HANDFUL: dict[str, tuple[Any, ...]] = {
    "flag_gems/gelu.default": (X,),
    "flag_gems/max.dim": (X.t(), 1),
    "flag_gems/var_mean.correction": (X[:, ::2], [0]),
    "flag_gems/cumsum.default": (X, 1),
    "flag_gems/sort.default": (X.cos(), 0, True),
    "flag_gems/nll_loss_forward.default": (X, torch.tensor([1, 19, 0]), None, 1, -100),
    "triton_tutorials/_softmax.default": (X, 0, False),
    "triton_tutorials/mm.default": (X, X.t()),
    "applied_ai/mm.default": (X, X.t()),
    "fla/logsumexp.default": (X, [1]),
    "attorch/glu.default": (X, 1),
    "attorch/convolution.default": (
        *(X.view(1, 3, 4, 5), X[:, :12].reshape(4, 3, 1, 3), None, [1, 2], [0, 1], [1, 1], False, [0, 0], 1),
    ),
    "huggingface/native_layer_norm.default": (X, [20], None, None, 1e-5),
}


@pytest.mark.parametrize("name", HANDFUL)
def test_a_kernel_gives_what_eager_gives(name: str) -> None:
    """A handful; the benchmark judges them all."""
    (kernel,) = (each for each in KERNELS if each.name == name)
    packet, _, overload = kernel.op.partition(".")
    call = getattr(getattr(torch.ops.aten, packet), overload)
    finding = judge(call, HANDFUL[name], function_of(kernel)(*HANDFUL[name]))
    assert finding.passed, finding.detail
