"""Pictures: drawn without a display, read back, and sent as images to whoever takes them."""

from __future__ import annotations

import base64
import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign
from tests.chat_server import ChatServer, Said
from tests.unit.generate.test_campaign import Scripted

from opsmith.core.evidence import CallProfile, ErrorMap, LineTimes, Span
from opsmith.errors import MissingDependency
from opsmith.generate.advisor.counsel import AdvisorOptions, parse_advisor
from opsmith.generate.advisor.figures import advisor_figures, seen_by_advisor
from opsmith.generate.background import Background
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.chat import Message, Picture, Request, Role
from opsmith.generate.journal import AskedAs, Journal
from opsmith.generate.page import campaign_page
from opsmith.generate.pictures import Subject, key_of
from opsmith.generate.pictures.canvas import MOST_HEIGHT, MOST_WIDTH, heat
from opsmith.generate.pictures.error_places import ErrorPlaces
from opsmith.generate.pictures.of_tasks import task_pictures
from opsmith.generate.pictures.roofline import Roofline, RoofPoint
from opsmith.generate.pictures.source_heat import SourceHeat
from opsmith.generate.pictures.timeline import Timeline
from opsmith.generate.providers.openai_http import OpenAIChat
from opsmith.generate.results import attempt_kinds, summarise_campaign

pillow = pytest.importorskip("PIL.Image", reason="needs opsmith[pictures]")

RELU = "relu.default"
SEEING = AdvisorOptions(model="openai:advisor", sees="pictures")
EAGER = CallProfile(device="cuda", spans=(Span("one", 0.0, 40.0), Span("two", 60.0, 40.0)))
TAIL = ErrorMap(
    result=0, shape=(32, 128), rows=32, columns=64, row_step=1, column_step=2, wrong=((0.0,) * 63 + (1.0,)) * 32,
    worst=None,
)  # fmt: skip


def pixels(png: bytes) -> Any:
    """The picture, decoded in full."""
    with pillow.open(io.BytesIO(png)) as image:
        assert "PNG" == image.format
        return image.convert("RGB")


def test_a_timeline_has_its_kernels_and_their_gap() -> None:
    """Two bars of two colours, and nothing between them."""
    image = pixels(Timeline(title="t", profile=EAGER).draw())
    row = [image.getpixel((x, 110)) for x in range(24, 1000)]
    first, gap, second = row[100], row[470], row[900]
    assert 3 == len({first, gap, second})
    assert 0.15 < row.count(gap) / len(row) < 0.25
    assert 0.35 < row.count(first) / len(row) < 0.45


def test_a_missed_tail_is_seen_at_a_glance() -> None:
    """The last column of cells, from top to bottom, and nothing else."""
    image = pixels(ErrorPlaces(title="e", errors=TAIL).draw())
    right, wrong = image.getpixel((500, 300)), image.getpixel((970, 300))
    assert right != wrong
    assert {wrong} == {image.getpixel((970, y)) for y in range(125, 600, 25)}
    assert {right} == {image.getpixel((x, 300)) for x in range(100, 950, 25)}


def test_a_roofline_has_a_roof_and_a_point_for_each_side() -> None:
    """The faster kernel is nearer to it."""
    points = [
        RoofPoint(by=by, least_us=us, took_us=us / share)
        for by, share in (("PyTorch", 0.25), ("attempt 1", 0.5), ("attempt 2", 0.9))
        for us in (1.0, 100.0)
    ]
    image = pixels(Roofline(title="r", points=tuple(points)).draw())
    colours = {image.getpixel((x, y)) for x in range(90, 990, 2) for y in range(95, 555, 2)}
    assert len(colours) > 5


