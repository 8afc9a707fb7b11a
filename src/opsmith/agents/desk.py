"""The judge's side of one agent's work on one task: answers its tools within limits, and keeps every version.

What the agent's own process is told, or tells itself, decides nothing: verdicts are in the records here, and a kernel
counts only if its very text was accepted by :meth:`Desk.answer` and then by a run on fresh secret values.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from pathlib import Path

import msgspec

from opsmith.agents.workbench import Workbench
from opsmith.core.case import digest
from opsmith.core.run import RunDirectory, write_atomically
from opsmith.errors import BadInput, OpsmithError
from opsmith.generate.feedback import judged_findings

#: A longer source is no kernel.
MOST_SOURCE_CHARACTERS = 1 << 20


class Tool(enum.StrEnum):
    """What an agent may ask."""

    CHECK = "check"
    TIME = "time"
    PROFILE = "profile"
    SUBMIT = "submit"
    LEFT = "left"


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent may spend on one task.

    Attributes:
        time_s: seconds from its start to its end.
        judgements: how often it may ``check`` or ``time``.
        submissions: how often it may ``submit``.
        device_s: seconds of judging; what is under way when they are over is finished.
    """

    time_s: float = 1800.0
    judgements: int = 40
    submissions: int = 3
    device_s: float = 1800.0

    @classmethod
    def parse(cls, text: str) -> AgentLimits:
        """Read ``time_s=600,judgements=20``.

        Raises:
            BadInput: it is not of that form.
        """
        parts = [part.partition("=") for part in filter(None, text.split(","))]
        try:
            values = {name.strip(): float(value) for name, _, value in parts}
            if len(values) < len(parts) or not all(math.isfinite(each) and each > 0 for each in values.values()):
                raise ValueError(text)
            return msgspec.convert(values, cls, strict=False)
        except (ValueError, msgspec.ValidationError):
            known = ", ".join(cls.__struct_fields__)
            raise BadInput(f"--agent-limits {text!r} is no list of {known} with amounts, as time_s=600") from None


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of an agent; a line of ``requests.jsonl``.

    Attributes:
        number: counted from 1.
        tool: what was asked.
        at_s: seconds after the agent's start.
        took_s: seconds until the answer.
        device_s: of them, of judging.
        version: the file in ``versions/``; empty without a source.
        source_hash: of its text.
        accepted: of what was judged.
        refused: it was not judged; ``text`` has the reason.
        text: the answer.
        run: of a submission, its run directory.
    """

    number: int
    tool: str
    at_s: float
    took_s: float
    device_s: float = 0.0
    version: str = ""
    source_hash: str = ""
    accepted: bool | None = None
    refused: bool = False
    text: str = ""
    run: str = ""


class _Refused(Exception):
    """A request that is not carried out, with the reason."""


class _Answer(msgspec.Struct, frozen=True):
    text: str
    accepted: bool | None = None
    device_s: float = 0.0
    run: str = ""


class Desk:
    """See the module's docstring; its methods may be called from several threads, and judge one request at a time.

    Args:
        bench: judges.
        task: a name of its tasks.
        folder: takes the records and the versions; neither the agent nor a kernel may read it.
        limits: of the agent.
    """

    def __init__(
        self,
        bench: Workbench,
        task: str,
        folder: Path,
        limits: AgentLimits,
    ) -> None:
        self._bench, self._task, self._folder, self._limits = bench, task, folder, limits
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._accepted: dict[str, bool] = {}
        self._closed = False
        self.asked: list[Asked] = []
        (folder / "versions").mkdir(parents=True, exist_ok=True)
        self._records = RunDirectory(folder)

    @property
    def device_s(self) -> float:
        """Seconds of judging so far."""
        return sum(each.device_s for each in self.asked)

    @property
    def submitted(self) -> Asked | None:
        """The last submission that was accepted, else the last one; None without any."""
        judged = [each for each in self.asked if each.tool == Tool.SUBMIT and not each.refused]
        return next((each for each in reversed(judged) if each.accepted), judged[-1] if judged else None)

    def close(self) -> None:
        """Wait for the request under way; further ones are refused and not kept."""
        with self._lock:
            self._closed = True

    def answer(self, tool: str, source: str) -> Asked:
        """Carry out one request, and keep it.

        Raises:
            BadInput: the desk is closed.
        """
        with self._lock:
            if self._closed:
                raise BadInput("the time is over")
            began = time.monotonic()
            content = digest(source.encode(errors="replace")) if source else ""
            version = self._keep(content, source)
            try:
                found, refused = self._carried_out(tool, source, content), False
            except _Refused as exc:
                found, refused = _Answer(f"refused: {exc}"), True
            except OpsmithError as exc:
                found, refused = _Answer(f"refused: {exc}"), True
            asked = Asked(
                number=len(self.asked) + 1,
                tool=tool,
                at_s=round(began - self._started, 3),
                took_s=round(time.monotonic() - began, 3),
                device_s=round(found.device_s, 3),
                version=version,
                source_hash=content,
                accepted=found.accepted,
                refused=refused,
                text=found.text,
                run=found.run,
            )
            self.asked.append(asked)
            with self._records.appender("requests.jsonl") as append:
                append(asked)
            return asked

    def _keep(self, content: str, source: str) -> str:
        if not content or len(source) > MOST_SOURCE_CHARACTERS:
            return ""
        known = next((each.version for each in self.asked if each.source_hash == content), "")
        if known:
            return known
        count = len({each.version for each in self.asked if each.version})
        name = f"{count + 1:04}.py"
        write_atomically(self._folder / "versions" / name, source.encode(errors="replace"))
        return name

    def _carried_out(self, tool: str, source: str, content: str) -> _Answer:
        if tool not in set(Tool):
            raise _Refused(f"there is no tool {tool!r}; there is {', '.join(Tool)}")
        if tool == Tool.LEFT:
            return _Answer(self._left())
        self._check_limits(Tool(tool))
        if tool == Tool.PROFILE:
            return _Answer(self._bench.profile(self._task))
        if len(source) > MOST_SOURCE_CHARACTERS:
            raise _Refused(f"the file has more than {MOST_SOURCE_CHARACTERS:,} characters")
        if tool == Tool.SUBMIT:
            return self._submit(source, content)
        judged = (self._bench.check if tool == Tool.CHECK else self._bench.time)(self._task, source)
        self._accepted[content] = judged.accepted
        return _Answer(judged_findings(judged, profile=tool == Tool.TIME), judged.accepted, judged.device_s)

    def _submit(self, source: str, content: str) -> _Answer:
        if content not in self._accepted:
            raise _Refused(
                "this file was never checked: submit takes the very text that `judge check` accepted, "
                f"and it has seen {len(self._accepted)} other versions"
            )
        if not self._accepted[content]:
            raise _Refused("`judge check` did not accept this file; submit takes only what it accepted")
        began = time.monotonic()
        found = self._bench.submit(self._task, source)
        said = "accepted on values that nobody had seen" if found.accepted else f"not accepted: {found.detail}"
        return _Answer(said, found.accepted, time.monotonic() - began, found.run)

    def _check_limits(self, tool: Tool) -> None:
        done = [each for each in self.asked if not each.refused]
        judgements = sum(each.tool in {Tool.CHECK, Tool.TIME} for each in done)
        submissions = sum(each.tool == Tool.SUBMIT for each in done)
        limits = self._limits
        if time.monotonic() - self._started >= limits.time_s:
            raise _Refused(f"the time is over, {limits.time_s:g} s")
        if tool in {Tool.CHECK, Tool.TIME} and judgements >= limits.judgements:
            raise _Refused(f"all {limits.judgements} judgements are used")
        if tool is Tool.SUBMIT and submissions >= limits.submissions:
            raise _Refused(f"all {limits.submissions} submissions are used")
        if self.device_s >= limits.device_s:
            raise _Refused(f"the seconds of judging are used, {limits.device_s:g}")

    def _left(self) -> str:
        done = [each for each in self.asked if not each.refused]
        judgements = sum(each.tool in {Tool.CHECK, Tool.TIME} for each in done)
        submissions = sum(each.tool == Tool.SUBMIT for each in done)
        limits = self._limits
        return (
            f"left: {max(0.0, limits.time_s - time.monotonic() + self._started):.0f} s, "
            f"{limits.judgements - judgements} judgements, {limits.submissions - submissions} submissions, "
            f"{max(0.0, limits.device_s - self.device_s):.0f} s of judging"
        )
