"""A Model that draws random numbers is held to eager's draws, and what other draws would give excuses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from opsmith.calls.seeding import seed_generators
from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.oracle.execution import run_wide
from opsmith.tasks import registry

CPU = torch.device("cpu")
DRAWS = {
    "dropout": "torch.nn.functional.dropout(x, 0.3)",
    "native_dropout": "torch.native_dropout(x, 0.3, True)[0]",
    "bernoulli": "x * torch.bernoulli(torch.full_like(x, 0.7))",
    "rand": "torch.where(torch.rand(x.shape) < 0.7, x, 0)",
    "rand_like": "torch.where(torch.rand_like(x) < 0.7, x, 0)",
    "randn": "x + torch.randn(x.shape).to(x.dtype)",
    "normal_": "x + torch.empty_like(x).normal_(0, 2)",
}
#: Draws of 16-bit numbers are what a Model of such numbers makes of its tensors.
DTYPES = [torch.float32, torch.bfloat16]

Kernel = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Drawing:
    """A Model that multiplies, draws and multiplies, on inputs whose products cancel."""

    def __init__(self, file: Path, draw: str, dtype: torch.dtype) -> None:
        file.write_text(
            "import torch\n"
            "class Model(torch.nn.Module):\n"
            "    def forward(self, x, y):\n"
            f"        x = x @ y\n        x = {draw}\n        return x @ y\n"
            "get_inputs = lambda: [torch.rand(64, 64), torch.rand(64, 64)]\n"
        )
        registry.use_problems({"problem": file}, "cpu")
        [schema] = registry.loaded_schemas(["problem"])
        generator = torch.Generator().manual_seed(3)
        self.args = tuple((4 * torch.randn(64, 64, generator=generator)).to(dtype) for _ in range(2))
        self.call = JudgedCall(schema=schema, args=self.args, kwargs={"state": {}}, seed=11)
        self._draw = eval(f"lambda x: {draw}", {"torch": torch})

    def passes(self, kernel: Kernel, *, draws: bool = True) -> bool:
        """Whether a kernel that multiplies in its own way is accepted; it draws with eager's seed, or not at all."""
        seed_generators(11, CPU)
        with torch.no_grad():
            expected = registry.reference("problem")(*self.args, state={})
        seed_generators(11, CPU)
        middle = kernel(*self.args)
        got = kernel(self._draw(middle) if draws else middle, self.args[1])
        return compare(self.call, [[expected]], [[got]], tolerance="strict").passed


@pytest.fixture
def drawing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Drawing]:
    """A Model, by what it draws and its dtype."""
    yield Drawing(tmp_path / "problem.py", *request.param)
    registry.use_problems({}, "cpu")


def in_blocks(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The product in another order, with a wide accumulator."""
    total = torch.zeros(x.shape[0], y.shape[1])
    for block in range(0, x.shape[1], 8):
        total = total + x[:, block : block + 8].float() @ y[block : block + 8].float()
    return total.to(x.dtype)


def in_float16(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The product of rounded operands."""
    return (x.half().float() @ y.half().float()).to(x.dtype)


EVERY = pytest.mark.parametrize(
    "drawing", [(draw, dtype) for draw in DRAWS.values() for dtype in DTYPES], indirect=True, ids=str
)


@pytest.mark.parametrize("drawing", [(DRAWS["rand"], torch.float32)], indirect=True, ids=str)
def test_what_is_drawn_afterwards_is_as_if_no_oracle_had_been_asked(drawing: Drawing) -> None:
    """It draws under a random state of its own."""
    torch.manual_seed(3)
    state = torch.get_rng_state()
    run_wide(drawing.call, 1)
    assert torch.equal(state, torch.get_rng_state())


@EVERY
def test_a_kernel_that_draws_as_eager_may_round_as_it_likes(drawing: Drawing) -> None:
    """The oracle draws eager's numbers too, in eager's type, so that it knows what the rest comes to."""
    assert drawing.passes(in_blocks)


@EVERY
def test_a_kernel_that_leaves_out_what_is_drawn_fails(drawing: Drawing) -> None:
    """Two thirds of the elements are right then, and the others would be under other draws."""
    assert not drawing.passes(in_blocks, draws=False)
    assert not drawing.passes(lambda x, y: torch.zeros_like(x @ y))


@pytest.mark.parametrize("drawing", [(draw, torch.float32) for draw in DRAWS.values()], indirect=True, ids=str)
def test_a_lower_precision_is_no_draw(drawing: Drawing) -> None:
    """It is as wrong beside a dropout as without one."""
    assert not drawing.passes(in_float16)
