"""The pages: who may look, what every view shows, and that strangers' text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from benchmarks.serve.fill import fill
from benchmarks.serve.pages import views
from fastapi.testclient import TestClient
from tests.report_runs import HOSTILE
from tests.service import Running, service_in, wait_until

from opsmith.serve.store.tokens import Role


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, str]]]:
    """A service with runs in it, and the paths of its views."""
    with service_in(tmp_path_factory.mktemp("service")) as made:
        yield made, views(fill(made.service.database, 400))


def viewer(running: Running) -> TestClient:
    """A browser that is signed in."""
    client = TestClient(running.app, follow_redirects=False)
    client.post("/login", content=f"token={running.secrets[Role.READER]}")
    client.follow_redirects = True
    return client


@pytest.mark.slow
def test_every_view_is_there(running: tuple[Running, dict[str, str]]) -> None:
    """A page with a title, a heading and a policy that lets nothing in from elsewhere."""
    made, paths = running
    for name, path in paths.items():
        answer = viewer(made).get(path)
        assert 200 == answer.status_code, (name, answer.text)
        assert "<h1" in answer.text, name
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "http:" not in answer.text, name
        assert "https:" not in answer.text, name


@pytest.mark.slow
def test_whoever_is_not_signed_in_is_asked_for_a_token(running: tuple[Running, dict[str, str]]) -> None:
    """And comes to the view that was wanted, but to no other server."""
    made, paths = running
    nobody = TestClient(made.app, follow_redirects=False)
    for path in paths.values():
        answer = nobody.get(path)
        assert (303, True) == (answer.status_code, answer.headers["Location"].startswith("/login?next=/"))
    assert "no valid token" in nobody.post("/login", content="token=opsmith_guess").text
    secret = made.secrets[Role.READER]
    for target, led in (("/matrix", "/matrix"), ("https://other", "/"), ("//other", "/"), ("/\\other", "/")):
        answer = nobody.post("/login", params={"next": target}, content=f"token={secret}")
        assert (303, led) == (answer.status_code, answer.headers["Location"])
        assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["Set-Cookie"].split("; "))
        assert secret not in answer.headers["Set-Cookie"]
    # A cookie is for looking: what changes something needs a header, which no other site's form can send.
    assert 401 == viewer(made).get("/api/runs").status_code


class Reader(HTMLParser):
    """Collects what somebody who cannot see a page would miss."""

    def __init__(self) -> None:
        super().__init__()
        self.missed: list[str] = []
        self.headings = self._in_label = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Look at one tag."""
        found = dict(attributes)
        self._in_label += tag == "label"
        self.headings += tag == "h1"
        if tag in {"input", "select"} and found.get("type") != "hidden" and not self._in_label:
            self.missed.append(f"{tag} {found.get('name')} has no label")
        if tag == "th" and "scope" not in found:
            self.missed.append("a header of a table has no scope")
        if tag in {"nav", "progress", "section"} and not {"aria-label", "aria-labelledby", "class"} & found.keys():
            self.missed.append(f"{tag} has no name")

    def handle_endtag(self, tag: str) -> None:
        """A label ends."""
        self._in_label -= tag == "label"


@pytest.mark.slow
def test_nobody_has_to_see_a_page_to_use_it(running: tuple[Running, dict[str, str]]) -> None:
    """One heading, a language, names for fields, tables, sections and figures, and a way past the navigation."""
    made, paths = running
    for name, path in paths.items():
        text = viewer(made).get(path).text
        reader = Reader()
        reader.feed(text)
        assert ([], 1) == (reader.missed, reader.headings), name
        assert '<html lang="en">' in text
        assert 'class="skip" href="#main"' in text


def test_unknown_things_are_not_found(running: tuple[Running, dict[str, str]]) -> None:
    """Not a page of errors."""
    client = viewer(running[0])
    for path in ("/runs/999", "/kernels/99999", "/runs/1/x", "/static/0/style.css", "/compare?before=1&after=999"):
        assert 404 == client.get(path).status_code, path
    assert 404 == client.get("/runs/1?sort=nonsense").status_code


def test_what_strangers_wrote_stays_text(tmp_path: Path) -> None:
    """In names, provenance and sources."""
    with service_in(tmp_path) as made:
        client = made.client()
        line = HOSTILE.replace("\x1b", "").replace("\u202e", "")
        source = f'def relu__default_kernel_impl(self):\n    """{HOSTILE}"""\n    return self  # wrong {HOSTILE}\n'
        body = {"tasks": ["relu.default"], "source": source, "run": line, "provenance": {"model": line, "note": line}}
        submission = client.post("/api/submissions", json=body).json()
        wait_until(lambda: client.get(f"/api/submissions/{submission['id']}").json()["final"])
        judgement, run = submission["tasks"][0]["judgement"], submission["run"]
        for path in ("/", f"/runs/{run}", f"/runs/{run}/matrix", "/leaderboard", f"/kernels/{judgement}", "/compare"):
            text = viewer(made).get(path).text
            assert "owned" in text, path
            assert "<img" not in text, path
            assert "<b>bold" not in text, path
            assert "\x1b" not in text, path
            assert "\u202e" not in text, path


def test_a_comparison_does_not_begin_with_a_run_beside_itself(running: tuple[Running, dict[str, str]]) -> None:
    """Two runs are preselected where there are two, the newest as the second."""
    text = viewer(running[0]).get("/compare").text
    chosen = re.findall(r'<option value="(\d+)" selected>', text)
    runs = re.findall(r'<option value="(\d+)"', text.partition("</select>")[0])
    assert len(chosen) == 2
    assert len(runs) < 2 or chosen == [runs[1], runs[0]]


def test_a_filter_and_a_page_show_what_they_say(running: tuple[Running, dict[str, str]]) -> None:
    """Names in the table, and how many there are."""
    made, paths = running
    run = paths["run"]
    text = viewer(made).get(f"{run}?text=mm&sort=task&up=true").text
    assert "mm.default" in text
    assert "gelu.default" not in text
    assert 'aria-sort="ascending"' in text
    assert "There is no such kernel" in viewer(made).get(f"{run}?text=no-such-task").text
