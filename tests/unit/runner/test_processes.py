"""The judge's hold on real processes: limits, restarts, and an end that leaves nothing."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.hostile_runs import processes_with_environment

from opsmith.core.case import CallRecord, CaseAddress, CaseRef
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.verdict import Status
from opsmith.errors import InternalError, ProcessLost, RefereeFailed
from opsmith.runner import worker, zygote
from opsmith.runner.child.build_cache import use_build_cache
from opsmith.runner.processes import children
from opsmith.runner.processes.children import Child, Processes
from opsmith.runner.processes.failures import LIMIT_DETAILS, RefereeDied, WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.processes.zygote_link import ZygoteGone, ZygoteLink
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.fork_messages import Fork
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.referee_messages import ListOps, OpsListed
from opsmith.runner.protocol.timing_messages import BlockTimed, TimeBlock
from opsmith.runner.protocol.worker_messages import Answered, CallToRun, Raised, Returned, RunCalls
from opsmith.runner.sandbox.layers import Layer, Sandbox

pytestmark = pytest.mark.slow

SCHEMA = OpSchema(name="relu.default", schema="aten::relu(Tensor self) -> Tensor", variant=Variant.FUNCTIONAL)
ENCODED = msgspec.msgpack.encode(CallRecord(op="relu.default", args=(), kwargs={}, storages=()))
CALL = CallToRun(ENCODED, rng_seed=0)
LIMITS = Limits(load_s=10.0, call_s=2.0, referee_s=60.0)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """One zygote for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_SECRET_TOKEN", "hunter2")
        with Processes("cpu", memory_limit_bytes=256 << 20, output_limit_bytes=1 << 20) as running:
            running.wait_ready()
            yield running


@pytest.fixture(scope="module")
def weaker_processes() -> Iterator[Processes]:
    """The same on a machine without Landlock, where a worker can send signals to other processes."""
    without = (Layer.FILES, Layer.SIGNALS)
    with Processes("cpu", memory_limit_bytes=1 << 30, output_limit_bytes=1 << 20, without_layers=without) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def ungated_processes() -> Iterator[Processes]:
    """The same on a machine where the kernel asks nobody whether a process may be made."""
    without = (Layer.PROGRAMS,)
    with Processes("cpu", memory_limit_bytes=1 << 30, output_limit_bytes=1 << 20, without_layers=without) as running:
        running.wait_ready()
        yield running


class Bench:
    """Loads kernels, given as the body of a function without arguments, into a worker."""

    def __init__(self, link: WorkerLink, folder: Path) -> None:
        self.link = link
        self.policy: str | None = None
        self._folder = folder
        self._numbers = itertools.count()

    def load(self, body: str, *, head: str = "") -> Raised | None:
        """Write a kernel and load it into a worker of its own."""
        root = self._folder / str(next(self._numbers))
        root.mkdir()
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (root / "kernel.py").write_text(f"import ctypes, os, signal, sys, time\n{head}\ndef run():\n{lines}")
        kernel = Kernel(
            task=SCHEMA.name, backend="test", loader=Loader.FILE, entry="kernel.py:run", files={"kernel.py": root.name}
        )
        self.link.retire()
        return self.link.load(kernel, root, SCHEMA, self.policy)

    def run(self, body: str) -> str:
        """Load and call a kernel: what it raised, or ``returned``."""
        assert self.load(body) is None
        return self.call()

    def call(self) -> str:
        """Call the loaded kernel once more."""
        answer = self.link.ask(RunCalls((CALL,)), (Answered,))
        (reply,) = answer.replies
        return "returned" if isinstance(reply, Returned) else str(reply.message)

    def failure(self, body: str) -> WorkerFailed:
        """Load and call a kernel that ends its worker."""
        with pytest.raises(WorkerFailed) as caught:
            self.run(body)
        return caught.value


