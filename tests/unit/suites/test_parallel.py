"""Suite parallel: what its cases ask of ranks, and what their references answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from opsmith.backends.solutions import solutions_in
from opsmith.calls.live import rebuild
from opsmith.calls.observer import Observer
from opsmith.calls.outcomes import HeldOutcome
from opsmith.cli.selection import suite_of_problem
from opsmith.core.case import CallRecord
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.problems import SHIPPED_PARALLEL, problem_files, task_of_entry
from opsmith.core.run import Selection
from opsmith.core.task import Task
from opsmith.core.verdict import Status
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement, Judgement
from opsmith.evaluation.criteria.rules import rule_for
from opsmith.suites import Skipped, SuiteCall
from opsmith.suites.parallel import Parallel
from opsmith.suites.parallel.layouts import overlapping, strided
from opsmith.tasks import registry
from opsmith.tasks.rank_arguments import grids, group_named, live, named, plain

CPU = torch.device("cpu")
OWN = problem_files(SHIPPED_PARALLEL)

HALVES = """
import torch
import torch.distributed as dist
from torch import nn

ROWS = 4
SIZES = {"more": {"ROWS": 6}}
REPLICATED = (0,)


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, factor):
        self.calls += 1
        total = (x * self.weight).sum(0) * factor
        dist.all_reduce(total)
        return total


def get_inputs(rank, world_size, shared):
    return [torch.randn(ROWS, 3), torch.randn(3, generator=shared)]


def get_init_inputs():
    return [3]
"""
PUBLIC = """
import torch.distributed as dist


def solution(x, group=None):
    x.requires_grad_(True)
    (x * x).sum().backward()
    total = x.grad.clone()
    dist.all_reduce(total, group=group)
    return {"total": total}
"""
TABLE = """
import torch
import torch.distributed as dist


def create_input_tensor(rank, world_size, problem_id, base_shape, dtype, trial=0, device=None):
    assert problem_id == 7
    torch.manual_seed(rank + trial)
    return torch.randn(base_shape[0], dtype=dtype, device=device), dist.new_group([0, 1])
"""


def use(folder: Path, **files: str) -> Parallel:
    """The suite on two ranks, of problems that are written into a folder."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return using(problem_files(folder), (2,))


def using(files: dict[str, Path], ranks: tuple[int, ...]) -> Parallel:
    """The suite with one plain case of each problem, on worlds of these sizes."""
    registry.use_problems(files, "cpu", small=True, parallel=True)
    suite = Parallel()
    suite.select(Selection(ranks=ranks, trials=1))
    return suite


def calls(suite: Parallel, entry: str, dtype: str = "f32", seed: int = 1) -> dict[str, SuiteCall]:
    """The cases of an entry by what they are about."""
    found = list(suite.calls(entry, dtype, "cpu", seed, lambda *_: True))
    assert [] == [call.reason for call in found if isinstance(call, Skipped)]
    return {call.address.source: call for call in found if isinstance(call, SuiteCall)}


def programs(call: SuiteCall) -> list[Any]:
    """What each rank is to do."""
    assert call.record is not None
    return list(rebuild(call.record, CPU).args)


def test_all_ranks_get_values_of_their_own_and_share_what_is_shared(tmp_path: Path) -> None:
    """A problem draws the one from the default generator, and the other from the one that it is given."""
    suite = use(tmp_path, halves=HALVES)
    asked = programs(calls(suite, "halves@2")["inputs"])
    (x0, factor0), (x1, factor1) = (program[0][0] for program in asked)
    assert not torch.equal(x0, x1)
    assert torch.equal(factor0, factor1)


def test_a_seed_gives_the_same_cases_and_another_one_other_values(tmp_path: Path) -> None:
    """Their addresses and signatures stay."""
    suite = use(tmp_path, halves=HALVES)
    first, again, other = (calls(suite, "halves@2", seed=seed) for seed in (1, 1, 2))
    assert [call.record for call in first.values()] == [call.record for call in again.values()]
    assert [call.signature for call in first.values()] == [call.signature for call in other.values()]
    assert all(first[name].record != other[name].record for name in first)


def test_every_case_of_a_problem_is_asked(tmp_path: Path) -> None:
    """Its own sizes, several calls at once, and a rank that is late."""
    suite = use(tmp_path, halves=HALVES)
    asked = calls(suite, "halves@2")
    assert ["inputs", "more", "late", "in-flight"] == list(asked)
    assert [[], [0]] == [program[2] for program in programs(asked["late"])]
    assert [3, 3] == [len(program[0]) for program in programs(asked["in-flight"])]


