"""Knobs: the constants of a Triton kernel's file that may be others without its meaning being another one.

Tiles, which are powers of two: arguments of launches, constants whose names say so, and defaults of ``tl.constexpr``
parameters. Warps, and stages where there is a loop: arguments of launches, there or not. A tile that a grid is divided
by is changed there, too. Whether the kernel is still right the judge finds out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from opsmith.core.syntax_tree import syntax_tree

WARPS, STAGES = "num_warps", "num_stages"
#: What Triton takes where a launch does not say.
DEFAULTS = {WARPS: 4, STAGES: 3}
VALUES = {WARPS: (1, 2, 4, 8, 16, 32), STAGES: (1, 2, 3, 4, 5)}
LARGEST_TILE = 65_536
#: Of a number whose name does not say that it is a tile: smaller ones are flags and counts.
SMALLEST_UNNAMED = 8
#: How constants that are tiles are called.
_TILES = re.compile(r"^[A-Z_0-9]*(BLOCK|TILE|CHUNK|SPLIT|GROUP|ROWS|COL|SIZE|UNROLL|STEP|ELEMENTS)[A-Z_0-9]*$")
#: Tiles are tried so many times as large, and as small.
STEPS = (2, 4, 8)


class Place(NamedTuple):
    """Where a constant stands in a source, as the syntax tree counts: lines from 1, columns in bytes from 0.

    Attributes:
        begin: line and column.
        end: of the first character behind it; ``begin`` again where something is to be put in.
        form: what stands there, with ``{}`` for the value.
    """

    begin: tuple[int, int]
    end: tuple[int, int]
    form: str = "{}"


class Knob(NamedTuple):
    """One constant.

    Attributes:
        name: of it.
        value: that it has.
        values: that it may have instead, nearest first.
        places: where it stands.
    """

    name: str
    value: int
    values: tuple[int, ...]
    places: tuple[Place, ...]


def knobs(source: str) -> list[Knob]:
    """The knobs of a file, in the order in which they stand there; none of one that is no Python or has no Triton.

    Args:
        source: of the file.
    """
    try:
        tree = syntax_tree(source)
    except SyntaxError:
        return []
    jitted = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_jitted(node)]
    if not jitted:
        return []
    found = [*_constants(tree), *_defaults(jitted)]
    # Only loops are pipelined.
    loops = any(isinstance(node, (ast.For, ast.While)) for function in jitted for node in ast.walk(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            found += [knob for knob in _of_launch(node, node.func) if loops or knob.name != STAGES]
    return sorted(found, key=lambda knob: knob.places[0].begin)


def together(found: Iterable[Knob]) -> list[Knob]:
    """Knobs of one name and value as one: launches of a file that do the same for other shapes are tuned alike."""
    groups: dict[tuple[str, int], list[Knob]] = {}
    for knob in found:
        groups.setdefault((knob.name, knob.value), []).append(knob)
    return [
        group[0]._replace(places=tuple(dict.fromkeys(place for knob in group for place in knob.places)))
        for group in groups.values()
    ]


def turned(source: str, choice: Mapping[Knob, int]) -> str:
    """The source with other values.

    Args:
        source: of the file.
        choice: knobs of it -> their new values.
    """
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    changes = [(place, place.form.format(value).encode()) for knob, value in choice.items() for place in knob.places]
    for place, text in sorted(changes, key=lambda change: change[0].begin, reverse=True):
        line, column = place.begin
        assert place.end[0] == line, "a number has one line"
        row = lines[line - 1]
        lines[line - 1] = row[:column] + text + row[place.end[1] :]
    return b"".join(lines).decode()


def _is_jitted(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _constants(tree: ast.AST) -> Iterator[Knob]:
    """``BLOCK = 1024`` and ``BLOCK: tl.constexpr = 1024``."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _TILES.search(name):
                yield from _tile(name, [value])
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _TILES.search(name):
                yield from _tile(name, [value])


def _defaults(functions: Iterable[ast.FunctionDef]) -> Iterator[Knob]:
    for function in functions:
        arguments = function.args.args
        first = len(arguments) - len(function.args.defaults)
        pairs = [*zip(arguments[first:], function.args.defaults, strict=True)]
        pairs += [(a, d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d]
        for argument, default in pairs:
            if argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation):
                yield from _tile(argument.arg, [default])


def _of_launch(call: ast.Call, launcher: ast.Subscript) -> Iterator[Knob]:
    divisors = list(_divisors(launcher.slice))
    given = {keyword.arg: keyword for keyword in call.keywords if keyword.arg is not None}
    # The first axis of a grid is mostly that of the first tile by name: XBLOCK before YBLOCK, BLOCK_M before BLOCK_N.
    for name in sorted(given.keys() - VALUES.keys()):
        tile = given[name].value
        same = (
            next((each for each in divisors if _number(each) == _number(tile)), None) if _TILES.search(name) else None
        )
        if same is not None:
            divisors.remove(same)
        yield from _tile(name, [tile, *([same] if same is not None else [])])
    for name, values in VALUES.items():
        number = _number(given[name].value) if name in given else None
        if number is not None:
            yield Knob(name, number, _nearest(number, values), (_place(given[name].value),))
        elif name not in given and not any(keyword.arg is None for keyword in call.keywords):
            yield Knob(name, DEFAULTS[name], _nearest(DEFAULTS[name], values), (_behind(call, name),))


def _divisors(grid: ast.expr) -> Iterator[ast.expr]:
    """The numbers that a grid is divided by, in its order."""
    for node in ast.walk(grid):
        match node:
            case ast.Call(func=ast.Attribute(attr="cdiv") | ast.Name(id="cdiv"), args=[_, number]) if _number(number):
                yield number
            case ast.BinOp(op=ast.FloorDiv(), right=number) if _number(number):
                yield number


def _tile(name: str, numbers: list[ast.expr]) -> Iterator[Knob]:
    value, smallest = _number(numbers[0]), 1 if _TILES.search(name) else SMALLEST_UNNAMED
    if value is None or not smallest <= value <= LARGEST_TILE or value & (value - 1):
        return  # A tile of tl.arange is a power of two.
    others = [new for step in STEPS for new in (value * step, value // step)]
    places = tuple([_place(number) for number in numbers])
    yield Knob(name, value, tuple(new for new in others if smallest <= new <= LARGEST_TILE), places)


def _number(node: ast.expr) -> int | None:
    """The whole number that stands there; None of anything else."""
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _nearest(value: int, values: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted((each for each in values if each != value), key=lambda each: (abs(each - value), each)))


def _place(node: ast.expr) -> Place:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return Place((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))


def _behind(call: ast.Call, name: str) -> Place:
    """Behind the last argument of a launch."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    assert call.end_lineno is not None
    assert call.end_col_offset is not None
    ends = [_place(argument).end for argument in arguments] or [(call.end_lineno, call.end_col_offset - 1)]
    return Place(max(ends), max(ends), f"{', ' if arguments else ''}{name}={{}}")
