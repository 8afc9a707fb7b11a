"""People review kernels on the service: who may, about what, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient
from tests.service import SUITE, Running, kernel, service_in, wait_until

from opsmith.backends.file import KernelFile
from opsmith.core.op import OpSchema, Variant
from opsmith.core.task import Task
from opsmith.reviews.records import Review
from opsmith.reviews.scope import reviewed_hash
from opsmith.serve.store.tokens import Role, create_token


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A service."""
    with service_in(tmp_path) as made:
        yield made


def judged(running: Running, comment: str = "right") -> int:
    """Submit a kernel; the number of its judgement."""
    client = running.client()
    body = {"tasks": ["relu.default"], "source": kernel(comment)}
    submission = client.post("/api/submissions", json=body).json()
    wait_until(lambda: client.get(f"/api/submissions/{submission['id']}").json()["final"])
    return int(submission["tasks"][0]["judgement"])


def browser(running: Running, role: Role, secret: str = "") -> TestClient:
    """One that is signed in."""
    client = TestClient(running.app, follow_redirects=False)
    client.post("/login", content=f"token={secret or running.secrets[role]}")
    return client


def field(page: str, name: str) -> str:
    """What a hidden field of a form holds."""
    return page.partition(f'name="{name}" value="')[2].partition('"')[0]


def decide(client: TestClient, judgement: int, **fields: str) -> Any:
    """Fill in the form of the page and send it."""
    page = client.get(f"/kernels/{judgement}/review").text
    hidden = {name: field(page, name) for name in ("form", "content_hash")}
    return client.post(f"/kernels/{judgement}/review", data={**hidden, **fields})


def content(running: Running, judgement: int) -> str:
    """What a review of the kernel is about."""
    return str(running.client().get(f"/api/judgements/{judgement}").json()["reviewed_hash"])


def test_the_hash_is_that_of_the_same_file_in_a_kernel_directory(running: Running, tmp_path: Path) -> None:
    """So that a review made here counts where the kernel lies."""
    number = judged(running)
    file = tmp_path / "relu__default_implementation_v1.py"
    file.write_text(kernel("right"))
    op = OpSchema(name="relu.default", schema="", variant=Variant.FUNCTIONAL)
    found = KernelFile(file).kernel_for(Task(name="relu.default", op=op, suite=SUITE))
    assert found is not None
    assert reviewed_hash(found) == content(running, number)


@pytest.mark.slow
def test_only_reviewers_review(running: Running) -> None:
    """A stranger is asked for a token; who submits does not approve; who reviews does not submit."""
    number = judged(running)
    body = {"word": "approve", "content_hash": content(running, number)}
    roles: dict[Role | None, int] = {
        role: running.client(role).post(f"/api/judgements/{number}/reviews", json=body).status_code
        for role in (None, *Role)
    }
    assert {None: 401, Role.READER: 403, Role.SUBMITTER: 403, Role.REVIEWER: 201, Role.ADMIN: 201} == roles
    reviewer = running.client(Role.REVIEWER)
    assert 403 == reviewer.post("/api/submissions", json={"tasks": ["relu.default"], "source": "x"}).status_code
    for role in (Role.READER, Role.SUBMITTER):
        client = browser(running, role)
        page = client.get(f"/kernels/{number}/review").text
        assert "needs a token with the role reviewer" in page
        form = {"form": "0", "word": "approve", "content_hash": body["content_hash"]}
        assert 403 == client.post(f"/kernels/{number}/review", data=form).status_code
    assert 303 == TestClient(running.app, follow_redirects=False).get(f"/kernels/{number}/review").status_code


@pytest.mark.slow
def test_two_reviewers_approve_comment_and_reject_and_a_change_loses_it(running: Running) -> None:
    """The page shows what each said, where; another version needs another approval."""
    number = judged(running, "right")
    mara = browser(running, Role.REVIEWER)
    jo = browser(running, Role.REVIEWER, create_token(running.service.database, "jo", Role.REVIEWER)[1])
    assert 303 == decide(mara, number, word="approve").status_code
    assert "approved by a reviewer" in jo.get(f"/kernels/{number}/review").text
    assert 303 == decide(jo, number, word="reject", line="2", text="why <b>self</b>?").status_code
    page = mara.get(f"/kernels/{number}/review").text
    assert "rejected by jo" in page
    assert "why &lt;b&gt;self&lt;/b&gt;?" in page
    assert 303 == decide(jo, number, word="approve").status_code
    assert "approved by a reviewer, jo" in mara.get(f"/kernels/{number}/review").text
    changed = judged(running, "right speed=2")
    page = mara.get(f"/kernels/{changed}/review").text
    assert "changed since it was approved" in page
    assert "+    return self  # right speed=2" in page
    assert "approved" in mara.get("/runs/1").text
    assert "Approved" in mara.get(f"/leaderboard?suite={SUITE}").text


@pytest.mark.slow
def test_what_was_not_looked_at_is_not_approved(running: Running) -> None:
    """Nor does another site's form approve anything."""
    number = judged(running)
    client = browser(running, Role.REVIEWER)
    assert 409 == decide(client, number, word="approve", content_hash="00").status_code
    assert 403 == decide(client, number, word="approve", form="guess").status_code
    assert 409 == decide(client, number, word="comment").status_code
    assert 409 == decide(client, number, word="reject", line="99", text="there is no such line").status_code
    assert 422 == decide(client, number, word="bless").status_code
    assert 422 == decide(client, number, word="comment", line="0", text="x").status_code
    assert 404 == client.get("/kernels/999/review").status_code
    assert [] == client_reviews(running, content(running, number))


def client_reviews(running: Running, *hashes: str) -> list[Review]:
    """As `opsmith review --from` reads them."""
    answer = running.client(Role.READER).get("/api/reviews", params={"content_hash": hashes})
    return msgspec.json.decode(answer.content, type=list[Review])


@pytest.mark.slow
def test_many_reviews_at_once_are_all_kept(running: Running) -> None:
    """And every line of them is one of reviews.jsonl."""
    number = judged(running)
    body = {"word": "comment", "content_hash": content(running, number), "comments": [{"text": "hm", "line": 1}]}
    client = running.client(Role.REVIEWER)

    def comment(_: int) -> int:
        return client.post(f"/api/judgements/{number}/reviews", json=body).status_code

    with ThreadPoolExecutor(4) as threads:
        assert {201} == set(threads.map(comment, range(20)))
    found = client_reviews(running, content(running, number), "aa")
    assert 20 == len({review.id for review in found})
    assert {("a reviewer", 1)} == {(review.who, review.comments[0].line) for review in found}
    assert 20 == len(client.get(f"/api/judgements/{number}/reviews").json())
