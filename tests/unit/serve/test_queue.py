"""The queue: each judgement is made once, whoever dies when."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from sqlalchemy import func, select
from tests.report_runs import ceilings
from tests.service import SUITE, kernel

from opsmith.core.run import PlannedOp
from opsmith.core.verdict import Status, Verdict
from opsmith.report.scores import summarise_by_dtype, summarise_op
from opsmith.serve.pages.facts import ceilings_of
from opsmith.serve.store import queue
from opsmith.serve.store.database import Database
from opsmith.serve.store.runs import find_run
from opsmith.serve.store.schema import CLAIMED, WAITS, State, judgements, verdicts
from opsmith.serve.store.submissions import (
    Candidate,
    OtherRules,
    QuotaExceeded,
    SuiteFacts,
    Wanted,
    find_submission,
    submit,
)
from opsmith.serve.store.tokens import Role, create_token


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An empty database of either kind."""
    with contextlib.closing(Database(database_url)) as made:
        made.migrate()
        yield made


#: What the kernels of these tests are submitted under.
RULES = "r1"


def enqueue(database: Database, count: int = 1) -> str:
    """A submission of so many kernels."""
    token, _ = create_token(database, "somebody", Role.SUBMITTER)
    candidates = tuple(Candidate(task="relu.default", source=kernel(f"right {number}")) for number in range(count))
    wanted = Wanted(suite=SUITE, run="r", contender="c", candidates=candidates)
    about = SuiteFacts(tasks_asked=1, device_name="a CPU", facts="{}", rules=RULES)
    return submit(database, token, wanted, about, request_key=None)[0]


def found() -> queue.Found:
    """What a judge finds about a kernel with one case, whose text nobody should have to store."""
    verdict = Verdict(
        op="relu.default", case="c", content_hash="0", dtype="f32", kernel="k", status=Status.WRONG_VALUE, detail="a\0b"
    )
    planned = PlannedOp(op="relu.default", schema="", cases=1, error_cases=0, kernel=None, kernel_hash=None)
    return queue.Found(
        kernel_hash="k",
        dsl="torch",
        summary=summarise_op(planned, [verdict]),
        by_dtype=summarise_by_dtype(planned, [verdict]),
        detail="a\0b",
        verdicts=(verdict,),
        timed=(),
        device_s=0.1,
    )


def count_verdicts(database: Database) -> int:
    """In the whole database."""
    with database.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(verdicts)).scalar_one())


def run_out(database: Database) -> None:
    """As if every claim were old."""
    with database.writing() as connection:
        connection.execute(judgements.update().values(claimed_until_s=0.0))


def test_a_judgement_is_given_to_one_of_many_who_ask(database: Database) -> None:
    """Twelve judgements, four threads: each judgement is taken once."""
    enqueue(database, 12)
    taken: list[int] = []

    def take() -> None:
        while (claimed := queue.claim_next(database, SUITE, RULES)) is not None:
            taken.append(claimed.id)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(range(1, 13)) == sorted(taken)


def test_a_judgement_waits_for_a_server_with_its_rules(database: Database) -> None:
    """Two servers on one database may judge differently: neither takes what was submitted to the other."""
    enqueue(database)
    assert queue.claim_next(database, SUITE, "others") is None
    assert 1 == queue.count_foreign(database, SUITE, "others")
    assert queue.claim_next(database, SUITE, RULES) is not None


def test_who_asks_for_work_does_not_read_what_is_judged(database: Database) -> None:
    """Otherwise every claim takes longer than the one before: the database looks the oldest up in an index."""
    enqueue(database)
    plans = []
    with database.writing() as connection:
        for rows, first in ((WAITS, "id"), (CLAIMED, "claimed_until_s")):
            asked = f"SELECT id FROM judgements WHERE {rows} AND suite = 'x' AND rules = 'y' ORDER BY {first} LIMIT 1"
            explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
            plans.append(str(connection.exec_driver_sql(f"{explain} {asked}").all()))
    assert ["ix_judgements_waiting" in plans[0], "ix_judgements_claimed" in plans[1]] == [True, True], plans


def test_a_quota_holds_for_requests_that_come_at_the_same_time(database: Database) -> None:
    """To several servers, or to several threads of one."""
    token, _ = create_token(database, "limited", Role.SUBMITTER, kernels_a_day=5)
    about = SuiteFacts(tasks_asked=1, device_name="a CPU", facts="{}", rules=RULES)
    outcomes: list[str] = []
    barrier = threading.Barrier(8)

    def ask(number: int) -> None:
        candidate = Candidate(task="relu.default", source=kernel(f"right {number}"))
        wanted = Wanted(suite=SUITE, run="r", contender="c", candidates=(candidate,))
        barrier.wait()
        try:
            submit(database, token, wanted, about, request_key=None)
        except QuotaExceeded:
            outcomes.append("refused")
        else:
            outcomes.append("taken")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(taken=5, refused=3) == Counter(outcomes)


