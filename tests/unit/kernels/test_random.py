"""Random ops: what they draw is held against theory, and against the generators that they draw from.

How close their draws come to eager's is for the judge to say (``evaluation/comparisons/distribution.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, MANIFEST, kernel, layouts, values

import opsmith
from opsmith.aten.schemas import aten_schemas
from opsmith.dispatch.exclusions import why_excluded
from opsmith.dispatch.plans.rng_state import COUNTER
from opsmith.kernels.random import philox
from opsmith.kernels.random.distributions import number_below

#: Draws of a test; a mean of so many is off by a hundredth of a standard deviation at most, 6 times in 1e9.
COUNT = 360_000


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """The same draws at every run, and the generator as it was; numpy warns of what float16 cannot hold."""
    with torch.random.fork_rng(devices=[]), np.errstate(all="ignore"):
        torch.manual_seed(2026)
        yield


def drawn(op: str, *args: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Draws in place, as float64."""
    tensor = torch.empty(COUNT, dtype=dtype)
    assert tensor is kernel(op)(tensor, *args)
    wide: torch.Tensor = tensor.double()
    return wide


#: Arguments, and the distribution function.
CONTINUOUS: dict[str, tuple[tuple[float, ...], Any]] = {
    "uniform_.default": ((-1.0, 3.0), lambda x: (x + 1) / 4),
    "normal_.default": ((2.0, 3.0), lambda x: torch.special.ndtr((x - 2) / 3)),
    "log_normal_.default": ((0.5, 0.25), lambda x: torch.special.ndtr((x.log() - 0.5) / 0.25)),
    "exponential_.default": ((2.0,), lambda x: 1 - torch.exp(-2 * x)),
    "cauchy_.default": ((1.0, 2.0), lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", CONTINUOUS)
def test_a_continuous_distribution(op: str, dtype: torch.dtype) -> None:
    """The empirical distribution function stays as near as Kolmogorov has it: farther once in 1e6 runs."""
    arguments, distribution = CONTINUOUS[op]
    heights = distribution(drawn(op, *arguments, dtype=dtype).sort().values)
    ideal = (torch.arange(COUNT, dtype=torch.float64) + 0.5) / COUNT
    assert float((heights - ideal).abs().max()) < math.sqrt(math.log(2e6) / 2 / COUNT)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_uniform_number_lies_below_the_end(dtype: torch.dtype) -> None:
    """What would be rounded to the end is not: 1 - 1e-5 is 1 in half types, and 0.1 is no number of theirs."""
    for low, high in ((0.0, 1.0), (0.09, 0.1), (-1e4, 0.0)):
        draws = drawn("uniform_.default", low, high, dtype=dtype)
        rounded = torch.tensor(low, dtype=dtype).double()
        assert bool(((draws >= torch.minimum(rounded, torch.tensor(low))) & (draws < high)).all())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("high", [1.0, 0.3, -0.5, -0.3, 257.0, 0.0, 1e-7])
def test_the_number_below_an_end(high: float, dtype: torch.dtype) -> None:
    """No number of the type lies between the two."""
    last = number_below(high, dtype)
    bits = torch.tensor(last, dtype=dtype).view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    following = (bits + (1 if last >= 0 else -1)).view(dtype).item()
    assert last == torch.tensor(last, dtype=dtype).item() < high <= following


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool])
def test_ones_have_their_probability(dtype: torch.dtype) -> None:
    """As a number, as a tensor that broadcasts, and for certain."""
    assert abs(drawn("bernoulli_.float", 0.3, dtype=dtype).mean() - 0.3) < 6 * math.sqrt(0.21 / COUNT)
    out = torch.empty(3, 1000, dtype=dtype)
    kernel("bernoulli_.Tensor")(out, torch.tensor([[0.0], [1.0], [0.5]]))
    assert [0, 1000] == out[:2].sum(1).tolist()
    assert 0 < int(out[2].sum()) < 1000


def test_trials_until_a_success() -> None:
    """At least one, each as probable as it is."""
    draws = drawn("geometric_.default", 0.25)
    for trials in (1, 2, 3, 8):
        chance = 0.25 * 0.75 ** (trials - 1)
        assert abs((draws == trials).double().mean() - chance) < 6 * math.sqrt(chance / COUNT)
    assert int(draws.min()) == 1


