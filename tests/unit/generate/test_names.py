"""Names of models, tasks and files that hold markup or control characters, wherever a campaign shows them."""

from __future__ import annotations

import errno
import io
import re
import sys
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign
from tests.unit.generate.test_campaign import Scripted

from opsmith.cli.generate import ATTEMPTS, _print, _room_for
from opsmith.cli.main import main
from opsmith.cli.progress import StageProgress
from opsmith.core.run import write_atomically
from opsmith.errors import BadInput
from opsmith.generate.attempt_list import attempt_list
from opsmith.generate.chat import NoReply
from opsmith.generate.journal import Journal
from opsmith.generate.page import campaign_page
from opsmith.generate.results import attempt_kinds, summarise_campaign, write_directory

TASK = "re[/x]lu\x1b[31m<script>\u202e.default"
MODEL = "openai:[/x][red]<script>"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]")


def test_no_name_is_taken_for_markup_or_reaches_a_terminal_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the tables, the list of attempts, the progress and the page; `[/x]` ended a campaign at its very end."""
    out = tmp_path / "[red]\x1b[32m"
    models = [Scripted(MODEL, lambda _: NoReply("\x1b]0;mine\x07[/x]", may_have_cost=True))]
    options = campaign_options(models=(MODEL,), attempts=1, contexts=())
    session = ReadingSession([TASK])
    histories = run_campaign(out, options, models, session)
    with closing(Journal(out / "journal.sqlite")) as journal:
        summary = summarise_campaign(options, histories, {}, journal, void={TASK + "v": "\x1b[/x]"})
    write_atomically(out / ATTEMPTS, attempt_list(histories).encode())
    _print(summary, out)
    shown = capsys.readouterr().out
    error = io.StringIO()
    with StageProgress() as progress:
        monkeypatch.setattr(progress, "_console", Console(file=error, force_terminal=False))
        monkeypatch.setattr(progress, "_next_line", 0.0)
        progress.stage("writing", 0)
        progress.advance(1, f"{TASK}: {MODEL}")
    page = campaign_page(summary, {history.task: attempt_kinds(history, {}) for history in histories})
    for text in (shown, (out / ATTEMPTS).read_text(), error.getvalue(), page):
        assert not CONTROL.search(text)
    assert "[/x][red]<script>" in (out / ATTEMPTS).read_text()
    assert "re[/x]lu\\x1b[31m<script>" in shown
    assert "<script>\\u202e" not in page


def test_a_name_that_cannot_be_recorded_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path that is not UTF-8 ended the campaign with a traceback when its options were written down."""
    monkeypatch.setattr(sys, "argv", ["opsmith", "generate", "-o", "mine\udcff"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert 2 == ended.value.code
    assert "'mine\\udcff' is not UTF-8" in capsys.readouterr().err


# A full disk


def test_a_full_disk_says_how_to_go_on() -> None:
    """Repeating the command, as other verbs are, would be refused."""
    with (
        pytest.raises(
            BadInput, match=r"No space left on device for kernel\.py; make room, then continue with --resume"
        ),
        _room_for(Path("out")),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", "kernel.py")
    with pytest.raises(PermissionError), _room_for(Path("out")):
        raise PermissionError(errno.EACCES, "no", "kernel.py")


def test_kernels_are_there_whole_or_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full while they are written leaves those of the campaign before."""
    tasks = ["relu.default", "exp.default"]
    session = ReadingSession(tasks)

    def say(request: object) -> str:
        text = str(request)
        return reply("relu.default" if "kernel for `relu" in text else "exp.default", "right")

    histories = run_campaign(tmp_path, campaign_options(attempts=1), [Scripted("openai:m", say)], session)
    chosen = {history.task: history.attempts[0] for history in histories}
    folder = tmp_path / "kernels"
    write_directory(folder, tmp_path, session.tasks, {tasks[0]: chosen[tasks[0]]})
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "manifest.json")

    with monkeypatch.context() as patched:
        patched.setattr("opsmith.generate.results.write_atomically", full)
        with pytest.raises(OSError, match="No space"):
            write_directory(folder, tmp_path, session.tasks, chosen)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_directory(folder, tmp_path, session.tasks, chosen)
    assert {"relu__default", "exp__default"} == {path.name for path in folder.iterdir() if path.is_dir()}
