"""A few of the subjects of ``tests.differential.models``, and that it finds what it is for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.differential import models
from torch import Tensor, fx, nn

from opsmith.compile import forget_pass, graph_pass
from opsmith.compile.report import PassReport
from opsmith.compile.traced import triangles
from opsmith.suites.models import INFER, TRAIN
from opsmith.suites.models.workload import plain

#: Subjects, and the traced passes that rewrite something in them in inference and in training.
SAMPLES = {
    "L1/11_Causal_matmul": ("triangle", "triangle"),
    "L1/14_Bilinear_scorer": ("bilinear_form", "bilinear_form"),
    "L2/14_Causal_attention_by_hand": ("attention", "attention"),
    "L2/43_Conv_BatchNorm_ReLU": ("batch_norm", None),
    "models/conv_net": ("batch_norm", None),
}
#: These do not change what a call computes.
TIDYING = {"canonicalise", "common_subexpressions", "constant_folding", "dead_code", "view_cleanup"}
NAME = "a subject"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of torch.jit, and of transformers' own.


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FEWEST_ENTRIES", "_FEWEST_PRODUCTS"):
        monkeypatch.setattr(triangles, name, getattr(triangles, name))
    models.at_every_size()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [INFER, TRAIN])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_subject_agrees_with_eager_mode_and_passes_change_it(name: str, mode: str) -> None:
    """Results, gradients, buffers and inputs; with all passes, in ATen."""
    found = models.examine(name, mode)
    assert (models.AGREES, ()) == (found.verdict, found.details)
    expected = SAMPLES[name][mode == TRAIN]
    assert {expected} - {None} == set(found.fired) - TIDYING


class Layer(nn.Module):
    """A layer that counts its calls."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return torch.sigmoid(self.linear(x))


@pytest.fixture
def _layer(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    subject = models.Subject(Layer(), [((torch.randn(3, 4),), {})] * 2, plain)
    monkeypatch.setattr(models, "make_subject", lambda name: subject)


def _another_curve(graph: fx.Graph) -> int:
    """Let the sigmoid be a tanh."""
    fired = 0
    for node in list(graph.nodes):
        if node.target in {torch.sigmoid, "sigmoid"}:
            node.op, node.target = "call_function", torch.tanh
            fired += 1
    return fired


def _broken(graph: fx.Graph) -> int:
    raise ValueError("broken")


@pytest.fixture(params=[_another_curve, _broken])
def _wrong_pass(request: pytest.FixtureRequest) -> Iterator[Callable[[fx.Graph], int]]:
    yield graph_pass("wrong", stage="traced")(request.param)
    forget_pass("wrong")


@pytest.mark.slow
@pytest.mark.usefixtures("_layer")
@pytest.mark.parametrize("mode", [INFER, TRAIN])
def test_a_pass_that_changes_results_or_is_undone_is_a_failure(
    mode: str,
    _wrong_pass: Callable[[fx.Graph], int],  # noqa: PT019 - which of the two it is
) -> None:
    """The first is what all this looks for; the second means that a pass does not know its own graph."""
    found = models.examine(NAME, mode)
    assert models.FAILED == found.verdict
    undone = _wrong_pass is _broken
    assert undone == ("the pass wrong was undone: ValueError: broken" in found.details)
    assert undone != any(line.startswith("batch 0: result 0: ") for line in found.details)


@pytest.mark.usefixtures("_layer")
def test_what_differs_without_passes_too_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is torch's own, or Inductor's."""
    honest = models.compilers

    def dishonest(code: str, reports: list[PassReport]) -> tuple[Callable[[nn.Module], object], ...]:
        return tuple(lambda module, one=one: lambda x: one(module)(x) + 1 for one in honest(code, reports))

    monkeypatch.setattr(models, "compilers", dishonest)
    assert models.SHARED == models.examine(NAME, INFER).verdict


def _seen(values: list[float]) -> models.Seen:
    return {"batch 0: gradient of a.weight": torch.tensor(values), "batch 0: gradient of a.bias": torch.zeros(1)}


def test_values_are_held_against_the_largest_of_their_layer() -> None:
    """An infinity has to be where it was, and a buffer that only one has is a difference."""
    expected = _seen([1.0, 1000.0])
    assert {} == models.differences(expected, _seen([1.05, 1000.0]))
    assert {} == models.differences(expected, {**expected, "batch 0: gradient of a.bias": torch.full((1,), 0.05)})
    assert 1 == len(models.differences(expected, _seen([1.2, 1000.0])))
    assert 1 == len(models.differences(expected, _seen([1.0, float("inf")])))
    assert 1 == len(models.differences(expected, {**expected, "batch 0: buffer calls": torch.ones(())}))


@pytest.mark.slow
def test_a_run_is_recorded_and_fails_where_a_subject_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subjects are examined in another process; those for which there is no time are counted."""
    record = tmp_path / "models.json"
    arguments = ["--only", "L1/46_*", "-o", str(record)]

    def counts() -> object:
        return json.loads(record.read_text("utf-8"))["counts"]

    assert 0 == models.main(arguments)
    assert {"infer": {"agrees": 1}, "train": {"skipped": 1}} == counts()
    assert 0 == models.main([*arguments, "--seconds", "0"])
    assert {"infer": {"unreached": 1}, "train": {"unreached": 1}} == counts()
    monkeypatch.setattr(models, "run", lambda *_, **__: [models._unexamined((NAME, INFER), models.FAILED, 0.0)])
    assert 1 == models.main(arguments)
