"""Hints: what an advisor's reply holds, which of them a writer says that it took, and what came of that."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence

import msgspec

from opsmith.generate.attempt import Attempt, Outcome
from opsmith.generate.reply import answer_of

MOST_HINTS = 5
MOST_HINT_CHARS = 400
#: A change of speed that is worth the word.
WORTH_SAYING = 0.02
_ITEM = re.compile(r"^\s*(?:[-*+•]|\(?\d{1,2}[.):])\s+(\S.*)$")
_TAKEN = re.compile(r"#\s*hints taken:\s*(.*)$", re.IGNORECASE | re.MULTILINE)


class Taken(enum.StrEnum):
    """Whether a writer took a hint, as its kernel says."""

    YES = "taken"
    NO = "not taken"
    UNSAID = "the writer does not say whether it was taken"


class Result(enum.StrEnum):
    """What became of the kernel: against the one that it was to improve, or PyTorch where that was not right."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no faster"
    RIGHT = "right, not timed"
    WRONG = "wrong"
    NO_KERNEL = "no kernel"
    NOT_JUDGED = "not judged"


class HintFate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one hint.

    Attributes:
        attempt: index of the attempt that was given it.
        number: of the hint among those of that attempt, from 1.
        exchange: in which the advisor gave it.
        hint: its text.
        taken: by the writer.
        result: of the attempt.
        before: speedup of what the attempt was to improve; None where that was not timed.
        after: of the attempt.
    """

    attempt: int
    number: int
    exchange: str
    hint: str
    taken: Taken
    result: Result
    before: float | None = None
    after: float | None = None

    @property
    def in_words(self) -> str:
        """One line for the advisor, without the hint."""
        if self.taken is Taken.NO:
            return str(Taken.NO)
        figures = "" if self.before is None or self.after is None else f" ({self.after:.2f}x after {self.before:.2f}x)"
        return f"{self.taken}; {self.result}{figures}"


def hints_in(reply: str) -> tuple[str, ...]:
    """The hints of a reply, at most :data:`MOST_HINTS`: the items of its lists, or all of it where it has none."""
    items: list[str] = []
    in_item = False
    for line in answer_of(reply).splitlines():
        found = _ITEM.match(line)
        if found:
            items.append(found[1])
        elif in_item and line.startswith((" ", "\t")) and line.strip():
            items[-1] += f" {line}"
        in_item = bool(found) or (in_item and line.startswith((" ", "\t")))
    texts = items or [answer_of(reply)]
    short = [" ".join(text.split())[:MOST_HINT_CHARS] for text in texts]
    return tuple(dict.fromkeys(filter(None, short)))[:MOST_HINTS]


def told_to_writer(hints: Sequence[str]) -> str:
    """What a writer is told of hints."""
    lines = [f"{number}. {hint}" for number, hint in enumerate(hints, start=1)]
    asked = (
        "Take what helps, and leave what does not. Say in a comment of the file which you took: "
        "`# hints taken: 1, 3`, or `# hints taken: none`."
    )
    return "\n".join(["An advisor who has seen what was measured suggests:", *lines, asked])


def fates(attempts: Sequence[Attempt]) -> Iterator[HintFate]:
    """What became of all hints of a task, in the order in which they were given.

    Args:
        attempts: of the task, in the order of their index.
    """
    for attempt in attempts:
        if attempt.advice is None:
            continue
        result, before, after = _result(attempt, attempts)
        numbers = _numbers_taken(attempt)
        for number, hint in enumerate(attempt.advice.hints, start=1):
            taken = Taken.UNSAID if numbers is None else Taken.YES if number in numbers else Taken.NO
            yield HintFate(
                attempt=attempt.index,
                number=number,
                exchange=attempt.advice.exchange,
                hint=hint,
                taken=taken,
                result=result,
                before=before,
                after=after,
            )


def _numbers_taken(attempt: Attempt) -> set[int] | None:
    found = _TAKEN.search(attempt.source or "")
    return None if found is None else {int(number) for number in re.findall(r"\b\d{1,2}\b", found[1])}


def _result(attempt: Attempt, attempts: Sequence[Attempt]) -> tuple[Result, float | None, float | None]:
    if attempt.judged is None:
        return Result.NOT_JUDGED if attempt.outcome is Outcome.NOT_JUDGED else Result.NO_KERNEL, None, None
    if not attempt.accepted:
        return Result.WRONG, None, None
    after = attempt.judged.speedup
    shown = [attempts[index] for index in attempt.move.shown]
    speeds = [each.judged.speedup for each in shown if each.accepted and each.judged is not None]
    before = max((speed for speed in speeds if speed is not None), default=1.0)
    if after is None:
        return Result.RIGHT, None, None
    ratio = after / before
    if abs(ratio - 1.0) <= WORTH_SAYING:
        return Result.SAME, before, after
    return Result.FASTER if ratio > 1.0 else Result.SLOWER, before, after