@pytest.mark.parametrize(("low", "high"), [(-3, 7), (0, 1), (-(1 << 62), 1 << 62), (5, (1 << 31) + 5)])
def test_integers(low: int, high: int) -> None:
    """All of a few are drawn, none beyond, and many spread evenly."""
    draws = kernel("randint.low")(low, high, [COUNT])
    assert low <= int(draws.min()) <= int(draws.max()) < high
    if high - low <= 10:
        assert set(range(low, high)) == set(draws.tolist())
    parts = (draws.double() - low) / (high - low)
    assert abs(float(parts.mean()) - (0.5 if high - low > 10 else (high - low - 1) / 2 / (high - low))) < 0.003


@pytest.mark.parametrize("layout", list(layouts(6, 5, 40)))
def test_every_element_gets_a_draw_of_its_own(layout: str) -> None:
    """In any layout: no element is left out, and no two of a dense tensor agree."""
    tensor = layouts(6, 5, 40)[layout]
    if layout == "expanded":
        tensor = kernel("rand_like.default")(tensor)
    else:
        kernel("uniform_.default")(tensor.fill_(7.0))
    assert bool((tensor < 1).all())
    assert tensor.numel() == tensor.unique().numel()


def test_a_seed_repeats_what_is_drawn_and_calls_differ() -> None:
    """With torch's own generator, and eager's draws in between change those after them."""
    rand = kernel("rand.default")

    def three() -> list[list[float]]:
        return [rand([4]).tolist(), torch.rand(1).tolist(), rand([4]).tolist()]

    torch.manual_seed(5)
    first = three()
    torch.manual_seed(5)
    assert first == three()
    assert first[0] != first[2]
    torch.manual_seed(5)
    rand([4])
    assert first[2] != rand([4]).tolist()


def test_a_generator_of_ones_own_is_drawn_from() -> None:
    """The default one stays as it is."""
    state = torch.get_rng_state()
    draws = [
        kernel("randn.generator")([4], generator=torch.Generator().manual_seed(seed)).tolist() for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]
    assert torch.equal(state, torch.get_rng_state())


class _Generator:
    """What a generator of a GPU shows."""

    device = torch.device("cuda")

    def __init__(self) -> None:
        self.offset = (1 << 35) + 8

    def initial_seed(self) -> int:
        """A seed whose halves are both negative as signed numbers."""
        return (0x9000_0000 << 32) | 0x8000_0001

    def get_offset(self) -> int:
        """In words."""
        return self.offset

    def set_offset(self, offset: int) -> None:
        """In words."""
        self.offset = offset


def test_a_gpus_generator_moves_on_by_the_words_of_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed and offset of the device's default generator, in halves of 32 bits."""
    generator, device = _Generator(), torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "default_generators", (None, generator))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    seed = (0x8000_0001 - (1 << 32), 0x9000_0000 - (1 << 32))
    assert (*seed, 2, 2) == philox.next_counter(None, device)
    assert (*seed, 3, 2) == philox.next_counter(None, device)
    assert (1 << 35) + 16 == generator.offset


def test_a_capture_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replays of a graph would all draw what was captured."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(NotImplementedError, match="graph"):
        philox.next_counter(None, torch.device("cuda", 0))


def test_a_generator_of_another_device_is_refused() -> None:
    """As in eager."""
    with pytest.raises(ValueError, match="for cpu is needed"):
        philox.next_counter(SimpleNamespace(device=torch.device("cuda")), torch.device("cpu"))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_scales_what_it_keeps(dtype: torch.dtype) -> None:
    """The result follows from the mask, in the layout of the input."""
    x = values(40, 300, dtype=dtype).T
    out, mask = kernel("native_dropout.default")(x, 0.25, True)
    assert x.stride() == out.stride() == mask.stride()
    torch.testing.assert_close(out, (x.double() * mask / 0.75).to(dtype))
    assert abs(mask.double().mean() - 0.75) < 6 * math.sqrt(0.1875 / x.numel())


@pytest.mark.parametrize(("p", "train", "kept"), [(0.5, False, True), (0.0, True, True), (1.0, None, False)])
def test_dropout_that_is_certain(p: float, *, train: bool | None, kept: bool) -> None:
    """Nothing is dropped outside of training and with probability 0, everything with 1."""
    x = values(5, 7)
    out, mask = kernel("native_dropout.default")(x, p, train)
    assert bool((mask == kept).all())
    torch.testing.assert_close(out, x * kept)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["rrelu_with_noise.default", "rrelu_with_noise_.default"])
