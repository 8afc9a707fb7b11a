"""Which comparison judges which op."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.evaluation_calls import call_of, judge, schema_of

from opsmith.core.op import Variant
from opsmith.evaluation.criteria.rules import rule_for

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("overload", "kind"),
    [
        (aten.add.Tensor, "value"),
        (aten.add_.Tensor, "value"),
        (aten.add.out, "value"),
        (aten.clone.default, "exact"),
        (aten.copy_.default, "exact"),
        (aten.permute_copy.out, "exact"),
        (aten._foreach_maximum_.List, "exact"),
        (aten.empty_like.default, "metadata"),
        (aten.resize_.default, "metadata"),
        (aten.bernoulli_.float, "distribution"),
        (aten.randperm.generator_out, "distribution"),
        (aten.sort.values_stable, "indices"),
        (aten.max.dim, "indices"),
        (aten.max.default, "exact"),
        (aten._linalg_svd.U, "factorisation"),
        (aten.max_unpool3d.out, "placement"),
    ],
)
def test_every_variant_of_a_packet_has_its_rule(overload: Any, kind: str) -> None:
    """Looked up by name, decoration taken off."""
    assert kind == rule_for(schema_of(overload)).kind


def test_a_view_is_judged_as_a_view() -> None:
    """Unless it is a copy."""
    assert "view" == rule_for(schema_of(aten.transpose.int, Variant.VIEW)).kind


def test_arguments_can_switch_randomness_off() -> None:
    """A dropout that drops nothing has one right answer."""
    x = torch.randn(3)
    assert "distribution" == rule_for(schema_of(aten.native_dropout.default)).kind
    for args, kind in (((x, 0.5, True), "distribution"), ((x, 0.5, False), "value")):
        call = call_of(aten.native_dropout.default, *args)
        assert kind == rule_for(call.schema, call).kind
    q = torch.randn(1, 1, 2, 2)
    call = call_of(aten._scaled_dot_product_flash_attention_for_cpu.default, q, q, q, 0.0)
    assert "value" == rule_for(call.schema, call).kind


def test_placing_is_exact_and_accumulating_is_a_value() -> None:
    """The same packet does both."""
    x, index = torch.zeros(3), torch.tensor([0, 0])
    placing = call_of(aten.index_put.default, x, [index], torch.ones(2))
    adding = call_of(aten.index_put.default, x, [index], torch.ones(2), True)
    assert "exact" == rule_for(placing.schema, placing).kind
    assert "value" == rule_for(adding.schema, adding).kind


def test_only_random_ops_are_repeated() -> None:
    """Few elements need many executions, many elements a few."""
    assert 1 == rule_for(schema_of(aten.add.Tensor)).repeats(1)
    random = rule_for(schema_of(aten.uniform_.default))
    assert [257, 42, 9] == [random.repeats(elements) for elements in (1, 100, 1_000_000)]


def test_workspaces_are_not_compared_and_results_beside_them_are() -> None:
    """Only the reserve of a batch norm may hold anything."""
    rule = rule_for(schema_of(aten._batch_norm_with_update.default))
    assert ["value", "value", "value", "ignore", "value"] == [rule.role(index) for index in range(5)]


def test_uninitialised_values_are_not_compared() -> None:
    """Any values of the right shape are an empty tensor."""
    assert judge(aten.empty_like.default, (torch.zeros(3),), torch.full((3,), torch.nan)).passed


def test_exact_means_exact() -> None:
    """A copy has no rounding, NaN is equal to NaN, and a zero keeps its sign where all devices keep it."""
    x = torch.tensor([1.0, torch.nan, 0.0])
    finding = judge(aten.clone.default, (x,), torch.tensor([1.0, torch.nan, -0.0]))
    assert "1 of 3 elements differ where only equality is right; first at [2]: expected 0.0, got -0.0" in finding.detail
    assert judge(aten.relu.default, (x,), torch.tensor([1.0, torch.nan, -0.0])).passed
    finding = judge(aten.clone.default, (x,), torch.tensor([1.0 + 2**-23, torch.nan, 0.0]))
    assert "1 of 3 elements differ where only equality is right; first at [0]" in finding.detail
