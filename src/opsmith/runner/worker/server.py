"""The worker: the only process that imports and runs a candidate's code.

Nothing it says is believed beyond being data: the judge decodes its replies into fixed types, the
referee compares the bytes. Expected values, the run's seed and other kernels never enter it.
"""

from __future__ import annotations

import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import torch

from opsmith.calls.live import CALL_DECODER, rebuild_all
from opsmith.calls.observer import Observer
from opsmith.core.case import CallRecord
from opsmith.core.conduct import Offence
from opsmith.core.kernel import Loader
from opsmith.evaluation.integrity.garbage import garbage_from_malloc
from opsmith.evaluation.integrity.inheritance import keep_code_from_children
from opsmith.evaluation.integrity.supervision import Supervision
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.cuda_graphs import give_memory_back
from opsmith.evaluation.timing.inputs import TimedInputs
from opsmith.evaluation.timing.modules import timed_function
from opsmith.runner.child.build_cache import EAGER, BuildCache, use_build_cache
from opsmith.runner.child.contexts import end_waiting, make_waiting_context
from opsmith.runner.child.outcome_files import OutcomeWriter, read_call, summarised
from opsmith.runner.child.timed_blocks import forget, ready, renewed, timed_block, warmed_up
from opsmith.runner.protocol.channel import Channel
from opsmith.runner.protocol.rank import RankInfo
from opsmith.runner.protocol.timing_messages import (
    BlockTimed,
    GiveMemoryBack,
    MakeReady,
    MemoryGivenBack,
    PrepareTiming,
    RenewInputs,
    ShowTimed,
    TimeBlock,
    TimingPrepared,
    WarmUp,
    spin_s,
)
from opsmith.runner.protocol.worker_messages import (
    Answered,
    CallProfiled,
    Discover,
    Discovered,
    Inspect,
    Inspected,
    Loaded,
    LoadKernel,
    Noticed,
    OutcomesShown,
    ProfileCall,
    Raised,
    Returned,
    RunCalls,
    ShowOutcomes,
    Started,
    WorkerReply,
    WorkerRequest,
)
from opsmith.runner.sandbox.layers import Sandbox
from opsmith.runner.worker.disguise import Disguise
from opsmith.runner.worker.execution import Answering, CallRun, raised
from opsmith.runner.worker.loading import discover, load_kernel
from opsmith.runner.worker.profile import looked_at
from opsmith.runner.worker.rendezvous import meet

MAX_FILE_BYTES = 4 << 30
#: Made before anything is hidden: annotations are looked up by the names of modules.
_PREPARED = msgspec.msgpack.Decoder(WorkerRequest)


def serve(
    channel: Channel,
    *,
    device: str,
    scratch: str,
    kernels: str,
    builds: str,
    threads: int,
    sandbox: Sandbox,
    rank_info: dict[str, Any] | None = None,
) -> None:
    """Answer the judge's requests until it closes the channel.

    Args:
        device: torch device string that kernels run on.
        scratch: private folder: working directory, home and temporary files.
        kernels: folder with the files of its kernel, put there by the judge.
        builds: parent of the per-kernel build caches.
        threads: CPU threads that a kernel may use through torch.
        sandbox: put on before anything has a thread, and made tighter before a kernel is loaded.
        rank_info: a :class:`~opsmith.runner.protocol.rank.RankInfo`; the rank meets the others before it starts.
    """
    _confine(scratch)
    own = None if rank_info is None else msgspec.convert(rank_info, RankInfo)
    questions = sandbox.confine(scratch, kernels, own.rendezvous if own else "")
    channel.send_descriptor(questions)
    if questions is not None:
        os.close(questions)  # Who holds it answers for itself.
    torch.set_num_threads(threads)
    if own is not None:
        meet(own, torch.device(device))
    telling = threading.Lock()

    def tell(line: str, offence: Offence) -> None:
        with telling:  # Any thread of the kernel's may be the one.
            channel.send(Noticed(line, offence))

    shares_cores = own is not None and device.startswith("cpu")
    outcomes = OutcomeWriter(Path(scratch), summarises=own is None)
    worker = Worker(torch.device(device), Path(builds), outcomes, sandbox, tell)
    channel.send(Started())
    original = os.getpid()
    while True:
        try:
            request = channel.receive(WorkerRequest)
        except EOFError:
            return
        reply = worker.answer(request)
        channel.spin_s = spin_s(request, shares_cores=shares_cores)
        if os.getpid() != original:
            os._exit(0)  # The candidate forked, and this is the copy: only the original answers.
        with telling:
            channel.send(reply)
        if isinstance(reply, Raised) and reply.kind == "device":
            return


