"""Reading all files of a kernel."""

from __future__ import annotations

import ast
import functools
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

import msgspec

from opsmith.core.op import folder_name
from opsmith.evaluation.integrity.static.array_libraries import library_use
from opsmith.evaluation.integrity.static.aten_names import task_op
from opsmith.evaluation.integrity.static.conduct import conduct
from opsmith.evaluation.integrity.static.cpp import SUFFIXES, cpp_use, exported, is_cpp
from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.habits import fallbacks, habits
from opsmith.evaluation.integrity.static.idle_kernels import idle_kernels
from opsmith.evaluation.integrity.static.judge_names import judge_names
from opsmith.evaluation.integrity.static.launches import Mentions, unreached
from opsmith.evaluation.integrity.static.numpy_use import numpy_use
from opsmith.evaluation.integrity.static.overlaps import overlaps
from opsmith.evaluation.integrity.static.provenance import foreign_result
from opsmith.evaluation.integrity.static.source import Function, Source, is_entry_name, once_per_source
from opsmith.evaluation.integrity.static.torch_use import torch_use
from opsmith.evaluation.integrity.static.triton_kernels import asks_for_device, own_triton_kernels

#: A longer file is data in disguise; reading it would hold up the judge.
LONGEST_SOURCE_BYTES = 1 << 20
#: The languages of what opsmith itself makes; there is no stranger's source to examine.
_TRUSTED = frozenset({"aten", "inductor"})


def examine(
    files: Mapping[str, bytes], *, policy: str, task: str, dsl: str = "unknown", entry: str | None = None
) -> tuple[StaticFinding, ...]:
    """What a kernel's source shows; nothing of it is run.

    Most findings are evidence: they point a reader, or a check at run time, to a line. Those that are
    ``decisive`` hold whatever the kernel is called with.

    Args:
        files: relative path -> content of each of the kernel's files.
        policy: ``native`` or ``any``.
        task: the overload, such as ``relu.default``, or the name of a module problem.
        dsl: the kernel's language as its record has it.
        entry: the name of its entry function, where that does not follow the convention of a kernel
            directory (``<...>_kernel_impl``) or of a module problem (``ModelNew``).

    Returns:
        The findings in order of file and line, none twice.
    """
    if dsl in _TRUSTED:
        return ()
    own = task_op(task)
    reading = _reading(files)
    with reading.lock:
        sources = reading.sources
        found = [*reading.unreadable, *_examine_cpp(reading, policy=policy, own=own)]
        try:
            found += _examine_python(reading, policy=policy, task=task, entry=entry)
            found += reading.overlaps
        except RecursionError:
            found.append(_unreadable(sources[0].path, "nested too deeply to be read"))
    return tuple(sorted({msgspec.structs.replace(finding, text=_one_line(finding.text)) for finding in found}))


class TritonUse(msgspec.Struct, frozen=True):
    """What a kernel's files say about Triton.

    Attributes:
        declared: the Triton kernels that they declare, as ``path:line: name``.
        by_device: whether they ask where a tensor lies, or what the machine has.
    """

    declared: tuple[str, ...] = ()
    by_device: bool = False


def triton_use(files: Mapping[str, bytes], *, task: str, entry: str | None = None) -> TritonUse:
    """The Triton kernels that a kernel declares; for the arguments see :func:`examine`."""
    reading = _reading(files)
    with reading.lock:
        sources = reading.sources
        entries = _entries(sources, task, entry)
        others = {node.name for source in sources for node, _ in source.functions() if is_entry_name(node.name)}
        others -= {node.name for _, node in entries}
        try:
            declared = own_triton_kernels(sources, reading.mentions, entries, others)
            return TritonUse(tuple(sorted(map(_one_line, declared))), any(map(asks_for_device, sources)))
        except RecursionError:
            return TritonUse()


def _reading(files: Mapping[str, bytes]) -> _Reading:
    """The reading of some files: the last one's where they are the same, as those of a directory's ops may be."""
    with _LAST:
        return _read(tuple(sorted(files.items())))


#: Slots ask at once, and two of them would else read the same files.
_LAST = threading.Lock()


class _Reading:
    """The files of a kernel, parsed once for all of the ops that they answer.

    Attributes:
        lock: held by whoever searches the files: looking a name up writes down that it is being looked up.
        cpp: path -> text of the C++ files.
        unreadable: the findings about files that cannot be read; complete once ``sources`` was asked for.
    """

    def __init__(self, files: Iterable[tuple[str, bytes]]) -> None:
        self.lock = threading.Lock()
        self.cpp: dict[str, str] = {}
        self.unreadable: list[StaticFinding] = []
        self._python: list[tuple[str, bytes]] = []
        for path, content in files:
            suffix = PurePath(path).suffix
            if len(content) > LONGEST_SOURCE_BYTES and (suffix in SUFFIXES or suffix == ".py"):
                self.unreadable.append(_unreadable(path, "too long to be read"))
            elif suffix in SUFFIXES:
                self.cpp[path] = content.decode(errors="replace")
            elif suffix == ".py":
                self._python.append((path, content))

    @functools.cached_property
    def sources(self) -> list[Source]:
        """The Python files that parse; the others become findings."""
        parsed: list[Source] = []
        for path, content in self._python:
            try:
                parsed.append(Source(path, content))
            except (SyntaxError, RecursionError) as exc:
                self.unreadable.append(_unreadable(path, f"{type(exc).__name__}: {exc}"))
        return parsed

    @functools.cached_property
    def overlaps(self) -> tuple[StaticFinding, ...]:
        """The findings about kernels that do not wait, which are those of all files together."""
        return tuple(overlaps(self.sources, self.cpp))

    @functools.cached_property
    def mentions(self) -> Mentions:
        """Which names of the Python files mention which."""
        return Mentions(self.sources)


