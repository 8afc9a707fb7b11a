"""Each shipped kernel answers the first call of its overload that torch's own operator tests make.

A look at all of them that takes a minute; the whole suite is `opsmith run --suite opinfo --backend opsmith`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from tests.evaluation_calls import judge
from tests.unit.kernels.against_eager import MANIFEST, kernel
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.suites.opinfo import op_infos

PARTS = 8
#: Inputs that take the interpreter long are left to the whole suite.
MOST_ELEMENTS = 4096
SAMPLES = 2


class Calls(TorchDispatchMode):
    """Keeps the first call of each overload that has a kernel, with the arguments as they were before it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def __torch_dispatch__(self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = str(func).removeprefix("aten.")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if (
            op in MANIFEST
            and op not in self.found
            and torch.Tag.nondeterministic_seeded not in func.tags
            and not func._schema.is_mutable
            and sum(map(Tensor.numel, tensors)) <= MOST_ELEMENTS
        ):
            self.found[op] = (func, *tree_map(_as_it_is, (args, kwargs)))
        return func(*args, **kwargs)


def _as_it_is(leaf: Any) -> Any:
    return leaf.detach().clone(memory_format=torch.preserve_format) if isinstance(leaf, Tensor) else leaf


def forms(info: Any) -> Iterator[Callable[[], Any]]:
    """The first samples as functions and their gradients."""
    for sample in islice(info.sample_inputs("cpu", torch.float32, requires_grad=info.supports_autograd), SAMPLES):

        def forward(sample: Any = sample) -> Any:
            return info.op(sample.input, *sample.args, **sample.kwargs)

        def backward(sample: Any = sample) -> None:
            outputs = [x for x in tree_leaves(info.op(sample.input, *sample.args, **sample.kwargs)) if _learns(x)]
            inputs = [x for x in tree_leaves((sample.input, sample.args, sample.kwargs)) if _learns(x)]
            torch.autograd.grad(outputs, inputs, [torch.ones_like(x) for x in outputs], allow_unused=True)

        yield forward
        if info.supports_autograd:
            yield backward


def _learns(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad


@pytest.mark.corpus
@pytest.mark.parametrize("part", range(PARTS))
def test_every_kernel_answers_as_eager(part: int) -> None:
    """Under the judge's own comparison; a kernel may decline what it does not serve."""
    calls, wrong = Calls(), {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for info in islice(op_infos().values(), part, None, PARTS):
            if torch.float32 in info.supported_dtypes("cpu"):
                for form in forms(info):
                    try:
                        with calls:
                            form()
                    except (RuntimeError, TypeError, AssertionError):
                        continue  # What was called before that counts.
        for op, (overload, args, kwargs) in calls.found.items():
            try:
                candidate = kernel(op)(*tree_map(_as_it_is, args), **kwargs)
            except NotImplementedError:
                continue
            except Exception as exc:  # noqa: BLE001 - all of them are to be named
                wrong[op] = repr(exc)
                continue
            finding = judge(overload, args, candidate, **kwargs)
            if not finding.passed:
                wrong[op] = finding.detail
    assert {} == wrong
    assert len(calls.found) > 80