def test_a_randomized_leaky_relu(op: str, dtype: torch.dtype) -> None:
    """The noise holds the slopes, 1 above 0; outside of training the slope is the mean and no noise is written."""
    x, noise = values(30, 50, dtype=dtype), torch.full((30, 50), 9.0, dtype=dtype)
    eval_out = kernel(op)(x.clone(), noise, 0.25, 0.75, False)
    assert bool((noise == 9).all())
    torch.testing.assert_close(eval_out, torch.nn.functional.leaky_relu(x, 0.5))
    out = kernel(op)(x.clone(), noise, 0.25, 0.75, True)
    torch.testing.assert_close(out, x * noise)
    below = noise[x <= 0]
    assert bool((noise[x > 0] == 1).all())
    assert 0.25 <= float(below.min()) < 0.3
    assert 0.7 < float(below.max()) < 0.75


#: Each is a program of the interpreter's: 60,000 took a minute.
DRAWS = 6_000


@pytest.mark.parametrize("dtype", FLOATS)
def test_categories_are_drawn_by_their_weights(dtype: torch.dtype) -> None:
    """With replacement; a category without weight never comes."""
    weights = torch.tensor([[1.0, 0.0, 2.0, 5.0], [0.0, 3.0, 0.0, 1.0]], dtype=dtype)
    draws = kernel("multinomial.default")(weights, DRAWS, True)
    for row, chances in zip(draws, (weights / weights.sum(1, keepdim=True)).double(), strict=True):
        shares = torch.bincount(row, minlength=4).double() / DRAWS
        assert bool(((shares - chances).abs() <= 6 * (chances * (1 - chances) / DRAWS).sqrt()).all())


def test_categories_without_replacement_come_one_after_another() -> None:
    """The first by its weight, the second by the weights that are left; none twice."""
    weights = torch.tensor([1.0, 0.0, 2.0, 5.0])
    draws = kernel("multinomial.default")(weights.expand(60_000, 4).contiguous(), 3)
    assert bool((draws.sort(1).values == torch.tensor([0, 2, 3])).all())
    first = torch.bincount(draws[:, 0], minlength=4) / 60_000
    torch.testing.assert_close(first, weights / 8, atol=0.012, rtol=0)
    after_three = draws[draws[:, 0] == 3][:, 1]
    assert abs(float((after_three == 2).float().mean()) - 2 / 3) < 0.016


def test_what_cannot_be_drawn_is_refused() -> None:
    """Bad parameters, and types that hold no such numbers."""
    tensor = torch.empty(3)
    with pytest.raises(ValueError, match="rate"):
        kernel("exponential_.default")(tensor, 0.0)
    with pytest.raises(ValueError, match="deviation"):
        kernel("normal_.default")(tensor, 0.0, -1.0)
    with pytest.raises(TypeError, match="floating-point"):
        kernel("uniform_.default")(tensor.int())
    with pytest.raises(ValueError, match="int8"):
        kernel("randint.default")(200, [3], dtype=torch.int8)
    with pytest.raises(ValueError, match="draws"):
        kernel("multinomial.default")(tensor, 4)


def test_kernels_that_draw_tell_plans_so() -> None:
    """Seed and offset are no part of a call's signature: a plan fills the parameters of these names at each call."""
    drawing = {op for op in MANIFEST if why_excluded(aten_schemas()[op]) == "random"}
    assert {"native_dropout.default", "multinomial.default", "bernoulli_.float"} < drawing
    assert COUNTER == philox.COUNTER
    assert {*philox.COUNTER} < {*philox.draw_kernel.arg_names}


def test_installed_kernels_leave_drawing_to_torch() -> None:
    """A model's seed fixes eager's numbers: with kernels in use they stay these numbers, and calls differ."""
    x = torch.ones(64)
    torch.manual_seed(1)
    expected = [torch.nn.functional.dropout(x), torch.rand_like(x)]
    torch.manual_seed(1)
    with opsmith.enabled("opsmith", ops=["native_dropout", "rand_like", "bernoulli_", "mul"]):
        actual = [torch.nn.functional.dropout(x), torch.rand_like(x)]
        assert not torch.equal(torch.rand_like(x), torch.rand_like(x))
    assert all(map(torch.equal, expected, actual))
