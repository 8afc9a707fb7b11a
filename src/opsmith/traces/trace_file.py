"""Trace files: where they lie, whose calls they hold, and reading them.

A file says itself which model it traces (``# model: timm:resnet50``). For one that does not, such
as those of the public collections, its path does: ``timm_train/resnet50_training.txt``.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from opsmith.core.trace import TraceEntry
from opsmith.errors import BadInput
from opsmith.traces.grammar import parse_headers, parse_trace

_FILE_NAME = re.compile(r"(.+?)(?:[._](?:train|training|infer|inference))?\.txt")
_COLLECTION = re.compile(r"(\w+)_(?:train|infer)")


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What one file holds: the calls of one model, in the order of the file.

    Attributes:
        model: the model's name, with the collection that it comes from: ``timm:resnet50``.
    """

    model: str
    entries: tuple[TraceEntry, ...]


def find_traces(paths: Iterable[Path]) -> list[Path]:
    """The trace files among ``paths`` and in the folders among them, each once, in a fixed order.

    Raises:
        BadInput: a path does not exist, or a folder holds no trace.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            files = sorted(path.rglob("*.txt"))
            if not files:
                raise BadInput(f"{path} holds no trace file (*.txt)")
            found.extend(files)
        elif path.exists():
            found.append(path)
        else:
            raise BadInput(f"there is no trace file or folder {path}")
    return list(dict.fromkeys(found))


def read_trace(path: Path) -> Trace:
    """Read a trace file.

    Raises:
        BadInput: it cannot be read, or is no trace; names line and column, and what was expected.
    """
    text = _read_text(path)
    entries = tuple(parse_trace(text, source=str(path)))
    return Trace(model=parse_headers(text).get("model") or model_of(path), entries=entries)


def model_of(path: Path) -> str:
    """The model that the path of a trace names.

    ``timm--resnet50.train.txt`` and ``timm_train/resnet50_training.txt`` are ``timm:resnet50``.
    """
    name = _FILE_NAME.fullmatch(path.name)
    model = (name[1] if name else path.name).replace("--", ":", 1)
    collection = _COLLECTION.fullmatch(path.parent.name)
    return f"{collection[1]}:{model}" if collection and ":" not in model else model


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise BadInput(f"{path} is in UTF-16; save it as UTF-8")
        return data.decode("utf-8-sig")
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        line, before = data.count(b"\n", 0, exc.start) + 1, exc.start - data.rfind(b"\n", 0, exc.start)
        raise BadInput(f"{path}:{line}:{before}: expected text in UTF-8, found {data[exc.start]:#04x}") from exc
