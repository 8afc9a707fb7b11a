"""Dataset files: one row for each distinct input of an op, in the public format.

The 13 fields, their names, types and meanings are those of the public dataset
``GPUMODE/backendbench_tests``, so that its tools read our files and we read its files. A file is
parquet or json, as its name ends. docs/reference/dataset.md explains every field.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from opsmith.core.run import write_atomically
from opsmith.core.trace import TracedCall
from opsmith.errors import BadInput
from opsmith.traces.grammar import parse_call, parse_op

DATASET_ENDINGS = (".parquet", ".json")

#: Counts are 64-bit integers in a file.
MOST_CALLS = (1 << 63) - 1

#: The set that comes with opsmith.
SHIPPED_PATH = Path(__file__).with_name("workloads.parquet")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct input of an op; a row of the subset ``torchbench``.

    Attributes:
        uuid: hash over ``args`` and ``op_name``, see :func:`identity`.
        op_name: the overload with its namespace, ``aten.add.Tensor``.
        args: the arguments, as text of the trace format.
        runnable: eager torch can be called like this, as far as is known.
        included_in_benchmark: the row is asked when the dataset is a suite.
        why_excluded: the reasons if it is not.
        is_synthetic: no model made this call.
        runtime_ms: time of one call of eager torch; None: not measured.
        relative_runtime_to_kernel_launch: the same as a multiple of an empty launch; None: not measured.
        is_overhead_dominated_op: that multiple is below 1.3; None: not measured.
        count: how often the traced models make the call.
        in_models: the names of those models, sorted.
        in_models_count: how many they are.
    """

    uuid: str
    op_name: str
    args: str
    runnable: bool
    included_in_benchmark: bool
    why_excluded: tuple[str, ...]
    is_synthetic: bool
    runtime_ms: float | None
    relative_runtime_to_kernel_launch: float | None
    is_overhead_dominated_op: bool | None
    count: int
    in_models: tuple[str, ...]
    in_models_count: int

    def call(self, *, source: str) -> TracedCall:
        """The call that the row describes.

        Raises:
            BadInput: op_name or args do not parse; names ``source``, line and column.
        """
        return parse_call(parse_op(self.op_name, source=f"{source} op_name"), self.args, source=f"{source} args")


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """One input of one model; a row of the subset ``ops_traces_models``, whose columns have these names.

    Attributes:
        op_name: the overload as the trace names it.
        model: the model that makes the call.
        args: the arguments, as text of the trace format.
    """

    op_name: str = msgspec.field(name="operator name")
    model: str = msgspec.field(name="used in model")
    args: str


def identity(op_name: str, args: str) -> str:
    """The uuid of an input: the SHA-256 of its arguments followed by its op, in hexadecimal digits.

    The public dataset makes its own in this way, so an input has one identity in both.
    """
    return hashlib.sha256(f"{args}{op_name}".encode()).hexdigest()


def write_dataset(path: Path, rows: Sequence[msgspec.Struct]) -> None:
    """Write a whole file or nothing; equal rows make equal bytes.

    Args:
        path: its ending tells the format.
        rows: all of one type.

    Raises:
        BadInput: there is no row, the name ends in neither .parquet nor .json, or the file cannot be written.
    """
    check_ending(path)
    if not rows:
        raise BadInput(f"{path} would hold no row; there is nothing to write")
    plain = [msgspec.to_builtins(row) for row in rows]
    data = _parquet_bytes(plain, type(rows[0])) if path.suffix == ".parquet" else _json_bytes(plain)
    try:
        write_atomically(path, data)
    except OSError as exc:
        raise BadInput(f"{path} cannot be written: {exc.strerror}") from exc


def check_ending(path: Path) -> None:
    """Refuse a name that tells no format.

    Raises:
        BadInput: it ends in neither .parquet nor .json.
    """
    if path.suffix not in DATASET_ENDINGS:
        raise BadInput(f"{path} names no dataset format; end it in .parquet or .json")


