"""What runs over ``tests/hostile`` and others need: a suite that is installed, and a look at all processes."""

from __future__ import annotations

from pathlib import Path

import pytest

DIRECTORY = Path(__file__).parent / "hostile"


def install_suite(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str = "hostile",
    of: str = "tests.hostile_suite:HostileSuite",
) -> None:
    """Install a suite as a package would, into ``folder``, for this process and those that it starts.

    Args:
        name: the suite's.
        of: its class, as entry points name it.
    """
    info = folder / f"{name}_suite-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-suite\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[opsmith.suites]\n{name} = {of}\n")
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
