from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.dataset_rows import row

from opsmith.errors import BadInput
from opsmith.traces.schema import Origin, Row, identity, read_dataset, write_dataset

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "dataset.md"

#: The columns of the public dataset, as its card lists them.
COLUMNS = [
    "uuid",
    "op_name",
    "args",
    "runnable",
    "included_in_benchmark",
    "why_excluded",
    "is_synthetic",
    "runtime_ms",
    "relative_runtime_to_kernel_launch",
    "is_overhead_dominated_op",
    "count",
    "in_models",
    "in_models_count",
]


ROWS = [
    row(),
    row(
        op_name="aten.add.Tensor",
        runtime_ms=0.25,
        relative_runtime_to_kernel_launch=1.25,
        is_overhead_dominated_op=True,
    ),
    row(args="((T([3], f16),), {'x': 'é\\n'})", included_in_benchmark=False, why_excluded=("one", "two"), in_models=()),
]


def test_a_row_has_the_fields_of_the_public_dataset() -> None:
    """In its order, so that a table looks the same."""
    assert COLUMNS == [field.encode_name for field in msgspec.structs.fields(Row)]


def test_every_field_is_in_the_reference() -> None:
    """The page has a row for each column of both subsets."""
    text = REFERENCE.read_text(encoding="utf-8")
    terms = re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)
    assert [*COLUMNS, "operator name", "used in model", "args"] == terms


@pytest.mark.parametrize("ending", [".parquet", ".json"])
def test_rows_survive_a_file(tmp_path: Path, ending: str) -> None:
    """Lists, text beyond ASCII and what is not measured included."""
    path = tmp_path / f"rows{ending}"
    write_dataset(path, ROWS)
    assert ROWS == read_dataset(path)


@pytest.mark.parametrize("ending", [".parquet", ".json"])
def test_equal_rows_make_equal_bytes(tmp_path: Path, ending: str) -> None:
    """A dataset can be compared by its hash."""
    for name in ("a", "b"):
        write_dataset(tmp_path / f"{name}{ending}", ROWS)
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


def test_a_parquet_file_has_the_types_that_public_tools_expect(tmp_path: Path) -> None:
    """Also where a column holds nothing but None, whose type nothing tells."""
    path = tmp_path / "rows.parquet"
    write_dataset(path, [row()])
    types = {field.name: str(field.type).partition("<")[0] for field in parquet.read_schema(path)}
    text, flag, number, real, texts = "string", "bool", "int64", "double", "list"
    expected = [text, text, text, flag, flag, texts, flag, real, real, flag, number, texts, number]
    assert dict(zip(COLUMNS, expected, strict=True)) == types


def test_a_file_that_public_tools_wrote_is_read(tmp_path: Path) -> None:
    """They infer the types, order columns as they like, write NaN for no runtime, and have columns of their own."""
    public = [
        {
            **dict(reversed(msgspec.to_builtins(each).items())),
            "runtime_ms": math.nan if each.runtime_ms is None else each.runtime_ms,
            "relative_runtime_to_kernel_launch": each.relative_runtime_to_kernel_launch or math.nan,
            "is_overhead_dominated_op": bool(each.is_overhead_dominated_op),
            "in_models": each.in_models or None,
            "arg_size": 0.5,
        }
        for each in ROWS
    ]
    expected = [msgspec.structs.replace(e, is_overhead_dominated_op=bool(e.is_overhead_dominated_op)) for e in ROWS]
    parquet.write_table(pa.Table.from_pylist(public), tmp_path / "public.parquet")
    (tmp_path / "public.json").write_text(json.dumps(public, indent=2))
    assert expected == read_dataset(tmp_path / "public.parquet")
    assert expected == read_dataset(tmp_path / "public.json")


def test_a_public_tool_finds_what_is_included(tmp_path: Path) -> None:
    """It takes the rows as dicts and looks at these fields."""
    path = tmp_path / "rows.parquet"
    write_dataset(path, ROWS)
    found = [(r["op_name"], r["args"]) for r in parquet.read_table(path).to_pylist() if r["included_in_benchmark"]]
    assert [("aten.relu.default", ROWS[0].args), ("aten.add.Tensor", ROWS[1].args)] == found


