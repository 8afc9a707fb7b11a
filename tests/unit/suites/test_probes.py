"""Probes ask the calls of the samples again, with values that random numbers do not hold."""

from __future__ import annotations

import pytest
import torch

from opsmith.calls.live import rebuild
from opsmith.core.case import CallRecord
from opsmith.suites import SuiteCall
from opsmith.suites.opinfo import OpInfoSuite


def probes(entry: str, *, dtype: str = "bf16", seed: int = 1) -> list[SuiteCall]:
    """The probes of an entry."""
    calls = OpInfoSuite().calls(entry, dtype, "cpu", seed, lambda *_: True)
    return [call for call in calls if isinstance(call, SuiteCall) and call.address.source == "probe"]


def arguments(call: SuiteCall) -> tuple[torch.Tensor, ...]:
    """The tensors among a probe's positional arguments."""
    assert isinstance(call.record, CallRecord)
    return tuple(leaf for leaf in rebuild(call.record, torch.device("cpu")).args if isinstance(leaf, torch.Tensor))


def test_the_seed_decides_the_values_of_probes() -> None:
    """The same seed makes the same probes, another one the same questions with other values."""
    once, again, other = probes("isin"), probes("isin"), probes("isin", seed=2)
    assert [call.record for call in once] == [call.record for call in again]
    assert [call.signature for call in once] == [call.signature for call in other]
    assert once
    assert all(one.record != two.record for one, two in zip(once, other, strict=True))


def test_elementwise_probes_hold_special_values_zeros_and_equal_elements() -> None:
    """NaN, both infinities, zeros and elements that all arguments have in common are each in some probe."""
    spread, special = [arguments(call) for call in probes("ne") if call.op == "ne.Tensor"][:2]
    assert bool((spread[0] == spread[1]).any())
    assert bool((spread[0] == 0).any())
    assert bool((spread[0] < 0).any())
    for first in special:
        assert bool(first.isnan().any())
        assert {-torch.inf, torch.inf} <= set(first.flatten().tolist())


def test_a_question_with_a_bool_for_an_answer_is_asked_with_both_answers() -> None:
    """A kernel that always says the same is wrong once."""
    asked = [torch.equal(*arguments(call)) for call in probes("equal") if call.op == "equal.default"]
    assert {True, False} == set(asked)


@pytest.mark.slow
def test_values_that_eager_refuses_are_not_asked() -> None:
    """Integers have no remainder by zero; numbers in floating point have one, NaN."""
    by_zero = {
        dtype: [bool((arguments(call)[1] == 0).any()) for call in probes("remainder", dtype=dtype) if _divides(call)]
        for dtype in ("i64", "f32")
    }
    assert True not in by_zero["i64"]
    assert True in by_zero["f32"]


def _divides(call: SuiteCall) -> bool:
    return call.op == "remainder.Tensor"
