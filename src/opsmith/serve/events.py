"""Server-sent events: what is found about a submission, from whichever place it is known."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import anyio
import msgspec
from starlette.concurrency import run_in_threadpool

from opsmith.serve.service import Service
from opsmith.serve.store.database import StoreAway
from opsmith.serve.store.runs import list_verdicts
from opsmith.serve.store.schema import MOST_ROWS, State
from opsmith.serve.store.submissions import Standing, find_submission

#: Between two looks at what is live; the database is asked each :data:`LOOKS` of them.
LOOK_S = 0.1
LOOKS = 5
#: A comment is sent so often where nothing happens, so that nobody in between hangs up.
SILENCE_S = 15.0
#: Verdicts read at a time, and events sent.
PART = 500
#: Of the largest number of a row.
_DIGITS = len(str(MOST_ROWS))


class Position(NamedTuple):
    """How many verdicts of which judgements were sent, as an event's id tells it: ``12.3fa95b01.40,14.end``.

    Attributes:
        sent: judgement -> the claim under which it was made, by its first digits, and verdicts sent of it.
        done: judgements whose end was sent.
    """

    sent: dict[int, tuple[str, int]]
    done: set[int]

    @classmethod
    def parse(cls, text: str | None) -> Position:
        """Read a position; what is none is the beginning."""
        position = cls({}, set())
        for part in (text or "").split(","):
            match part.split("."):
                case [judgement, "end"] if _is_number(judgement):
                    position.done.add(int(judgement))
                case [judgement, claim, number] if _is_number(judgement) and claim.isalnum() and _is_number(number):
                    position.sent[int(judgement)] = (claim, int(number))
        return position

    def of(self, standing: Standing) -> int:
        """Verdicts that were sent; what was told before a judgement was begun again is void."""
        claim, number = self.sent.get(standing.id, ("", 0))
        return number if claim == _short(standing.claim) else 0

    def advance(self, standing: Standing, number: int) -> None:
        """So many verdicts were sent."""
        self.sent[standing.id] = (_short(standing.claim), number)

    def __str__(self) -> str:
        going = [
            f"{judgement}.{claim}.{number}"
            for judgement, (claim, number) in self.sent.items()
            if judgement not in self.done
        ]
        return ",".join([*going, *(f"{judgement}.end" for judgement in sorted(self.done))])


def _is_number(text: str) -> bool:
    """Whether a database has such a number of a row."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) <= MOST_ROWS


def _short(claim: str | None) -> str:
    """Enough of a claim to tell those of one judgement apart."""
    return (claim or "")[:8]


async def follow(
    service: Service, submission: str, position: Position, *, may_look: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The events of a submission, from a position on, until all of it is judged or the server ends.

    Args:
        service: judges it.
        submission: its id.
        position: what was sent already.
        may_look: asked before anything is sent; where it says no, the stream ends.
    """
    async for events in _parts(service, submission, position):
        if not await _answered(may_look):
            return
        yield events


async def _answered(may_look: Callable[[], bool]) -> bool:
    """What the database says, however long it is away."""
    while True:
        try:
            return await run_in_threadpool(may_look)
        except StoreAway:
            await anyio.sleep(LOOK_S)


async def _parts(service: Service, submission: str, position: Position) -> AsyncIterator[bytes]:
    """What there is at each look, together."""
    states: dict[int, tuple[State, int]] = {}
    heard = time.monotonic()
    standings: tuple[Standing, ...] = ()
    look = 0
    while not service.ending.is_set():
        if look % LOOKS == 0:
            standings = await _standings(service, submission) or standings
        look += 1
        news: list[bytes] = []
        for standing in standings:
            async for event in _news(service, standing, position, states):
                news.append(event)
                if len(news) >= PART:
                    yield b"".join(news)
                    news.clear()
        is_done = bool(standings) and all(standing.id in position.done for standing in standings)
        if is_done:
            news.append(_event("end", {"submission": submission}, position))
        if not news and time.monotonic() - heard > SILENCE_S:
            news.append(b": still here\n\n")
        if news:
            heard = time.monotonic()
            yield b"".join(news)
        if is_done:
            return
        await anyio.sleep(LOOK_S)


async def _standings(service: Service, submission: str) -> tuple[Standing, ...]:
    try:
        known = await run_in_threadpool(find_submission, service.database, submission)
    except StoreAway:
        return ()
    return known.standings if known else ()


async def _news(
    service: Service, standing: Standing, position: Position, states: dict[int, tuple[State, int]]
) -> AsyncIterator[bytes]:
    if standing.id in position.done:
        return
    now = (standing.state, standing.tries)
    if states.get(standing.id) != now:
        states[standing.id] = now
        told = {"judgement": standing.id, "task": standing.task, "state": standing.state, "tries": standing.tries}
        yield _event("state", told, position)
    if standing.is_final:
        async for event in _rest(service, standing, position):
            yield event
        position.done.add(standing.id)
        yield _event("judged", _told(standing), position)
        return
    start = position.of(standing)
    for number, verdict in enumerate(service.live.since(standing.id, start) or (), start=start + 1):
        position.advance(standing, number)
        yield _verdict(standing.id, verdict, position)


async def _rest(service: Service, standing: Standing, position: Position) -> AsyncIterator[bytes]:
    """The verdicts that were not sent while they were found."""
    while True:
        start = position.of(standing)
        part = await run_in_threadpool(list_verdicts, service.database, standing.id, start=start, limit=PART)
        for stored in part:
            position.advance(standing, stored.number + 1)
            yield _verdict(standing.id, msgspec.json.encode(stored.verdict), position)
        if len(part) < PART:
            return


def _told(standing: Standing) -> dict[str, object]:
    return {
        "judgement": standing.id,
        "task": standing.task,
        "state": standing.state,
        "outcome": standing.outcome,
        "accepted": standing.accepted,
        "detail": standing.detail,
        "summary": None if standing.summary is None else json.loads(standing.summary),
    }


def _verdict(judgement: int, record: bytes, position: Position) -> bytes:
    data = b'{"judgement":%d,"verdict":%s}' % (judgement, record)
    return b"event: verdict\nid: %s\ndata: %s\n\n" % (str(position).encode(), data)


def _event(name: str, data: object, position: Position) -> bytes:
    return f"event: {name}\nid: {position}\ndata: {json.dumps(data)}\n\n".encode()