@pytest.fixture
def bench(processes: Processes, tmp_path: Path) -> Iterator[Bench]:
    """A worker link of its own."""
    link = WorkerLink(processes, device="cpu", builds=tmp_path / "builds", threads=1, spares=1, limits=LIMITS)
    (tmp_path / "kernels").mkdir()
    yield Bench(link, tmp_path / "kernels")
    link.close()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("ctypes.string_at(0)", Status.CRASHED, "SIGSEGV"),
        ("os.abort()", Status.CRASHED, "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", Status.CRASHED, "SIGKILL"),
        ("os._exit(0)", Status.CRASHED, "exited with status 0"),
        ("os._exit(77)", Status.CRASHED, "exited with status 77"),
        ("time.sleep(60)", Status.TIMEOUT, "no answer within 2 s"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", Status.TIMEOUT, "no answer within 2 s"),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(60)", Status.TIMEOUT, "no answer"),
        ("os.close(3)\nos.fork()\ntime.sleep(60)", Status.CRASHED, "lived on"),
        ("hoard = bytearray(b'x' * (1 << 29)); time.sleep(60)", Status.OUT_OF_MEMORY, "more memory"),
        ("for _ in range(9): sys.stderr.write('x' * (1 << 20))", Status.OUTPUT_LIMIT, "printed more"),
        ("os.write(3, b'OPSM' + bytes(8))", Status.CRASHED, "not of the protocol"),
    ],
)
def test_a_worker_that_fails_is_described_and_replaced(bench: Bench, body: str, status: Status, says: str) -> None:
    """The next kernel gets a worker that knows nothing of it."""
    failure = bench.failure(body)
    assert status is failure.status
    assert says in failure.detail
    assert "returned" == bench.run("pass")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)", "ended the one that had started it"),
        ("os.kill(os.getppid(), signal.SIGSTOP); os._exit(0)", ""),
    ],
)
def test_a_worker_that_ends_its_parent_is_replaced(
    weaker_processes: Processes, tmp_path: Path, body: str, says: str
) -> None:
    """Where nothing keeps it from that, it costs the worker and the one that waits."""
    link = WorkerLink(weaker_processes, device="cpu", builds=tmp_path / "b", threads=1, spares=1, limits=LIMITS)
    bench = Bench(link, tmp_path)
    failure = bench.failure(body)
    assert Status.CRASHED is failure.status
    assert says in failure.detail
    assert "returned" == bench.run("pass")
    link.close()


def test_a_call_that_compiles_has_the_time_of_loading(bench: Bench) -> None:
    """C++ that a first call compiles takes half a minute; the processor is the compiler's then, as while loading."""
    bench.policy = "any"
    # The compiler reads its source from a pipe, which stays open for longer than a call may take.
    compile_slowly = """import subprocess
compiler = subprocess.Popen(["c++", "-x", "c++", "-c", "-o", "/dev/null", "-"], stdin=subprocess.PIPE)
time.sleep(3)
compiler.stdin.close()
assert compiler.wait() == 0"""
    assert "returned" == bench.run(compile_slowly)


def test_a_death_costs_under_a_second(bench: Bench) -> None:
    """From the crash to the answer of the next kernel, which is loaded into a fresh worker."""
    costs = []
    for _ in range(3):
        started = time.monotonic()
        bench.failure("os._exit(1)")
        assert "returned" == bench.run("pass")
        costs.append(time.monotonic() - started)
    assert min(costs) < 1.0


def test_a_kernel_that_dies_while_it_loads_is_told_from_one_that_raises(bench: Bench) -> None:
    """What it raises comes back as data."""
    with pytest.raises(WorkerFailed, match="status 3"):
        bench.load("pass", head="os._exit(3)")
    problem = bench.load("pass", head="raise SystemExit(3)")
    assert problem is not None
    assert "SystemExit: 3" == problem.message


def test_what_a_dying_worker_printed_is_evidence(bench: Bench) -> None:
    """Only its end, because a kernel may print a lot."""
    failure = bench.failure("for line in range(99): print(line, flush=True)\nos._exit(1)")
    assert tuple(map(str, range(87, 99))) == failure.evidence


def test_output_is_counted_for_each_request_alone(bench: Bench) -> None:
    """A kernel that prints a little in every call is no nuisance."""
    assert "returned" == bench.run("sys.stderr.write('x' * (1 << 19))")
    assert ["returned"] * 6 == [bench.call() for _ in range(6)]


def test_a_kernel_cannot_enable_kernels_while_it_is_judged(bench: Bench) -> None:
    """Installed in a judging process, a kernel would answer where PyTorch is asked for."""
    assert "EnabledWhileJudging: kernels cannot be enabled" in bench.run("import opsmith\nopsmith.enable()")


def test_a_worker_holds_no_descriptor_and_no_secret_of_the_judges(bench: Bench) -> None:
    """It has its three standard streams, its channel, the lock of its build cache, and what compilers need to know."""
    assert "ValueError: ['0', '1', '2', '3', '4']" == bench.run(
        "raise ValueError(sorted(fd for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')))"
    )
    assert "ValueError: False" == bench.run("raise ValueError('hunter2' in str(os.environ))")


