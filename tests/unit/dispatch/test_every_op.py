"""With every functional op of ATen overridden, torch's operator tests come to the same as without."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import opsmith
from opsmith.dispatch.guards import Fallback
from opsmith.suites.opinfo import op_infos

PARTS = 8
#: Their results are memory as it was found, or (lstsq) contain some.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "linalg.lstsq",
    "new_empty",
    "new_empty_strided",
}
#: Known to differ: `addr_` into a 0-dim tensor, which eager refuses, grows it where `addr.out` is overridden too.
DIFFERENT = {"addr"}
#: Kept of each OpInfo: the first samples cover its arguments, the rest mostly sizes.
SAMPLES = 8

Outcome = list[tuple[Any, ...]] | type[Exception]


def outcome(call: Callable[[], Any]) -> Outcome:
    """Results with types, shapes and strides, or the exception's type."""
    torch.manual_seed(0)
    try:
        leaves = tree_leaves(call())
    except Exception as exc:  # noqa: BLE001 - whatever eager raises
        return type(exc)
    return [(x.dtype, x.shape, x.stride(), x) if _strided(x) else (type(x),) for x in leaves]


def calls(info: Any, sample: Any) -> list[Callable[[], Any]]:
    """The sample as function, in place, and its gradient."""

    def copied(*, gradient: bool) -> tuple[Any, Any, Any]:
        def copy(x: Any) -> Any:
            fresh = x.detach().clone() if isinstance(x, Tensor) else x
            return fresh.requires_grad_() if gradient and _strided(fresh) and fresh.is_floating_point() else fresh

        found: tuple[Any, Any, Any] = tree_map(copy, (sample.input, sample.args, sample.kwargs))
        return found

    def run(op: Callable[..., Any]) -> Any:
        first, args, kwargs = copied(gradient=False)
        return op(first, *args, **kwargs)

    def gradients() -> Any:
        given = first, args, kwargs = copied(gradient=True)
        outputs = [x for x in tree_leaves(info.op(first, *args, **kwargs)) if _strided(x) and x.requires_grad]
        inputs = [x for x in tree_leaves(given) if _strided(x) and x.requires_grad]
        seeds = [torch.linspace(-1, 1, x.numel()).to(x.dtype).reshape(x.shape) for x in outputs]
        return torch.autograd.grad(outputs, inputs, seeds, allow_unused=True) if outputs else []

    forms = [lambda: run(info.op)]
    if info.inplace_variant is not None:
        forms.append(lambda: run(info.inplace_variant))
    return [*forms, gradients] if info.supports_autograd else forms


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_every_op_is_the_same_through_a_kernel(part: int) -> None:
    """Values to the last bit, types, strides and exceptions; forward, in place and backward; no kernel fails."""
    forms = {
        name: [
            form for sample in islice(info.sample_inputs("cpu", torch.float32), SAMPLES) for form in calls(info, sample)
        ]
        for name, info in islice(op_infos().items(), part, None, PARTS)
        if info.name not in UNINITIALISED | DIFFERENT and torch.float32 in info.supported_dtypes("cpu")
    }
    expected = {name: [outcome(form) for form in of_op] for name, of_op in forms.items()}
    with opsmith.enabled("tests.eager_as_kernels:table", device="cpu"):
        actual = {name: [outcome(form) for form in of_op] for name, of_op in forms.items()}
        raised = [one.op for one in opsmith.active().ops if Fallback.RAISED in one.fallbacks]
    assert [] == raised
    assert [] == [name for name in forms if not all(map(same, actual[name], expected[name]))]


def same(actual: Outcome, expected: Outcome) -> bool:
    """Equal in all that was kept, NaN included."""
    if isinstance(actual, type) or isinstance(expected, type):
        return actual is expected
    return len(actual) == len(expected) and all(
        mine[:3] == eagers[:3] and (len(mine) < 4 or torch.allclose(mine[3], eagers[3], 0, 0, equal_nan=True))
        for mine, eagers in zip(actual, expected, strict=True)
    )


def _strided(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and value.dtype is not torch.complex32