def _confine(scratch: str) -> None:
    os.chdir(scratch)
    for name in ("TMPDIR", "HOME"):
        os.environ[name] = scratch
    tempfile.tempdir = scratch  # It remembers what it found in the zygote.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    # If the machine runs out of memory, the kernel's process goes first, not the judge's.
    Path("/proc/self/oom_score_adj").write_text("1000")


class Worker:
    """Holds the loaded kernel and runs it."""

    def __init__(
        self,
        device: torch.device,
        builds: Path,
        outcomes: OutcomeWriter,
        sandbox: Sandbox,
        tell: Callable[[str, Offence], None],
    ) -> None:
        self._sandbox = sandbox
        self._outcomes = outcomes
        self._device = device
        self._builds = builds
        self._cache: BuildCache | None = None
        self._answering: Answering | None = None
        self._disguise = Disguise()
        self._timed: dict[int, TimedCall] = {}
        self._observer: Observer | None = None
        #: Of ranks the calls of the last request, whose memory is looked at once more.
        self._runs: list[CallRun] = []
        make_waiting_context(device)
        self._supervision = Supervision(device, tell)

    def answer(self, request: WorkerRequest) -> WorkerReply:
        """Carry out one request; whatever the candidate raises becomes a :class:`Raised`."""
        try:
            return self._handlers[type(request)](request)
        except BaseException as exc:  # noqa: BLE001 - the worker's edge: candidates raise anything
            return raised(exc, self._device.type)

    @cached_property
    def _handlers(self) -> dict[type[WorkerRequest], Callable[[Any], WorkerReply]]:
        return {
            LoadKernel: self._load,
            RunCalls: self._run,
            ShowOutcomes: self._show_outcomes,
            PrepareTiming: self._prepare_timing,
            MakeReady: self._make_ready,
            RenewInputs: self._renew,
            WarmUp: self._warm_up,
            TimeBlock: self._time,
            ShowTimed: self._show,
            ProfileCall: self._profile,
            Inspect: self._inspect,
            Discover: self._discover,
            GiveMemoryBack: self._give_memory_back,
        }

    def _load(self, request: LoadKernel) -> Loaded:
        start = time.perf_counter()
        name = None if request.kernel.loader is Loader.ATEN else request.kernel.build_name
        # The rules that are put on for a kernel let nobody claim its cache again, for another of its overloads.
        if self._cache is not None and self._cache.name != name:
            self._cache.release()
            self._cache = None
        if name is None:
            builds = self._builds / EAGER  # Trusted, and the referee has built it all before.
        else:
            self._cache = self._cache or BuildCache.claim(self._builds, name)
            builds = self._cache.folder
            end_waiting(self._device)
        use_build_cache(builds)
        self._sandbox.narrow(builds)
        self._timed.clear()
        self._observer = None
        self._runs = []
        root = Path(request.root) if request.root else None
        self._supervision.end()
        if request.policy is not None:
            self._supervision.expect(request.schema, request.policy)
            keep_code_from_children()
        if request.policy is not None and root is not None:
            self._supervision.guard(root)
        if request.policy is not None:
            self._disguise.put_on()
        with self._building():
            function = load_kernel(request.kernel, root, request.schema, self._device)
        load_s = time.perf_counter() - start
        supervision = None if request.policy is None else self._supervision
        self._answering = Answering(function, request.kernel, request.schema, self._device, root, supervision)
        if request.policy is None:
            return Loaded(load_s, build_cache=builds.name)
        changes = self._supervision.changes()
        self._supervision.begin(request.schema, request.policy)
        garbage_from_malloc(on=True)
        return Loaded(load_s, changes, builds.name)

    def _run(self, request: RunCalls) -> Answered:
        assert self._answering is not None
        self._outcomes.forget()
        self._observer = None
        records = [read_call(item.call) for item in request.calls]
        with self._computing(records):
            lives = rebuild_all(
                [record for record, item in zip(records, request.calls, strict=True) for _ in range(item.repeats)],
                self._device,
            )
        observer = Observer()
        next_live = iter(lives)
        runs: list[CallRun] = []
        with self._building():
            for record, item in zip(records, request.calls, strict=True):
                run = CallRun(self._answering, self._device, record, item)
                run.run([next(next_live) for _ in range(item.repeats)], observer)
                runs.append(run)
        self._supervision.look_again()
        self._runs = runs
        with self._computing(records):
            outcomes = iter(self._told(observer))
            replies = tuple([run.reply(outcomes) for run in runs])
        return Answered(replies, self._supervision.changes(seed=runs[-1].last_seed if runs else None))

    def _building(self) -> AbstractContextManager[None]:
        """Around what may make the kernel build something; timed blocks do without."""
        return nullcontext() if self._cache is None else self._cache.building()

    def _told(self, observer: Observer) -> list[msgspec.Raw]:
        """What is sent of the outcomes: large ones stay where they are until they are asked for."""
        self._observer = observer
        summaries = observer.summaries() if self._outcomes.summarises else []
        if not any(summaries):
            return [self._outcomes.encode(held) for held in observer.all_held()]
        return [
            self._outcomes.encode(observer.held(number)) if summary is None else summarised(summary)
            for number, summary in enumerate(summaries)
        ]

    def _show_outcomes(self, request: ShowOutcomes) -> OutcomesShown:
        assert self._observer is not None
        with self._supervision.paused():
            return OutcomesShown(tuple([self._outcomes.encode(self._observer.held(n)) for n in request.numbers]))

    def _computing(self, records: list[CallRecord]) -> AbstractContextManager[None]:
        """For what the worker itself computes about these calls: it makes values, or gathers results of a device."""
        generated = any(not isinstance(storage, bytes) for record in records for storage in record.storages)
        if self._device.type == "cpu" and not generated:
            return nullcontext()  # Bytes are copied, which asks for nothing that is poisoned.
        return self._supervision.paused()

    def _prepare_timing(self, request: PrepareTiming) -> TimingPrepared:
        assert self._answering is not None
        garbage_from_malloc(on=False)  # It has its price.
        if request.pair == 0:
            self._outcomes.forget()
            forget(self._timed, self._device)
        record = CALL_DECODER.decode(request.call)
        with self._disguise.off(), self._supervision.paused():
            function, record = timed_function(self._answering.timed, record, self._device)
            inputs = TimedInputs(
                record,
                self._device,
                request.slots,
                variations=request.variations,
                computing=self._supervision.paused,
                scattered=self._answering.on_ranks,
            )
        with self._building():
            timed = self._timed[request.pair] = TimedCall(function, inputs, self._device, warm=request.warm)
        self._supervision.look_again()
        self._supervision.heed()
        return TimingPrepared(request.slots, request.variations, timed.first_call_s, timed.peak_bytes)

    def _make_ready(self, request: MakeReady) -> BlockTimed:
        timed = self._timed[request.pair]
        self._supervision.heed()
        with self._supervision.paused():
            timed.inputs.make(request.calls)
        if request.captured is None:
            return BlockTimed(None)
        self._supervision.arm()
        return ready(timed, request.captured)

    def _renew(self, request: RenewInputs) -> BlockTimed:
        self._supervision.arm()
        return renewed(self._timed, request)

    def _warm_up(self, request: WarmUp) -> BlockTimed:
        self._supervision.arm()
        return warmed_up(self._timed, request)

    def _time(self, request: TimeBlock) -> BlockTimed:
        self._supervision.arm()
        return timed_block(self._timed[request.pair], request)

    def _show(self, request: ShowTimed) -> Answered:
        timed = self._timed[request.pair]
        self._supervision.heed()
        self._outcomes.forget()
        observer = Observer()
        with self._supervision.paused():
            observer.keep([timed.observe(request.slot, observer)])
            [summary] = [None] if request.in_full else observer.summaries()
            outcome = self._outcomes.encode(observer.held(0)) if summary is None else summarised(summary)
            spans, foreign = timed.host_spans(), timed.foreign_results()
        return Answered((Returned((outcome,)),), spans=tuple(spans), foreign=foreign)

    def _profile(self, request: ProfileCall) -> CallProfiled:
        assert self._answering is not None
        record = read_call(request.call)
        with self._supervision.paused(), self._building():
            return CallProfiled(looked_at(self._answering, record, self._device))

    def _inspect(self, _request: Inspect) -> Inspected:
        self._supervision.heed()
        late = [line for run in self._runs for line in run.late_writes()]
        return Inspected((*dict.fromkeys(late), *self._supervision.changes()))

    def _give_memory_back(self, _request: GiveMemoryBack) -> MemoryGivenBack:
        self._outcomes.forget()
        self._observer = None
        self._runs = []
        give_memory_back(self._device, 0)
        return MemoryGivenBack()

    def _discover(self, request: Discover) -> Discovered:
        self._sandbox.narrow(None)
        return discover(request.target, request.ops)
