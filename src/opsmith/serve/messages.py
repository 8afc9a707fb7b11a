"""What clients send and get, as the OpenAPI page shows it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from opsmith.reviews.records import MOST_COMMENT_CHARACTERS, MOST_COMMENTS, Word
from opsmith.serve.store.schema import MOST_PATH_CHARACTERS, State
from opsmith.serve.store.tokens import Role


def storable(text: str) -> str:
    """Text that every database keeps.

    Raises:
        ValueError: it is none.
    """
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("holds a zero character or half of a pair, which cannot be stored")
    return text


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds characters that cannot be printed")
    return text


#: Text that a database keeps.
Text = Annotated[str, AfterValidator(storable)]
Line = Annotated[str, Field(max_length=300), AfterValidator(_one_line)]
Task = Annotated[Line, Field(min_length=1, description="An overload or a problem: `relu.default`, `L1/23_Softmax`.")]
Source = Annotated[
    Text,
    Field(
        min_length=1,
        max_length=1 << 20,
        description="A Python file that defines `<op>__<overload>_kernel_impl`, or `ModelNew`.",
    ),
]


class Message(BaseModel):
    """Unknown fields are errors: a misspelt one is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Asked(Message):
    """What clients send: ``false`` is no 0, and ``"1"`` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Origin(Asked):
    """Who wrote a kernel and how; every field may be unknown."""

    author: Line | None = None
    model: Line | None = None
    prompt_hash: Line | None = None
    attempt: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    parent: Line | None = None
    license: Line | None = None
    note: Line | None = None


class KernelIn(Asked):
    """A kernel for one task."""

    task: Task
    source: Source
    provenance: Origin = Origin()


class SubmissionIn(Asked):
    """One kernel, to be judged for one task or several."""

    suite: Line | None = Field(None, description="Whose tasks; the server's first suite if left out.")
    tasks: list[Task] = Field(min_length=1, max_length=1000)
    source: Source
    run: Line | None = Field(None, description="The run that takes it; one of the token's own if left out.")
    provenance: Origin = Origin()


class BatchIn(Asked):
    """Kernels whose rewards are asked."""

    suite: Line | None = None
    kernels: list[KernelIn] = Field(min_length=1, max_length=1000)
    run: Line | None = None
    wait_s: float = Field(0.0, ge=0.0, le=300.0, description="Wait so long for the rewards, at most.")


class StandingOut(Message):
    """Where a kernel is on one task."""

    judgement: int
    task: str
    state: State
    tries: int
    outcome: str | None
    accepted: bool | None
    detail: str | None
    summary: dict[str, Any] | None = Field(description="As an op of `summary.json`, once judged.")


class SubmissionOut(Message):
    """A submission and where it is."""

    id: str
    run: int
    created_utc: str
    final: bool
    tasks: list[StandingOut]


class RewardOut(Message):
    """What a kernel is worth; see `opsmith.generate.reward`."""

    value: float
    accepted: bool
    policy: bool = Field(description="It composes, in the open, what the server's policy does not allow.")
    dishonest: bool = Field(description="It hid what it does, or tampered with the judge.")
    passed: float
    speedup: float | None
    percent_of_floor: float | None
    detail: str


class RewardsOut(Message):
    """Rewards in the order of the request; null for a kernel that is not judged yet."""

    submission: str
    final: bool
    rewards: list[RewardOut | None]


class TaskOut(Message):
    """A task that kernels may be submitted for."""

    name: str
    schema_text: str
    cases: int
    dtypes: list[str]
    examples: list[str]


class SuiteOut(Message):
    """A suite that this server judges."""

    name: str
    device: str
    timing: str
    tasks: list[TaskOut]
    void: dict[str, str] = Field(description="Problem -> why it asks nothing; no kernel is taken for it.")


class RunOut(Message):
    """A run: what one contender answered of one suite."""

    id: int
    name: str
    contender: str
    suite: str
    device: str
    created_utc: str
    tasks_asked: int
    kernels: int
    judged: int
    accepted: int


class JudgementOut(Message):
    """One kernel on one task."""

    id: int
    run: int
    task: str
    state: State
    outcome: str | None
    accepted: bool | None
    cases: int | None
    passed: int | None
    speedup_k: float | None
    speedup_e: float | None
    percent_of_floor: float | None
    dsl: str | None
    detail: str | None
    reviewed_hash: str | None = Field(description="Names what a review of the kernel is about.")
    created_utc: str
    judged_utc: str | None


class PageOut(Message):
    """Part of a list; `next` is the `after` of the following part, null at the end."""

    next: int | None


class RunsOut(PageOut):
    """Runs, the newest first."""

    items: list[RunOut]


class JudgementsOut(PageOut):
    """Judgements of a run, in the order of submission."""

    items: list[JudgementOut]


class VerdictsOut(PageOut):
    """Verdicts as in `verdicts.jsonl`, in the order found."""

    items: list[dict[str, Any]]


class CellOut(Message):
    """What a run found about an op in one dtype: of the kernel that was judged last."""

    task: str
    dtype: str
    judgement: int
    outcome: str
    cases: int
    passed: int
    speedup_k: float | None
    speedup_e: float | None
    percent_of_floor: float | None


class PlaceOut(Message):
    """A run on a leaderboard. Each task counts once: of several kernels for it the mean counts."""

    run: int
    name: str
    contender: str
    device: str
    tasks_asked: int
    answered: int
    correct: float
    quantity: str | None
    fast: dict[str, float] = Field(description="p -> share of the tasks asked, correct with a speedup above p.")
    geomean: float | None = Field(description="Of the speedups of correct kernels that were timed.")


class FileOut(Message):
    """A file that a review of a kernel covers."""

    path: str
    text: str
    content_hash: str
    changed: bool | None = Field(description="Since the version that was reviewed before; null where nobody knows.")
    difference: str = Field(description="From that version, unified; empty where its text is not here.")


class CommentIn(Asked):
    """A remark on a kernel, or on a line of one of its files."""

    text: Annotated[Text, Field(min_length=1, max_length=MOST_COMMENT_CHARACTERS)]
    line: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    file: Annotated[
        Text, Field(max_length=MOST_PATH_CHARACTERS, description="Its path; that of the entry if empty.")
    ] = ""


class ReviewIn(Asked):
    """What a reviewer decides; a comment changes no decision."""

    word: Annotated[Word, Field(strict=False)]
    content_hash: Annotated[Line, Field(min_length=1, max_length=64, description="What was looked at.")]
    comments: list[CommentIn] = Field(default_factory=list, max_length=MOST_COMMENTS)


class CommentOut(Message):
    """A remark; without a file it is about that of the entry."""

    text: str
    line: int | None
    file: str


class ReviewOut(Message):
    """A review: a line of `reviews.jsonl`."""

    id: str
    task: str
    content_hash: str
    who: str
    when_utc: str
    word: Word
    comments: list[CommentOut]
    source: str
    files: dict[str, str]


class TokenIn(Asked):
    """A token to be made."""

    name: Annotated[Line, Field(min_length=1, max_length=100)]
    role: Annotated[Role, Field(strict=False)]
    kernels_a_day: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


class TokenOut(Message):
    """A token without its secret."""

    name: str
    role: Role
    kernels_a_day: int | None
    created_utc: str
    revoked_utc: str | None


class NewTokenOut(TokenOut):
    """A token with its secret, which is shown this once."""

    secret: str


class Problem(BaseModel):
    """Why a request was not carried out."""

    detail: str
