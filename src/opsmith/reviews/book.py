"""``reviews.jsonl``: the reviews of the kernels beside which it lies. Lines are added and never changed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from opsmith.core.kernel import Kernel
from opsmith.core.storage import storage_problem
from opsmith.errors import BadInput, DamagedRun
from opsmith.reviews.records import Review, Standing, State, standing
from opsmith.reviews.scope import reviewed_hash

NAME = "reviews.jsonl"


class ReviewBook:
    """The reviews in one folder.

    Args:
        folder: a kernel directory, a run or a campaign.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def reviews(self) -> list[Review]:
        """Every review, in the order of the file; a line without its end is what a lost writer left.

        Raises:
            DamagedRun: a line is no review.
            BadInput: the file cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as exc:
            raise BadInput(f"{self.path} cannot be read: {exc.strerror}") from exc
        return [self._review(number, line) for number, line in enumerate(_lines(data), start=1) if line.strip()]

    def _review(self, number: int, line: bytes) -> Review:
        try:
            return msgspec.json.decode(line, type=Review)
        except msgspec.DecodeError as exc:
            raise DamagedRun(
                f"{self.path} line {number} is no review: {exc}; take the file from version control, or delete the line"
            ) from exc

    def append(self, reviews: Iterable[Review]) -> int:
        """Add reviews that are not there yet; they are on the disk when this returns.

        Writers take turns, so none loses a line of another's.

        Returns:
            how many were added.

        Raises:
            BadInput: the file cannot be written, or is damaged.
        """
        try:
            with self.path.open("a+b", buffering=0) as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                return self._append(stream.fileno(), reviews)
        except OSError as exc:
            raise BadInput(storage_problem(exc) or f"{self.path} cannot be written: {exc.strerror}") from exc

    def _append(self, file: int, reviews: Iterable[Review]) -> int:
        known = {review.id for review in self.reviews()}
        new = {review.id: review for review in reviews if review.id not in known}
        data = self.path.read_bytes()
        whole = sum(map(len, _lines(data)))
        if whole < len(data):
            os.ftruncate(file, whole)
        try:
            _write(file, b"".join(msgspec.json.encode(review) + b"\n" for review in new.values()))
            os.fsync(file)
        except OSError:
            os.ftruncate(file, whole)
            raise
        return len(new)


def standing_of(reviews: Iterable[Review], kernel: Kernel) -> Standing:
    """The state of a kernel by reviews of any."""
    return standing(reviews, kernel.derived_from or kernel.task, reviewed_hash(kernel))


def why_not_approved(reviews: Iterable[Review], kernel: Kernel) -> str | None:
    """Why a kernel is no approved one, in a clause; None where it is."""
    found = standing_of(reviews, kernel)
    return None if found.state is State.APPROVED else found.text


def _lines(data: bytes) -> list[bytes]:
    return [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
