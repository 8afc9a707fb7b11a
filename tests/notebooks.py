"""The notebook of the tutorial: run its cells, and write it with what they print.

``python -m tests.notebooks`` runs ``docs/tutorial/first-kernel.ipynb`` in this process and writes it anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tutorial" / "first-kernel.ipynb"


def code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells that hold Python."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cells(notebook: dict[str, Any], folder: Path) -> list[str]:
    """Run the cells of code in a folder; returns what each prints. What one raises is raised."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    with contextlib.chdir(folder):
        for number, cell in enumerate(code(notebook), start=1):
            text = io.StringIO()
            with contextlib.redirect_stdout(text):
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
            printed.append(text.getvalue())
    return printed


def main() -> None:
    """See the module's docstring."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        printed = run_cells(notebook, Path(folder))
    for number, (cell, text) in enumerate(zip(code(notebook), printed, strict=True), start=1):
        cell["execution_count"] = number
        stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
        cell["outputs"] = [stream] if text else []
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    main()
