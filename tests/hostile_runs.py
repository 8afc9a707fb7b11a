"""What runs over ``tests/hostile`` need: a suite that is installed, and a look at the processes of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

DIRECTORY = Path(__file__).parent / "hostile"


def install_suite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the suite as a package would, into ``folder``, for this process and those that it starts."""
    info = folder / "hostile_suite-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile-suite\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[opsmith.suites]\nhostile = tests.hostile_suite:HostileSuite\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{Path(__file__).parents[1]}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


def processes_with_command(text: bytes) -> list[str]:
    """The numbers of the processes whose command line, its words separated by NUL, contains ``text``."""
    return _processes("cmdline", text)


def processes_with_environment(text: bytes) -> list[str]:
    """The numbers of the processes that were started with ``text`` in their environment."""
    return _processes("environ", text)


def _processes(file: str, text: bytes) -> list[str]:
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        try:
            if text in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue  # It has ended, or is nobody's business.
    return found
