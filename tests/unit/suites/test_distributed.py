"""What a collective means, and what the suite asks of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opsmith.calls.live import rebuild
from opsmith.core.op import TaskKind
from opsmith.core.run import Selection
from opsmith.suites import SuiteCall
from opsmith.suites.distributed import Distributed
from opsmith.suites.distributed.cases import CaseMaker
from opsmith.tasks.collective_reference import reduced, world_reference
from opsmith.tasks.collectives import NAMESPACES, REDUCTIONS, collective_schemas, dtypes
from opsmith.tasks.rank_program import collective_program

CPU = torch.device("cpu")


def answer(task: str, *calls: tuple[Any, ...]) -> list[Any]:
    """What each rank gets, each having made one call."""
    return [results[0] for results in world_reference(task)(*[([call], [0], False) for call in calls])]


def test_a_rank_gets_the_parts_meant_for_it_in_the_order_of_the_ranks() -> None:
    """Of uneven splits."""
    first, second = torch.arange(3), torch.arange(10, 13)
    got = answer("all_to_all_single.default", (first, [1, 2], [1, 2], "0"), (second, [2, 1], [2, 1], "0"))
    assert [[0, 10, 11], [1, 2, 12]] == [tensor.tolist() for tensor in got]


def test_a_reduce_scatter_is_a_part_of_the_all_reduce() -> None:
    """Each rank's own."""
    inputs = [torch.arange(4.0) * scale for scale in (1, 10)]
    got = answer("reduce_scatter_tensor.default", *[(tensor, "avg", 2, "0") for tensor in inputs])
    assert [[0.0, 5.5], [11.0, 16.5]] == [tensor.tolist() for tensor in got]


def test_sums_of_half_types_are_rounded_once() -> None:
    """256 + 1 + 1 is 258; one addition at a time it stays 256."""
    terms = [torch.tensor([value], dtype=torch.bfloat16) for value in (256.0, 1.0, 1.0)]
    assert 258.0 == reduced(terms, "sum").item()


def test_sums_of_integers_wrap_as_the_dtype_does() -> None:
    """They are not widened."""
    total = reduced([torch.tensor([200], dtype=torch.uint8)] * 2, "sum")
    assert (144, torch.uint8) == (total.item(), total.dtype)


def test_in_place_collectives_answer_with_their_argument() -> None:
    """On every rank."""
    tensors = [torch.tensor([1.0]), torch.tensor([2.0])]
    got = answer("broadcast_.default", *[(tensor, 1, "0") for tensor in tensors])
    assert all(result is tensor for result, tensor in zip(got, tensors, strict=True))
    assert 2.0 == tensors[0].item()


def test_the_scattered_product_is_a_part_of_the_sum_of_products() -> None:
    """Along either dimension."""
    factors = [(torch.randn(4, 3), torch.randn(3, 6)) for _ in range(2)]
    total = sum((a.double() @ b.double() for a, b in factors), torch.zeros(4, 6, dtype=torch.float64))
    for dim in (0, 1):
        got = answer("fused_matmul_reduce_scatter.default", *[(a, b, "sum", dim, "0") for a, b in factors])
        torch.testing.assert_close(torch.cat(got, dim), total.float())


def test_a_rank_waits_in_its_own_order_and_answers_in_that_of_the_calls() -> None:
    """The kernel of ``wait_tensor`` is what is called last."""
    program = collective_program(lambda value, _: value, "broadcast.default")
    waited: list[float] = []
    program._wait = lambda tensor: waited.append(tensor.item()) or tensor  # type: ignore[func-returns-value]
    results = program([(torch.tensor(float(number)), None) for number in range(3)], [2, 0, 1], late=[])
    assert [2.0, 0.0, 1.0] == waited
    assert [0.0, 1.0, 2.0] == [result.item() for result in results]


def calls(entry: str, dtype: str, seed: int = 1) -> list[SuiteCall]:
    """The cases of an entry."""
    found = list(Distributed().calls(entry, dtype, "cpu", seed, lambda *_: True))
    assert all(isinstance(call, SuiteCall) for call in found)
    return [call for call in found if isinstance(call, SuiteCall)]


def test_entries_are_collectives_by_numbers_of_ranks() -> None:
    """Products are asked in floats only."""
    suite = Distributed()
    suite.select(Selection(ranks=(2, 3)))
    entries = suite.entries("i64", "cpu")
    assert {"all_reduce.default@2", "all_reduce.default@3"} <= set(entries)
    assert not any("matmul" in entry for entry in entries)
    assert {TaskKind.COLLECTIVE} == {schema.kind for schema in suite.schemas()}


@pytest.mark.parametrize("task", NAMESPACES)
def test_every_case_fits_together(task: str) -> None:
    """The reference answers all cases of all dtypes on three ranks, and no two cases are the same."""
    for dtype in dtypes(task):
        asked = calls(f"{task}@3", dtype)
        assert len(asked) == len({call.signature for call in asked})
        for call in asked:
            assert 3 == call.ranks
            assert call.record is not None
            programs = rebuild(call.record, CPU).args
            results = world_reference(task)(*programs)
            assert [len(program[0]) for program in programs] == [len(own) for own in results]


def test_another_seed_draws_other_values_of_the_same_case() -> None:
    """So that kernels can be called again."""
    first, second = (calls("all_to_all_single.default@3", "f32", seed) for seed in (1, 2))
    assert [call.signature for call in first] == [call.signature for call in second]
    assert all(one.record != other.record for one, other in zip(first, second, strict=True))


def test_every_reduction_is_asked_with_collectives_in_flight() -> None:
    """Each rank waits for them in an order of its own."""
    for task in REDUCTIONS:
        [in_flight] = [call for call in calls(f"{task}@3", "f32") if call.address.source == "in-flight"]
        assert in_flight.record is not None
        orders = [program[1] for program in rebuild(in_flight.record, CPU).args]
        assert [[0, 1, 2], [1, 2, 0], [2, 0, 1]] == orders


def test_schemas_are_torchs_own() -> None:
    """A kernel is given the arguments that torch gives."""
    schema = collective_schemas()["broadcast.default"].schema
    assert schema.startswith("_c10d_functional::broadcast(Tensor input, int src")


def test_nccl_is_asked_with_strided_tensors_where_torch_copies_them() -> None:
    """It takes none; gloo takes them everywhere but where it would write to them."""

    def asked(task: str, device: str) -> bool:
        maker = CaseMaker(f"{task}.default", 2, "f32", device, 0)
        return any(label == "strided" for label, *_ in maker._layouts())

    assert all(asked(task, "cuda") for task in ("all_reduce", "broadcast"))
    assert not any(asked(task, "cuda") for task in ("reduce_scatter_tensor", "all_gather_into_tensor", "all_reduce_"))
    assert all(asked(task, "cpu") for task in ("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor"))
