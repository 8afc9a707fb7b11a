"""The public harness's rule, written anew: what it asks, and what it calls right."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opsmith.mutation import public_harness
from opsmith.mutation.outcomes import Result
from opsmith.suites.opinfo import op_infos


@pytest.fixture(scope="module")
def judge() -> Callable[[str, Callable[..., Any]], tuple[Result, str]]:
    """The rule over two OpInfos."""
    infos = op_infos()
    return public_harness._rule(torch.float32, [infos["nn.functional.relu"], infos["add"]])


def test_a_right_kernel_passes(judge: Callable[[str, Callable[..., Any]], tuple[Result, str]]) -> None:
    """Its samples have no special values: a kernel that loses NaN passes as well."""
    assert Result.SURVIVED is judge("relu.default", lambda x: torch.where(x < 0, torch.zeros_like(x), x))[0]
    assert Result.SURVIVED is judge("relu.default", lambda x: torch.where(x > 0, x, torch.zeros_like(x)))[0]


def test_a_wrong_kernel_is_killed(judge: Callable[[str, Callable[..., Any]], tuple[Result, str]]) -> None:
    """An error counts as a wrong answer."""

    def raises(x: torch.Tensor) -> torch.Tensor:
        raise ValueError

    assert Result.KILLED is judge("relu.default", torch.abs)[0]
    assert (Result.KILLED, "ValueError: ") == judge("relu.default", raises)


def test_what_no_sample_calls_is_not_asked(judge: Callable[[str, Callable[..., Any]], tuple[Result, str]]) -> None:
    """That is no verdict."""
    assert Result.NOT_ASKED is judge("exp.default", torch.exp)[0]


def test_the_rule_is_used_where_the_package_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table says which of the two it was."""
    monkeypatch.setattr(public_harness, "_infos", lambda _dtype, _ops: [])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert public_harness.RULE == public_harness.open_harness("f32", ["relu.default"], None).name
