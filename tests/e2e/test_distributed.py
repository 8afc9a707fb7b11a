"""Collectives on gloo's ranks: torch's own are right, honest kernels pass, and every broken one is caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith import pipeline
from opsmith.core.op import folder_name
from opsmith.core.run import Options, RunDirectory, Selection, Summary
from opsmith.core.verdict import Status, Verdict
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.sandbox.layers import Layer

S = Status

BROKEN = Path(__file__).parents[1] / "broken_collectives"
EXAMPLES = Path(__file__).parents[2] / "examples" / "distributed"
DTYPES = ("f32", "bf16", "f16", "i64", "i32", "u8", "b8")

#: Broken kernel -> its task, and what has to be found among its cases.
FIRST_ROUND = {
    "wrong_rank_order": ("all_gather_into_tensor.default", S.WRONG_VALUE),
    "missing_wait": ("broadcast.default", S.WRONG_VALUE),
    "partial_sum": ("reduce_scatter_tensor.default", S.WRONG_VALUE),
    "wrong_op_on_one_rank": ("all_reduce.default", S.WRONG_VALUE),
    "stale_buffer": ("all_gather_into_tensor_coalesced.default", S.WRONG_VALUE),
    "deadlock_on_one_rank": ("broadcast_.default", S.TIMEOUT),
    "one_rank_dies": ("all_reduce_.default", S.CRASHED),
    "uneven_split_swapped": ("all_to_all_single.default", S.WRONG_VALUE),
    "only_its_own_product": ("fused_matmul_reduce_scatter.default", S.WRONG_VALUE),
    "own_shard_repeated": ("fused_all_gather_matmul.default", S.WRONG_VALUE),
    "waits_for_nothing": ("wait_tensor.default", S.WRONG_VALUE),
    "one_rank_raises": ("all_reduce_coalesced.default", S.ERROR),
}
#: The same under ``native``, which two of them break.
SECOND_ROUND = {
    "average_not_divided": ("all_reduce.default", S.WRONG_VALUE),
    "calls_the_collective": ("reduce_scatter_tensor_coalesced.default", S.POLICY),
    "fetches_the_backend": ("all_reduce_.default", S.DISHONEST),
}


def judge(folder: Path, backend: str, **changes: object) -> tuple[Summary, list[Verdict]]:
    """Judge a backend on two ranks in float32, or as ``changes`` say; the summary and the verdicts."""
    options = {"suite": "distributed", "device": "cpu", "dtypes": ("f32",), "selection": Selection(ranks=(2,))}
    asked = Options(**{**options, "backend": backend, **changes})  # type: ignore[arg-type]
    summary = pipeline.evaluate(asked, folder, seed=1, jobs=2, limits=Limits(load_s=60.0, call_s=2.0))
    return summary, list(RunDirectory(folder).verdicts())


def directory_of(folder: Path, kernels: dict[str, tuple[str, Status]]) -> str:
    """A kernel directory of some of the broken kernels."""
    for name, (task, _) in kernels.items():
        place = folder / folder_name(task)
        place.mkdir(parents=True)
        (place / f"{place.name}_implementation_v1.py").write_text((BROKEN / f"{name}.py").read_text())
    return str(folder)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Verdict]]:
    """The verdicts of every broken kernel."""
    found: dict[str, list[Verdict]] = {}
    for number, (kernels, policy) in enumerate(((FIRST_ROUND, "any"), (SECOND_ROUND, "native")), start=1):
        folder = tmp_path_factory.mktemp(f"round{number}")
        tasks = tuple(task for task, _ in kernels.values())
        _, verdicts = judge(folder / "run", directory_of(folder / "kernels", kernels), ops=tasks, policy=policy)
        for name, (task, _) in kernels.items():
            found[name] = [verdict for verdict in verdicts if verdict.op == task]
    return found


def test_every_broken_kernel_is_in_a_round() -> None:
    """None lies in the folder without being judged."""
    assert {path.stem for path in BROKEN.glob("*.py")} == {*FIRST_ROUND, *SECOND_ROUND}


@pytest.mark.parametrize("name", [*FIRST_ROUND, *SECOND_ROUND])
def test_a_broken_collective_is_caught(broken: dict[str, list[Verdict]], name: str) -> None:
    """By what it does wrong, not by an accident."""
    _, expected = {**FIRST_ROUND, **SECOND_ROUND}[name]
    assert expected in {verdict.status for verdict in broken[name]}


def test_a_rank_that_dies_costs_its_case_only(broken: dict[str, list[Verdict]]) -> None:
    """The third call of each new group of ranks ends one of them; those before and after it are answered."""
    statuses = [verdict.status for verdict in broken["one_rank_dies"]]
    first = statuses.index(S.CRASHED)
    assert S.PASSED in statuses[:first]
    assert S.PASSED in statuses[first + 1 :]


def test_the_rank_that_failed_is_named(broken: dict[str, list[Verdict]]) -> None:
    """Not one of those that waited for it."""

    def detail(name: str, status: Status) -> str:
        return next(verdict.detail for verdict in broken[name] if verdict.status is status)

    assert detail("one_rank_dies", S.CRASHED).startswith("rank 1: ")
    assert detail("deadlock_on_one_rank", S.TIMEOUT).startswith("rank 1: ")
    assert "rank 0: ValueError: this rank has no time" == detail("one_rank_raises", S.ERROR)


def test_only_the_mean_is_wrong_where_it_is_not_divided(broken: dict[str, list[Verdict]]) -> None:
    """Neighbouring cases are not blamed."""
    wrong = {verdict.case.split(":")[3] for verdict in broken["average_not_divided"] if verdict.counts_against}
    assert {"avg"} == wrong


def test_honest_kernels_of_sends_and_receives_pass_under_native(tmp_path: Path) -> None:
    """On as many ranks as divide nothing evenly, too, watched and called again."""
    tasks = tuple(f"{path.name.removesuffix('__default')}.default" for path in EXAMPLES.iterdir() if path.is_dir())
    summary, _ = judge(tmp_path / "run", str(EXAMPLES), ops=tasks, dtypes=("bf16",), selection=Selection(ranks=(3,)))
    assert summary.accepted
    assert len(tasks) == summary.ops["correct"]


SNOOP = '''"""Looks for a way out and for what others left behind, and tells what came of it."""
import os
import socket
from pathlib import Path

import torch.distributed as dist


def broadcast__default_kernel_impl(input, src, group_name):
    assert dist.is_initialized()
    found = []
    for name, family in (("inet", socket.AF_INET), ("unix", socket.AF_UNIX), ("netlink", socket.AF_NETLINK)):
        try:
            socket.socket(family).close()
            found.append(name)
        except PermissionError:
            pass
    interfaces = [line.split(":")[0].strip() for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]]
    found += [name for name in interfaces if name != "lo"]
    for folder in (Path.cwd().parent, Path.cwd().parent.parent):
        try:
            found += [f"{folder} holds {other.name}" for other in folder.iterdir() if other not in Path.cwd().parents]
        except PermissionError:
            pass
    if dist.get_rank() == 0:
        shared = Path("/dev/shm")
        found += [left.name for left in shared.iterdir() if left.name.startswith("note")]
        (shared / "note").touch()
        mib = os.statvfs(shared).f_blocks * os.statvfs(shared).f_frsize >> 20
        found += [] if mib == 1024 else [f"{mib} MiB of shared memory"]
    raise ValueError(f"found {found}")
'''


def test_a_rank_reaches_nothing_beyond_its_group(tmp_path: Path) -> None:
    """No socket can be made any more, there is no network, and other ranks' folders are closed.

    Its shared memory has room for what NCCL needs of eight ranks, and holds nothing of an earlier group.
    """
    kernel = tmp_path / "kernels" / "broadcast__default"
    kernel.mkdir(parents=True)
    (kernel / "broadcast__default_implementation_v1.py").write_text(SNOOP)
    _, verdicts = judge(tmp_path / "run", str(kernel.parent), ops=("broadcast.default",))
    layers = RunDirectory(tmp_path / "run").manifest().sandbox
    if {Layer.SYSTEM_CALLS, Layer.NETWORK, Layer.FILES, Layer.READ_ONLY} <= set(layers):
        assert {"found []"} == {verdict.detail.partition("ValueError: ")[2] for verdict in verdicts if verdict.detail}


@pytest.mark.slow
@pytest.mark.corpus
def test_torchs_own_collectives_are_right(tmp_path: Path) -> None:
    """All of them in all dtypes on 3 ranks, and in two on 2 and 4: what the reference says is what gloo does."""
    for number, (dtypes, ranks) in enumerate(((DTYPES, (3,)), (("f32", "i64"), (2, 4)))):
        summary, verdicts = judge(tmp_path / str(number), "aten", dtypes=dtypes, selection=Selection(ranks=ranks))
        assert [] == [verdict.case for verdict in verdicts if verdict.status is not S.PASSED]
        assert 13 == summary.ops["correct"] == summary.ops["asked"]
