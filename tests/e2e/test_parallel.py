"""Parallel problems on gloo's ranks: honest kernels pass, hacks are refused, hostile ranks leave nothing behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile_runs import processes_with_environment
from tests.symmetric_memory_of_files import SHIPPED, kernels_over_files

from opsmith import pipeline
from opsmith.backends import manifest
from opsmith.core.problems import SHIPPED_PARALLEL, problem_files, problems_hash
from opsmith.core.run import Options, RunDirectory, Selection, Summary
from opsmith.core.verdict import Status, Verdict
from opsmith.runner.processes import starting
from opsmith.runner.protocol.limits import Limits

S = Status
KERNELS = Path(__file__).parents[1] / "parallel_kernels"

#: Hack -> what has to be found among its cases.
HACKS = {
    "11_GemmAllReduce_half_products": S.WRONG_VALUE,
    "17_VocabularyCrossEntropy_own_targets": S.WRONG_VALUE,
    "19_VocabularyTopK_own_part": S.WRONG_VALUE,
    "1_AllReduce_answer_before": S.DISHONEST,
    "1_AllReduce_calls_the_collective": S.POLICY,
    "1_AllReduce_drops_a_rank": S.WRONG_VALUE,
    "1_AllReduce_fetched_backend": S.DISHONEST,
    "1_AllReduce_finishes_later": S.WRONG_VALUE,
    "1_AllReduce_functional_collective": S.POLICY,
    "1_AllReduce_gather_and_sum": S.POLICY,
    "1_AllReduce_groups_own_method": S.POLICY,
    "1_AllReduce_half_wire": S.WRONG_VALUE,
    "1_AllReduce_impatient": S.WRONG_VALUE,
    "1_AllReduce_in_place": S.MUTATED_INPUT,
    "1_AllReduce_int8_wire": S.WRONG_VALUE,
    "1_AllReduce_other_order_per_rank": S.WRONG_VALUE,
    "1_AllReduce_own_times_world": S.WRONG_VALUE,
    "1_AllReduce_peer_writes_later": S.WRONG_VALUE,
    "1_AllReduce_rank_zero_alone": S.WRONG_VALUE,
    "1_AllReduce_reads_flat_memory": S.WRONG_VALUE,
    "1_AllReduce_skips_the_barrier": S.WRONG_VALUE,
    "1_AllReduce_stale_flags": S.WRONG_VALUE,
    "1_AllReduce_writes_again_later": S.DISHONEST,
    "29_ExpertDispatch_capacity": S.WRONG_SHAPE,
    "2_ReduceScatterRows_wrong_part": S.WRONG_VALUE,
    "37_ClipGradientNorm_own_norm": S.WRONG_VALUE,
    "3_GatherUnevenRows_equal_counts": S.WRONG_SHAPE,
    "3_GatherUnevenRows_own_first": S.WRONG_VALUE,
    "43_SyncBatchNorm_mean_of_means": S.WRONG_VALUE,
    "46_SampleSort_own_numbers": S.WRONG_VALUE,
    "7_TwoLevelAllReduce_one_group": S.WRONG_VALUE,
}
#: Hostile kernel -> what one case of it gets.
HOSTILE = {
    "a_hangs": S.TIMEOUT,
    "b_exits": S.CRASHED,
    "c_faults": S.CRASHED,
    "d_fills_memory": S.OUT_OF_MEMORY,
    "e_raises": S.ERROR,
    "f_waits_for_each_other": S.TIMEOUT,
    "g_stops_itself": S.TIMEOUT,
    "h_leaves_children": S.WRONG_VALUE,
    "i_leaves_shared_memory": S.WRONG_VALUE,
    "j_kills_its_peer": S.WRONG_VALUE,
    "k_ignores_the_end": S.TIMEOUT,
    "l_closes_its_files": S.CRASHED,
    "m_is_honest": S.PASSED,
}
#: What a quick look asks, of samples of one problem in the order of their names.
QUICK = ("b_exits", "calls_the_collective", "half_wire", "messages", "writes_again_later")


def judge(folder: Path, backend: Path | str, **changes: object) -> tuple[Summary, list[Verdict]]:
    """Judge a backend on two ranks at small sizes, or as ``changes`` say; the summary and the verdicts."""
    ranks = changes.pop("ranks", (2,))
    selection = Selection(
        problems=str(SHIPPED_PARALLEL),
        problems_hash=problems_hash(SHIPPED_PARALLEL),
        sizes="small",
        trials=1,
        ranks=ranks,  # type: ignore[arg-type]
    )
    options = {"suite": "parallel", "device": "cpu", "dtypes": ("f32",), "selection": selection}
    asked = Options(**{**options, "backend": str(backend), **changes})  # type: ignore[arg-type]
    summary = pipeline.evaluate(asked, folder, seed=1, jobs=2, limits=Limits(load_s=60.0, call_s=4.0))
    return summary, list(RunDirectory(folder).verdicts())


def problems_in(folder: Path) -> tuple[str, ...]:
    """The problems that a folder of solutions answers."""
    names = {path.stem for path in folder.glob("*.py")}
    return tuple(task for task in problem_files(SHIPPED_PARALLEL) if any(name.startswith(f"{task}_") for name in names))


def statuses_by_file(folder: Path, verdicts: list[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts of each file of a folder; a problem's files are its samples, in the order of their names."""
    found: dict[str, list[Verdict]] = {}
    for task in problems_in(folder):
        for sample, path in enumerate(sorted(folder.glob(f"{task}_*.py"))):
            name = f"{task}@{sample}" if sample else task
            found[path.stem] = [verdict for verdict in verdicts if verdict.op == name]
    return found


