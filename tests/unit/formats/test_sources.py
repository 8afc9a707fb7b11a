from __future__ import annotations

from typing import Any

import pytest

from opsmith.errors import BadInput
from opsmith.formats.sources import joined, with_relative_imports


def test_joined_files_need_not_import_each_other() -> None:
    """Names that one takes from another are there, under the names that it takes them by."""
    text = joined(
        {
            "utils.py": "from __future__ import annotations\n\n\ndef twice(x):\n    return 2 * x\n",
            "reference.py": (
                "import math\nfrom utils import (\n    twice as double,\n)\n\n\ndef run(x):\n"
                "    from utils import twice\n    return double(twice(x)) + math.floor(0.5)\n"
            ),
        },
        {},
    )
    found: dict[str, Any] = {}
    exec(text, found)
    assert 12 == found["run"](3)


def test_literals_become_names_but_for_those_in_other_strings() -> None:
    """A device that a task writes down is the run's; what it prints stays."""
    text = joined({"a.py": "é = {'cuda': 1}\nprint(f'on {x} cuda', 'cuda', \"cuda:0\")\n"}, {"cuda": "DEVICE"})
    assert "é = {DEVICE: 1}\nprint(f'on {x} cuda', DEVICE, \"cuda:0\")" in text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("import utils\n", "b.py:1: write `from utils import ...`"), ("x = (\n", "b.py:1: does not parse")],
)
def test_what_cannot_be_joined_is_told_with_its_line(text: str, complaint: str) -> None:
    """Rather than a problem file that fails in a place that nobody wrote."""
    with pytest.raises(BadInput) as refused:
        joined({"utils.py": "", "b.py": text}, {})
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", "from b import c\n", "from .b import c\n"),
        ("a.py", "import b as d, os\n", "from . import b as d; import os\n"),
        ("a.py", "from b.c import (\n    d,\n)\nx = 1\n", "from .b.c import d\n\n\nx = 1\n"),
        ("sub/a.py", "from b import c\n", "from ..b import c\n"),
        ("a.py", "import torch\nfrom torch.nn import b\n", "import torch\nfrom torch.nn import b\n"),
        ("a.py", "from b import (\n", "from b import (\n"),
    ],
)
def test_imports_of_a_folders_own_files_become_relative(name: str, text: str, expected: str) -> None:
    """A kernel's folder is no place that absolute imports are looked for."""
    assert expected == with_relative_imports(name, text, ["a.py", "b.py", "sub/a.py", "kernel.cu"])
