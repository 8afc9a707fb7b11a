from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from opsmith.errors import BadInput
from opsmith.formats.schema import Document, YamlDocument


class Leaf(msgspec.Struct):
    size: int


class Record(msgspec.Struct):
    name: str
    leaves: dict[str, list[Leaf]]


TEXT = """{
  "name": "a \\"quoted\\" {name}",
  "leaves": {
    "one": [{"size": 1}],
    "two": [
      {"size": 2},
      {"size": 3}
    ]
  }
}
"""


def test_a_document_is_decoded() -> None:
    """The plain case."""
    assert 3 == Document(Path("f.json"), TEXT).decode(Record).leaves["two"][1].size


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('{"size": 3}', '{"size": "3"}', "f.json:7: leaves.two[1].size: Expected `int`, got `str`"),
        ('{"size": 1}', '{"length": 1}', "f.json:4: leaves.one[0]: the field 'size' is missing"),
        ('"name": ', '"title": ', "f.json:1: the field 'name' is missing"),
        ("[{", "[{{", "f.json:4: no JSON: "),
        ("    ]\n  }\n}\n", "", "f.json:7: no JSON: Input data was truncated"),
    ],
)
def test_what_does_not_fit_is_told_with_its_line(old: str, new: str, complaint: str) -> None:
    """Msgspec names neither the line nor the key of a dict."""
    with pytest.raises(BadInput) as refused:
        Document(Path("f.json"), TEXT.replace(old, new)).decode(Record)
    assert str(refused.value).startswith(complaint)


def test_lines_of_json_lines_are_counted_in_the_file() -> None:
    """A workload is one of hundreds of lines."""
    with pytest.raises(BadInput, match=r"^f.jsonl:7: leaves: Expected `object`, got `int`"):
        Document(Path("f.jsonl"), '{"name": "x", "leaves": 1}', first_line=7).decode(Record)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: x\nleaves:\n  one:\n    - size: 1\n    - {size: big}\n", ":5: leaves.one[1].size: Expected `int`"),
        ("name: x\nleaves:\n  one: [}\n", ":3: no YAML: "),
        ("", ":1: Expected `object`, got `null`"),
    ],
)
def test_yaml_is_told_in_the_same_way(tmp_path: Path, text: str, complaint: str) -> None:
    """Of YAML the parser knows the line of every node."""
    pytest.importorskip("yaml")
    file = tmp_path / "task.yml"
    file.write_text(text)
    with pytest.raises(BadInput) as refused:
        YamlDocument(file).decode(Record)
    assert str(refused.value).startswith(f"{file}{complaint}")
