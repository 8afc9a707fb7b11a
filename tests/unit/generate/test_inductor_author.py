"""torch's compiler as an author of kernels: what it says where it writes none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.errors import BadInput
from opsmith.generate.chat import NoReply, TaskAuthor
from opsmith.generate.providers import author, full_names
from opsmith.generate.providers.inductor import InductorAuthor


def op(**changes: object) -> OpSchema:
    """The schema of relu, changed."""
    fields = {"name": "relu.default", "schema": "aten::relu(Tensor self) -> Tensor", "variant": Variant.FUNCTIONAL}
    return OpSchema(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def inductor() -> Iterator[InductorAuthor]:
    """The author; its process is started by the first question that reaches the compiler."""
    with closing(InductorAuthor("")) as made:
        yield made


def test_it_is_a_provider_without_models(inductor: InductorAuthor) -> None:
    """``--provider inductor`` says it all."""
    assert isinstance(inductor, TaskAuthor)
    assert ("inductor",) == full_names("inductor", ())
    with closing(author("inductor")) as made:
        assert "inductor" == made.name
    with pytest.raises(BadInput, match="has no models"):
        author("inductor:big")


@pytest.mark.parametrize(
    ("schema", "dsl", "device", "number", "why"),
    [
        (op(kind=TaskKind.MODULE), "cpp", "cpu", 0, "functional overloads"),
        (op(name="relu_.default", variant=Variant.INPLACE), "cpp", "cpu", 0, "functional overloads"),
        (op(), "cuda", "cuda", 0, "not cuda for cuda"),
        (op(), "cpp", "cuda", 0, "not cpp for cuda"),
        (op(name="relu_.default", variant=Variant.INPLACE), "metal", "cpu", 0, "functional overloads"),
        (op(), "cpp", "cpu", 1, "the same kernel again"),
    ],
)
def test_what_it_does_not_write_costs_nothing(
    inductor: InductorAuthor, schema: OpSchema, dsl: str, device: str, number: int, why: str
) -> None:
    """And says why, in the attempt."""
    with pytest.raises(NoReply, match=why) as raised:
        inductor.write(schema, [], dsl=dsl, device=device, number=number)
    assert not raised.value.may_have_cost
