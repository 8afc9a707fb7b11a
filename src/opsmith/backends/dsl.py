"""Which language a kernel is written in, as its source shows; nothing of it is executed."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from opsmith.core.syntax_tree import syntax_tree

#: Modules whose use names the DSL, the most specific first: these build on Triton or CUDA.
_MODULES = {
    "helion": "helion",
    "tilelang": "tilelang",
    "cutlass": "cutedsl",
    "cuda.tile": "cutile",
    "triton.experimental.gluon": "gluon",
    "triton": "triton",
    "jax.experimental.pallas": "pallas",
    "numba.cuda": "numba",
    "cupy": "cupy",
    "cuda.core": "cuda",
    "cuda.bindings.nvrtc": "cuda",
    "torch.cuda._compile_kernel": "cuda",
}
_CPP_BUILDERS = {"load", "load_inline"}
#: A longer file is data in disguise; parsing it would hold up the judge.
_LONGEST_SOURCE_BYTES = 1 << 20


def guess_dsl(source: Path) -> str:
    """Guess the DSL of a Python file from what it uses of the packages that it imports, torch's C++ builders included.

    Returns:
        ``triton``, ``gluon``, ``helion``, ``tilelang``, ``cutedsl``, ``cutile``, ``pallas``, ``numba``, ``cupy``,
        ``cuda``, ``cpp``, ``metal``, ``torch`` for plain Python, or ``unknown`` where there is no such file or it does
        not parse.
    """
    tree = parse_source(source)
    if tree is None:
        return "unknown"
    used = set(_used_names(tree))
    for module, dsl in _MODULES.items():
        if any(name == module or name.startswith(f"{module}.") for name in used):
            return dsl
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if any(_called_name(call) == "compile_shader" for call in calls):
        return "metal"
    builders = [call for call in calls if _called_name(call) in _CPP_BUILDERS]
    if not builders or not any("cpp_extension" in name for name in _imported_modules(tree)):
        return "torch"
    return "cuda" if any(_builds_cuda(call) for call in builders) else "cpp"


def parse_source(source: Path) -> ast.Module | None:
    """Parse a stranger's file without running it; None where it does not parse or is too long."""
    try:
        if source.stat().st_size > _LONGEST_SOURCE_BYTES:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Invalid escapes in a stranger's strings are not ours to report.
            return syntax_tree(source.read_bytes())
    except (OSError, SyntaxError):
        return None  # The worker that loads the file tells what is wrong with it.


def _imported_modules(tree: ast.Module) -> Iterator[str]:
    """Every absolute name that an import statement mentions: ``a.b`` for ``from a import b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr == "cpp_extension":
            yield ast.unparse(node)


def _used_names(tree: ast.Module) -> Iterator[str]:
    """Qualified names that a file uses of what it imports: who only tries whether there is a package uses none."""
    meant: dict[str, str] = {}
    members: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meant |= {alias.asname or _package(alias.name): _meant(alias) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            meant |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            members |= {alias.asname or alias.name for alias in node.names}
            if any(alias.name == "*" for alias in node.names):
                yield node.module  # What it uses of it, nobody can tell.
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if (path := _path(node)) and path[0] in meant and not path[1].startswith("__"):
                yield ".".join((meant[path[0]], *path[1:]))
            case ast.Name(id=name, ctx=ast.Load()) if name in members:
                yield meant[name]


def _meant(alias: ast.alias) -> str:
    """What the name that an ``import`` binds stands for: ``a`` of ``import a.b``, ``a.b`` of ``import a.b as c``."""
    return alias.name if alias.asname else _package(alias.name)


def _path(node: ast.expr) -> tuple[str, ...]:
    """The names of ``a.b.c``; empty where it begins with something else than a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def _package(module: str) -> str:
    return module.partition(".")[0]


def _called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _builds_cuda(call: ast.Call) -> bool:
    if any(keyword.arg == "cuda_sources" for keyword in call.keywords):
        return True
    constants = (node.value for node in ast.walk(call) if isinstance(node, ast.Constant))
    return any(isinstance(value, str) and value.endswith((".cu", ".cuh")) for value in constants)