def test_the_uuid_is_the_public_one() -> None:
    """Two datasets can be joined by it; this one is of the public file's first row."""
    args = "((T([128, 256, 6, 6], f16), [6, 6]), {})"
    expected = hashlib.sha256(args.encode() + b"aten._adaptive_avg_pool2d.default").hexdigest()
    assert expected == identity("aten._adaptive_avg_pool2d.default", args)


def test_origins_have_the_public_column_names(tmp_path: Path) -> None:
    """With their spaces."""
    path = tmp_path / "origins.parquet"
    write_dataset(path, [Origin(op_name="aten.relu.default", model="timm:a", args="((), {})")])
    expected = {"operator name": "aten.relu.default", "used in model": "timm:a", "args": "((), {})"}
    assert [expected] == parquet.read_table(path).to_pylist()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": "3"}, "rows.json row 2 count: expected `int`, got `str`"),
        ({"runnable": None}, "rows.json row 2 runnable: expected `bool`, got `null`"),
        ({"why_excluded": "no"}, "rows.json row 2 why_excluded: expected `array`, got `str`"),
        ({"in_models": ["a", 1]}, "rows.json row 2 in_models[1]: expected `str`, got `int`"),
    ],
)
def test_a_field_of_the_wrong_type_is_told_with_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], says: str
) -> None:
    """File, row and field."""
    monkeypatch.chdir(tmp_path)
    good = msgspec.to_builtins(row())
    Path("rows.json").write_text(json.dumps([good, {**good, **change}]))
    with pytest.raises(BadInput) as error:
        read_dataset(Path("rows.json"))
    assert says == str(error.value)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("rows.json", b'[{"uuid": "1"}]', "rows.json row 1: object missing required field `op_name`"),
        ("rows.json", b"[1]", "rows.json row 1: expected `object`, got `int`"),
        ("rows.json", b"{}", "rows.json holds no list of rows"),
        ("rows.json", b"[", "rows.json is no json: Expecting value"),
        ("rows.json", b"\xff", "rows.json is no json: 'utf-8' codec"),
        ("rows.json", b'["\\ud800"]', "rows.json is no json: 'utf-8' codec"),
        ("rows.json", b"[" * 100_000, "rows.json is no json: maximum recursion depth"),
        ("rows.parquet", b"", "rows.parquet is no parquet file: "),
        ("rows.parquet", b"PAR1 and more that is no parquet PAR1", "rows.parquet is no parquet file: "),
        ("rows.csv", b"", "rows.csv names no dataset format; end it in .parquet or .json"),
        ("rows.json", None, "rows.json cannot be read: No such file or directory"),
        ("rows.parquet", None, "rows.parquet cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_is_no_dataset_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes | None, says: str
) -> None:
    """Whatever it holds."""
    monkeypatch.chdir(tmp_path)
    if data is not None:
        Path(name).write_bytes(data)
    with pytest.raises(BadInput) as error:
        read_dataset(Path(name))
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)


def test_the_other_subset_is_not_read_as_rows(tmp_path: Path) -> None:
    """Its rows are no inputs."""
    path = tmp_path / "origins.parquet"
    write_dataset(path, [Origin(op_name="aten.relu.default", model="timm:a", args="((), {})")])
    with pytest.raises(BadInput, match="holds the subset ops_traces_models"):
        read_dataset(path)


@pytest.mark.parametrize("ending", [".parquet", ".json"])
def test_a_dataset_without_rows_is_not_written(tmp_path: Path, ending: str) -> None:
    """To convert an empty one ended with a traceback."""
    with pytest.raises(BadInput, match="nothing to write"):
        write_dataset(tmp_path / f"a{ending}", [])


def test_a_dataset_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """And leaves nothing behind."""
    with pytest.raises(BadInput, match="no/rows.json cannot be written: No such file or directory"):
        write_dataset(tmp_path / "no" / "rows.json", ROWS)
    assert [] == list(tmp_path.iterdir())


def test_the_arguments_of_a_row_are_located() -> None:
    """As those of a trace are."""
    with pytest.raises(BadInput, match="^rows.json row 7 args:1:3: expected a value, found '__import__'$"):
        row(args="((__import__('os'),), {})").call(source="rows.json row 7")
    with pytest.raises(BadInput, match="^rows.json row 7 op_name:1:1: expected an op such as aten.add.Tensor"):
        row(op_name="os.system('x')").call(source="rows.json row 7")
