from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import MANIFEST, eager, kernel, ops_of

from opsmith.kernels.special import orthogonal_polynomials

INFINITE, NAN = float("inf"), float("nan")
ENDS = torch.tensor([0.0, -0.0, INFINITE, -INFINITE, NAN, 1e-40, 1e30], dtype=torch.float64)
GRID = torch.cat([torch.linspace(-12, 12, 97).double() + 0.013, torch.logspace(-8, 3, 40).double(), ENDS])
OPS = ops_of("special/special_functions.py")
UNARY = [op for op in OPS if not op.startswith(("polygamma", "mvlgamma")) and "zeta" not in op]
#: Eager's own fits of these are no better.
ROUGH = {"special_airy_ai.default", *(f"special_bessel_{kind}.default" for kind in ("j0", "j1", "y0", "y1"))}
POLYNOMIALS = [op for op in MANIFEST if "polynomial" in op and op.endswith(".default")]


def assert_close_to_eager(op: str, *args: object, rtol: float) -> None:
    """In relative terms, however small the values."""
    with np.errstate(all="ignore"):
        actual = kernel(op)(*args)
    torch.testing.assert_close(actual, eager(op)(*args), rtol=rtol, atol=0, equal_nan=True)


@pytest.mark.parametrize("op", UNARY)
def test_values_in_float64(op: str) -> None:
    """Poles, zeros, ends and all pieces between them."""
    x = GRID[GRID.abs() <= 100] if op in ROUGH else GRID
    x = x / 12.3 if op in ("erfinv.default", "special_ndtri.default") else x
    if op in ROUGH:
        x = x[(x.abs() < 1.7) | (x.abs() > 60)]
    assert_close_to_eager(op, x, rtol=1e-4 if op in ROUGH else 1e-12)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_integers_become_floats(op: str, dtype: torch.dtype) -> None:
    """Of the default type."""
    with np.errstate(all="ignore"):
        assert kernel(op)(torch.ones(3, dtype=dtype)).dtype == torch.float32


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        ("special_bessel_j0.default", 5.513, -0.0024099571291748077),
        ("special_bessel_y0.default", 5.013, -0.31041125065437192),
        ("special_airy_ai.default", -2.237, 0.070621610002431681),
    ],
)
def test_values_that_eager_has_wrong(op: str, x: float, expected: float) -> None:
    """By mpmath, at 17 digits."""
    with np.errstate(all="ignore"):
        actual = kernel(op)(torch.tensor([x], dtype=torch.float64))
    torch.testing.assert_close(actual, torch.tensor([expected], dtype=torch.float64), rtol=1e-12, atol=0)


def test_erfinv_in_float32() -> None:
    """To four units of the last digit, from the smallest number to the last one before 1."""
    near_1 = 1 - 2.0 ** -torch.linspace(1, 24, 2000)
    x = torch.cat([torch.linspace(-0.999, 0.999, 4001), near_1, -near_1, 2.0 ** -torch.linspace(1, 140, 1000)])
    ends = torch.tensor([1.0, -1.0, 1.5, -2.0, NAN, INFINITE, 0.0, -0.0])
    with np.errstate(all="ignore"):
        actual, at_ends = kernel("erfinv.default")(x), kernel("erfinv.default")(ends)
    torch.testing.assert_close(actual.double(), torch.erfinv(x.double()), rtol=2.5e-7, atol=1e-44)
    torch.testing.assert_close(at_ends, torch.erfinv(ends), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(at_ends.signbit()[-2:], ends.signbit()[-2:])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 6])
def test_polygamma_on_both_sides_of_zero(n: int) -> None:
    """Far below zero as well, where a sum term by term would not end."""
    x = torch.cat([torch.linspace(-20, 20, 77).double() + 0.013, torch.tensor([1e6]).double()])
    assert_close_to_eager("polygamma.default", n, x, rtol=1e-9)
    with np.errstate(all="ignore"):
        far = kernel("polygamma.default")(n, torch.tensor([-4988429.25], dtype=torch.float64))
    assert far.isfinite().all()


def test_zeta_at_its_ends() -> None:
    """Poles, infinite exponents, NaN."""
    v = torch.tensor([0.0, 1, -1, 0.5, -0.5, 2, 3, -2.5, 1e10, 1e15, INFINITE, NAN, 9.5], dtype=torch.float64)
    assert_close_to_eager("special_zeta.default", v.unsqueeze(1), v, rtol=1e-10)


