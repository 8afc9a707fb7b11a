"""The notebook of the tutorial runs from its first cell to its last, without a GPU or a network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.notebooks import NOTEBOOK, code

#: In a process of its own: it enables kernels, and compiles.
RUN = """
import json, sys
from pathlib import Path
from tests.notebooks import NOTEBOOK, run_cells
print(json.dumps(run_cells(json.loads(NOTEBOOK.read_text()), Path(sys.argv[1]))))
"""


@pytest.mark.slow
def test_its_cells_say_what_it_shows(tmp_path: Path) -> None:
    """A wrong kernel, its verdict, the right one in a model, and the model compiled."""
    ran = subprocess.run([sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=False)
    assert 0 == ran.returncode, ran.stderr
    printed = json.loads(ran.stdout.splitlines()[-1])
    shown = ["".join(line for output in cell["outputs"] for line in output["text"]) for cell in code(read())]
    assert [bool(text) for text in shown] == [bool(text) for text in printed]
    said = "\n".join(printed)
    for sentence in ("NOT ACCEPTED  relu.default", "expected nan, got 0.0", "accepted: True", "1 of them called"):
        assert sentence in said
        assert sentence in "\n".join(shown)
    assert ["same result: True", "compiled: as eager"] == [text.splitlines()[-1] for text in printed[-2:]]


def test_it_can_be_read() -> None:
    """Every cell has what version 4.5 of the format asks for."""
    notebook = read()
    assert (4, 5) == (notebook["nbformat"], notebook["nbformat_minor"])
    for cell in notebook["cells"]:
        wanted = {"cell_type", "id", "metadata", "source"}
        assert cell.keys() == wanted | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set())


def read() -> dict[str, Any]:
    """The notebook."""
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return found
