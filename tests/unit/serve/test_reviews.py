"""People review kernels on the service: who may, about what, and what becomes of it."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient
from tests.reviewed_kernels import DATA, ENTRY, SHARED, kernels_of_files, run_of_kernel
from tests.service import SUITE, Running, kernel, service_in, wait_until

from opsmith.backends.file import KernelFile
from opsmith.core.op import OpSchema, Variant
from opsmith.core.run import RunDirectory
from opsmith.core.task import Task
from opsmith.errors import BadInput, DamagedRun
from opsmith.packaging.kernels import collect
from opsmith.report.results import Results
from opsmith.reviews.book import ReviewBook
from opsmith.reviews.of_run import judged_kernel
from opsmith.reviews.records import Review, Word, new_review
from opsmith.reviews.scope import reviewed_files, reviewed_hash
from opsmith.serve.pages import review
from opsmith.serve.pages.shown import highlighted_lines
from opsmith.serve.store.imports import keep_run
from opsmith.serve.store.reviews import list_reviews
from opsmith.serve.store.runs import list_judgements
from opsmith.serve.store.tokens import Role, create_token


@pytest.fixture
def running(tmp_path: Path, database_url: str) -> Iterator[Running]:
    """A service on a database of either kind."""
    with service_in(tmp_path, url=database_url) as made:
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


def imported(running: Running, kernels: Path) -> int:
    """Take a run of a kernel directory into the service; the number of its judgement."""
    run = run_of_kernel(kernels, kernels.with_name(f"run of {kernels.name}"))
    database = running.service.database
    [row] = list_judgements(database, keep_run(database, run))
    return row.id


def files_of(running: Running, judgement: int) -> list[dict[str, Any]]:
    """What the API tells of a kernel's files."""
    answer = running.client(Role.READER).get(f"/api/judgements/{judgement}/files")
    assert 200 == answer.status_code, answer.text
    return list(answer.json())


def test_every_file_that_an_approval_covers_is_shown_and_no_other(running: Running, tmp_path: Path) -> None:
    """Who decides has seen all that is decided about: the entry's file first, then what it imports."""
    number = imported(running, kernels_of_files(tmp_path / "mine"))
    found = files_of(running, number)
    assert [ENTRY, DATA, SHARED] == [file["path"] for file in found]
    assert ["half = 0.5\n", "from .data import half\n"] == [file["text"] for file in found[1:]]
    assert [None] * 3 == [file["changed"] for file in found]
    page = browser(running, Role.REVIEWER).get(f"/kernels/{number}/review").text
    assert "&lt;b&gt;" in page
    for name in (ENTRY, DATA, SHARED):
        assert f'<option value="{name}">' in page
    assert 'id="F1L1"' in page
    assert '<span class="n">half</span> <span class="o">=</span> <span class="mf">0.5</span>' in page
    assert "other.py" not in page


