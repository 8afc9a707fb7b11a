"""Emitted Metal, changed so that it can stand in a file of its own.

Each kernel gets its name; the headers that it includes are listed apart, so that a file includes each once; and the
numbers that the text mentions and does not declare become arguments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from opsmith.generate.inductor.rows import EmittedKernel

_INCLUDE = re.compile(r"^\s*#include\s*(<.*>)\s*\n", re.MULTILINE)
_KERNEL = re.compile(r"\bkernel void (\w+)\(")
#: What follows the arguments that a call passes.
_AFTER_ARGUMENTS = re.compile(r"^( *)(?:device c10::metal::ErrorMessages\*|uint\d? \w+ \[\[)", re.MULTILINE)
_FLOAT_SYMBOL = re.compile(r"\bzf\d+\b")


class MetalKernel(NamedTuple):
    """A kernel, and the compiler's names of the numbers that it takes beside what the compiler passes."""

    kernel: EmittedKernel
    numbers: tuple[str, ...]


def metal_kernels(module: ast.Module) -> dict[str, MetalKernel]:
    """The kernels in Metal of a module that Inductor wrote, by name."""
    return {name: _standalone(name, text, headers) for name, text, headers in _emitted(module)}


def _emitted(module: ast.Module) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Names, texts and headers that are not in the text."""
    for node in module.body:
        match node:
            case ast.Assign(
                value=ast.Call(
                    func=ast.Attribute(attr="metal"),
                    args=[ast.Constant(value=str(name)), ast.Constant(value=str(text)), ast.List() as headers],
                )
            ):
                yield name, text, ast.literal_eval(headers)
            # Of torch 2.11, where every kernel is a library of its own.
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="compile_mps_shader"), args=[ast.Constant(value=str(text))]),
            ):
                yield name, text, ()


def _standalone(name: str, text: str, headers: Iterable[str]) -> MetalKernel:
    included = [*_INCLUDE.findall(text), *(f"<c10/metal/{header}.h>" for header in headers)]
    text = _KERNEL.sub(f"kernel void {name}(", _INCLUDE.sub("", text))
    numbers = tuple(sorted(set(_FLOAT_SYMBOL.findall(text))))
    end = _AFTER_ARGUMENTS.search(text)
    assert end is not None, "every kernel asks for its position"
    added = "".join(f"{end[1]}constant float& {number},\n" for number in numbers)
    text = f"{text[: end.start()]}{added}{text[end.start() :]}"
    lines = [line.removeprefix("    ").rstrip() for line in text.strip("\n").splitlines()]
    kernel = EmittedKernel(
        name=name,
        source="\n".join(lines).strip("\n"),
        helpers=tuple(f"#include {header}" for header in sorted(set(included))),
    )
    return MetalKernel(kernel, numbers)


def launch(
    kernel: MetalKernel, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword], names: Mapping[str, str]
) -> ast.expr:
    """The expression that launches a kernel.

    Args:
        kernel: to launch.
        arguments: that the compiler passes.
        keywords: such as ``threads``; that of the buffer for errors says at which place it is, after the arguments.
        names: the compiler's name of a number -> that of the guard table.
    """
    numbers = [ast.Name(id=names[number], ctx=ast.Load()) for number in kernel.numbers]
    passed = [*arguments, *numbers]
    places = {"error_buf_idx": ast.Constant(len(passed))}
    options = [ast.keyword(word.arg, places.get(word.arg or "", word.value)) for word in keywords]
    return ast.Call(func=ast.Name(id=kernel.kernel.name, ctx=ast.Load()), args=passed, keywords=options)
