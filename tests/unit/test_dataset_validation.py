from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.dataset_rows import row

from opsmith.traces.validation import validate


def problems(*rows: object) -> list[tuple[int, str | None, str]]:
    """What is wrong with the rows."""
    return [(each.row, each.field, each.problem) for each in validate(rows, advance=lambda done: None)]


def raw(**changes: Any) -> dict[str, Any]:
    """A row as a file has it."""
    plain: dict[str, Any] = msgspec.to_builtins(row(**changes))
    return plain


MEASURED = {"runtime_ms": 0.5, "relative_runtime_to_kernel_launch": 2.0, "is_overhead_dominated_op": False}


def test_rows_in_order_have_no_findings() -> None:
    """Measured or not, included or not."""
    excluded = raw(args="((T([9], f16),), {})", included_in_benchmark=False, why_excluded=("too large",))
    assert [] == problems(raw(), raw(args="((T([3], f16),), {})", **MEASURED), excluded)


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"uuid": "0"}, "uuid", "is not the SHA-256 of args and op_name"),
        ({"args": "((T([2], f17),), {})"}, "args", "1:10: expected the dtype of the tensor"),
        ({"op_name": "no op"}, "op_name", "1:1: expected an op such as aten.add.Tensor"),
        ({"op_name": "aten.no_such.default"}, "op_name", "has no op no_such.default"),
        ({"args": "((), {})"}, "op_name", "relu.default lacks the argument self"),
        ({"why_excluded": ("why",)}, "why_excluded", "has reasons, but the row is included"),
        ({"included_in_benchmark": False}, "why_excluded", "has no reason, but the row is excluded"),
        ({"runnable": False}, "included_in_benchmark", "is true, but the row is not runnable"),
        ({"count": 0}, "is_synthetic", "is false, but count is 0"),
        ({"is_synthetic": True}, "is_synthetic", "is true, but count is 3"),
        ({"count": -3}, "count", "is -3, no number of calls from 0 to"),
        ({"count": 2**70}, "count", f"is {2**70}, no number of calls from 0 to"),
        ({"in_models_count": 3}, "in_models_count", "is 3, but in_models has 2"),
        ({"in_models": ("a", "a")}, "in_models", "names a model twice"),
        ({"runtime_ms": 0.5}, "relative_runtime_to_kernel_launch", "is not there together with runtime_ms"),
        ({**MEASURED, "runtime_ms": -0.5}, "runtime_ms", "is -0.5"),
        ({**MEASURED, "is_overhead_dominated_op": True}, "is_overhead_dominated_op", "does not agree with"),
        ({**MEASURED, "is_overhead_dominated_op": None}, "is_overhead_dominated_op", "does not agree with"),
    ],
)
def test_what_is_wrong_is_named_with_row_and_field(changes: dict[str, Any], field: str, says: str) -> None:
    """One finding for one mistake."""
    ((number, found, problem),) = problems(raw(args="((T([8], f16),), {})"), raw(**changes))
    assert (2, field) == (number, found)
    assert says in problem


def test_a_row_of_the_wrong_type_is_a_finding_and_not_the_end() -> None:
    """The rows behind it are checked as well."""
    found = problems({**raw(), "count": "3"}, 7, {}, raw(uuid="0"))
    expected = [
        (1, "count", "expected `int`, got `str`"),
        (2, None, "expected `object`, got `int`"),
        (3, None, "object missing required field `uuid`"),
        (4, "uuid", "is not the SHA-256 of args and op_name"),
    ]
    assert expected == found


def test_an_input_comes_once() -> None:
    """The second row of the same input names the first."""
    assert [(3, "uuid", "is that of row 1")] == problems(raw(), raw(args="((T([3], f16),), {})"), raw())


def test_a_row_that_says_it_is_not_runnable_may_name_an_op_that_torch_lacks() -> None:
    """That is why it is excluded."""
    gone = raw(op_name="aten.no_such.default", runnable=False, included_in_benchmark=False, why_excluded=("gone",))
    assert [] == problems(gone)


def test_progress_is_told_for_each_row() -> None:
    """Rows with findings included."""
    done: list[int] = []
    validate([raw(), 7, raw(args="((T([3], f16),), {})")], advance=done.append)
    assert [1, 2, 3] == done