def test_the_reference_is_the_model_on_all_ranks(tmp_path: Path) -> None:
    """With the state that the case holds, which it may change."""
    suite = use(tmp_path, halves=HALVES)
    asked = programs(calls(suite, "halves@2")["inputs"])
    before = [program[3]["calls"].item() for program in asked]
    with torch.no_grad():
        results = registry.reference("halves")(*asked)
    expected = sum((call[0] * state["weight"]).sum(0) * call[1] for (call,), _, _, state in asked)
    for (result,) in results:
        torch.testing.assert_close(result, expected)
    assert pytest.approx([count + 1 for count in before]) == [program[3]["calls"].item() for program in asked]
    assert (0,) == registry.replicated("halves")


def test_the_public_form_is_read_from_a_checkout(tmp_path: Path) -> None:
    """A function, its table of inputs, groups among the arguments, and gradients."""
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "input_output_tensors.py").write_text(TABLE)
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "7_squares.py").write_text(PUBLIC)
    suite = using(problem_files(tmp_path), (2,))
    asked = programs(calls(suite, "7_squares@2")["inputs"])
    assert named([0, 1]) == asked[0][0][0][1]
    drawn = [program[0][0][0].clone() for program in asked]
    for (result,) in registry.reference("7_squares")(*asked):
        torch.testing.assert_close(result["total"], 2 * sum(drawn))
        assert not result["total"].requires_grad


def test_what_a_problem_lacks_is_told(tmp_path: Path) -> None:
    """As of module problems, in one line."""
    suite = use(tmp_path, empty="def solution(x): return x\n")
    (skipped,) = suite.calls("empty@2", "f32", "cpu", 1, lambda *_: True)
    assert isinstance(skipped, Skipped)
    assert "it defines no get_inputs" in skipped.reason


def test_other_layouts_hold_what_they_say() -> None:
    """Strided: the same values. Overlapping: rows share elements, in every one of more dimensions."""
    for shape in ((4,), (3, 5), (2, 3, 4)):
        tensor = torch.randn(shape)
        other = strided(tensor)
        assert torch.equal(tensor, other)
        assert not other.is_contiguous()
    shared = overlapping(torch.randn(2, 3, 4))
    assert (2, 3, 4) == tuple(shared.shape)
    assert torch.equal(shared[0, 0, 1:], shared[0, 1, :-1])
    assert shared.untyped_storage().nbytes() < shared.numel() * 4


def test_groups_are_rows_and_columns_of_grids() -> None:
    """Each rank alone, and what divides them; the group of all is there anyway."""
    assert [] == grids(1)
    assert [(0,), (1,), (2,)] == grids(3)
    assert {(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 2), (1, 3)} == set(grids(4))
    assert "three" == group_named("three")


def test_an_entry_names_its_task() -> None:
    """A task may have a sample, and its entry a world."""
    assert "9_AllGatherGemm" == task_of_entry("9_AllGatherGemm@3")
    assert "L1/2_Sum" == task_of_entry("L1/2_Sum")


@pytest.mark.parametrize("task", OWN)
def test_own_problems_answer_all_their_cases(task: str) -> None:
    """On three ranks, which divide little: finite results, alike on all ranks where the problem says so."""
    suite = using({task: OWN[task]}, (3,))
    for source, call in calls(suite, f"{task}@3", "f32").items():
        with torch.no_grad():
            results = registry.reference(task)(*programs(call))
        for number in registry.replicated(task):
            for per_rank in zip(*results, strict=True):
                first, *others = (_leaves(result)[number] for result in per_rank)
                assert all(torch.equal(first, other) for other in others), source
        leaves = [leaf for own in results for result in own for leaf in _leaves(result)]
        assert leaves
        assert all(bool(leaf.isfinite().all()) for leaf in leaves), source
    assert not dist.is_initialized()


def _leaves(result: object) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("task", OWN)
def test_own_problems_name_their_source(task: str) -> None:
    """Whose need it is: a codebase, and the place in it."""
    assert "\nAfter " in OWN[task].read_text()


# ---------------------------------------------------------------- what passes for an answer

ADD = """
import torch
import torch.distributed as dist
from torch import nn

REPLICATED = (0,)


class Model(nn.Module):
    def forward(self, x):
        total = x.clone()
        dist.all_reduce(total)
        return total


def get_inputs(rank, world_size):
    return [torch.randn(40, 50)]
"""


