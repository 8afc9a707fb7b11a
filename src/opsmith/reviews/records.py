"""One review as a record, and the state in which a kernel's reviews leave it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated
from uuid import uuid4

import msgspec

MOST_COMMENTS, MOST_COMMENT_CHARACTERS = 200, 4000
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_COMMENT_CHARACTERS)]
#: No database keeps a zero character in a column.
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=300, pattern=r"^[^\x00]+$")]


class Word(enum.StrEnum):
    """What a reviewer decides."""

    APPROVE = "approve"
    REJECT = "reject"
    COMMENT = "comment"


class State(enum.StrEnum):
    """What the reviews of a kernel say of it as it is now."""

    APPROVED = "approved"
    REJECTED = "rejected"
    CHANGED = "changed since it was approved"
    COMMENTED = "commented"
    UNREVIEWED = "not reviewed"


class Comment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A remark.

    Attributes:
        text: in plain text.
        line: of the file, counted from 1; None: it is about the kernel.
        file: relative to the kernel's folder; empty: that of its entry.
    """

    text: _Text
    line: Annotated[int, msgspec.Meta(ge=1)] | None = None
    file: str = ""


class Review(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one person said of one kernel at one time; a line of ``reviews.jsonl``.

    Attributes:
        id: names the record, wherever it is copied to.
        task: the task that the kernel answers.
        content_hash: of the entry and what it imports, see :func:`opsmith.reviews.scope.reviewed_hash`.
        who: the reviewer.
        when_utc: ISO 8601.
        word: what was decided.
        comments: in the order of their lines.
        source: the text of the entry's file that was looked at, so that the next version can be compared with it.
        files: what was reviewed, by path -> content hash of each file.
    """

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    task: _Name
    content_hash: Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[^\x00]+$")]
    who: _Name
    when_utc: Annotated[str, msgspec.Meta(max_length=40, pattern=r"^[^\x00]*$")]
    word: Word
    comments: Annotated[tuple[Comment, ...], msgspec.Meta(max_length=MOST_COMMENTS)] = ()
    source: str = ""
    files: dict[str, str] = {}


def new_review(
    task: str,
    content_hash: str,
    who: str,
    word: Word,
    comments: Iterable[Comment] = (),
    *,
    source: str = "",
    files: Mapping[str, str] | None = None,
) -> Review:
    """A review of now."""
    ordered = sorted(comments, key=lambda comment: (comment.file, comment.line or 0))
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Review(
        id=uuid4().hex,
        task=task,
        content_hash=content_hash,
        who=who,
        when_utc=now,
        word=word,
        comments=tuple(ordered),
        source=source,
        files=dict(files or {}),
    )


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the reviews of a task say of the kernel that answers it now.

    Attributes:
        state: of the kernel.
        by: who decided that; of CHANGED, who approved the version before.
        reviews: of this kernel, in the order in which they were made.
        before: the newest review of another version; None without one.
    """

    state: State
    by: tuple[str, ...] = ()
    reviews: tuple[Review, ...] = ()
    before: Review | None = None

    @property
    def text(self) -> str:
        """The state, with the names of who decided."""
        return f"{self.state} by {', '.join(self.by)}" if self.by else str(self.state)


def standing(reviews: Iterable[Review], task: str, content_hash: str | None) -> Standing:
    """The state of a kernel.

    The last decision of each reviewer on this content counts. One rejection outweighs all approvals, and a comment
    changes no decision.

    Args:
        reviews: of any tasks.
        task: that the kernel answers.
        content_hash: of the kernel as it is now; None: it cannot be reviewed.
    """
    about = (each for each in reviews if task == each.task or content_hash == each.content_hash)
    of_task = sorted(about, key=lambda review: review.when_utc)
    own = tuple(each for each in of_task if each.content_hash == content_hash)
    others = [each for each in of_task if each.content_hash != content_hash]
    before = others[-1] if others else None
    decided = _decisions(own)
    for word, state in ((Word.REJECT, State.REJECTED), (Word.APPROVE, State.APPROVED)):
        if by := tuple(who for who, said in decided.items() if said is word):
            return Standing(state=state, by=by, reviews=own, before=before)
    if before is not None:
        last = _decisions(each for each in others if each.content_hash == before.content_hash)
        if last and Word.REJECT not in last.values():
            return Standing(state=State.CHANGED, by=tuple(last), reviews=own, before=before)
    return Standing(state=State.COMMENTED if own else State.UNREVIEWED, reviews=own, before=before)


def _decisions(reviews: Iterable[Review]) -> dict[str, Word]:
    return {review.who: review.word for review in reviews if review.word is not Word.COMMENT}