def test_mvlgamma_adds_up() -> None:
    """Infinite where lgamma is."""
    x = torch.cat([torch.linspace(2.1, 40, 30).double(), torch.tensor([INFINITE]).double()])
    for p in (1, 3, 5):
        assert_close_to_eager("mvlgamma.default", x, p, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_mvlgamma_rounds_each_term_of_a_half_type(dtype: torch.dtype, p: int) -> None:
    """As eager does: next to zeros of the sum, and where a term is infinite, nothing else is near enough."""
    x = torch.cat([torch.linspace(0.5, 40, 800), torch.tensor([2e4, 6e4, INFINITE, NAN, 0.25])]).to(dtype)
    with np.errstate(all="ignore"):
        actual = kernel("mvlgamma.default")(x, p)
    expected = eager("mvlgamma.default")(x, p)
    torch.testing.assert_close(actual, expected, rtol=torch.finfo(dtype).eps, atol=0, equal_nan=True)


@pytest.mark.parametrize("op", POLYNOMIALS)
def test_polynomials_of_every_order(op: str) -> None:
    """Below zero, cut to integers, at both ends of the interval, beyond it and of high order."""
    x = torch.tensor([-3.5, -1.0, -0.9, 0.0, 0.3, 1.0, 1.2, 7.0], dtype=torch.float64)
    n = torch.tensor([-2.0, -0.5, 0.0, 1.0, 2.9, 5.0, 9.0, 20.0, INFINITE], dtype=torch.float64)
    assert_close_to_eager(op, x, n.unsqueeze(1), rtol=1e-9)


#: What eager gave on an H100 (torch 2.11) for an infinite order, at -1, 1 and what is beyond them.
AT_INFINITE_ORDER = {
    "chebyshev_polynomial_t": [-1.0, 1.0, NAN],
    "chebyshev_polynomial_u": [-(2.0**63), -(2.0**63), NAN],
    "chebyshev_polynomial_v": [1.0, 1.0, NAN],
    "chebyshev_polynomial_w": [-1.0, -1.0, NAN],
    "hermite_polynomial_h": [NAN, NAN, NAN],
    "hermite_polynomial_he": [NAN, NAN, NAN],
    "legendre_polynomial_p": [-1.0, 1.0, NAN],
}


@pytest.mark.parametrize("op", POLYNOMIALS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_order_beyond_64_bits_is_the_greatest_one_on_a_gpu(
    op: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a CPU makes a negative one of it, for which a polynomial is 0; and no recurrence goes on to it."""
    monkeypatch.setattr(orthogonal_polynomials, "INTERPRETED", False)
    name = op.removeprefix("special_").removesuffix(".default")
    ends = [NAN, NAN, NAN] if "laguerre" in name else AT_INFINITE_ORDER[name.removeprefix("shifted_")]
    beyond = [-7.0, 7.0, INFINITE, -INFINITE, NAN] if "laguerre" not in name else [INFINITE, -INFINITE, NAN]
    x = torch.tensor([*([] if "laguerre" in name else [-1.0, 1.0]), *beyond], dtype=dtype)
    x = (x + 1.0) / 2.0 if "shifted" in name else x
    expected = torch.tensor([*ends[: len(x) - len(beyond)], *ends[2:] * len(beyond)], dtype=dtype)
    for order in (INFINITE, 1e19, torch.finfo(torch.float32).max):
        with np.errstate(all="ignore"):
            actual = kernel(op)(x, torch.full_like(x, order))
            for negative in (NAN, -INFINITE):
                assert not kernel(op)(x, torch.full_like(x, negative)).any()
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        ("special_laguerre_polynomial_l.default", -1e-4, 1.6682675236046419e34),
        ("special_laguerre_polynomial_l.default", 1e-5, 0.15672554136992474),
        ("special_laguerre_polynomial_l.default", 0.3, 0.013829994261726898),
        ("special_laguerre_polynomial_l.default", 0.99, 0.0094517367558979416),
        ("special_legendre_polynomial_p.default", -0.7, 1.7395372194499789e-4),
        ("special_legendre_polynomial_p.default", 0.99, -2.6377093452928976e-4),
    ],
)
def test_a_high_order_is_not_walked_up_to(op: str, x: float, expected: float) -> None:
    """Of 2^24 + 1: Laguerre's by mpmath, where eager is off by up to 2e-4, and Legendre's by eager."""
    with np.errstate(all="ignore"):
        actual = kernel(op)(torch.tensor([x], dtype=torch.float64), torch.tensor(2.0**24 + 1, dtype=torch.float64))
    torch.testing.assert_close(actual, torch.tensor([expected], dtype=torch.float64), rtol=1e-8, atol=0)


@pytest.mark.parametrize("op", ["igamma.default", "igammac.default"])
def test_incomplete_gamma_functions(op: str) -> None:
    """On both sides of a + 1, at their ends, and where only one of both numbers is one."""
    v = [0.0, -1.0, 0.01, 0.5, 1.0, 3.7, 25.0, 200.0, 1000.0, 1e6, 1.001e6, 1e20, INFINITE, NAN]
    a, x = (grid.contiguous() for grid in torch.meshgrid(*[torch.tensor(v, dtype=torch.float64)] * 2, indexing="ij"))
    with np.errstate(all="ignore"):
        actual = kernel(op)(a, x)
    torch.testing.assert_close(actual, eager(op)(a, x), rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_error_function_of_every_half_number(dtype: torch.dtype) -> None:
    """Within half of the last digit and 1e-4 of the value, what is left of it included near 0."""
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(dtype)
    with np.errstate(all="ignore"):
        actual = kernel("erf.default")(x).double()
    expected = torch.erf(x.double())
    limits = torch.finfo(dtype)
    allowed = expected.abs() * (limits.eps / 2 + 1e-4) + limits.smallest_normal * limits.eps / 2
    assert torch.equal(actual.isnan(), x.isnan())
    assert bool(((actual - expected).abs() <= allowed)[~x.isnan()].all())
    assert bool((actual.abs() <= 1)[~x.isnan()].all())