def test_a_run_keeps_its_rules(database: Database) -> None:
    """A run whose kernels were judged in two ways would be compared with itself."""
    enqueue(database)
    token, _ = create_token(database, "another", Role.SUBMITTER)
    wanted = Wanted(suite=SUITE, run="r", contender="c", candidates=(Candidate(task="t", source="s"),))
    about = SuiteFacts(tasks_asked=1, device_name="a CPU", facts="{}", rules=RULES)
    submit(database, token, wanted, about, request_key=None)
    with pytest.raises(OtherRules, match="name another run"):
        submit(database, token, wanted, msgspec.structs.replace(about, rules="others"), request_key=None)


def test_of_two_who_judge_the_same_one_writes(database: Database) -> None:
    """The first was thought dead; what it finds in the end is void, and there is one set of verdicts."""
    submission = enqueue(database)
    late = queue.claim_next(database, SUITE, RULES)
    assert late is not None
    assert queue.claim_next(database, SUITE, RULES) is None
    run_out(database)
    second = queue.claim_next(database, SUITE, RULES)
    assert second is not None
    assert not queue.complete(database, late, found())
    assert queue.complete(database, second, found())
    assert not queue.complete(database, late, found())
    assert 1 == count_verdicts(database)
    known = find_submission(database, submission)
    assert known is not None
    assert [(State.JUDGED, 2)] == [(each.state, each.tries) for each in known.standings]


def test_what_was_written_may_be_written_again(database: Database) -> None:
    """A connection that dies while it commits leaves the judge in doubt; asking again does no harm."""
    enqueue(database)
    claimed = queue.claim_next(database, SUITE, RULES)
    assert claimed is not None
    assert [True, True] == [queue.complete(database, claimed, found()) for _ in range(2)]
    assert 1 == count_verdicts(database)


def test_what_the_device_reaches_is_kept_with_the_run(database: Database) -> None:
    """It is measured when the first kernel is timed, after the run was made."""
    enqueue(database, 2)
    for _ in range(2):
        claimed = queue.claim_next(database, SUITE, RULES)
        assert claimed is not None
        queue.complete(database, claimed, msgspec.structs.replace(found(), ceilings=ceilings()))
    run = find_run(database, 1)
    assert run is not None
    assert ceilings() == ceilings_of(run)


def test_a_claim_that_is_renewed_is_kept(database: Database) -> None:
    """However long judging takes."""
    enqueue(database)
    claimed = queue.claim_next(database, SUITE, RULES)
    assert claimed is not None
    run_out(database)
    queue.renew(database, {claimed.claim})
    assert queue.claim_next(database, SUITE, RULES) is None


def test_what_brings_the_server_down_again_and_again_is_abandoned(database: Database) -> None:
    """It has an outcome in the end, and does not block what waits behind it."""
    submission = enqueue(database)
    for _ in range(queue.MOST_TRIES):
        assert queue.claim_next(database, SUITE, RULES) is not None
        run_out(database)
    assert queue.claim_next(database, SUITE, RULES) is None
    known = find_submission(database, submission)
    assert known is not None
    assert known.is_final
    assert State.ABANDONED == known.standings[0].state
    assert "ended 5 times" in str(known.standings[0].detail)


def test_a_server_that_stops_gives_back_what_it_has(database: Database) -> None:
    """And that was no attempt."""
    enqueue(database)
    for _ in range(3):
        claimed = queue.claim_next(database, SUITE, RULES)
        assert claimed is not None
        with database.reading() as connection:
            assert 1 == connection.execute(select(judgements.c.tries)).scalar_one()
        queue.release(database, claimed.claim)
    assert queue.claim_next(database, SUITE, RULES) is not None
    assert 1 == queue.release_all(database)
    assert queue.claim_next(database, SUITE, RULES) is not None


def test_a_claim_of_a_clock_that_was_set_back_runs_out(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server is gone, and nobody waits for an hour."""
    enqueue(database)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    first = queue.claim_next(database, SUITE, RULES)
    monkeypatch.setattr(time, "time", lambda: now)
    again = queue.claim_next(database, SUITE, RULES)
    assert first is not None
    assert again is not None
    assert (first.id, True) == (again.id, first.claim != again.claim)
    assert queue.claim_next(database, SUITE, RULES) is None


def test_what_is_given_up_is_final(database: Database) -> None:
    """With a reason, and by whoever holds the claim alone."""
    submission = enqueue(database)
    claimed = queue.claim_next(database, SUITE, RULES)
    assert claimed is not None
    assert not queue.abandon(database, msgspec.structs.replace(claimed, claim="another"), "mine")
    assert queue.abandon(database, claimed, "it ended\x00the judge")
    known = find_submission(database, submission)
    assert known is not None
    assert (True, "it ended\ufffdthe judge") == (known.is_final, known.standings[0].detail)
