"""What people say of kernels: read by everybody who may look, added by reviewers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from fastapi.exceptions import HTTPException

from opsmith.reviews.records import MOST_COMMENTS, Comment, Review, Word, new_review
from opsmith.serve.access import Reader, Reviewer
from opsmith.serve.api.common import RowId, Served, problems
from opsmith.serve.api.runs import judgement_of
from opsmith.serve.messages import ReviewIn, ReviewOut
from opsmith.serve.service import Service
from opsmith.serve.store import runs
from opsmith.serve.store.reviews import add_review, list_reviews, standings
from opsmith.serve.store.tokens import Token

router = APIRouter(prefix="/api", responses=problems())
Hash = Annotated[str, Query(min_length=1, max_length=64, pattern="^[0-9a-f]+$")]


@router.get("/reviews")
def get_reviews(
    _token: Reader, service: Served, content_hash: Annotated[list[Hash], Query(max_length=200)]
) -> list[ReviewOut]:
    """The reviews of kernels with these hashes, as lines of `reviews.jsonl` have them."""
    return [review_out(review) for review in list_reviews(service.database, content_hash)]


@router.get("/judgements/{judgement}/reviews", responses=problems(404))
def get_judgement_reviews(_token: Reader, service: Served, judgement: RowId) -> list[ReviewOut]:
    """The reviews of a kernel as it was judged."""
    row = judgement_of(service, judgement)
    return [review_out(review) for review in list_reviews(service.database, [row.reviewed_hash or ""])]


@router.post("/judgements/{judgement}/reviews", status_code=201, responses=problems(404, 409))
def post_review(token: Reviewer, service: Served, judgement: RowId, asked: ReviewIn) -> ReviewOut:
    """Approve, reject or comment on a kernel; `content_hash` says which content was looked at."""
    comments = [Comment(text=each.text, line=each.line) for each in asked.comments]
    return review_out(keep_review(service, token, judgement, asked.word, comments, asked.content_hash))


def keep_review(
    service: Service, token: Token, judgement: int, word: Word, comments: list[Comment], content_hash: str
) -> Review:
    """Review the kernel of a judgement.

    Raises:
        HTTPException: 404 where there is none; 409 if it cannot be reviewed, is not what was looked at, or has fewer
            lines, and if a comment says nothing.
    """
    row = judgement_of(service, judgement)
    if row.reviewed_hash is None or row.source_hash is None:
        raise HTTPException(
            409, "this kernel cannot be reviewed: it is not judged yet, or has files besides the one that is here"
        )
    if row.reviewed_hash != content_hash:
        raise HTTPException(409, f"the kernel is {row.reviewed_hash}; look at it again")
    source = runs.find_source(service.database, row.source_hash)
    lines = len(source.splitlines())
    beyond = next((each.line for each in comments if each.line is not None and each.line > lines), None)
    if beyond is not None:
        raise HTTPException(409, f"the kernel has {lines} lines, and no line {beyond}")
    if word is Word.COMMENT and not comments:
        raise HTTPException(409, "a comment says something")
    known = standings(service.database, [row])[row.id].reviews
    task = known[0].task if known else row.task
    review = new_review(task, row.reviewed_hash, token.name, word, comments[:MOST_COMMENTS], source=source)
    add_review(service.database, review, token)
    return review


def review_out(review: Review) -> ReviewOut:
    """A review as clients get it."""
    fields: dict[str, Any] = msgspec.structs.asdict(review)
    comments = [msgspec.structs.asdict(comment) for comment in review.comments]
    return ReviewOut.model_validate({**fields, "comments": comments})
