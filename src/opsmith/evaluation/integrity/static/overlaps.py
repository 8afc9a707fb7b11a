"""Kernels that ask to be launched while earlier ones run, and wait for none of them.

Programmatic dependent launch (CUDA programming guide) lets a kernel begin before what was launched earlier has ended;
the kernel has to wait by itself. One that does not computes beside the calls before it: in a CUDA graph of independent
calls it seems to take less time than it does, and in a model it reads what is not written yet.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from opsmith.evaluation.integrity.static.cpp import tokens
from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.source import Source

#: Names that begin early or let others do so, in Triton, PTX and CUDA.
_BEGINS = re.compile(
    r"launch_pdl|gdc_launch_dependents|griddepcontrol\s*\.\s*launch_dependents|cudaTriggerProgrammaticLaunchCompletion"
    r"|ProgrammaticStreamSerialization|PROGRAMMATIC_STREAM_SERIALIZATION"
)
#: Names that wait; the last one is CUTLASS's.
_WAITS = re.compile(r"gdc_wait|griddepcontrol\s*\.\s*wait|cudaGridDependencySynchronize|wait_on_dependent_grids")


def overlaps(sources: Iterable[Source], cpp: Mapping[str, str]) -> Iterator[StaticFinding]:
    """The lines that begin early, if no file waits.

    Args:
        sources: the Python files of a kernel.
        cpp: path -> text of its C++ files.
    """
    said = [
        *((source.path, line, text) for source in sources for line, text in _python(source)),
        *((path, token.line, token.text) for path, text in cpp.items() for token in tokens(text)),
    ]
    if any(_WAITS.search(text) for _, _, text in said):
        return
    for path, line, text in said:
        if begins := _BEGINS.search(text):
            found = f"{begins.group()} lets kernels overlap, and nothing waits for the earlier ones"
            yield StaticFinding(path=path, line=line, kind=Kind.OVERLAP, text=found)


def _python(source: Source) -> Iterator[tuple[int, str]]:
    """Lines, and the names and strings on them that code uses: no comments, no docstrings, no option that is off."""
    documentation = {
        id(node.value)
        for node, _ in source.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node, _ in source.nodes:
        match node:
            case ast.keyword(arg=str(name), value=value):
                if not (isinstance(value, ast.Constant) and not value.value):
                    yield value.lineno, name
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.ImportFrom(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.Constant(value=str(text)) if id(node) not in documentation:
                yield node.lineno, text
