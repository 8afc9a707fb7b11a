"""The page of first mistakes says what opsmith says."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pytest
from tests.newcomers import COLUMNS, MISTAKES, PAGE, Mistake, write_files

from opsmith.cli import main

TEXT = PAGE.read_text(encoding="utf-8")


def words(text: str) -> str:
    """Text without what a terminal's width and its frames do to it."""
    return re.sub(r"[\s╭╮╰╯│─]+", "", text)


def screen(mistake: Mistake) -> str:
    """What the page shows of a mistake."""
    return html.unescape(TEXT.partition(f"## {mistake.title}\n\n<pre>\n")[2].partition("</pre>")[0])


def test_every_mistake_is_on_the_page_and_fits_a_terminal() -> None:
    """At least 25 of them, at 80 columns; none with a traceback."""
    assert 25 <= len(MISTAKES)
    assert [mistake.title for mistake in MISTAKES] == re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert COLUMNS >= max(len(line) for mistake in MISTAKES for line in screen(mistake).splitlines())
    assert "Traceback" not in TEXT


@pytest.mark.parametrize("mistake", [mistake for mistake in MISTAKES if mistake.starts], ids=lambda one: one.title)
def test_the_verdict_is_the_first_line_and_each_reason_stands_once(mistake: Mistake) -> None:
    """One syntax error is no list of five."""
    command, first, *rest = screen(mistake).splitlines()
    assert f"$ {mistake.command}" == command
    assert first.startswith("NOT ACCEPTED  relu.default: ")
    reasons = [line for line in rest if line.startswith("  SyntaxError") or "ModuleNotFoundError" in line]
    assert len(reasons) <= 1


@pytest.mark.parametrize("mistake", [mistake for mistake in MISTAKES if not mistake.starts], ids=lambda one: one.title)
def test_what_is_told_before_anything_starts_is_what_the_page_shows(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``python -m tests.newcomers`` writes the page anew."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if "-o full" not in mistake.command:  # That is told by what would start it.
        monkeypatch.setattr("opsmith.cli.run.evaluate", _started)
    arguments = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", mistake.command)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as end:
        main.main()
    printed = capfd.readouterr()
    assert (mistake.status, "") == (end.value.code, printed.out)
    assert words(f"$ {mistake.command}\n{printed.err}") == words(screen(mistake))


def _started(*_: object, **__: object) -> None:
    raise AssertionError("it was to be told before anything starts")
