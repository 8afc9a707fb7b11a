"""What is written to where a path leads: files whole, and what is no file as it is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from opsmith.core.run import write_atomically
from opsmith.traces.scripts import Recorder


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """As root, `-o /dev/null` made a file of the device for all programs of the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"text")
    reader.join(30)
    assert [b"text"] == read
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_stays_one(tmp_path: Path) -> None:
    """What it leads to is written, be it there yet or not."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    for data in (b"one", b"two"):
        write_atomically(link, data)
        assert link.is_symlink()
        assert data == (tmp_path / "file").read_bytes()
    assert {"link", "file"} == {path.name for path in tmp_path.iterdir()}


def test_only_the_processes_of_this_script_add_to_its_trace(tmp_path: Path) -> None:
    """Files of a traced script that was killed are left as they are; brackets in a name are no pattern."""
    out = tmp_path / "a[1].txt"
    line = "Operator: aten.relu.default\ncnt: 3, ((T([2], f32),), {})\n"
    recorder = Recorder(out, "a")
    (tmp_path / recorder._part(".77")).write_text(line)
    before = tmp_path / f"{out.name}.{os.getpid() + 1}.part.78"
    before.write_text(line)
    recorder._finish()
    assert 3 == recorder.capture.calls
    assert {out.name, before.name} == {path.name for path in tmp_path.iterdir()}
