"""The groups of overloads that one implementation answers are torch's own groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.record_variant_groups import TABLE, torch_minor

from opsmith.aten.groups import group_of, variant_groups
from opsmith.aten.schemas import aten_schemas
from opsmith.core.op import Variant

ROWS = json.loads(Path(TABLE).read_text())
VERSIONS = {version for row in ROWS for version in row["torch"]}
#: What must hold for this torch: its own rows, or those of every recorded version where it was not recorded.
EXPECTED = [
    row["overloads"]
    for row in ROWS
    if (torch_minor() in row["torch"] if torch_minor() in VERSIONS else VERSIONS == set(row["torch"]))
]
FIELDS = ("functional", "inplace", "out", "mutable", "view", "view_inplace")


def members(op: str) -> dict[str, str]:
    """The group of an overload as the table writes it."""
    group = group_of(op)
    return {field: found for field in FIELDS if (found := getattr(group, field)) is not None}


def test_the_groups_are_those_of_torchs_code_generator() -> None:
    """2,596 overloads of torch 2.13 in groups of two and more, read from another source than ours."""
    assert 1_000 < sum(map(len, EXPECTED))
    assert [] == [row for row in EXPECTED for op in row.values() if row != members(op)]


@pytest.mark.skipif(torch_minor() not in VERSIONS, reason="this torch was not recorded")
def test_no_group_is_larger_than_torchs_code_generator_makes_it() -> None:
    """An overload in a wrong group would be answered by another op's kernel."""
    expected = {frozenset(row.values()) for row in EXPECTED}
    larger = [g.overloads for g in variant_groups() if len(g.overloads) > 1 and frozenset(g.overloads) not in expected]
    assert [] == larger


def test_every_functional_inplace_and_out_triple_is_complete() -> None:
    """Where the table has all three, so has the group: none is left to eager while the others are answered."""
    triples = [row for row in EXPECTED if {"functional", "inplace", "out"} <= row.keys()]
    assert 250 < len(triples)
    for row in triples:
        group = group_of(row["functional"])
        assert (row["functional"], row["inplace"], row["out"]) == (group.functional, group.inplace, group.out)


def test_every_dispatched_overload_is_in_one_group() -> None:
    """Nothing is lost and nothing counted twice."""
    grouped = [op for group in variant_groups() for op in group.overloads]
    assert len(grouped) == len(set(grouped))
    assert aten_schemas().keys() == set(grouped)


def test_a_derived_overload_is_derived_within_its_group() -> None:
    """Who answers an op and who stands in a group with it are one question with one answer."""
    schemas = aten_schemas()
    for group in variant_groups():
        for op in (group.inplace, group.out):
            if op is not None and group.view is None:
                assert group.functional == schemas[op].functional
    assert Variant.VIEW is schemas["t.default"].variant


def test_a_view_stands_with_the_op_that_copies() -> None:
    """``t``, ``t_``, ``t_copy`` and ``t_copy.out`` are one op in four forms."""
    expected = {
        "functional": "t_copy.default",
        "out": "t_copy.out",
        "view": "t.default",
        "view_inplace": "t_.default",
    }
    assert expected == members("t_.default")
