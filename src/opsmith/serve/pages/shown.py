"""How the pages are made: templates, figures as text, highlighted sources, and the files that never change."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlencode

import jinja2
import msgspec
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer, CudaLexer, PythonLexer

from opsmith.core.case import digest
from opsmith.evaluation.integrity.static.cpp import SUFFIXES
from opsmith.report.outcome import Group, group
from opsmith.report.page_parts import templates
from opsmith.report.strangers import one_line, printable
from opsmith.report.tables import percent, share, speedup
from opsmith.serve.store.schema import State

#: Longer sources are shown without colours: the lexer's time grows with them.
HIGHLIGHTED_CHARACTERS = 200_000
#: Files that pages refer to -> their parts, in the packages that have them.
_PARTS = {
    "style.css": (("opsmith.report", "report.css"), ("opsmith.serve", "service.css")),
    "page.js": (("opsmith.serve", "page.js"),),
    "charts.js": (("opsmith.report", "charts.js"), ("opsmith.report", "timings.js"), ("opsmith.serve", "plots.js")),
}
#: Endings of files -> who colours them.
_LEXERS = {".py": PythonLexer, **dict.fromkeys(SUFFIXES, CppLexer), ".cu": CudaLexer, ".cuh": CudaLexer}
_TYPES = {"css": "text/css", "js": "text/javascript"}


@functools.cache
def static_file(name: str) -> tuple[bytes, str] | None:
    """Content and media type of a file that pages refer to; None where there is none."""
    if name == "plotly.js":
        return get_plotlyjs().encode(), _TYPES["js"]
    if name not in _PARTS:
        return None
    texts = [files(package).joinpath("templates", part).read_text("utf-8") for package, part in _PARTS[name]]
    return "\n".join(texts).encode(), _TYPES[name.rpartition(".")[2]]


@functools.cache
def static_url(name: str) -> str:
    """Where a file is: another content is another place, so that browsers may keep it."""
    found = static_file(name)
    assert found is not None, name
    return f"/static/{digest(found[0])}/{name}"


def group_of(outcome: str | None) -> str:
    """The colour of an outcome, or of a state."""
    if outcome is None or outcome in set(State):
        return Group.DIED if outcome == State.ABANDONED else Group.OPEN
    return group(outcome)


def _query(asked: Mapping[str, Any], **changes: Any) -> str:
    """A query with some values changed; empty ones are left out."""
    merged = {name: value for name, value in {**asked, **changes}.items() if value not in {None, "", 0}}
    return f"?{urlencode(merged)}" if merged else "?"


def _moment(utc: str | None) -> str:
    return "" if utc is None else utc[:16].replace("T", " ")


def embedded(data: object) -> Markup:
    """Data as a page holds it: JSON in which no markup can begin."""
    text = msgspec.json.encode(data).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - nothing of it is markup any more


def _with_code(text: str) -> Markup:
    """Text of our own, in which what stands between backquotes is code."""
    plain, code = Markup("{}"), Markup("<code>{}</code>")
    return Markup().join((code if number % 2 else plain).format(part) for number, part in enumerate(text.split("`")))


def highlighted(source: str) -> Markup:
    """A kernel's source with colours and numbered lines; whoever wrote it, it is text."""
    if len(source) > HIGHLIGHTED_CHARACTERS:
        return Markup("<pre>{}</pre>").format(printable(source, HIGHLIGHTED_CHARACTERS))
    formatter = HtmlFormatter(cssclass="source", linenos="inline", wrapcode=True)
    shown = printable(source.replace("\t", "    "), HIGHLIGHTED_CHARACTERS)
    return Markup(highlight(shown, PythonLexer(stripnl=False), formatter))  # noqa: S704 - Pygments escapes what it is given


def plain_lines(source: str) -> tuple[Markup, ...]:
    """The lines of a file, all of them; whoever wrote it, it is text."""
    return tuple(Markup("{}").format(line) for line in _whole(source).splitlines())


@functools.lru_cache(maxsize=512)
def highlighted_lines(source: str, path: str) -> tuple[Markup, ...]:
    """The same, each with its colours."""
    lexer = _LEXERS.get(PurePosixPath(path).suffix)
    if lexer is None or len(source) > HIGHLIGHTED_CHARACTERS:
        return plain_lines(source)
    text = highlight(_whole(source), lexer(stripnl=False), HtmlFormatter(nowrap=True))
    return tuple(Markup(line) for line in text.splitlines())  # noqa: S704 - Pygments escapes what it is given


def _whole(source: str) -> str:
    return printable(source.replace("\t", "    "), sys.maxsize)


@functools.cache
def environment() -> jinja2.Environment:
    """The templates of the pages, those of the report among them."""
    made = templates("opsmith.serve")
    made.filters |= {
        "speedup": speedup,
        "percent": percent,
        "moment": _moment,
        "line": one_line,
        "group": group_of,
        "embedded": embedded,
        "why": lambda row: one_line((row.detail or "").removeprefix(f"{row.outcome}: ")),
        "shown": printable,
        "with_code": _with_code,
        "pairs": lambda names: [(name, name) for name in names],
        "counted": lambda counts: [(name, f"{name} ({count:,})") for name, count in counts.items()],
        "by_quantity": lambda timings: {"K": None, "E": None} | {each.quantity: each.speedup for each in timings},
        "word": lambda outcome: "no kernel" if outcome == "NO_KERNEL" else outcome,
    }
    made.globals |= {"static": static_url, "query": _query, "share": share}
    return made