def test_a_zygote_that_is_killed_while_it_imports_is_replaced() -> None:
    """The run that starts it goes on; one that cannot import is not started again and again."""
    with Processes("cpu", memory_limit_bytes=256 << 20, output_limit_bytes=1 << 20) as running:
        first = running._process.pid
        os.kill(first, signal.SIGKILL)
        running.wait_ready()
        assert first != running._process.pid
        assert running.facts["torch"]


def test_what_every_start_imports_is_compiled_once() -> None:
    """No child writes bytecode, and the process that they are forked from imports thousands of files."""
    compiled = Path(importlib.util.cache_from_source(str(Path(worker.__path__[0]) / "disguise.py")))
    compiled.unlink(missing_ok=True)
    with Processes("cpu", memory_limit_bytes=256 << 20, output_limit_bytes=1 << 20) as running:
        running.wait_ready()
        assert compiled.is_file()


def test_every_process_iterates_sets_of_strings_in_the_same_order(bench: Bench) -> None:
    """OpInfo makes samples in such an order, and an address counts them."""
    command = [sys.executable, "-c", "print(hash('xy'))"]
    expected = subprocess.run(command, env={"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True).stdout
    assert f"ValueError: {expected.strip()}" == bench.run("raise ValueError(hash('xy'))")


def test_a_process_that_a_worker_leaves_behind_ends_with_it(bench: Bench) -> None:
    """Even a daemon in a session of its own, which keeps the worker's channel open."""
    bench.failure(
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open(os.environ['TRITON_CACHE_DIR'] + '.pid', 'w').write(str(os.getpid()))\n"
        "        time.sleep(3600)\n"
        "    os._exit(0)\n"
        "os.wait(); time.sleep(0.3); os._exit(0)"
    )
    assert "returned" == bench.run("pass")
    (pid_file,) = Path(str(bench.link._config["builds"])).rglob("triton.pid")
    assert not Path("/proc", pid_file.read_text()).exists()


def test_only_the_original_of_a_kernel_that_forks_answers(bench: Bench) -> None:
    """One request has one reply, so that no later one gets an earlier one's."""
    assert "returned" == bench.run("os.fork()")
    assert ["returned"] * 5 == [bench.call() for _ in range(5)]


FORKS = "while True:\n    try: os.fork()\n    except OSError: pass"
THREADS = "import threading\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"


@pytest.mark.parametrize(
    ("where", "body"),
    [
        ("processes", FORKS),
        ("processes", THREADS),
        ("ungated_processes", FORKS.replace("os.fork()", "os.fork() or time.sleep(0.1)")),
    ],
    ids=["processes", "threads", "where nobody asks"],
)
def test_a_bomb_of_processes_ends_with_its_worker(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, body: str
) -> None:
    """It costs its own verdict: a worker of another slot answers meanwhile, and so does the next one of its own."""
    monkeypatch.setattr(children, "MOST_STARTED", 12)
    monkeypatch.setattr(children, "MOST_THREADS", 96)
    processes = request.getfixturevalue(where)
    limits = msgspec.structs.replace(LIMITS, call_s=30.0)
    with contextlib.ExitStack() as opened:
        benches = []
        for name in ("bomb", "other"):
            (tmp_path / name).mkdir()
            link = WorkerLink(processes, device="cpu", builds=tmp_path / "builds", threads=1, spares=1, limits=limits)
            opened.callback(link.close)
            benches.append(Bench(link, tmp_path / name))
        bomb, other = benches
        assert other.load("time.sleep(0.01)") is None
        with ThreadPoolExecutor(1) as pool:
            failing = pool.submit(bomb.failure, body)
            while not failing.done():
                assert other.call() == "returned"
        failure = failing.result()
        assert (failure.status, failure.detail) == (Status.CRASHED, LIMIT_DETAILS[Status.CRASHED])
        assert bomb.run("pass") == "returned"
        assert not other.link.started()


def test_memory_that_a_fork_shares_is_not_counted_twice(bench: Bench) -> None:
    """Two copies of a process with 300 MB of imports use next to nothing."""
    body = "for _ in range(2):\n    if os.fork() == 0: time.sleep(60)\ntime.sleep(1)"
    assert "returned" == bench.run(body)


def test_a_worker_that_ends_its_parent_harms_no_other_slot(weaker_processes: Processes, tmp_path: Path) -> None:
    """Each slot's workers have a parent of their own."""
    benches = []
    for name in ("guilty", "innocent"):
        (tmp_path / name).mkdir()
        link = WorkerLink(
            weaker_processes, device="cpu", builds=tmp_path / "builds", threads=1, spares=1, limits=LIMITS
        )
        benches.append(Bench(link, tmp_path / name))
    guilty, innocent = benches
    assert "returned" == innocent.run("pass")
    guilty.failure("os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)")
    assert "returned" == innocent.call()
    for bench in benches:
        bench.link.close()


def test_a_referee_that_dies_is_replaced(processes: Processes, tmp_path: Path) -> None:
    """Its death is told once; the next request goes to a new one."""
    link = RefereeLink(processes, tmp_path, device="cpu", builds=tmp_path, threads=1, limits=LIMITS)
    request = ListOps("smoke", ("f32",))
    assert ("relu", "f32") in link.ask(request, OpsListed).entries
    assert link._child is not None
    os.kill(link._child.pid, signal.SIGSEGV)
    with pytest.raises(RefereeDied, match="SIGSEGV"):
        link.ask(request, OpsListed)
    assert ("relu", "f32") in link.ask(request, OpsListed).entries
    link.close()


def test_a_zygote_that_is_lost_is_replaced_and_nobody_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is silent, and ended with all below it: what they were asked has to be asked again. Its folder stays."""
    monkeypatch.setattr(children, "FORK_TIMEOUT_S", 1.0)
    monkeypatch.setattr(children, "RESTART_PAUSES_S", (0.0,) * 5)
    with Processes("cpu", memory_limit_bytes=1 << 30, output_limit_bytes=1 << 20) as running:
        spool = running.scratch / "spool"
        spool.mkdir()
        referee = RefereeLink(running, spool, device="cpu", builds=tmp_path, threads=1, limits=LIMITS)
        benches = []
        for name in ("at work", "idle"):
            (tmp_path / name).mkdir()
            link = WorkerLink(running, device="cpu", builds=tmp_path / "builds", threads=1, spares=0, limits=LIMITS)
            benches.append(Bench(link, tmp_path / name))
        at_work, idle = benches
        assert at_work.run("pass") == "returned"
        referee.ask(ListOps("smoke", ("f32",)), OpsListed)

        os.kill(running._zygote.pid, signal.SIGSTOP)
        assert idle.run("pass") == "returned"
        with pytest.raises(ProcessLost):
            at_work.call()
        with pytest.raises(ProcessLost):
            referee.ask(ListOps("smoke", ("f32",)), OpsListed)
        assert at_work.run("pass") == "returned"
        referee.ask(ListOps("smoke", ("f32",)), OpsListed)
        assert spool.is_dir()
        for bench in benches:
            bench.link.close()
        referee.close()


def test_a_zygote_survives_that_the_system_gives_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while somebody else has all of them; it says so, and the next fork is tried as the first one was."""
    refused = iter([True] * 2)

    def fork() -> int:
        if next(refused, False):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return 4711

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(zygote, "FORK_PAUSES_S", (0.0,))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = ZygoteLink(ours, 0)
    sandbox = Sandbox({})
    assert zygote._fork(theirs, Fork("worker", {}), [], sandbox) is None
    with pytest.raises(ZygoteGone, match="Resource temporarily unavailable"):
        link.fork("worker", {}, (0, 1), 5.0)
    assert not link.gone
    assert 4711 == zygote._fork(theirs, Fork("worker", {}), [], sandbox)
    assert 4711 == link.fork("worker", {}, (0, 1), 5.0)
    theirs.close()
    assert link.wait_gone(5.0)


def test_a_referee_that_raises_lives_on(processes: Processes, tmp_path: Path) -> None:
    """A bug of opsmith's costs one request."""
    link = RefereeLink(processes, tmp_path, device="cpu", builds=tmp_path, threads=1, limits=LIMITS)
    with pytest.raises(RefereeFailed, match="no suite named"):
        link.ask(ListOps("no such suite", ("f32",)), OpsListed)
    child = link._child
    assert ("relu", "f32") in link.ask(ListOps("smoke", ("f32",)), OpsListed).entries
    assert child is link._child
    link.close()


def test_nothing_is_left_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process, no folder, no descriptor, whatever was running."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "kernels").mkdir()
    descriptors = set(Path("/proc/self/fd").iterdir())
    with Processes("cpu", memory_limit_bytes=1 << 30, output_limit_bytes=1 << 20) as running:
        link = WorkerLink(running, device="cpu", builds=tmp_path / "builds", threads=1, spares=2, limits=LIMITS)
        assert "returned" == Bench(link, tmp_path / "kernels").run("if os.fork() == 0: os.setsid(); time.sleep(3600)")
        assert processes_with_environment(str(running.scratch).encode())
    assert [] == processes_with_environment(str(running.scratch).encode())
    assert not running.scratch.exists()
    link.close()
    assert descriptors == set(Path("/proc/self/fd").iterdir())


def spare_workers(link: WorkerLink, wanted: int) -> int:
    """How many workers are kept ready when so many are wanted and there is time."""
    link.wanted_spares = wanted
    for _ in range(50):
        link.prepare()
        time.sleep(0.02)
    return len(link._spares)


def test_workers_are_kept_ready_as_many_as_are_wanted(bench: Bench) -> None:
    """More while a suite is enumerated, fewer when the end is near: each takes a device's memory."""
    assert [3, 1, 0] == [spare_workers(bench.link, wanted) for wanted in (3, 1, 0)]


def test_no_more_workers_are_kept_ready_than_there_is_room_for(bench: Bench, processes: Processes) -> None:
    """The limit counts those that other slots keep, and those that are ending."""
    others = spare_workers(bench.link, 0) + len([worker for worker in processes._workers if worker.wait(0.0) is None])
    processes.worker_limit = others + 2
    try:
        assert 2 == spare_workers(bench.link, 5)
    finally:
        processes.worker_limit = sys.maxsize


@pytest.mark.parametrize(("one_kernel", "waiting"), [(True, [4, 3, 2, 2]), (False, [0, 0, 0, 0])])
def test_workers_made_ahead_are_used_up(
    processes: Processes, tmp_path: Path, *, one_kernel: bool, waiting: list[int]
) -> None:
    """Each holds a device's memory. Where kernels share a worker, nobody is waited for: a run had 140 of them."""
    link = WorkerLink(
        processes, device="cpu", builds=tmp_path, threads=1, spares=5, limits=LIMITS, one_kernel=one_kernel
    )
    assert 5 == spare_workers(link, 5)
    (tmp_path / "kernels").mkdir()
    bench = Bench(link, tmp_path / "kernels")
    found = []
    for _ in waiting:
        assert bench.load("pass") is None
        link.prepare()
        found.append(len(link._spares))
    assert waiting == found
    link.close()


def test_of_the_last_kernels_each_gets_the_worker_that_waits_and_none_is_made_for_nothing(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a context, and a machine makes a few in a second."""
    link = WorkerLink(processes, device="cpu", builds=tmp_path, threads=1, spares=1, limits=LIMITS)
    (tmp_path / "kernels").mkdir()
    bench = Bench(link, tmp_path / "kernels")
    forked, fork = [], Processes.fork

    def counted(of: Processes, role: str, config: dict[str, Any], nursery: ZygoteLink | None = None) -> Child:
        forked.append(role)
        return fork(of, role, config, nursery)

    monkeypatch.setattr(Processes, "fork", counted)
    waiting = []
    for to_come in (2, 1, 0, 0):
        link.expect(to_come)
        assert bench.load("pass") is None
        waiting.append(len(link._spares))
        link.retire()
    assert [1, 1, 0, 0] == waiting
    assert 4 == len(forked)
    link.close()


def test_a_worker_that_gives_memory_back_lives_on(bench: Bench) -> None:
    """Its kernel stays loaded; those that wait end, for each has a context."""
    assert "returned" == bench.run("pass")
    assert 2 == spare_workers(bench.link, 2)
    before = bench.link.pid
    bench.link.give_memory_back()
    assert (before, 0) == (bench.link.pid, len(bench.link._spares))
    assert "returned" == bench.call()
    bench.link.wanted_spares = 1


def test_a_referee_that_gives_memory_back_lives_on(processes: Processes, tmp_path: Path) -> None:
    """Nobody has to wait for another one to start; one that has not been started is not for that."""
    link = RefereeLink(processes, tmp_path, device="cpu", builds=tmp_path, threads=1, limits=LIMITS)
    link.give_memory_back()
    assert not link.is_running
    link.ask(ListOps("smoke", ("f32",)), OpsListed)
    before = link.pid
    link.give_memory_back()
    assert link.ask(ListOps("smoke", ("f32",)), OpsListed).entries
    assert before == link.pid
    link.close()


def test_a_worker_that_cannot_start_is_our_failure(processes: Processes, tmp_path: Path) -> None:
    """It is no kernel's: a device without memory says nothing about who would have run there."""
    link = WorkerLink(processes, device="meta:x", builds=tmp_path, threads=1, spares=1, limits=LIMITS)
    with pytest.raises(InternalError, match="a worker did not start: .*[Ii]nvalid device"):
        link.ask(RunCalls((CALL,)), (Answered,))
    link.close()


def test_every_compiler_builds_into_the_folder_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel must not find what another one has built."""
    before = dict(os.environ)
    names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "PYTORCH_KERNEL_CACHE_PATH")
    for name in (*names, "CUPY_CACHE_DIR", "TILELANG_CACHE_DIR", "CUDA_TILE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "elsewhere")
    use_build_cache(tmp_path)
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    assert 7 == len(changed)
    assert {str(tmp_path)} == {str(Path(value).parent) for value in changed.values()}


def test_a_lent_call_is_run_and_then_gone(bench: Bench, tmp_path: Path) -> None:
    """Its worker reads it from a file, which it cannot write to; both executions of a case may be lent."""
    spool = Spool(tmp_path)
    number = spool.add(b"before" + ENCODED + b"behind")
    case = CaseRef(
        address=CaseAddress("opinfo", "relu", "f32", "sample", 0, 0),
        op="relu.default",
        signature="",
        content_hash="",
        size_bytes=0,
        spool=number,
        offset=6,
        length=len(ENCODED),
    )
    writes = (
        "import glob\nfor path in glob.glob(os.path.dirname(os.path.dirname(__file__)) + '/call-*'): open(path, 'wb')"
    )
    for body, told in (("pass", "returned"), (writes, "Permission denied")):
        assert bench.load(body) is None
        call, again = (bench.link.lend_call(partial(spool.copy, case)) for _ in range(2))
        assert Path(call.path).read_bytes() == Path(again.path).read_bytes() == ENCODED
        answer = bench.link.ask(RunCalls((CallToRun(call, rng_seed=0, again=again),)), (Answered,))
        [reply] = answer.replies
        assert told in ("returned" if isinstance(reply, Returned) else str(reply.message))
        assert not Path(call.path).exists()
        assert not Path(again.path).exists()
    spool.close()


def test_a_worker_loads_another_overload_of_its_kernel(bench: Bench, tmp_path: Path) -> None:
    """Into the build cache that it has: it could claim none any more."""
    assert "returned" == bench.run("pass")
    loaded = bench.link._loaded
    assert loaded is not None
    again = msgspec.structs.replace(loaded, task="relu.out", derived_from="relu.default")
    schema = OpSchema(
        name="relu.out", schema="aten::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", variant=Variant.OUT
    )
    pid = bench.link.pid
    assert bench.link.load(again, tmp_path / "kernels" / loaded.files["kernel.py"], schema) is None
    assert pid == bench.link.pid


def test_nothing_starts_in_a_timed_block(bench: Bench) -> None:
    """And everything that a kernel may start does in the requests around it."""
    assert "returned" == bench.run("import subprocess; subprocess.run(['true'], check=True)")
    gate = bench.link._started().gate
    if gate is None:
        pytest.skip("this machine lacks the layer")
    bench.link.ask(TimeBlock(1, "E"), (BlockTimed, Raised))
    assert not gate.is_open
    assert "returned" == bench.call()
    assert gate.is_open


def test_where_programs_cannot_be_refused_they_are_killed(ungated_processes: Processes, tmp_path: Path) -> None:
    """Python is no compiler; what compiles goes on."""
    limits = Limits(load_s=10.0, call_s=10.0, referee_s=60.0)
    link = WorkerLink(ungated_processes, device="cpu", builds=tmp_path / "builds", threads=1, spares=0, limits=limits)
    (tmp_path / "kernels").mkdir()
    bench = Bench(link, tmp_path / "kernels")
    bench.policy = "any"
    start = "import subprocess\nraise ValueError(subprocess.run([{}, '-c', {!r}]).returncode)"
    assert "ValueError: -9" == bench.run(start.format("sys.executable", "import time; time.sleep(4)"))
    assert "ValueError: 3" == bench.run(start.format("'sh'", "sleep 0.2; exit 3"))
    link.close()
