"""Module problems that ask nothing: a kernel has their answer without computing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from opsmith.core.audit import AuditFinding, Check
from opsmith.core.run import Selection
from opsmith.evaluation.criteria.tolerance import is_within
from opsmith.suites import SuiteCall, Void
from opsmith.suites.modules import Modules
from opsmith.tasks import registry

Enumerate = Callable[..., tuple[AuditFinding | None, list[str]]]

RANDN, RAND, ONES = "torch.randn(8, 16)", "torch.rand(8, 16)", "torch.ones(8, 16)"


@pytest.fixture
def enumerate_(tmp_path: Path) -> Iterator[Enumerate]:
    """What was found about a problem whose forward returns this, and the sources of its cases."""

    def enumerated(
        answer: str,
        *,
        inputs: str = RANDN,
        dtype: str = "f32",
        mode: str = "strict",
        trials: int = 5,
        before: str = "",
        seed: int = 1,
    ) -> tuple[AuditFinding | None, list[str]]:
        (tmp_path / "problem.py").write_text(
            "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
            "class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.linear, self.norm = nn.Linear(16, 12), nn.BatchNorm1d(16)\n"
            f"    def forward(self, x):\n        {before or 'pass'}\n        return {answer}\n"
            f"def get_inputs():\n    return [{inputs}]\n"
        )
        registry.use_problems({"problem": tmp_path / "problem.py"}, "cpu")
        suite = Modules()
        suite.select(Selection(trials=trials, seeded=mode == "kernelbench"))
        suite.compare_by(partial(is_within, mode=mode))
        found = list(suite.calls("problem", dtype, "cpu", seed, lambda _op, _signature: True))
        void = [each.finding for each in found if isinstance(each, Void)]
        assert len(found) == len(void) + sum(isinstance(each, SuiteCall) for each in found)
        return next(iter(void), None), [each.address.source for each in found if isinstance(each, SuiteCall)]

    yield enumerated
    registry.use_problems({}, "cpu")


@pytest.mark.parametrize(
    ("answer", "inputs", "check", "said"),
    [
        # The mean over a dimension of one element taken from that element.
        (
            "F.gelu(self.linear(x).amax(1, True) - self.linear(x).amax(1, True).mean(1, True))",
            RANDN,
            "CONSTANT",
            "zero",
        ),
        ("torch.clamp(torch.minimum(self.linear(x), torch.zeros(())), 0, 1)", RANDN, "CONSTANT", "zero everywhere"),
        ("torch.softmax(self.linear(x).sum(1, True), 1)", RANDN, "CONSTANT", "1 everywhere"),
        ("self.linear(x) * 0 + self.linear.bias", RANDN, "CONSTANT", "whatever the inputs are"),
        ("self.linear.weight @ self.linear.weight.T", RANDN, "CONSTANT", "whatever the inputs are"),
        ("(x > 1e6).any(1)", RANDN, "CONSTANT", "zero everywhere"),
        ("torch.zeros_like(x).argmax(1)", RANDN, "CONSTANT", "zero everywhere"),
        ("F.dropout(torch.relu(-self.linear(x).square()), 0.5)", RANDN, "CONSTANT", "zero everywhere"),
        ("(x * 0, {'b': F.softmax(x[:, :1], 1)})", RANDN, "CONSTANT", "whatever the inputs are"),
        ("7.5", RANDN, "CONSTANT", "7.5 everywhere"),
        (
            "torch.log(-self.linear(x).square() - 1)",
            RANDN,
            "FINITE",
            "not one element of the answer is a finite number",
        ),
        ("x + 0 * self.linear(x).sum()", RANDN, "TRIVIAL", "input 0 itself"),
        ("torch.softmax(self.linear(x), 1).sum(1) - 1", RANDN, "TRIVIAL", "zero but for rounding"),
        ("F.one_hot(x, 8).sum(-1)", "torch.randint(0, 8, (4, 6))", "CONSTANT", "1 everywhere"),
        ("torch.ones(3)", "5", "CONSTANT", "1 everywhere"),
        # The inputs are the same in each draw: they are changed, and nothing follows.
        ("x.sum() * 0", ONES, "CONSTANT", "zero everywhere"),
    ],
)
def test_what_a_kernel_has_without_computing_is_no_problem(
    enumerate_: Enumerate, answer: str, inputs: str, check: str, said: str
) -> None:
    """Zeros, a constant, a bias or an input would be accepted, at the speed of nothing."""
    finding, _ = enumerate_(answer, inputs=inputs)
    assert finding is not None
    assert (Check[check], True) == (finding.check, said in finding.detail), finding


@pytest.mark.parametrize(
    ("answer", "inputs"),
    [
        ("torch.tanh(self.linear(x))", RANDN),
        ("1 + 1e-3 * self.linear(x)", RANDN),
        ("self.linear(x)", ONES),
        ("self.linear.weight[x]", "torch.randint(0, 12, (4, 6))"),
        ("x.argmax(1)", RANDN),
        ("torch.softmax(x, 1)", RAND),
        ("1e-6 * torch.softmax(x, 1)", RANDN),
        # One of two results is trivial, or what is left in the state follows from the inputs.
        ("(x, self.linear(x))", RANDN),
        ("(x, x * 0 + x[0, 0])", RANDN),
        ("self.norm(x) * 0", RANDN),
        ("F.dropout(self.linear(x), 0.5)", RANDN),
        ("self.linear(x).sum()", RANDN),
        ("torch.where(torch.arange(128).view(8, 16) == 77, x, 0)", RANDN),
    ],
)
def test_what_depends_on_its_input_is_judged_as_ever(enumerate_: Enumerate, answer: str, inputs: str) -> None:
    """However small the part is that does, and whatever stands beside it."""
    for dtype in ("f32", "bf16"):
        finding, sources = enumerate_(answer, inputs=inputs, dtype=dtype)
        assert finding is None
        assert dtype != "f32" or "magnitude" not in sources


@pytest.mark.parametrize(
    ("answer", "inputs"),
    [
        ("torch.relu(x)", RAND),
        ("torch.relu(self.linear(x) - 8)", RANDN),
        ("torch.sigmoid(self.linear(x) + 30)", RANDN),
        ("x.clamp(-1, 1)", "torch.rand(8, 16) - 0.5"),
    ],
)
@pytest.mark.slow
def test_what_only_its_own_draws_make_trivial_is_asked_where_it_is_not(
    enumerate_: Enumerate, answer: str, inputs: str
) -> None:
    """So that no trivial kernel passes every case, whatever the variants happen to draw."""
    for seed in range(4):
        finding, sources = enumerate_(answer, inputs=inputs, seed=seed)
        assert (None, 1) == (finding, sources.count("magnitude"))


@pytest.mark.parametrize("answer", ["torch.relu(x)", "torch.softmax(x.repeat(1, 4000), 1)"])
def test_the_public_harness_draws_too_narrowly_and_the_problem_is_real(enumerate_: Enumerate, answer: str) -> None:
    """Seeded, nothing but the problem's own draws is asked; other magnitudes tell what it is all the same."""
    finding, sources = enumerate_(answer, inputs=RAND, mode="kernelbench")
    assert (None, {"inputs"}) == (finding, set(sources))
    finding, _ = enumerate_("x - x", inputs=RAND, mode="kernelbench")
    assert finding is not None