@pytest.mark.slow
def test_files_that_are_long_together_are_shown_whole_and_the_last_without_colours(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of a million characters must not hold up the server; nor is a line left out."""
    monkeypatch.setattr(review, "HIGHLIGHTED_CHARACTERS", 200)
    long = "half = 0.5\n" + "# more\n" * 40_000 + "last = 1\n"
    number = imported(running, kernels_of_files(tmp_path / "mine", data=long))
    page = browser(running, Role.REVIEWER).get(f"/kernels/{number}/review").text
    assert '<span class="kn">import</span>' in page
    assert "<code>half = 0.5</code>" in page
    assert "<code>last = 1</code>" in page
    assert "40,002 lines" in page


@pytest.mark.slow
def test_lines_of_every_file_are_commented_on(running: Running, tmp_path: Path) -> None:
    """On the page and over the API; a comment on the entry's file does not depend on what that is called."""
    number = imported(running, kernels_of_files(tmp_path / "mine"))
    client = browser(running, Role.REVIEWER)
    assert 303 == decide(client, number, word="comment", file=DATA, line="1", text="why a half?").status_code
    assert 303 == decide(client, number, word="approve", file=ENTRY, line="6", text="fine").status_code
    api, content_hash = running.client(Role.REVIEWER), content(running, number)
    comments = [{"text": "and here?", "file": SHARED, "line": 1}, {"text": "all in all", "file": DATA}]
    body = {"word": "approve", "content_hash": content_hash, "comments": comments}
    assert 201 == api.post(f"/api/judgements/{number}/reviews", json=body).status_code
    first, second, third = client_reviews(running, content_hash)
    assert [(DATA, 1)] == [(each.file, each.line) for each in first.comments]
    assert [("", 6)] == [(each.file, each.line) for each in second.comments]
    assert {(SHARED, 1), (DATA, None)} == {(each.file, each.line) for each in third.comments}
    assert {ENTRY, DATA, SHARED} == set(first.files)
    page = client.get(f"/kernels/{number}/review").text
    assert f'<a href="#F1L1">{DATA}:1</a>: why a half?' in page
    assert f'<a href="#L6">{ENTRY}:6</a>: fine' in page
    assert 2 == page.count("why a half?")  # Among the reviews, and below its line.
    for place in ({"file": "other.py"}, {"file": DATA, "line": "2"}, {"file": "a" * 500}):
        assert 409 == decide(client, number, word="comment", text="?", **place).status_code
    assert 3 == len(client_reviews(running, content_hash))


def test_an_approval_made_here_counts_where_the_kernel_lies(running: Running, tmp_path: Path) -> None:
    """For all files: until one of them changes, and not when a neighbour does."""
    kernels = kernels_of_files(tmp_path / "mine")
    number = imported(running, kernels)
    assert 303 == decide(browser(running, Role.REVIEWER), number, word="approve").status_code
    ReviewBook(kernels).append(client_reviews(running, content(running, number)))
    assert "relu.default" not in collect(kernels, license="MIT", approved=True).left_out
    (kernels / "relu__default" / "other.py").write_text("x = 2\n")
    assert "relu.default" not in collect(kernels, license="MIT", approved=True).left_out
    (kernels / "relu__default" / DATA).write_text("half = 0.25\n")
    with pytest.raises(BadInput, match="changed since it was approved by a reviewer"):
        collect(kernels, license="MIT", approved=True)


@pytest.mark.slow
def test_what_changed_in_every_file_is_shown(running: Running, tmp_path: Path) -> None:
    """Since the version that was looked at: other lines, another file, and a file that is not used any more."""
    first = imported(running, kernels_of_files(tmp_path / "mine"))
    client = browser(running, Role.REVIEWER)
    assert 303 == decide(client, first, word="approve").status_code
    second = imported(running, kernels_of_files(tmp_path / "next", data="half = 0.25\n"))
    assert [False, True, False] == [file["changed"] for file in files_of(running, second)]
    assert "@@ -1 +1 @@\n-half = 0.5\n+half = 0.25" == files_of(running, second)[1]["difference"]
    page = client.get(f"/kernels/{second}/review").text
    assert f": {DATA}</h2>" in page
    assert "-half = 0.5" in page
    assert "+half = 0.25" in page
    assert 1 == page.count('<span class="chip open">changed</span>')
    assert "changed since it was approved by a reviewer" in page
    third = imported(
        running, kernels_of_files(tmp_path / "third", shared="from .more import half\n", more="half = 1\n")
    )
    assert ["new", "changed"] == marks(client, third, "more.py", SHARED)
    assert ["not used any more"] == marks(client, third, DATA)


def marks(client: TestClient, judgement: int, *paths: str) -> list[str]:
    """What the list of files on the page of a review says of them."""
    page = client.get(f"/kernels/{judgement}/review").text
    items = page.partition('class="files"')[2].partition("</ul>")[0].split("<li>")
    found = [next(item for item in items if f">{path}<" in item) for path in paths]
    return [item.partition('open">')[2].partition("<")[0] for item in found]


@pytest.mark.slow
def test_a_version_that_only_a_file_of_reviews_knows_marks_what_changed(running: Running, tmp_path: Path) -> None:
    """A record holds hashes of all files and the text of the entry's."""
    kernels = kernels_of_files(tmp_path / "mine")
    found = run_of_kernel(kernels, tmp_path / "before")
    planned = found.plan().ops[0]
    judged_before = judged_kernel(found.path, planned)
    assert judged_before is not None
    before = new_review(
        "relu.default",
        str(reviewed_hash(judged_before)),
        "mara",
        Word.APPROVE,
        source=(kernels / "relu__default" / ENTRY).read_text(),
        files=reviewed_files(judged_before),
    )
    run = run_of_kernel(kernels_of_files(tmp_path / "next", data="half = 0.25\n"), tmp_path / "after")
    ReviewBook(run.path).append([before])
    database = running.service.database
    [row] = list_judgements(database, keep_run(database, run))
    found_files = files_of(running, row.id)
    assert [False, True, False] == [file["changed"] for file in found_files]
    assert "" == found_files[1]["difference"]


@pytest.mark.parametrize("data", [b"half = 0.5  # \xff\n", b"half = 0.5  # \x00\n"])
def test_a_kernel_with_a_file_that_cannot_be_shown_is_not_reviewed_here(
    running: Running, tmp_path: Path, data: bytes
) -> None:
    """Nobody approves what they cannot see."""
    kernels = kernels_of_files(tmp_path / "mine")
    (kernels / "relu__default" / DATA).write_bytes(data)
    number = imported(running, kernels)
    assert [] == files_of(running, number)
    client = browser(running, Role.REVIEWER)
    page = client.get(f"/kernels/{number}/review").text
    assert "not all of its files are here as text" in page
    assert "def kernel" in re.sub("<[^>]*>", "", page)
    assert (
        409
        == client.post(
            f"/kernels/{number}/review",
            data={"form": form_of(running, client), "word": "approve", "content_hash": "00"},
        ).status_code
    )


def test_a_path_that_is_too_long_for_an_index_hinders_no_import_of_a_run(running: Running, tmp_path: Path) -> None:
    """The kernel is there, and not reviewed here."""
    folder = "d" * 250
    kernels = kernels_of_files(tmp_path / "mine", shared=f"from .{folder}.{folder}.data import half\n")
    deep = kernels / "relu__default" / folder / folder
    deep.mkdir(parents=True)
    (deep / "data.py").write_text("half = 0.5\n")
    assert [] == files_of(running, imported(running, kernels))


def test_files_of_other_languages_have_their_colours() -> None:
    """A CUDA file's are not those of Python; a table has none."""
    assert '<span class="kr">__global__</span>' in highlighted_lines("__global__ void f();", "rows.cu")[0]
    assert '<span class="k">const</span>' in highlighted_lines("const int x = 1;", "rows.h")[0]
    assert "a &lt;b&gt;" == highlighted_lines("a <b>", "table.txt")[0]


def form_of(running: Running, client: TestClient) -> str:
    """What proves that a form is of this session."""
    return field(client.get(f"/kernels/{judged(running)}/review").text, "form")


def test_a_file_that_was_changed_after_the_run_is_not_reviewed_as_what_was_judged(
    running: Running, tmp_path: Path
) -> None:
    """Its text would not be that of the hash that is approved."""
    run = run_of_kernel(kernels_of_files(tmp_path / "mine"), tmp_path / "run")
    [file] = run.kernels_path.rglob("data.py")
    file.chmod(0o600)
    file.write_text("half = 9\n")
    database = running.service.database
    [row] = list_judgements(database, keep_run(database, run))
    assert [] == files_of(running, row.id)


def test_servers_that_take_the_same_run_in_at_once_keep_it_once(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its reviews: each starts with the same --run."""
    run = run_of_kernel(kernels_of_files(tmp_path / "mine"), tmp_path / "run")
    ReviewBook(run.path).append([new_review("relu.default", "00", "mara", Word.APPROVE)])
    barrier = threading.Barrier(4)
    read = Results.read

    def read_together(run: RunDirectory) -> Results:
        found = read(run)
        barrier.wait()
        return found

    monkeypatch.setattr(Results, "read", read_together)
    with ThreadPoolExecutor(4) as threads:
        numbers = list(threads.map(lambda _: keep_run(running.service.database, run), range(4)))
    assert 1 == len(set(numbers))
    assert ["mara"] == [review.who for review in list_reviews(running.service.database, ["00"])]


def test_a_record_that_no_database_keeps_is_no_review(running: Running, tmp_path: Path) -> None:
    """PostgreSQL has no zero character, and as much room as a column says; the file is named, and no server fails."""
    made = new_review("relu.default", "00", "mara", Word.APPROVE)
    for wrong in ({"task": "a\0b"}, {"content_hash": "a\0b"}, {"when_utc": "2026" * 20}, {"when_utc": "\0"}):
        run = run_of_kernel(kernels_of_files(tmp_path / str(wrong)[2:8]), tmp_path / f"{str(wrong)[2:8]} run")
        line = msgspec.json.encode(msgspec.structs.replace(made, **wrong))
        (run.path / "reviews.jsonl").write_bytes(line + b"\n")
        with pytest.raises(DamagedRun, match=r"reviews\.jsonl line 1 is no review"):
            keep_run(running.service.database, run)
        shutil.rmtree(run.path)
        shutil.rmtree(tmp_path / str(wrong)[2:8])
