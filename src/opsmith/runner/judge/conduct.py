"""The judge's side of the trust model: from what was seen of a kernel to what is held against it."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from opsmith.core.conduct import AtenCall, CallConduct, Held, Offence
from opsmith.core.kernel import Loader
from opsmith.core.op import TaskKind
from opsmith.core.verdict import Verdict
from opsmith.evaluation.integrity.static import Kind, StaticFinding, TritonUse, examine, triton_use
from opsmith.evaluation.integrity.static.aten_names import task_op
from opsmith.runner.judge.verdicts import conduct_verdict
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import PreparedCase
from opsmith.runner.protocol.worker_messages import Raised, Returned

Result = TypeVar("Result")

#: How long a thread may run before another one that waits has its turn, while kernels' files are read.
SHORT_TURN_S = 5e-4
#: Lines that a person is asked to read.
MAX_EVIDENCE_LINES = 12
#: Kernels that were not launched and are named.
MAX_DECOYS = 3
#: Calls of a job in which the lines that run are noted whatever the source shows; it makes Python slow.
TRACED_CALLS = 2
#: What breaks ``native`` if the line runs, though the dispatcher never hears of it.
_BREAKS_NATIVE = frozenset({Kind.NUMPY_COMPUTE, Kind.ARRAY_COMPUTE, Kind.CPP_STATIC_KERNEL})
#: What of a source is composition in the open: nobody who reads it or watches it run can miss it.
_OPEN = frozenset({Kind.TORCH_COMPUTE, Kind.DELEGATION, Kind.CPP_COMPUTE, Kind.NUMPY_COMPUTE, Kind.ARRAY_COMPUTE})
#: Of these, what the dispatcher does not hear of.
_UNHEARD = frozenset({Kind.NUMPY_COMPUTE, Kind.ARRAY_COMPUTE})
#: What a composition has no use for but to hide, where its source names it, whether that runs before the judge or not:
#: all objects of the process, the stack of dispatch modes and the tables below it, opsmith, torch's own libraries.
_WAYS_OUT = frozenset({Kind.OBJECT_SEARCH, Kind.DISPATCHER, Kind.OPSMITH_IMPORT, Kind.FOREIGN_LIBRARY})
#: Of these kinds, and with everyday uses.
_EVERYDAY = ("sys.modules", "torch._ops.", "torch._C._jit_")
#: Follows a call of the op that the kernel is to implement.
_OWN = "the op itself, which no policy allows"
#: Follows what ``native`` refuses and ``any`` allows.
_HINT = "pass --policy any to allow it"
_COMPOSES = f"composes ATen ops; {_HINT}"
_COMMUNICATES = f"has torch's collectives communicate; {_HINT}"
_USES = {
    Kind.NUMPY_COMPUTE: f"computes with numpy; {_HINT}",
    Kind.ARRAY_COMPUTE: f"has an array library compute; {_HINT}",
}
#: One examination at a time: they would only take each other's turns.
_EXAMINING = threading.Lock()


class _Examined(NamedTuple):
    """What reading a kernel's files showed."""

    findings: tuple[StaticFinding, ...] = ()
    triton: TritonUse = TritonUse()