def test_every_kernel_is_in_a_table() -> None:
    """None lies in a folder without being judged."""
    assert set(HACKS) == {path.stem for path in (KERNELS / "hacks").glob("*.py")}
    assert {f"1_AllReduce_{name}" for name in HOSTILE} == {path.stem for path in (KERNELS / "hostile").glob("*.py")}
    assert {task.partition("_")[0] for task in HACKS} <= {path.name.partition("_")[0] for path in honest()}


def honest() -> list[Path]:
    """The honest twins: of each problem that is hacked at least one."""
    return sorted((KERNELS / "honest").glob("*.py"))


@pytest.mark.slow
def test_hacks_are_refused_and_their_twin_passes(tmp_path: Path) -> None:
    """Of an all-reduce on two ranks: torch's collective, half precision, a late write, and a rank that dies.

    The honest one is judged with the others: on clean processes and groups.
    """
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name in QUICK:
        source = next(KERNELS.glob(f"h*/1_AllReduce_{name}.py"))
        (folder / source.name).write_text(source.read_text())
    summary, verdicts = judge(tmp_path / "run", folder, ops=("1_AllReduce",))
    found = statuses_by_file(folder, verdicts)
    assert S.POLICY in {verdict.status for verdict in found["1_AllReduce_calls_the_collective"]}
    assert S.WRONG_VALUE in {verdict.status for verdict in found["1_AllReduce_half_wire"]}
    assert S.DISHONEST in {verdict.status for verdict in found["1_AllReduce_writes_again_later"]}
    assert S.CRASHED is found["1_AllReduce_b_exits"][0].status
    assert found["1_AllReduce_b_exits"][0].detail.startswith("rank 1: ")
    assert [] == [verdict.detail for verdict in found["1_AllReduce_messages"] if verdict.counts_against]
    assert 1 == summary.ops["correct"]


# ---------------------------------------------------------------- all of them, in `make corpus`


@pytest.fixture(scope="module")
def hacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Verdict]]:
    """The verdicts of every hack on three ranks: a sum of two is the same in any order."""
    folder = KERNELS / "hacks"
    run = tmp_path_factory.mktemp("hacks") / "run"
    _, verdicts = judge(run, folder, ops=problems_in(folder), ranks=(3,))
    return statuses_by_file(folder, verdicts)


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize("name", HACKS)
def test_a_hack_is_refused(hacks: dict[str, list[Verdict]], name: str) -> None:
    """By what it does, not by an accident."""
    assert HACKS[name] in {verdict.status for verdict in hacks[name]}