def test_the_hottest_line_is_the_darkest() -> None:
    """And the others are there with it."""
    source = "\n".join(f"line_{number} = {number}" for number in range(1, 61))
    image = pixels(SourceHeat(title="s", source=source, lines=LineTimes(file="k.py", us={5: 90.0, 40: 10.0})).draw())
    rows = [sum(image.getpixel((994, y))) for y in range(82, image.height - 16)]
    assert min(rows) == min(rows[36:54])
    assert 765 * 0.95 < max(rows)
    assert sum(heat(1.0)) < sum(heat(0.5)) < sum(heat(0.0))


@pytest.mark.parametrize(
    "subject",
    [
        Timeline(title="x" * 900, profile=CallProfile(device="cpu", spans=(Span("ü\n" * 400, 3.0, 0.0),), left_out=9)),
        Timeline(title="t", profile=CallProfile(device="cuda", spans=tuple(Span(str(n), n, 2.0) for n in range(400)))),
        ErrorPlaces(title="e", errors=msgspec.structs.replace(TAIL, shape=(), rows=1, columns=1, wrong=(1.0,))),
        ErrorPlaces(title="e", errors=msgspec.structs.replace(TAIL, rows=48, columns=1, wrong=(0.5,) * 48, worst=2.0)),
        Roofline(title="r", points=(RoofPoint(by="a", least_us=3.0, took_us=2.0),) * 2),
        SourceHeat(title="s", source="", lines=LineTimes(file="k.py", us={1: 0.0, 7: 3.0})),
        SourceHeat(title="s", source="\n" * 999, lines=LineTimes(file="k", us=dict.fromkeys(range(1, 200), 1.0))),
    ],
)
def test_odd_subjects_fit_on_a_picture(subject: Subject) -> None:
    """Long names, no letters, one cell, a point above the roof, more lines than there is room for."""
    image = pixels(subject.draw())
    assert image.width <= MOST_WIDTH
    assert image.height <= MOST_HEIGHT
    assert subject.caption


def advised(out: Path, advisor: Any, **changes: Any) -> TaskHistory:
    """A wrong kernel, then two right ones, with an advisor that sees pictures."""
    kernels = ["wrong", "right speed=1.2 floor=40", "right speed=1.8 floor=60"]
    writer = Scripted("openai:m", lambda request: reply(RELU, kernels[request.number]))
    judging = msgspec.structs.replace(campaign_options().judging, timing="quick")
    options = campaign_options(judging=judging, advisor=SEEING, **changes)
    session = ReadingSession([RELU], timing="quick")
    background = {RELU: Background(timeline=EAGER)}
    [history] = run_campaign(out, options, [writer], session, advisor=advisor, background=background)
    with closing(Journal(out / "journal.sqlite")) as journal:
        summary = summarise_campaign(options, [history], {}, journal)
        page = campaign_page(summary, {RELU: attempt_kinds(history, {})}, seen_by_advisor(journal, [history]))
    (out / "page.html").write_text(page)
    return history


def images_of(body: dict[str, Any]) -> list[bytes]:
    """The pictures in a request of the chat completions protocol."""
    content = body["messages"][-1]["content"]
    parts = content if isinstance(content, list) else []
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    return [base64.b64decode(url.partition(",")[2], validate=True) for url in urls]


