"""The command under a failing case: pasted into a shell, it asks for that very case."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest
from tests.report_runs import manifest, planned, verdict

from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import TaskKind
from opsmith.core.run import PlannedOp, Selection
from opsmith.report.repro import repro_command
from opsmith.runner.plan.snapshot import snapshot_root

FILE = "relu__default_implementation_v1.py"
USUAL = planned()


def words(op: PlannedOp, run: str = "runs/x", **changes: object) -> list[str]:
    """The command's words, as the shell will split them."""
    return shlex.split(repro_command(Path(run), manifest(**changes), op, verdict(op.op)))


def kernel_of(op: PlannedOp) -> Kernel:
    """The op's kernel, which is there."""
    assert op.kernel is not None
    return op.kernel


def with_kernel(changes: dict[str, object], op: PlannedOp = USUAL) -> PlannedOp:
    """An op whose kernel differs from the usual file."""
    return msgspec.structs.replace(op, kernel=msgspec.structs.replace(kernel_of(op), **changes))


def test_a_file_that_was_asked_for_by_name_is_checked_itself() -> None:
    """`opsmith check FILE` may keep no run directory, and FILE is what is being edited."""
    options = msgspec.structs.replace(manifest().options, backend=f"mine/{FILE}")
    assert ["opsmith", "check", f"mine/{FILE}"] == words(USUAL, "/tmp/gone", options=options)[:3]


def test_file_is_checked_as_the_run_snapshot_holds_it() -> None:
    """The kernel's file inside the run, not the original, which may have changed since."""
    expected = (
        f"opsmith check runs/x/kernels/{kernel_of(USUAL).snapshot_name}/{FILE} --task relu.default --suite opinfo "
        "--dtype f32 --device cpu --case opinfo:relu.default:f32:sample:0:0 --seed 1234"
    )
    assert expected.split() == words(USUAL)


def test_a_parallel_problem_is_asked_again_on_as_many_ranks_at_the_same_sizes() -> None:
    """Out of its folder of problems, like a module."""
    op = msgspec.structs.replace(USUAL, op="1_Add", kind=TaskKind.PARALLEL)
    selection = Selection(ranks=(3,), problems="problems", sizes="small")
    options = msgspec.structs.replace(manifest().options, suite="parallel", backend="aten", selection=selection)
    op = msgspec.structs.replace(op, kernel=msgspec.structs.replace(kernel_of(op), loader=Loader.ATEN))
    expected = "opsmith run --suite parallel --problems problems --backend aten --ops 1_Add --sizes small --ranks 3"
    assert expected.split() == words(op, options=options)[:14]


def test_a_collective_is_asked_again_on_as_many_ranks() -> None:
    """Its case is about a number of them."""
    op = msgspec.structs.replace(USUAL, kind=TaskKind.COLLECTIVE)
    selection = Selection(ranks=(2, 3))
    options = msgspec.structs.replace(manifest().options, suite="distributed", backend="mine", selection=selection)
    expected = "opsmith run --suite distributed --backend mine --ops relu.default --ranks 2,3"
    assert expected.split() == words(op, options=options)[:10]


def test_snapshot_lies_where_the_runner_puts_it() -> None:
    """The command and the runner agree on the folder's name."""
    kernel = kernel_of(USUAL)
    assert Path(words(USUAL)[2]).parent == snapshot_root(kernel, Path("runs/x/kernels"))


def test_other_versions_and_notes_are_not_needed() -> None:
    """A folder of several versions still gives a kernel that is one file."""
    files = dict.fromkeys((FILE, "relu__default_implementation_v2.py", "README.md"), "0" * 16)
    assert "check" == words(with_kernel({"files": files}))[1]


def test_derived_kernel_is_checked_by_the_functional_file() -> None:
    """``opsmith check`` derives the in-place answer from the functional function as the run did."""
    op = msgspec.structs.replace(planned("relu_.default"), kernel=kernel_of(USUAL))
    command = words(with_kernel({"task": "relu_.default", "derived_from": "relu.default"}, op))
    assert ["check", "--task", "relu_.default"] == [command[1], *command[3:5]]


@pytest.mark.parametrize(
    "changes",
    [
        {"loader": Loader.ATEN, "root": None, "files": {}},
        {"loader": Loader.ATTRIBUTE},
        {"files": {FILE: "0" * 16, "helper.py": "1" * 16}},
        {"entry": f"{FILE}:relu"},
    ],
    ids=["no file", "attribute", "imports a file beside it", "function of another name"],
)
def test_kernel_that_is_not_one_file_goes_through_the_backend(changes: dict[str, object]) -> None:
    """Where ``opsmith check`` would not judge the same thing, the backend is asked again."""
    assert ["opsmith", "run", "--suite", "opinfo", "--backend", "./my kernels", "--ops", "relu.default"] == words(
        with_kernel(changes)
    )[:8]


def test_options_that_change_a_verdict_are_repeated() -> None:
    """Another tolerance or layout would judge otherwise."""
    options = msgspec.structs.replace(manifest().options, tolerance="backendbench", layout="exact")
    command = " ".join(words(USUAL, options=options))
    assert "--tolerance backendbench --layout exact" in command


def test_secret_seed_is_not_told() -> None:
    """While the run is not finished its seed stays secret."""
    assert "--seed" not in words(USUAL, seed=None)


def test_hostile_path_stays_one_word() -> None:
    """A folder's name cannot add a command."""
    assert words(USUAL, run="run; rm -rf ~ $(reboot)")[2].startswith("run; rm -rf ~ $(reboot)/kernels/")
