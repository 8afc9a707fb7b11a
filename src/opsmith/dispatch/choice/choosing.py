"""What is known of the classes of a kernel's calls, and when a trial may find out more."""

from __future__ import annotations

import enum
import functools
import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from opsmith.core.kernel import Kernel
from opsmith.dispatch.choice.classes import class_of
from opsmith.errors import BadInput
from opsmith.reviews.scope import reviewed_hash
from opsmith.trials.book import Trial, TrialBook

#: The environment variable that says :class:`Choose` where a program does not.
VARIABLE = "OPSMITH_CHOOSE"
#: The ways of a trial.
EAGER, KERNEL = "eager", "kernel"
#: Signatures kept for an op; a model with dynamic shapes brings a new one with each call.
_KEPT = 4096


class Choose(enum.StrEnum):
    """Which calls kernels answer."""

    #: Those of classes in which the kernel was faster; classes that are met twice are tried out.
    MEASURED = "measured"
    #: As before, and nothing is tried out: what this machine has measured earlier decides.
    KEPT = "kept"
    #: All that they can answer.
    ALL = "all"


def choose_from(given: str | None) -> Choose:
    """What a program says, else what the environment says, else :attr:`Choose.MEASURED`.

    Raises:
        BadInput: that is none of them.
    """
    value = os.environ.get(VARIABLE, Choose.MEASURED) if given is None else given
    try:
        return Choose(value)
    except ValueError as exc:
        where = f"{VARIABLE}={value}" if given is None else f"choose={value!r}"
        raise BadInput(f"{where} is none of {', '.join(Choose)}") from exc


class Allowance:
    """Seconds that trials may take: some at once, and a share of the time that passes.

    A trial begins only while there is room, so a program waits for them that long, and for one trial more.
    """

    #: Seconds at once, and of each second that passes.
    START_S, SHARE = 1.0, 0.05

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._spent_s = 0.0

    def has_room(self) -> bool:
        """Whether a trial may begin."""
        return self._spent_s < self.START_S + self.SHARE * (self._clock() - self._began)

    def spend(self, seconds: float) -> None:
        """A trial took so long."""
        self._spent_s += seconds


class Decision(enum.Enum):
    """Who answers a call, and those like it."""

    #: The kernel.
    KERNEL = enum.auto()
    #: PyTorch.
    EAGER = enum.auto()
    #: PyTorch this one; it is open who answers the next.
    OPEN = enum.auto()
    #: PyTorch for the time being: no trial can be held, or the kernel is being compiled.
    WAITING = enum.auto()


class ClassChoice(NamedTuple):
    """What was decided for a class.

    Attributes:
        text: the class.
        served: whether the kernel answers.
        trial: what decided.
    """

    text: str
    served: bool
    trial: Trial


def timed_content(record: Kernel) -> str:
    """Names what a trial of a kernel is about: its entry and the files that it imports, where these are known.

    A change of another kernel in the same directory does not change it.
    """
    return reviewed_hash(record) or record.content_hash


def subject(op: str, device_type: str, kernel: str) -> str:
    """What stands before a class in the key of a trial.

    Args:
        op: the overload.
        device_type: that the kernel is installed for.
        kernel: :func:`timed_content` of it.
    """
    return f"{op} {device_type} {kernel}"


class Choices:
    """Whether a kernel answers a call, by the call's class.

    Args:
        op: the overload.
        device_type: that it is installed for.
        record: the kernel.
        book: what trials found on this machine; asked for when there is a call, since it is the device's.
        allowance: of seconds for trials; None if none may be held.
        shipped: what trials found on other machines with such a device, by overload, kernel and class.
        ready: whether the kernel can answer a call without being compiled first, by the call's key, positional and
            named arguments. Until it is, PyTorch answers.

    Attributes:
        left: how many calls were left to PyTorch, without those that C++ left.
    """

    def __init__(
        self,
        op: str,
        device_type: str,
        record: Kernel,
        book: Callable[[], TrialBook],
        allowance: Allowance | None,
        shipped: Callable[[str, str, str], Trial | None],
        ready: Callable[[str, Sequence[Any], Mapping[str, Any]], bool],
    ) -> None:
        self._op, self._device_type, self._record = op, device_type, record
        self._book, self._allowance, self._shipped = book, allowance, shipped
        self._ready = ready
        self._known: dict[str, Trial] = {}
        self._served: dict[Hashable, bool] = {}
        self._classes: dict[str, ClassChoice] = {}
        self._met: set[str] = set()
        self.left = 0

    @functools.cached_property
    def _kernel(self) -> str:
        """Found out when it is first asked for: the kernel's files are read for it."""
        return timed_content(self._record)

    @property
    def book(self) -> TrialBook:
        """What trials found on this machine."""
        return self._book()

    @property
    def classes(self) -> tuple[ClassChoice, ...]:
        """The classes that something was decided for, in the order in which they were met."""
        return tuple(self._classes.values())

    def known(self, signature: Hashable | None) -> bool | None:
        """Whether the kernel answers calls of a signature; None if that is not decided, or the call has none."""
        return self._served.get(signature) if signature is not None else None

    def decide(
        self,
        signature: Hashable | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        hold: Callable[[str], Trial | None],
    ) -> Decision:
        """Who answers a call and those like it.

        Args:
            signature: names the call; None: it has none.
            args: by position.
            kwargs: by name.
            hold: holds a trial of the call, whose class it is told; returns None where there cannot be one now.
        """
        text = class_of(args, kwargs)
        if text is None:
            return Decision.OPEN
        found = self._classes.get(text) or self._found(text, args, kwargs, hold)
        if isinstance(found, Decision):
            return found
        if signature is not None:
            if len(self._served) >= _KEPT:
                self._served.clear()
            self._served[signature] = found.served
        return Decision.KERNEL if found.served else Decision.EAGER

    def _found(
        self, text: str, args: Sequence[Any], kwargs: Mapping[str, Any], hold: Callable[[str], Trial | None]
    ) -> ClassChoice | Decision:
        """What is known of a class, or a trial now: not of a class that is met for the first time."""
        key = f"{subject(self._op, self._device_type, self._kernel)} {text}"
        trial = self._known.get(text)
        if trial is None and text not in self._met:
            self._met.add(text)
            trial = self.book.find(key) or self._shipped(self._op, self._kernel, text)
            if trial is None:
                return Decision.OPEN
            self._known[text] = trial
        if trial is None:
            if self._allowance is None or not self._allowance.has_room() or not self._ready(key, args, kwargs):
                return Decision.WAITING
            began = time.monotonic()
            trial = hold(text)
            self._allowance.spend(time.monotonic() - began)
            if trial is None:
                return Decision.WAITING
            self.book.keep(key, trial)
        served = trial.is_faster(KERNEL, EAGER)
        if served and not self._ready(key, args, kwargs):
            return Decision.WAITING
        self._classes[text] = ClassChoice(text, served, trial)
        return self._classes[text]