_read = functools.lru_cache(maxsize=1)(_Reading)


def _one_line(text: str) -> str:
    """Text of a stranger's as one line that can be encoded."""
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _examine_cpp(reading: _Reading, *, policy: str, own: str | None) -> Iterator[StaticFinding]:
    for path, text in reading.cpp.items():
        for item in cpp_use(text, policy=policy, own=own):
            yield StaticFinding(path=path, line=item.line, kind=item.kind, text=item.text)


def _unreadable(path: str, reason: str) -> StaticFinding:
    return StaticFinding(path=path, line=1, kind=Kind.UNREADABLE, text=reason[:200])


def _examine_python(reading: _Reading, *, policy: str, task: str, entry: str | None) -> Iterator[StaticFinding]:
    own = task_op(task)
    sources = reading.sources
    entries = _entries(sources, task, entry)
    called = {name for source in sources for name in _called(source)} - {function.name for _, function in entries}
    for source in sources:
        computing = list(torch_use(source, policy=policy, own=own))
        yield from computing
        yield from fallbacks(source, {finding.line for finding in computing})
        yield from numpy_use(source)
        yield from library_use(source)
        yield from conduct(source)
        yield from judge_names(source)
        yield from habits(source, called)
        yield from _cpp_strings(source, policy=policy, own=own)
    yield from idle_kernels(sources)
    yield from unreached(reading.mentions, [function for _, function in entries])
    if len(entries) == 1:
        finding = foreign_result(*entries[0], policy=policy, own=own)
        if finding is not None:
            yield finding


@once_per_source
def _called(source: Source) -> set[str]:
    """The names of the functions that a file calls."""
    return {
        name
        for node, _ in source.host_nodes()
        if isinstance(node, ast.Call) and (name := getattr(node.func, "id", getattr(node.func, "attr", None)))
    }


def _entries(sources: Iterable[Source], task: str, entry: str | None) -> list[tuple[Source, Function]]:
    """The functions that the judge may call: one, unless the convention leaves several."""
    found = [
        (source, node) for source in sources for node, scope in source.functions() if _is_entry(node, source, entry)
    ]
    packet = task.rpartition(".")[0]
    preferred = {f"{folder_name(task)}_kernel_impl", f"{packet}_kernel_impl"} if packet else set()
    exact = [(source, node) for source, node in found if node.name in preferred]
    return exact or found


def _is_entry(node: Function, source: Source, entry: str | None) -> bool:
    parent = source.scopes[node].parent
    assert parent is not None
    if isinstance(parent.node, ast.ClassDef):
        return parent.node.name == (entry or "ModelNew") and node.name == "forward"
    if not isinstance(parent.node, ast.Module):
        return False
    return node.name == entry if entry is not None else is_entry_name(node.name)


# ---------------------------------------------------------------- C++ in strings


def _cpp_strings(source: Source, *, policy: str, own: str | None) -> Iterator[StaticFinding]:
    """What the C++ in a file's strings shows, and where Python calls what computes there."""
    computing: dict[str, tuple[Kind, str]] = {}
    for text, first, last in _cpp_texts(source):
        found = list(cpp_use(text, policy=policy, own=own))
        by_function = {item.function: (item.kind, item.text) for item in found if item.kind in _CPP_COMPUTING}
        names = exported(text) if by_function else {}
        computing |= {name: by_function[target] for name, target in names.items() if target in by_function}
        for item in found:
            line = min(first + item.line - 1, last)
            yield StaticFinding(path=source.path, line=line, kind=item.kind, text=item.text)
    for node, _ in source.host_nodes() if computing else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in computing:
            kind, text = computing[node.func.attr]
            said = f"calls {node.func.attr}, whose source calls {text}"
            yield StaticFinding(path=source.path, line=node.lineno, kind=kind, text=said)


@once_per_source
def _cpp_texts(source: Source) -> Iterator[tuple[str, int, int]]:
    """The strings of a file that are C++, each with its first and its last line."""
    for node, _ in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_cpp(node.value):
            yield node.value, node.lineno, node.end_lineno or node.lineno


_CPP_COMPUTING = frozenset({Kind.CPP_COMPUTE, Kind.CPP_STATIC_KERNEL, Kind.DELEGATION})
