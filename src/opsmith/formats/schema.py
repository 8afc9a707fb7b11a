"""JSON and YAML of other tools: decoded into records, with file and line of what does not fit."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from opsmith.errors import BadInput, MissingDependency

T = TypeVar("T")

#: Keys of dicts and numbers of lists, from the outside in.
Keys = tuple[str | int, ...]

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]')
_PATH = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")


def read_text(file: Path) -> str:
    """The text of a file.

    Raises:
        BadInput: it cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as exc:
        raise BadInput(f"{file} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise BadInput(f"{file} is no UTF-8 text: {exc.reason} at byte {exc.start}") from exc


class Document:
    """A JSON document, or a line of JSON Lines, as a record.

    Args:
        file: where it stands.
        text: the document.
        first_line: the number of its first line in the file.
    """

    def __init__(self, file: Path, text: str, *, first_line: int = 1) -> None:
        self.file, self._text, self._first_line = file, text, first_line

    def decode(self, record: type[T]) -> T:
        """Decode the document.

        Raises:
            BadInput: it is no JSON, or something in it is not what the record says.
        """
        try:
            return msgspec.json.decode(self._text, type=record)
        except msgspec.ValidationError as exc:
            message, keys = _said(exc, msgspec.json.decode(self._text), record)
            self.refuse(message, keys)
        except msgspec.DecodeError as exc:
            place = re.search(r"\(byte (\d+)\)", str(exc))
            before = self._text.encode()[: int(place[1])] if place else self._text.encode().rstrip()
            line = self._first_line + before.count(b"\n")
            raise BadInput(f"{self.file}:{line}: no JSON: {re.sub(r' [(]byte .*', '', str(exc))}") from exc

    def refuse(self, message: str, keys: Keys = ()) -> NoReturn:
        """Refuse the document for what stands at ``keys``.

        Raises:
            BadInput: always.
        """
        raise BadInput(f"{self.file}:{self._first_line + _line(self._text, keys)}: {_dotted(keys)}{message}")


class YamlDocument:
    """A YAML document as a record.

    Raises:
        BadInput: it is no YAML.
        MissingDependency: PyYAML is not installed.
    """

    def __init__(self, file: Path) -> None:
        try:
            import yaml
        except ImportError as exc:
            raise MissingDependency("yaml", extra="formats") from exc

        self.file = file
        text = read_text(file)
        try:
            self._node = yaml.compose(text, Loader=yaml.SafeLoader)
            self._value = yaml.safe_load(text)
        except yaml.MarkedYAMLError as exc:
            line = 0 if exc.problem_mark is None else exc.problem_mark.line
            raise BadInput(f"{file}:{line + 1}: no YAML: {exc.problem}") from exc

    def decode(self, record: type[T]) -> T:
        """Decode the document.

        Raises:
            BadInput: something in it is not what the record says.
        """
        try:
            return msgspec.convert(self._value, record)
        except msgspec.ValidationError as exc:
            message, keys = _said(exc, self._value, record)
            self.refuse(message, keys)

    def refuse(self, message: str, keys: Keys = ()) -> NoReturn:
        """Refuse the document for what stands at ``keys``.

        Raises:
            BadInput: always.
        """
        node, line = self._node, 0
        for key in keys:
            with contextlib.suppress(AttributeError, IndexError, TypeError):
                pairs = node.value if isinstance(key, str) else enumerate(node.value)
                for name, value in pairs:
                    if key in (name, getattr(name, "value", None)):
                        line = getattr(name, "start_mark", value.start_mark).line
                        node = value
        raise BadInput(f"{self.file}:{line + 1}: {_dotted(keys)}{message}")


def _said(exc: msgspec.ValidationError, value: Any, record: Any) -> tuple[str, Keys]:
    """What is wrong, and where: msgspec does not name the keys of dicts."""
    message, _, path = str(exc).partition(" - at `$")
    keys: list[str | int] = []
    for name, number, _any in _PATH.findall(path):
        if name or number:
            keys.append(name or int(number))
        elif (key := _culprit(value, keys, record, str(exc))) is not None:
            keys.append(key)
    missing = re.search(r"required field `(\w+)`", message)
    return (f"the field {missing[1]!r} is missing" if missing else message), tuple(keys)


def _culprit(value: Any, keys: list[str | int], record: Any, message: str) -> str | None:
    """The key of the dict at ``keys`` without whose neighbours the same is wrong."""
    for key in _at(value, keys):
        try:
            msgspec.convert(_only(value, keys, key), record)
        except msgspec.ValidationError as exc:
            if str(exc) == message:
                return str(key)
    return None


def _at(value: Any, keys: list[str | int]) -> Any:
    for key in keys:
        value = value[key]
    return value


def _only(value: Any, keys: list[str | int], only: str) -> Any:
    if not keys:
        return {only: value[only]}
    changed: Any = dict(value) if isinstance(value, dict) else list(value)
    changed[keys[0]] = _only(value[keys[0]], keys[1:], only)
    return changed


def _dotted(keys: Keys) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".") + ": " * bool(keys)


def _line(text: str, keys: Keys) -> int:
    """The line, from 0, on which the value at ``keys`` begins, or that of the last of them that is there."""
    wanted, best = list(keys), (0, 0)
    for path, position in _places(text):
        if path == wanted[: len(path)] and len(path) > best[0]:
            best = len(path), position
    return text.count("\n", 0, best[1])


def _places(text: str) -> Iterator[tuple[list[str | int], int]]:
    """(keys, position) of every member of a well-formed document."""
    path: list[str | int | None] = []
    string = ""
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "{":
                path.append(None)
            case "[":
                path.append(0)
                yield [key for key in path if key is not None], token.end()
            case "}" | "]":
                path.pop()
            case ":":
                path[-1] = string
                yield [key for key in path if key is not None], token.start()
            case ",":
                if isinstance(path[-1], int):
                    path[-1] += 1
                    yield [key for key in path if key is not None], token.end()
            case found:
                string = msgspec.json.decode(found, type=str)