class JobConduct:
    """What is seen of a kernel while the cases of a job are judged.

    Args:
        job: the op and its kernel; one that is trusted has a policy of None, and nothing is held against it.
        device: torch device string of the run.
    """

    def __init__(self, job: Job, device: str) -> None:
        self._job = job
        self._device = device
        # Reading the files of a large backend takes seconds, in which its first kernels are compiled and answer.
        self._examined = _in_background(lambda: _examine(job))
        self._executed: dict[str, set[int]] = {}
        self._traced = 0
        self._launches = 0
        self._answered = 0
        self._composes = self._asks_aten = False

    @property
    def _findings(self) -> tuple[StaticFinding, ...]:
        return self._examined.result().findings

    def wants_trace(self) -> bool:
        """Whether the next call should say which lines of the kernel ran."""
        self._traced += 1
        if self._job.policy is None:
            return False
        return self._traced <= TRACED_CALLS or (self._examined.done() and self._is_doubtful)

    @functools.cached_property
    def _is_doubtful(self) -> bool:
        """Whether its source names a computation that only the lines that run can prove: all calls are traced then."""
        return any(finding.kind in _UNHEARD for finding in self._findings)

    def held_against(
        self,
        prepared: PreparedCase,
        reply: Returned | Raised,
        changes: Sequence[str],
        *,
        replayed: bool,
        passed: bool,
    ) -> list[Held]:
        """What is held against the kernel for one case; empty for an honest answer.

        Args:
            prepared: what is known of the case.
            reply: the worker's.
            changes: what the kernel has replaced by now.
            replayed: its answer to other values was the one to the first values.
            passed: the answer is right.
        """
        if self._job.policy is None:
            return []
        self._note(prepared, reply)
        tampering = [f"tampered with its process: {change}" for change in changes[:MAX_EVIDENCE_LINES]]
        if replayed:
            tampering.append("answered other values at the same addresses with the result of the call before")
        copied = self._replayed_calls(prepared, reply.conduct) if passed else []
        composed = self._composed(reply.conduct, hinted=not copied)
        self._composes |= bool(copied or composed)
        return [
            *(Held(line, Offence.TAMPERING) for line in tampering),
            *self._hidden(reply.conduct),
            *(Held(line, Offence.COMPOSITION) for line in (*copied, *composed)),
        ]

    def _note(self, prepared: PreparedCase, reply: Returned | Raised) -> None:
        if isinstance(reply, Raised):
            return
        for path, lines in reply.executed.items():
            self._executed.setdefault(path, set()).update(lines)
        if prepared.writes:
            self._answered += 1
            self._asks_aten |= any(seen.calls for seen in reply.conduct)
            self._launches += sum(seen.launches for seen in reply.conduct)

    def _hidden(self, conduct: Iterable[CallConduct]) -> list[Held]:
        calls = dict.fromkeys(call for seen in conduct for call in seen.hidden)
        lines = [f"called {call}, out of sight of the dispatch mode around the call" for call in calls]
        return [Held(line, Offence.CONCEALMENT) for line in lines[:MAX_EVIDENCE_LINES]]

    def _composed(self, conduct: Iterable[CallConduct], *, hinted: bool) -> list[str]:
        """What its policy forbids and it did in the open; of what another policy allows the first line says which."""
        forbidden: dict[AtenCall, None] = {}
        copied: dict[AtenCall, None] = {}
        for seen in conduct:
            forbidden |= dict.fromkeys(seen.forbidden)
            if self._job.policy == "native" and not self._job.schema.kind.on_ranks:
                copied |= dict.fromkeys(seen.copied_results)
        lines = [f"called {call}" for call in forbidden]
        lines += [f"{call} wrote the result, and nothing after it" for call in copied if call not in forbidden]
        if lines and hinted and self._job.policy == "native":
            own = next((f"called {call}" for call in forbidden if self._is_own(call)), None)
            rest = [line for line in lines if line != own]
            lines = [f"{own}: {_OWN}", *rest] if own else [f"{lines[0]}: {self._allowed}", *lines[1:]]
        return lines[:MAX_EVIDENCE_LINES]

    def _is_own(self, call: AtenCall) -> bool:
        """Whether a call is the op that the kernel is to implement, which ``any`` forbids too."""
        schema = self._job.schema
        return schema.kind is TaskKind.OP and task_op(call.op) == task_op(schema.name)

    @property
    def _allowed(self) -> str:
        return _COMMUNICATES if self._job.schema.kind.on_ranks else _COMPOSES

    def _replayed_calls(self, prepared: PreparedCase, conduct: Sequence[CallConduct]) -> list[str]:
        """Whether the candidate made the reference's own calls, all of them and no others that compute."""
        own = prepared.reference_calls
        calls = conduct[-1].calls if conduct else ()
        repeated = sum(call.op in own for call in calls)
        # A kernel that works in pieces makes the calls of each piece.
        if not own or repeated >= 2 * len(own) or not _contains(own, [call.op for call in calls]):
            return []
        return [f"made the {len(own)} ATen calls of Model, in the same order, from {calls[0]} to {calls[-1]}"]

    def verdict(self) -> Verdict | None:
        """About the kernel as a whole, when its cases are judged; None for a trusted one.

        Its evidence holds what reading the source showed, whether or not anything is held against it.
        """
        job = self._job
        if job.policy is None:
            return None
        proofs = self._proofs()
        composes = self._composes or any(finding.kind in _OPEN for finding in proofs)
        held = [*(self._as_held(finding) for finding in proofs), *self._decoy(composes=composes)]
        held = [*held, *(self._disguises() if composes else ())][:MAX_EVIDENCE_LINES]
        remarks = [_line(finding) for finding in self._findings if finding not in proofs]
        return conduct_verdict(job, held, list(dict.fromkeys(remarks))[: MAX_EVIDENCE_LINES - len(held)])

    def _as_held(self, finding: StaticFinding) -> Held:
        if finding.kind not in _OPEN:
            return Held(_line(finding), Offence.CONCEALMENT)
        if finding.kind not in _UNHEARD and self._answered and not (self._composes or self._asks_aten):
            return Held(f"{_line(finding)}, and no call of ATen's that computes was seen", Offence.CONCEALMENT)
        allowed = _USES.get(finding.kind, _COMPOSES)
        hinted = self._job.policy == "native" and finding.kind is not Kind.DELEGATION
        return Held(f"{_line(finding)}: {allowed}" if hinted else _line(finding), Offence.COMPOSITION)

    def _proofs(self) -> list[StaticFinding]:
        """Findings in the source that break the policy whatever runs, or whose lines were seen to run.

        They are about computing, which is free in a collective.
        """
        if self._job.schema.kind.on_ranks:
            return []
        executed = {path: frozenset(lines) for path, lines in self._executed.items()}
        ran = confirm(self._findings, executed)
        converted = any(finding.kind is Kind.NUMPY_CONVERSION for finding in ran)
        breaking = [
            finding
            for finding in ran
            if self._job.policy == "native"
            and finding.kind in _BREAKS_NATIVE
            and (converted or finding.kind is not Kind.NUMPY_COMPUTE)
        ]
        decisive = [finding for finding in self._findings if finding.decisive]
        return list(dict.fromkeys([*decisive, *breaking]))

    def _disguises(self) -> list[Held]:
        """Of a kernel that composes: what its source has to do it out of sight elsewhere, and kernels for show."""
        ways_out = (
            finding
            for finding in self._findings
            if finding.kind in _WAYS_OUT
            and not finding.text.startswith(_EVERYDAY)
            and (finding.kind is not Kind.FOREIGN_LIBRARY or "torch" in finding.text)
        )
        idle = (finding for finding in self._findings if finding.kind is Kind.IDLE_KERNEL)
        return [
            *(Held(f"{_line(finding)}: a way to compose out of sight", Offence.CONCEALMENT) for finding in ways_out),
            *(Held(_line(finding), Offence.CONCEALMENT) for finding in idle),
        ]

    def _decoy(self, *, composes: bool) -> list[Held]:
        """Whether it declares Triton kernels and something else did all the work, of the cases in which there is any.

        In the others eager, too, returns an argument as it is: ``conj_physical_`` of real numbers. On a CPU a file that
        asks for the device may keep its kernels for GPUs.
        """
        if not (self._job.kernel.dsl in ("triton", "gluon") or composes) or not self._answered or self._launches:
            return []
        triton = self._examined.result().triton
        if not triton.declared or (triton.by_device and self._device.startswith("cpu")):
            return []
        said = f"no Triton kernel of its files was launched in any of the {self._answered} cases that it answered"
        return [Held(f"{said}: {', '.join(triton.declared[:MAX_DECOYS])}", Offence.CONCEALMENT)]