@pytest.mark.parametrize("trials", [1, 2, 5])
def test_few_trials_are_enough_to_find_out(enumerate_: Enumerate, trials: int) -> None:
    """Further draws are made for it."""
    finding, sources = enumerate_("x * 0", trials=trials)
    assert finding is not None
    assert "in 6 draws of the inputs and at 7 other magnitudes" in finding.detail
    assert trials == sources.count("inputs")
    assert None is enumerate_("self.linear(x)", trials=trials)[0]


def test_a_model_that_refuses_a_further_draw_is_no_error(enumerate_: Enumerate) -> None:
    """What it answers its own trials with is asked; nothing is known beyond."""
    count = "self.calls = getattr(self, 'calls', 0) + 1; assert self.calls <= 9, 'no more'"
    finding, sources = enumerate_("x * 0", before=count, trials=5)
    assert (None, ["inputs"] * 5) == (finding, sources[:5])


def test_nobody_finds_out_where_nobody_says_what_passes(tmp_path: Path) -> None:
    """The suite itself has no tolerance."""
    (tmp_path / "problem.py").write_text(
        "from torch import nn, zeros\nclass Model(nn.Module):\n    def forward(self, x): return x * 0\n"
        "def get_inputs(): return [zeros(3)]\n"
    )
    registry.use_problems({"problem": tmp_path / "problem.py"}, "cpu")
    found = list(Modules().calls("problem", "f32", "cpu", 1, lambda _op, _signature: True))
    registry.use_problems({}, "cpu")
    assert not [each for each in found if isinstance(each, Void)]


@pytest.mark.parametrize(
    ("one", "other", "mode", "expected"),
    [
        (torch.full((3,), 1e-7), torch.zeros(3), "strict", False),
        (torch.full((3,), 1e-7), torch.zeros(3), "kernelbench", True),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), "strict", True),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "kernelbench", False),
        (torch.ones(3), torch.ones(3, dtype=torch.float64), "strict", False),
        (torch.ones(3), torch.ones(1, 3), "strict", False),
        (torch.ones(3, dtype=torch.complex64), torch.ones(3, dtype=torch.complex64), "strict", True),
        (torch.ones(1 << 15), torch.ones(1 << 15), "strict", True),
        (torch.ones(1 << 15), torch.cat([torch.ones((1 << 15) - 1), torch.zeros(1)]), "strict", False),
    ],
)
def test_an_answer_passes_for_another_as_a_solution_does(
    one: torch.Tensor, other: torch.Tensor, mode: str, *, expected: bool
) -> None:
    """By the run's tolerance, which shrinks with small results where it is strict."""
    assert expected is is_within(one, other, mode)
