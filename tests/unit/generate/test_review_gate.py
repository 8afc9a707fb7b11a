"""A campaign that stops for a person, and goes on with what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign
from tests.unit.generate.test_campaign import Scripted

from opsmith.core.kernel import Kernel
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.review_gate import ReviewGate
from opsmith.generate.waiting import Waiting, waiting_kernels, write_waiting
from opsmith.reviews.book import ReviewBook
from opsmith.reviews.records import Comment, Word, new_review
from opsmith.reviews.scope import reviewed_hash

TASK = "relu.default"


def campaign(out: Path, model: Scripted, *, after: int = 2) -> TaskHistory:
    """Run it, or go on with it."""
    [history] = run_campaign(out, campaign_options(review_after=after), [model], ReadingSession([TASK]))
    return history


def waiting(out: Path, monkeypatch: pytest.MonkeyPatch, model: Scripted, *, after: int = 2) -> list[Waiting]:
    """What it stops at; the campaign is run for that."""
    gates: list[ReviewGate] = []
    made = ReviewGate.__init__

    def noted(self: ReviewGate, *args: object) -> None:
        made(self, *args)  # type: ignore[arg-type]
        gates.append(self)

    monkeypatch.setattr(ReviewGate, "__init__", noted)
    campaign(out, model, after=after)
    monkeypatch.setattr(ReviewGate, "__init__", made)
    write_waiting(out, gates[-1].waiting)
    return gates[-1].waiting


def say(out: Path, word: Word, *comments: Comment) -> Kernel:
    """Review what waits, as the command line does."""
    [kernel] = waiting_kernels(out) or []
    found = reviewed_hash(kernel)
    assert found is not None
    ReviewBook(out).append([new_review(TASK, found, "mara", word, comments)])
    return kernel


def test_an_accepted_kernel_waits_is_rejected_and_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign ends at once; the comments are in the next question; an approval ends the task."""
    model = Scripted("openai:m", lambda request: reply(TASK, f"right v{request.number}"))
    (first,) = waiting(tmp_path, monkeypatch, model)
    assert "a kernel is accepted" == first.why
    assert 1 == len(model.asked)
    assert "waits for a review" in str(campaign(tmp_path, model).stopped)
    assert 1 == len(model.asked)
    say(tmp_path, Word.REJECT, Comment(text="name the block size", line=2))
    (second,) = waiting(tmp_path, monkeypatch, model)
    assert 2 == len(model.asked)
    assert "- line 2: name the block size" in model.asked[1].messages[-1].text
    assert "as the reviewer asks" in model.asked[1].messages[-1].text
    assert first.kernel.files != second.kernel.files
    say(tmp_path, Word.APPROVE)
    history = campaign(tmp_path, model)
    assert (None, [False, True]) == (history.stopped, [attempt.accepted for attempt in history.attempts])
    assert 2 == len(model.asked)


def test_so_many_failures_wait_and_the_advice_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person may see at once what a model does not."""
    words = ["wrong v0", "wrong v1", "right"]
    model = Scripted("openai:m", lambda request: reply(TASK, words[request.number]))
    (stopped,) = waiting(tmp_path, monkeypatch, model)
    assert "2 attempts have failed" == stopped.why
    assert "WRONG_VALUE" in stopped.findings
    say(tmp_path, Word.COMMENT, Comment(text="NaN is kept by eager"))
    (accepted,) = waiting(tmp_path, monkeypatch, model)
    assert "a kernel is accepted" == accepted.why
    assert "NaN is kept by eager" in model.asked[2].messages[-1].text


def test_what_is_said_later_asks_no_model_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that was paid for stays the same question, whatever is added to the reviews."""
    model = Scripted("openai:m", lambda request: reply(TASK, f"right v{request.number}"))
    waiting(tmp_path, monkeypatch, model)
    say(tmp_path, Word.REJECT, Comment(text="too long"))
    waiting(tmp_path, monkeypatch, model)
    questions = len(model.asked)
    for review in ReviewBook(tmp_path).reviews():
        late = new_review(TASK, review.content_hash, "jo", Word.APPROVE, [Comment(text="I like it")])
        ReviewBook(tmp_path).append([late])
    history = campaign(tmp_path, model)
    assert questions == len(model.asked)
    assert [False, True] == [attempt.accepted for attempt in history.attempts]


def test_a_campaign_without_reviews_is_as_before(tmp_path: Path) -> None:
    """Journals of campaigns that know of no reviews can be gone on with."""
    assert "review_after" not in campaign_options().identity
    model = Scripted("openai:m", lambda request: reply(TASK, "right"))
    [history] = run_campaign(tmp_path, campaign_options(), [model], ReadingSession([TASK]))
    assert (None, None) == (history.stopped, history.attempts[0].review)
