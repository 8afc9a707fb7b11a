"""What people say of kernels: read by everybody who may look, added by reviewers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from fastapi.exceptions import HTTPException

from opsmith.reviews.changes import difference
from opsmith.reviews.records import MOST_COMMENTS, Comment, Review, Word, new_review
from opsmith.serve.access import Reader, Reviewer
from opsmith.serve.api.common import RowId, Served, problems
from opsmith.serve.api.runs import judgement_of
from opsmith.serve.messages import FileOut, ReviewIn, ReviewOut
from opsmith.serve.service import Service
from opsmith.serve.store.reviews import CoveredFile, add_review, files_to_review, list_reviews, standings
from opsmith.serve.store.tokens import Token

router = APIRouter(prefix="/api", responses=problems())
#: Of a kernel without files to review.
WHY_NOT = "it is not judged yet, or not all of its files are here as text"
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


@router.get("/judgements/{judgement}/files", responses=problems(404))
def get_files(_token: Reader, service: Served, judgement: RowId) -> list[FileOut]:
    """The files that a review of a kernel covers, that of its entry first; none where it cannot be reviewed."""
    row = judgement_of(service, judgement)
    found = standings(service.database, [row]).get(row.id)
    return [
        FileOut(
            path=file.path,
            text=file.text,
            content_hash=file.content_hash,
            changed=file.changed,
            difference="" if file.before is None else difference(file.before, file.text),
        )
        for file in files_to_review(service.database, row, found.before if found is not None else None)
    ]


@router.post("/judgements/{judgement}/reviews", status_code=201, responses=problems(404, 409))
def post_review(token: Reviewer, service: Served, judgement: RowId, asked: ReviewIn) -> ReviewOut:
    """Approve, reject or comment on a kernel; `content_hash` says which content was looked at."""
    comments = [Comment(text=each.text, line=each.line, file=each.file) for each in asked.comments]
    return review_out(keep_review(service, token, judgement, asked.word, comments, asked.content_hash))


def keep_review(
    service: Service, token: Token, judgement: int, word: Word, comments: list[Comment], content_hash: str
) -> Review:
    """Review the kernel of a judgement.

    Raises:
        HTTPException: 404 where there is none; 409 if it cannot be reviewed, is not what was looked at, has no such
            file or fewer lines, and if a comment says nothing.
    """
    row = judgement_of(service, judgement)
    found = standings(service.database, [row]).get(row.id)
    files = files_to_review(service.database, row, None)
    if row.reviewed_hash is None or found is None or not files:
        raise HTTPException(
            409, "this kernel cannot be reviewed: it is not judged yet, or not all of its files are here"
        )
    if row.reviewed_hash != content_hash:
        raise HTTPException(409, f"the kernel is {row.reviewed_hash}; look at it again")
    if word is Word.COMMENT and not comments:
        raise HTTPException(409, "a comment says something")
    review = new_review(
        found.reviews[0].task if found.reviews else row.task,
        row.reviewed_hash,
        token.name,
        word,
        [_placed(comment, files) for comment in comments[:MOST_COMMENTS]],
        source=files[0].text,
        files={file.path: file.content_hash for file in files},
    )
    add_review(service.database, review, token)
    return review


def _placed(comment: Comment, files: Sequence[CoveredFile]) -> Comment:
    """A comment on a line that is there; the entry's file has no name in it, whatever it is called here."""
    path = comment.file or files[0].path
    file = next((each for each in files if each.path == path), None)
    if file is None:
        raise HTTPException(409, f"a review of the kernel covers no file {path!r}")
    lines = len(file.text.splitlines())
    if comment.line is not None and comment.line > lines:
        raise HTTPException(409, f"{path} has {lines} lines, and no line {comment.line}")
    return msgspec.structs.replace(comment, file="" if file is files[0] else path)


def review_out(review: Review) -> ReviewOut:
    """A review as clients get it."""
    fields: dict[str, Any] = msgspec.structs.asdict(review)
    comments = [msgspec.structs.asdict(comment) for comment in review.comments]
    return ReviewOut.model_validate({**fields, "comments": comments})
