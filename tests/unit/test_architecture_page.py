"""Every folder of the package stands in the tree of docs/explanation/architecture.md, and nothing else does."""

from __future__ import annotations

import re
from pathlib import Path

import opsmith

ROOT = Path(__file__).parents[2]
PACKAGE = Path(opsmith.__file__).parent
#: Kernels and problems are shown by pages of their own; revisions of tables are files of one kind.
LEAVES = {"kernels", "problems", "serve/store/migrations"}

LINE = re.compile(r"( +)([a-z_0-9]+)(/|\.py) +\S.*")


def drawn() -> tuple[set[str], set[str]]:
    """Folders and files of the tree, by their paths below the package."""
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    tree = text.partition("    src/opsmith/\n")[2].partition("\n\n")[0]
    folders: set[str] = set()
    files: set[str] = set()
    above: list[str] = []
    for line in tree.splitlines():
        found = LINE.fullmatch(line)
        assert found, line
        indent, name, kind = found.groups()
        above[len(indent) // 2 - 3 :] = [name]
        path = "/".join(above)
        if kind == "/":
            folders.add(path)
        else:
            files.add(path + kind)
    return folders, files


def test_the_tree_has_every_folder_and_no_other() -> None:
    """A new folder needs a line there, and a line a folder."""
    there = set()
    for file in PACKAGE.rglob("*.py"):
        folder = file.parent.relative_to(PACKAGE)
        for path in (folder, *folder.parents):
            if not any(str(path).startswith(f"{leaf}/") for leaf in LEAVES):
                there.add(str(path))
    assert drawn()[0] == there - {"."}


def test_the_files_of_the_tree_are_there() -> None:
    """Those that stand beside folders."""
    files = drawn()[1]
    assert "pipeline.py" in files
    assert not [name for name in files if not (PACKAGE / name).is_file()]
