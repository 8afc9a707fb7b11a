"""What a kernel may ask of ATen under each policy."""

from __future__ import annotations

import pytest

from opsmith.aten.schemas import aten_schemas
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.evaluation.integrity.policy import (
    computes,
    forbidden,
    forbids_fetching,
    has_policy,
    is_copying_task,
    same_task,
)


def schema(op: str) -> OpSchema:
    """What torch says of an overload."""
    return aten_schemas()[op]


@pytest.mark.parametrize(
    "op",
    [
        "relu.default",
        "add_.Tensor",
        "mm.out",
        "cat.default",
        "index.Tensor",
        "rand.default",
        "bernoulli_.float",
        "sum.default",
    ],
)
def test_what_makes_values_is_computation(op: str) -> None:
    """Random numbers too: who draws them for a kernel does its work."""
    assert computes(op)


@pytest.mark.parametrize(
    "op",
    [
        *("empty.memory_format", "empty_strided.default", "zeros.default", "arange.start_out", "full.default"),
        *("view.default", "as_strided.default", "transpose.int", "expand.default", "select.int"),
        *("copy_.default", "clone.default", "_to_copy.default", "fill_.Scalar", "zero_.default", "zeros_like.default"),
        *("_local_scalar_dense.default", "resize_.default", "set_.source_Storage"),
    ],
)
def test_room_views_and_copies_are_not(op: str) -> None:
    """A kernel needs somewhere to put its result."""
    assert not computes(op)


def test_native_forbids_whatever_computes() -> None:
    """The task's own op is only one of many."""
    ops = forbidden(schema("relu.default"), "native")
    assert {"relu.default", "clamp_min.default", "threshold.default", "mul.Tensor"} <= ops
    assert "copy_.default" not in ops


def test_any_forbids_the_task_itself_in_every_variant() -> None:
    """Another overload, the in-place form and the namespace ``special`` are the same op."""
    ops = forbidden(schema("softmax.int"), "any")
    assert {"softmax.int", "softmax.int_out", "special_softmax.default"} <= ops | same_task("softmax.int")
    assert "exp.default" not in ops
    of_aten = {op for op in forbidden(schema("relu_.default"), "any") if op.count(".") == 1}
    assert {"relu.default", "relu_.default", "relu.out"} == of_aten


@pytest.mark.parametrize(
    "op", ["view.default", "transpose.int", "empty.memory_format", "zeros.default", "arange.default"]
)
def test_views_and_creation_have_no_policy(op: str) -> None:
    """All that they do is what every kernel may do."""
    assert not has_policy(schema(op))
    assert not forbidden(schema(op), "native")


def test_a_copy_is_the_computation_of_a_task_that_copies() -> None:
    """Of ``clone`` nothing else is asked."""
    assert is_copying_task(schema("clone.default"))
    assert is_copying_task(schema("fill_.Scalar"))
    assert not is_copying_task(schema("cat.default"))


@pytest.mark.parametrize(("kind", "device", "allowed"), [
    (TaskKind.COLLECTIVE, "cpu", True),
    (TaskKind.COLLECTIVE, "cuda", True),
    (TaskKind.PARALLEL, "cpu", True),
    (TaskKind.PARALLEL, "cuda", False),
])  # fmt: skip
def test_ranks_of_a_parallel_problem_send_no_messages_on_a_gpu(kind: TaskKind, device: str, allowed: bool) -> None:  # noqa: FBT001
    """There they have symmetric memory; a suite of collectives keeps its rule."""
    ops = forbidden(OpSchema(name="1_Add", schema="", variant=Variant.FUNCTIONAL, kind=kind), "native", device)
    assert {
        "c10d.allreduce_.default",
        "_c10d_functional.all_reduce.default",
        "symm_mem.one_shot_all_reduce.default",
    } <= ops
    assert "symm_mem._barrier.default" not in ops
    for message in ("c10d.send.default", "c10d.recv_.default", "c10d.barrier.default"):
        assert allowed is (message not in ops)


def test_nothing_is_forbidden_to_ranks_under_any() -> None:
    """They may have torch do it all."""
    problem = OpSchema(name="1_Add", schema="", variant=Variant.FUNCTIONAL, kind=TaskKind.PARALLEL)
    assert not forbidden(problem, "any", "cuda")
    assert forbids_fetching(problem, "native", "c10d::send", "cuda")
    assert not forbids_fetching(problem, "native", "c10d::send", "cpu")
