"""Two reviewers in browsers and one in a terminal, on one kernel."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from benchmarks.serve.pages import sign_in
from benchmarks.serve.running import free_port
from tests.e2e.chromium import EXECUTABLE, Chromium
from tests.reviewed_kernels import DATA, kernels_of_files, run_of_kernel
from tests.service import Running, kernel, service_in, wait_until

from opsmith.cli import main
from opsmith.errors import BadInput
from opsmith.packaging.kernels import collect
from opsmith.reviews.book import ReviewBook
from opsmith.serve.store.imports import keep_run
from opsmith.serve.store.reviews import standings
from opsmith.serve.store.runs import list_judgements
from opsmith.serve.store.tokens import Role, create_token

#: Where screenshots are kept, for people; nowhere by default.
SHOTS = os.environ.get("OPSMITH_SHOTS")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[Running, str]]:
    """A service in this process, and its address."""
    with service_in(folder) as running:
        port = free_port()
        config = uvicorn.Config(
            running.app, port=port, log_level="warning", lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        try:
            yield running, f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


def submit(running: Running, source: str) -> int:
    """Have a kernel judged; the number of its judgement."""
    client = running.client()
    made = client.post("/api/submissions", json={"tasks": ["relu.default"], "source": source}).json()
    wait_until(lambda: client.get(f"/api/submissions/{made['id']}").json()["final"])
    return int(made["tasks"][0]["judgement"])


class Person:
    """Somebody with a browser."""

    def __init__(self, url: str, secret: str, profile: Path) -> None:
        self.browser, self._url = Chromium(profile), url
        self.browser.show(width=1280, height=1400)
        sign_in(self.browser, url, secret)

    def look(self, judgement: int) -> str:
        """Open the page of a review; what it says."""
        self.browser.call("Page.navigate", url=f"{self._url}/kernels/{judgement}/review")
        self.browser.wait_for(
            f"location.pathname === '/kernels/{judgement}/review' && document.documentElement?.dataset.ready"
        )
        return str(self.browser.evaluate("document.body.innerText"))

    def decide(self, word: str, *, line: int | None = None, file: str = "", text: str = "") -> None:
        """Click on a line's number, write, and press a button."""
        if line is not None:
            where = f"[data-line='{line}']" + f"[data-file='{file}']" * bool(file)
            self.browser.evaluate(f'document.querySelector("{where}").click()')
        self.browser.evaluate(f"document.querySelector('textarea').value = {text!r}")
        self.browser.evaluate("document.documentElement.dataset.ready = ''")
        self.browser.evaluate(f"document.querySelector('button[value={word}]').click()")
        self.browser.wait_for("document.documentElement?.dataset.ready === 'tables'")

    def shoot(self, name: str) -> None:
        """Keep a picture of the page."""
        if SHOTS:
            self.browser.screenshot(Path(SHOTS) / f"{name}.png", whole=True)


in_a_browser = pytest.mark.skipif(
    EXECUTABLE is None and os.environ.get("CI") != "true", reason="Chromium is not installed; it is required in CI"
)


@in_a_browser
def test_a_click_on_a_line_of_an_imported_file_places_the_comment_there(tmp_path: Path) -> None:
    """The number and the file are taken into the form."""
    with served(tmp_path) as (running, url):
        database = running.service.database
        run = run_of_kernel(kernels_of_files(tmp_path / "mine"), tmp_path / "run")
        [row] = list_judgements(database, keep_run(database, run))
        person = Person(url, create_token(database, "mara", Role.REVIEWER)[1], tmp_path / "mara")
        with person.browser:
            assert DATA in person.look(row.id)
            person.decide("comment", line=1, file=DATA, text="Why a half?")
            assert f"{DATA}:1: Why a half?" in person.look(row.id)
            person.shoot("files")
            run = run_of_kernel(kernels_of_files(tmp_path / "next", data="half = 0.25\n"), tmp_path / "after")
            [changed] = list_judgements(database, keep_run(database, run))
            assert "-half = 0.5" in person.look(changed.id)
            person.shoot("changed_files")
            problems = person.browser.problems
    assert [(DATA, 1)] == [(each.file, each.line) for each in standings(database, [row])[row.id].reviews[0].comments]
    assert [] == problems


@in_a_browser
def test_three_people_review_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comment, approve, change, approval lost, approve again, package takes it; two at once lose nothing."""
    kernels = tmp_path / "mine"
    file = kernels / "relu__default" / "relu__default_implementation_v1.py"
    file.parent.mkdir(parents=True)

    def opsmith_review(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["opsmith", "review", str(kernels), *words])
        with contextlib.suppress(SystemExit):
            main.main()

    with served(tmp_path) as (running, url), contextlib.ExitStack() as held:
        file.write_text(kernel("right"))
        first = submit(running, file.read_text())
        people = []
        for name in ("mara", "jo"):
            secret = create_token(running.service.database, name, Role.REVIEWER)[1]
            people.append(Person(url, secret, tmp_path / name))
            held.enter_context(people[-1].browser)
        mara, jo = people
        monkeypatch.setenv("OPSMITH_TOKEN", running.secrets[Role.READER])
        assert "not reviewed" in mara.look(first)
        mara.decide("comment", line=2, text="Is NaN kept?")
        assert "Is NaN kept?" in jo.look(first)
        jo.decide("approve")
        opsmith_review("--from", url)
        assert "relu.default" not in collect(kernels, license="MIT", approved=True).left_out
        file.write_text(kernel("right speed=2"))
        second = submit(running, file.read_text())
        assert "changed since it was approved by jo" in mara.look(second)
        mara.shoot("changed")
        with pytest.raises(BadInput, match="changed since it was approved by jo"):
            collect(kernels, license="MIT", approved=True)
        jo.look(second)
        # Both press a button, and neither has seen what the other says.
        mara.decide("approve", line=1, text="Fine now.")
        jo.decide("approve", text="Fine for me, too.")
        opsmith_review("relu.default", "--approve", "--as", "tom")
        opsmith_review("--from", url)
        shown = mara.look(second)
        mara.shoot("approved")
        problems = [problem for person in people for problem in person.browser.problems]
    assert "approved by mara, jo" in shown
    assert "Fine now." in shown
    assert "Fine for me, too." in shown
    assert [] == problems
    assert {"mara", "jo", "tom"} == {review.who for review in ReviewBook(kernels).reviews()}
    assert 5 == len(ReviewBook(kernels).reviews())
    assert "relu.default" not in collect(kernels, license="MIT", approved=True).left_out