@pytest.mark.slow
@pytest.mark.corpus
def test_honest_kernels_pass(tmp_path: Path) -> None:
    """Of messages and of shared memory, on worlds that divide nothing, in half types too."""
    folder = KERNELS / "honest"
    summary, verdicts = judge(tmp_path / "run", folder, ops=problems_in(folder), ranks=(1, 3), dtypes=("f32", "bf16"))
    assert [] == [f"{one.case}: {one.detail}" for one in verdicts if one.counts_against]
    assert summary.accepted


@pytest.mark.slow
@pytest.mark.corpus
def test_every_reference_answers_itself(tmp_path: Path) -> None:
    """On worlds of one and four, as torch's own collectives have it; records have those of two and three."""
    summary, verdicts = judge(tmp_path / "run", "aten", ranks=(1, 4))
    assert [] == [f"{one.case}: {one.detail}" for one in verdicts if one.status is not S.PASSED]
    assert len(problem_files(SHIPPED_PARALLEL)) == summary.ops["correct"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, list[Verdict]], float, Path]]:
    """One case of each hostile kernel and of the honest one after them; the seconds, and what all processes carry."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        (folder / "tmp").mkdir()
        patch.setenv("TMPDIR", str(folder / "tmp"))
        patch.setattr("tempfile.tempdir", None)
        patch.setattr(starting, "MEMORY_LIMIT_BYTES", 1 << 29)
        started = time.monotonic()
        case = "parallel:1_AllReduce@2:f32:inputs:0:0"
        _, verdicts = judge(folder / "run", KERNELS / "hostile", ops=("1_AllReduce",), case=case, integrity="off")
        yield statuses_by_file(KERNELS / "hostile", verdicts), time.monotonic() - started, folder / "tmp"


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_rank_costs_its_kernels_verdict(
    hostile: tuple[dict[str, list[Verdict]], float, Path], name: str
) -> None:
    """And never that of another kernel."""
    verdict = hostile[0][f"1_AllReduce_{name}"][0]
    assert HOSTILE[name] is verdict.status, verdict.detail


@pytest.mark.slow
@pytest.mark.corpus
def test_hostile_ranks_leave_nothing_behind(hostile: tuple[dict[str, list[Verdict]], float, Path]) -> None:
    """No process, not even one that has left its group, no shared memory and no folder; and they end in time."""
    _, seconds, marker = hostile
    assert [] == processes_with_environment(str(marker).encode())
    assert [] == list(marker.iterdir())
    assert [] == [left.name for left in Path("/dev/shm").iterdir() if left.name.startswith("left-by-")]
    assert seconds < 120


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize("ranks", [2, 3])
def test_opsmiths_own_kernels_pass_over_files(tmp_path: Path, ranks: int) -> None:
    """Under the policy `native`, with late ranks, calls in flight and other values at the same addresses."""
    ops = tuple(task for task in manifest.read(SHIPPED).ranks if not task.endswith(".default"))
    _, verdicts = judge(tmp_path / "run", kernels_over_files(tmp_path), ops=ops, ranks=(ranks,))
    assert [] == [f"{verdict.case}: {verdict.detail}" for verdict in verdicts if verdict.status is not S.PASSED]
    assert set(ops) == {verdict.op for verdict in verdicts}


@pytest.mark.slow
@pytest.mark.corpus
def test_opsmiths_own_collectives_pass_over_files(tmp_path: Path) -> None:
    """As above, of the suite of collectives."""
    ops = tuple(task for task in manifest.read(SHIPPED).ranks if task.endswith(".default"))
    options = Options(
        suite="distributed",
        backend=str(kernels_over_files(tmp_path)),
        device="cpu",
        dtypes=("f32", "bf16"),
        ops=ops,
        selection=Selection(ranks=(2,)),
    )
    pipeline.evaluate(options, tmp_path / "run", seed=1, jobs=2)
    verdicts = list(RunDirectory(tmp_path / "run").verdicts())
    assert [] == [f"{verdict.case}: {verdict.detail}" for verdict in verdicts if verdict.status is not S.PASSED]
    assert set(ops) == {verdict.op for verdict in verdicts}
