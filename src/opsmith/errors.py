"""Every error that opsmith raises on purpose, as one tree.

::

    OpsmithError
    ├── UsageError              the request cannot be carried out as written (exit status 2)
    │   ├── UnknownName         no such op, suite, backend, dtype or device
    │   ├── BadInput            a file or directory that cannot be read as what it should be
    │   │   ├── DamagedRun      a run directory with a damaged record
    │   │   └── VoidTask        a module problem that asks nothing
    │   ├── NoDeviceMemory      a device has no memory left, and others do not give theirs back
    │   ├── Unconfined          strangers' code would run without a layer of the sandbox
    │   ├── MissingDependency   an optional package is needed; the message holds the pip command
    │   └── EnabledWhileJudging kernels were to be enabled in a process that judges kernels
    ├── BaselineUnavailable     what the reference side was asked to run cannot serve a call
    └── InternalError           opsmith's own processes misbehaved (exit status 3)
        ├── RefereeFailed       the trusted reference process died or could not start
        ├── ProcessLost         one of its processes is gone; what it did can be done again
        ├── MachineFailed       the machine gives no process any more
        └── ProtocolError       a message that does not decode; from a worker it costs that worker

Messages are one line and say what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class OpsmithError(Exception):
    """Root of the tree; never raised itself."""


class UsageError(OpsmithError):
    """The request cannot be carried out as written."""


#: What lists names that are no ops.
_SUITES_OF = {"model": " --suite models", "problem": " --suite modules"}


class UnknownName(UsageError):
    """A name that is not in its list; suggests the closest ones.

    Args:
        kind: what was asked for, for example ``"suite"``.
        name: the name as given.
        known: the names that exist.
        hint: what to do instead; by default the closest of ``known``.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str] = (), *, hint: str | None = None) -> None:
        self.kind, self.name = kind, name
        names = sorted(known)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if hint is not None:
            pass
        elif close:
            hint = f"did you mean {' or '.join(close)}?"
        elif len(names) <= 12:
            hint = f"there is: {', '.join(names)}"
        else:
            hint = f"{len(names)} names are known; list them with `opsmith ops{_SUITES_OF.get(kind, '')}`"
        super().__init__(f"no {kind} named {name!r}; {hint}")


class BadInput(UsageError):
    """A file or directory that cannot be read as what it should be."""


class DamagedRun(BadInput):
    """A run directory whose record is damaged from some line on."""


class VoidTask(BadInput):
    """No kernel is judged on a module problem that asks nothing.

    Args:
        task: its name.
        reason: what shows it.
    """

    def __init__(self, task: str, reason: str) -> None:
        super().__init__(f"{task} is void: {reason}; no kernel can be judged by it, so ask another problem")


class NoDeviceMemory(UsageError):
    """A device has no memory left, and others do not give theirs back.

    Args:
        device: torch device string.
        doing: what there was none for.
    """

    def __init__(self, device: str, doing: str = "a process") -> None:
        super().__init__(
            f"device {device} is out of memory: there was none for {doing}, however often it was tried; see with "
            "nvidia-smi who has it, or ask for less with --jobs 1"
        )


class Unconfined(UsageError):
    """Strangers' code would run without a layer of the sandbox.

    Args:
        missing: layer -> why the machine cannot give it.
    """

    def __init__(self, missing: Mapping[str, str]) -> None:
        self.missing = dict(missing)
        layers = "; ".join(f"{layer} ({reason})" for layer, reason in missing.items())
        super().__init__(f"this machine lacks layers of the sandbox: {layers}; docs/explanation/sandbox.md says how")


class MissingDependency(UsageError):
    """An optional package is not installed.

    Args:
        package: the import name that failed.
        extra: the opsmith extra that brings it.
    """

    def __init__(self, package: str, *, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{package} is not installed; run: pip install 'opsmith[{extra}]'")


class EnabledWhileJudging(UsageError):
    """Kernels were to be enabled in a process that judges kernels."""

    def __init__(self) -> None:
        super().__init__(
            "kernels cannot be enabled where kernels are judged; call opsmith.enable() in the program that uses them"
        )


class BaselineUnavailable(OpsmithError):
    """A baseline cannot serve a call; the case has no time against it.

    Args:
        baseline: its name.
        reason: why, in one line.
    """

    def __init__(self, baseline: str, reason: str) -> None:
        self.baseline, self.reason = baseline, reason
        super().__init__(f"the baseline {baseline} cannot serve this call: {reason}")


class InternalError(OpsmithError):
    """One of opsmith's own processes misbehaved."""


class RefereeFailed(InternalError):
    """The trusted reference process died or could not start."""


class ProcessLost(InternalError):
    """One of opsmith's own processes is gone, by nobody's fault that is judged; what it did can be done again."""


class MachineFailed(InternalError):
    """The machine gives no process any more, however often it is asked."""


class ProtocolError(InternalError):
    """A message that does not decode as one of the protocol's types."""