def read_dataset(path: Path) -> list[Row]:
    """Read the rows of a dataset.

    Raises:
        BadInput: the file cannot be read, or a row lacks a field or has one of the wrong type;
            names file, row and field. The first row has number 1.
    """
    return [
        decode_row(raw, source=row_name(str(path), number)) for number, raw in enumerate(read_raw_rows(path), start=1)
    ]


def row_name(source: str, number: int) -> str:
    """What messages call a row; they go on with the field and a colon."""
    return f"{source} row {number}"


def decode_row(raw: object, *, source: str) -> Row:
    """Check the types of one row.

    A runtime of NaN, which other tools write for one that was not measured, becomes None; so does
    a list of models that is null become empty.

    Raises:
        BadInput: a field is missing or has the wrong type; names ``source`` and the field.
    """
    if isinstance(raw, dict):
        for name in ("count", "in_models_count"):
            value = raw.get(name)
            if isinstance(value, int) and not 0 <= value <= MOST_CALLS:
                raise BadInput(f"{source} {name}: is {value}, no number of calls from 0 to {MOST_CALLS}")
        raw = {name: _plain(name, value) for name, value in raw.items()}
    try:
        return msgspec.convert(raw, Row)
    except msgspec.ValidationError as exc:
        problem, _, place = str(exc).partition(" - at `$.")
        field = f" {place.removesuffix('`')}" if place else ""
        raise BadInput(f"{source}{field}: {problem[:1].lower()}{problem[1:]}") from exc


def _plain(name: str, value: object) -> object:
    if isinstance(value, float) and math.isnan(value):
        return None
    return [] if name == "in_models" and value is None else value


def read_raw_rows(path: Path) -> list[object]:
    """The rows of a dataset as they are, their types unchecked.

    Raises:
        BadInput: the file cannot be read, or is not what its name says.
    """
    check_ending(path)
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
    return _parquet_rows(data, path) if path.suffix == ".parquet" else _json_rows(data, path)


# ---------------------------------------------------------------- json


def _json_bytes(rows: Iterable[object]) -> bytes:
    """A list with one row a line: for people, and for diffs."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, rows)) + b"\n]\n"


def _json_rows(data: bytes, path: Path) -> list[object]:
    try:
        # Not msgspec: other tools write NaN, which is not JSON.
        rows = json.loads(data)
        # JSON can spell half a character, which no file can hold.
        json.dumps(rows, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as exc:
        raise BadInput(f"{path} is no json: {exc}") from exc
    if not isinstance(rows, list):
        raise BadInput(f"{path} holds no list of rows")
    return rows


# ---------------------------------------------------------------- parquet


#: Column -> its type as pyarrow names it. All but the two lists are plain columns.
_COLUMN_TYPES = {
    **dict.fromkeys(("uuid", "op_name", "args", "operator name", "used in model"), "string"),
    **dict.fromkeys(("runnable", "included_in_benchmark", "is_synthetic", "is_overhead_dominated_op"), "bool"),
    **dict.fromkeys(("runtime_ms", "relative_runtime_to_kernel_launch"), "double"),
    **dict.fromkeys(("count", "in_models_count"), "int64"),
}


def _parquet_bytes(rows: list[object], record: type[msgspec.Struct]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    columns = [field.encode_name for field in msgspec.structs.fields(record)]
    texts = pa.list_(pa.string())
    types = {name: pa.type_for_alias(_COLUMN_TYPES[name]) if name in _COLUMN_TYPES else texts for name in columns}
    stream = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, pa.schema(types)), stream, compression="zstd", compression_level=9)
    return stream.getvalue()


def _parquet_rows(data: bytes, path: Path) -> list[object]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(io.BytesIO(data))
        rows: list[object] = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise BadInput(f"{path} is no parquet file: {str(exc).partition(chr(10))[0]}") from exc
    if "used in model" in table.column_names:
        raise BadInput(f"{path} holds the subset ops_traces_models; give the torchbench one")
    return rows
