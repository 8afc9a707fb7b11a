"""The files of a book: the book itself, and the log from which a build that was killed goes on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from opsmith.core.run import write_atomically
from opsmith.errors import BadInput
from opsmith.generate.book.pairs import NotPaired, Pair

ENDINGS = (".parquet", ".jsonl", ".json")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a problem.

    Attributes:
        key: of the problem, of what the compiler answered, and of where that was judged.
        pair: or None.
        not_paired: or None.
    """

    key: str
    pair: Pair | None = None
    not_paired: NotPaired | None = None


Known: TypeAlias = dict[str, Entry]


def check_ending(out: Path) -> None:
    """Say before the work that a book cannot be written.

    Raises:
        BadInput: the file's ending is none of a book's.
    """
    if out.suffix not in ENDINGS:
        raise BadInput(f"{out}: a book ends in {', '.join(ENDINGS)}")


def write_book(out: Path, pairs: Iterable[Pair]) -> None:
    """Write the pairs, in the format that the file's ending names."""
    rows = [msgspec.to_builtins(pair) for pair in pairs]
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: [row[name] for row in rows] for name in Pair.__struct_fields__}
        pq.write_table(pa.table(columns), out)
    elif out.suffix == ".jsonl":
        write_atomically(out, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    else:
        write_atomically(out, msgspec.json.format(msgspec.json.encode(rows), indent=1))


def read_book(path: Path) -> list[Pair]:
    """The pairs of a book.

    Raises:
        BadInput: the file is none.
    """
    check_ending(path)
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            return msgspec.convert(pq.read_table(path).to_pylist(), list[Pair])
        data = path.read_bytes()
        if path.suffix == ".jsonl":
            return [msgspec.json.decode(line, type=Pair) for line in data.splitlines()]
        return msgspec.json.decode(data, type=list[Pair])
    except (OSError, ValueError, msgspec.MsgspecError) as exc:
        raise BadInput(f"{path} is no book: {exc}") from exc


class Log:
    """What is known so far, a line a problem; a line that a kill cut short is passed over.

    Args:
        path: of the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: Known = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                entry = msgspec.json.decode(line, type=Entry)
            except msgspec.MsgspecError:
                continue
            self.known[entry.key] = entry

    def add(self, entry: Entry) -> None:
        """Write down what became of a problem."""
        self.known[entry.key] = entry
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")