@pytest.mark.slow
def test_an_advisor_is_sent_valid_images_of_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP; the page shows them too, and the journal has them."""
    with ChatServer(lambda _body, _before: Said("- Try.")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with closing(OpenAIChat("advisor")) as advisor:
            advised(tmp_path, advisor)
        sent = [images_of(body) for body in server.bodies]
        texts = [body["messages"][-1]["content"][0]["text"] for body in server.bodies]
    assert all(pixels(png).width == MOST_WIDTH for pngs in sent for png in pngs)
    assert [1, 1, 3] == list(map(len, sent))
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        asked = [exchange.request for exchange in journal.asked_as(AskedAs.ADVISOR)]
        figures = advisor_figures([], journal, "openai:advisor")
    kinds = [[picture.kind for picture in request.pictures] for request in asked]
    assert [["timeline"], ["errors"], ["roofline", "timeline", "source"]] == kinds
    assert sent == [[picture.png for picture in request.pictures] for request in asked]
    assert (0, 5) == (figures.blind, figures.pictures)
    page = (tmp_path / "page.html").read_text()
    assert all(base64.b64encode(png).decode() in page for pngs in sent for png in pngs)
    assert "rows 2 to 3, columns 56 to 63" in texts[1]
    assert "255 registers a thread, 64 bytes of a thread spilled" in texts[2]
    assert "Picture 1: relu.default: roofline" in texts[2]


@pytest.mark.slow
def test_a_model_that_takes_no_pictures_gets_the_text_and_the_journal_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that refuses them, and a provider that does not know of any."""

    def text_only(body: dict[str, Any], _before: int) -> Said:
        return Said("this model does not support images", status=400) if images_of(body) else Said("- Try.")

    with ChatServer(text_only) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with closing(OpenAIChat("advisor")) as advisor:
            by_server = advised(tmp_path / "server", advisor)
        assert 6 == len(server.bodies)
        assert 6 == len(set(server.keys))
    plain = Scripted("openai:advisor", lambda _: "- Try.")
    assert by_server == advised(tmp_path / "plain", plain)
    assert not any(request.pictures for request in plain.asked)
    for out in (tmp_path / "server", tmp_path / "plain"):
        with closing(Journal(out / "journal.sqlite")) as journal:
            exchanges = journal.asked_as(AskedAs.ADVISOR)
        assert [True] * 3 == [exchange.reply is not None and exchange.reply.blind for exchange in exchanges]
        assert all(exchange.request.pictures for exchange in exchanges)
        assert "takes no pictures" in (out / "page.html").read_text()


@pytest.mark.slow
def test_a_resumed_campaign_sends_the_pictures_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of the library draws other bytes, and no question is another one for that."""
    before = advised(tmp_path, Scripted("openai:advisor", lambda _: "- Try."))
    monkeypatch.setattr(Timeline, "draw", lambda _: b"other")
    monkeypatch.setattr(Roofline, "draw", lambda _: b"other")
    nobody = Scripted("openai:advisor", lambda _: AssertionError())
    assert before == advised(tmp_path, nobody)
    assert not nobody.asked
    timeline = Timeline(title="t", profile=EAGER)
    assert key_of(timeline) != key_of(msgspec.structs.replace(timeline, title="u"))


def test_pictures_are_paid_for() -> None:
    """A question reserves what a provider charges for them at most; without any its key is what it was."""
    message = (Message(Role.USER, "hello"),)
    request = Request(model="m", messages=message, max_tokens=1, temperature=None, number=0)
    with_one = msgspec.structs.replace(request, pictures=(Picture(kind="k", caption="c", png=b"x"),))
    assert with_one.most_input_tokens > request.most_input_tokens + 20_000
    assert with_one.key != request.key
    assert "pictures" not in json.loads(msgspec.json.encode(request))


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is paid."""
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(MissingDependency, match=r"opsmith\[pictures\]"):
        parse_advisor("openai:m", sees="pictures", share=0.5)
    assert parse_advisor("openai:m", sees="text", share=0.5) is not None


@pytest.mark.slow
def test_people_see_what_was_measured(tmp_path: Path) -> None:
    """The best kernel's roofline, timeline and lines, and the last wrong one's map; drawn once."""
    history = advised(tmp_path, Scripted("openai:advisor", lambda _: "- Try."))
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        found = task_pictures(journal, [history])
        assert found == task_pictures(journal, [history])
    assert ["roofline", "timeline", "source", "errors"] == [picture.kind for picture in found[RELU]]
    titles = [picture.caption.partition(":")[0] for picture in found[RELU]]
    assert {RELU} == set(titles)
    assert all(pixels(picture.png).width == MOST_WIDTH for picture in found[RELU])
