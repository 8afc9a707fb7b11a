"""Reviews are added and never lost, and say which kernels people approved."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opsmith.errors import BadInput, DamagedRun
from opsmith.reviews.book import ReviewBook
from opsmith.reviews.records import Comment, Review, State, Word, new_review, standing


def said(word: Word, who: str = "mara", content: str = "aa", minute: int = 0, task: str = "relu.default") -> Review:
    """A review at a minute of a day."""
    made = new_review(task, content, who, word)
    return Review(
        id=made.id, task=task, content_hash=content, who=who, when_utc=f"2026-11-28T10:{minute:02}", word=word
    )


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Two people review at the same time, each in a process of its own, and threads of a server beside them."""
    book = ReviewBook(tmp_path)
    children = []
    for number in range(2):
        pid = os.fork()
        if pid == 0:
            for _ in range(20):
                ReviewBook(tmp_path).append([said(Word.COMMENT, f"process {number}")])
            os._exit(0)
        children.append(pid)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda number: book.append([said(Word.COMMENT, f"thread {number % 2}")]), range(40)))
    assert [0, 0] == [os.waitpid(pid, 0)[1] for pid in children]
    counts = {who: sum(each.who == who for each in book.reviews()) for who in {each.who for each in book.reviews()}}
    assert {"process 0": 20, "process 1": 20, "thread 0": 20, "thread 1": 20} == counts


def test_a_line_that_a_lost_writer_left_is_no_review_and_hurts_no_later_one(tmp_path: Path) -> None:
    """The power failed in the middle of a line."""
    book = ReviewBook(tmp_path)
    book.append([first := said(Word.APPROVE)])
    with book.path.open("ab") as stream:
        stream.write(b'{"id": "00')
    assert [first] == book.reviews()
    book.append([second := said(Word.REJECT)])
    assert [first, second] == book.reviews()


def test_a_damaged_line_is_named_and_never_skipped(tmp_path: Path) -> None:
    """It may have been the rejection."""
    book = ReviewBook(tmp_path)
    book.append([said(Word.APPROVE)])
    with book.path.open("ab") as stream:
        stream.write(b"not a review\n")
    with pytest.raises(DamagedRun, match=r"line 2 is no review"):
        book.reviews()
    with pytest.raises(DamagedRun):
        book.append([said(Word.APPROVE)])


def test_a_review_that_is_taken_over_twice_is_there_once(tmp_path: Path) -> None:
    """Reviews travel: with git, and from a service."""
    book, review = ReviewBook(tmp_path), said(Word.APPROVE)
    assert [1, 0] == [book.append([review]), book.append([review, review])]


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    """As of any other file."""
    with pytest.raises(BadInput, match="cannot be written"):
        ReviewBook(tmp_path / "missing").append([said(Word.APPROVE)])


@pytest.mark.parametrize(
    ("reviews", "state", "by"),
    [
        ([], State.UNREVIEWED, ()),
        ([said(Word.COMMENT)], State.COMMENTED, ()),
        ([said(Word.APPROVE)], State.APPROVED, ("mara",)),
        ([said(Word.APPROVE), said(Word.COMMENT, minute=1)], State.APPROVED, ("mara",)),
        ([said(Word.APPROVE), said(Word.REJECT, "jo")], State.REJECTED, ("jo",)),
        ([said(Word.REJECT, minute=1), said(Word.APPROVE, minute=2)], State.APPROVED, ("mara",)),
        ([said(Word.APPROVE, minute=2), said(Word.REJECT, minute=1)], State.APPROVED, ("mara",)),
        ([said(Word.APPROVE), said(Word.APPROVE, "jo")], State.APPROVED, ("mara", "jo")),
        ([said(Word.APPROVE, content="old")], State.CHANGED, ("mara",)),
        ([said(Word.APPROVE, content="old"), said(Word.COMMENT, minute=1)], State.CHANGED, ("mara",)),
        ([said(Word.REJECT, content="old")], State.UNREVIEWED, ()),
        ([said(Word.APPROVE, task="exp.default", content="bb")], State.UNREVIEWED, ()),
        ([said(Word.APPROVE, task="relu_.default")], State.APPROVED, ("mara",)),
    ],
)
def test_the_last_word_of_each_reviewer_counts_and_a_rejection_outweighs(
    reviews: list[Review], state: State, by: tuple[str, ...]
) -> None:
    """What is said of other content is no word on this kernel; the hash holds the op, whatever form of it was asked."""
    found = standing(reviews, "relu.default", "aa")
    assert (state, by) == (found.state, found.by)


def test_comments_are_kept_in_the_order_of_their_lines() -> None:
    """As a reader meets them."""
    made = new_review(
        "t", "aa", "mara", Word.COMMENT, [Comment(text="later", line=9), Comment(text="all"), Comment(text="x", line=2)]
    )
    assert [None, 2, 9] == [comment.line for comment in made.comments]