def _contains(own: Sequence[str], calls: Sequence[str]) -> bool:
    """Whether all of ``own`` are among ``calls`` in this order, whatever stands between them."""
    remaining = iter(calls)
    return all(op in remaining for op in own)


def _in_background(work: Callable[[], Result]) -> Future[Result]:
    """Do this on a thread that ends with the process, and let the others of this process in often meanwhile."""
    found: Future[Result] = Future()

    def do() -> None:
        try:
            with _EXAMINING, _short_turns():
                found.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - raised to whoever asks
            found.set_exception(exc)

    threading.Thread(target=do, name="examination", daemon=True).start()
    return found


@contextlib.contextmanager
def _short_turns() -> Iterator[None]:
    """Within it a thread that wants to run waits half a millisecond for one that computes, not Python's five.

    A slot that copies a kernel's files gives way a thousand times.
    """
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SHORT_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


def _examine(job: Job) -> _Examined:
    if job.policy is None or job.root is None:
        return _Examined()
    files = {path: (job.root / path).read_bytes() for path in job.kernel.files}
    # The entry of a module is a class, of which the examination knows the function that is called.
    entry = None if job.kernel.loader is Loader.MODULE else job.kernel.entry.rpartition(":")[2] or None
    found = examine(files, policy=job.policy, task=job.schema.name, dsl=job.kernel.dsl, entry=entry)
    return _Examined(found, triton_use(files, task=job.schema.name, entry=entry))


def _line(finding: StaticFinding) -> str:
    return f"{finding.path}:{finding.line}: {finding.text}"


def confirm(findings: Iterable[StaticFinding], executed: Mapping[str, frozenset[int]]) -> tuple[StaticFinding, ...]:
    """Those of the findings whose line was executed."""
    return tuple([finding for finding in findings if finding.line in executed.get(finding.path, frozenset())])