def judged(tmp_path: Path, dtype: str, answer: Callable[[list[torch.Tensor], int], torch.Tensor]) -> Judgement:
    """The judgement on a sum over four ranks.

    Args:
        answer: given all ranks' tensors and a rank, what that rank returns.
    """
    (tmp_path / "add.py").write_text(ADD)
    call = calls(using(problem_files(tmp_path), (4,)), "add@4", dtype)["inputs"]
    assert call.record is not None

    def candidate(*asked: Any) -> list[list[torch.Tensor]]:
        tensors = [program[0][0][0] for program in asked]
        return [[answer(tensors, rank)] for rank in range(len(tensors))]

    schema = registry.schema_of("add")
    reference, got = (_outcome(call.record, each) for each in (registry.reference("add"), candidate))
    case = CaseUnderJudgement(
        call.record,
        schema,
        rule_for(schema),
        lambda: [reference],
        device=CPU,
        tolerance=None,
        replicated=registry.replicated("add"),
        run_again=lambda: itertools.repeat(reference),
    )
    return case.judge([got], tolerance="strict", layout="dense")


def _outcome(record: CallRecord, answer: Callable[..., Any]) -> HeldOutcome:
    live, observer = rebuild(record, CPU), Observer()
    with torch.no_grad():
        observer.keep([observer.describe(answer(*live.args), live, record.storages)])
    return observer.held(0)


def _sum(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    first, *others = tensors
    return sum(others, first.clone())


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.slow
def test_every_order_of_additions_is_right(tmp_path: Path, dtype: str) -> None:
    """A ring and a tree add otherwise than one rank after the other, and round otherwise where terms cancel."""
    backwards = judged(tmp_path, dtype, lambda tensors, _: _sum(reversed(tensors)))
    tree = judged(tmp_path, dtype, lambda tensors, _: _sum([_sum(tensors[:2]), _sum(tensors[2:])]))
    assert Status.PASSED is backwards.status, backwards.detail
    assert Status.PASSED is tree.status, tree.detail


@pytest.mark.parametrize(("dtype", "wire"), [("f32", torch.bfloat16), ("bf16", torch.float8_e4m3fn)])
def test_fewer_bits_on_the_wire_are_wrong(tmp_path: Path, dtype: str, wire: torch.dtype) -> None:
    """Orders of additions explain less than that."""
    found = judged(tmp_path, dtype, lambda tensors, _: _sum(tensor.to(wire).to(tensor.dtype) for tensor in tensors))
    assert Status.WRONG_VALUE is found.status


def test_results_that_have_to_be_alike_are_compared_bit_by_bit(tmp_path: Path) -> None:
    """Each of them alone would pass."""
    found = judged(tmp_path, "f32", lambda tensors, rank: _sum(tensors[rank:] + tensors[:rank]))
    assert Status.WRONG_VALUE is found.status
    assert "result 0 of call 0 on rank 1 has other bits than on rank 0" == found.detail


@pytest.mark.parametrize(("text", "suite"), [(ADD, "parallel"), (ADD.replace("rank, world_size", ""), "modules")])
def test_check_knows_whose_problem_a_file_is(tmp_path: Path, text: str, suite: str) -> None:
    """By what its inputs are given; nothing of it runs."""
    (tmp_path / "mine.py").write_text(text)
    assert suite == suite_of_problem(tmp_path / "mine.py")


def test_files_of_one_problem_are_its_samples(tmp_path: Path) -> None:
    """``1_add_cuda.py`` as the public form calls them; a function answers as well as a class."""
    for name, text in (("1_add_cuda", "def solution(x): return x"), ("1_add_ring", "class ModelNew: pass")):
        (tmp_path / f"{name}.py").write_text(text)
    op = OpSchema(name="1_add", schema="x", variant=Variant.FUNCTIONAL, kind=TaskKind.PARALLEL)
    kernels = solutions_in(tmp_path, Task(name="1_add", op=op, suite="parallel"), backend="mine")
    assert [("1_add", "1_add_cuda.py:solution"), ("1_add@1", "1_add_ring.py:ModelNew")] == [
        (kernel.task, kernel.entry) for kernel in kernels
    ]


def test_constant_inputs_are_redrawn(tmp_path: Path) -> None:
    """Of the public form's collectives: each rank's value is known to everybody. What ranks share they still share."""
    text = ADD.replace("[torch.randn(40, 50)]", "[torch.full((4, 5), rank + 1.0), torch.ones(3)]")
    suite = use(tmp_path, add=text)
    first, other = (programs(calls(suite, "add@2", seed=seed)["inputs"]) for seed in (1, 2))
    (x0, shared0), (x1, shared1) = (program[0][0] for program in first)
    assert torch.equal(shared0, shared1)
    assert not torch.equal(x0, x1)
    assert not torch.equal(x0, other[0][0][0][0])
    assert 1 < len(x0.unique())


def test_layers_among_the_inputs_travel_as_their_weights() -> None:
    """And are layers again where a kernel is called."""
    layer = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    with torch.no_grad():
        (again,), none = live(([plain(layer)], plain(torch.nn.Linear(3, 2, bias=False))))
        assert torch.equal(layer(x), again(x))
        assert none.bias is None
