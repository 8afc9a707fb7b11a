"""What a kernel must not get at is out of its reach wherever a layer that stops it is active; honest work goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsmith import pipeline
from opsmith.core.run import Options, RunDirectory
from opsmith.core.verdict import Status
from opsmith.runner.sandbox.layers import Layer

SNOOPS = Path(__file__).parents[1] / "snoops"
SECRET = "hunter2"
ABSTRACT = "\0opsmith-test-listener"

FILES, CALLS, NETWORK, SIGNALS, MEMORY = (
    {Layer.FILES},
    {Layer.SYSTEM_CALLS},
    {Layer.SYSTEM_CALLS, Layer.NETWORK},
    {Layer.SIGNALS},
    {Layer.FILES, Layer.MEMORY},
)
#: Attempt of ``tests/snoops/relu__default`` -> the layers of which each stops it.
STOPPED_BY = {
    **dict.fromkeys(("seed_file", "run_file", "run_folder", "original_source", "snapshots"), FILES),
    **dict.fromkeys(("other_build", "other_builds", "spool", "zygote_log", "other_workers"), FILES),
    **dict.fromkeys(("ssh_key", "home", "shadow", "judge_cmdline", "write_own_source"), FILES),
    **dict.fromkeys(("judge_memory", "judge_environ", "judge_maps", "judge_descriptors"), MEMORY),
    "any_memory": FILES,
    "any_descriptors": FILES,
    **dict.fromkeys(("write_tree", "write_run", "write_package", "remove_secret"), FILES | {Layer.READ_ONLY}),
    "change_mode": {Layer.READ_ONLY},
    **dict.fromkeys(("tcp", "udp", "abstract"), NETWORK),
    **dict.fromkeys(("unix", "netlink", "io_uring", "ptrace", "read_memory", "limits", "priority", "cores"), CALLS),
    **dict.fromkeys(("own_priority", "own_cores", "own_timer"), CALLS),
    **dict.fromkeys(("namespace", "mount"), CALLS),
    "interpreter": {Layer.PROGRAMS},
    **dict.fromkeys(("signal_judge", "signal_parent", "signal_any"), SIGNALS),
    "environment": set(),
}
#: Stopped on every machine.
ALWAYS = {"environment"}


class SnoopedRun:
    """A run of the kernels in ``tests/snoops``.

    Attributes:
        layers: the layers that its record calls active.
        statuses: op -> the statuses of its cases.
        outcomes: attempt -> the error that it met, or ``through``.
    """

    def __init__(self, run: RunDirectory) -> None:
        self.layers = set(run.manifest().sandbox)
        self.statuses: dict[str, set[Status]] = {}
        self.outcomes: dict[str, str] = {}
        for verdict in run.verdicts():
            self.statuses.setdefault(verdict.op, set()).add(verdict.status)
            if verdict.op == "relu.default":
                self.outcomes |= dict(re.findall(r"(\w+)=(\w+)", "\n".join(verdict.evidence)))


@pytest.fixture(scope="module")
def snooped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SnoopedRun]:
    """Judge the directory once, with secrets of every kind around it and somebody who would answer."""
    tree = tmp_path_factory.mktemp("snooped")
    with (
        pytest.MonkeyPatch.context() as patch,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as local,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        local.bind(str(tree / "listener"))
        abstract.bind(ABSTRACT)
        local.listen()
        abstract.listen()
        _hide_secrets(tree, patch)
        _write_kernels(tree, port=tcp.getsockname()[1])
        options = Options(
            suite="smoke",
            backend=str(tree / "kernels"),
            device="cpu",
            dtypes=("f32",),
            ops=("relu.default", "exp.default", "mul.Tensor"),
        )
        pipeline.evaluate(options, tree / "run")
        yield SnoopedRun(RunDirectory(tree / "run"))


def _hide_secrets(tree: Path, patch: pytest.MonkeyPatch) -> None:
    for secret in ("home/.ssh/id_ed25519", "cache/opsmith/builds/another/main.cpp"):
        (tree / secret).parent.mkdir(parents=True)
        (tree / secret).write_text(SECRET)
    patch.setenv("HOME", str(tree / "home"))
    patch.setenv("XDG_CACHE_HOME", str(tree / "cache"))
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    patch.setenv("TMPDIR", str(tree))
    patch.setattr("tempfile.tempdir", None)


def _write_kernels(tree: Path, *, port: int) -> None:
    shutil.copytree(SNOOPS, tree / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    places = {
        "tree": str(tree),
        "home": str(tree / "home"),
        "out": str(tree / "run"),
        "judge": os.getpid(),
        "port": port,
        "listener": str(tree / "listener"),
        "abstract": ABSTRACT,
        "secret": SECRET,
    }
    (tree / "kernels" / "relu__default" / "places.json").write_text(json.dumps(places))


def test_every_attempt_is_reported(snooped: SnoopedRun) -> None:
    """None is missing because the kernel stumbled over an earlier one."""
    assert set(STOPPED_BY) == set(snooped.outcomes)


@pytest.mark.parametrize("attempt", STOPPED_BY)
def test_what_an_active_layer_stops_does_not_get_through(snooped: SnoopedRun, attempt: str) -> None:
    """The layers are those that the run's own record names; a layer that is missing here is not tested here."""
    if attempt not in ALWAYS and not STOPPED_BY[attempt] & snooped.layers:
        pytest.skip("this machine lacks the layer")
    assert "through" != snooped.outcomes[attempt]
    # Something was there, so it was refused: a wrong path would prove nothing.
    assert attempt in ALWAYS or "ENOENT" != snooped.outcomes[attempt]


def test_honest_kernels_pass_in_the_sandbox(snooped: SnoopedRun) -> None:
    """Compilers, OpenMP, processes, locks, threads and temporary files work as they do anywhere else."""
    assert {Status.PASSED} == snooped.statuses["exp.default"]
    assert {Status.PASSED} == snooped.statuses["mul.Tensor"]


def test_the_run_of_a_snoop_is_judged_to_its_end(snooped: SnoopedRun) -> None:
    """What it tried cost nothing but its own verdicts."""
    assert Status.ERROR in snooped.statuses["relu.default"]
    assert not {Status.CRASHED, Status.TIMEOUT, Status.NOT_RUN} & snooped.statuses["relu.default"]
