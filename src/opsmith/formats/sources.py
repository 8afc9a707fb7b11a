"""Python source files of other tools, changed where they lean on the place that they were written for.

Nothing is imported. Edits keep all other text, so that lines stay where they are.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath

from opsmith.core.syntax_tree import syntax_tree
from opsmith.errors import BadInput

#: (first byte, last byte + 1, new text)
_Edit = tuple[int, int, str]


def parsed(name: str, text: str) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        BadInput: it does not parse, with the line.
    """
    try:
        return syntax_tree(text)
    except SyntaxError as exc:
        raise BadInput(f"{name}:{exc.lineno or 1}: does not parse: {exc.msg}") from exc


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions that a file defines at the top level."""
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def names(tree: ast.Module) -> set[str]:
    """What a file binds at the top level by defining, assigning or importing it."""
    found = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                found |= {alias.asname or alias.name for alias in imported}
    return found


def joined(files: Mapping[str, str], constants: Mapping[str, str]) -> str:
    """Several files as one, in which they need not import each other.

    Args:
        files: name -> text, each after those that it imports.
        constants: string literals that become names: ``{"cuda": "DEVICE"}``.

    Raises:
        BadInput: a file does not parse, or imports another one as a module.
    """
    stems = {PurePosixPath(name).stem for name in files}
    parts = []
    futures: set[str] = set()
    for name, text in files.items():
        tree = parsed(name, text)
        edits = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                futures |= {alias.name for alias in node.names}
                edits.append(_replace(text, node, "pass"))
            elif isinstance(node, ast.ImportFrom) and node.module in stems and not node.level:
                edits.append(_replace(text, node, _renamed(node)))
            elif isinstance(node, ast.Import) and any(alias.name in stems for alias in node.names):
                raise BadInput(f"{name}:{node.lineno}: write `from {node.names[0].name} import ...`: files are joined")
        edits += [_replace(text, node, constants[value]) for node, value in _literals(tree) if value in constants]
        parts.append(f"# {name}\n{_edited(text, edits)}")
    head = f"from __future__ import {', '.join(sorted(futures))}\n\n" if futures else ""
    return head + "\n\n".join(parts)


def renamed(name: str, text: str, names: Mapping[str, str]) -> str:
    """A file whose top-level classes and functions have other names, wherever they are used.

    Args:
        name: of the file.
        text: of it.
        names: old -> new.

    Raises:
        BadInput: it does not parse.
    """
    edits = []
    for node in ast.walk(parsed(name, text)):
        if isinstance(node, ast.Name) and node.id in names:
            edits.append(_replace(text, node, names[node.id]))
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in names:
            first, _, _ = _replace(text, node, "")
            first += len("class " if isinstance(node, ast.ClassDef) else "def ")
            edits.append((first, first + len(node.name.encode()), names[node.name]))
    return _edited(text, edits)


def with_relative_imports(name: str, text: str, files: Collection[str]) -> str:
    """A file whose imports of other files of its folder name them relatively, as a kernel's files have to.

    Args:
        name: of the file, in its folder.
        text: of it.
        files: all of the folder's.

    Returns:
        the text as it is where it does not parse: loading it says where.
    """
    try:
        tree = syntax_tree(text)
    except SyntaxError:
        return text
    own = {PurePosixPath(file).parts[0].removesuffix(".py") for file in files if file.endswith(".py")}
    dots = "." * len(PurePosixPath(name).parts)
    edits = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in own:
            imported = ", ".join(_import_text(alias) for alias in node.names)
            edits.append(_replace(text, node, f"from {dots}{node.module} import {imported}"))
        elif isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in own for alias in node.names):
            lines = [
                f"from {dots} import {_import_text(alias)}" if alias.name in own else f"import {_import_text(alias)}"
                for alias in node.names
            ]
            edits.append(_replace(text, node, "; ".join(lines)))
    return _edited(text, edits)


def _literals(tree: ast.AST) -> Iterable[tuple[ast.Constant, str]]:
    """String literals, but for those within others (f-strings)."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child, child.value
        elif not isinstance(child, ast.JoinedStr):
            yield from _literals(child)


def _import_text(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _renamed(node: ast.ImportFrom) -> str:
    renamed = [alias for alias in node.names if alias.asname not in (None, alias.name)]
    return "; ".join(f"{alias.asname} = {alias.name}" for alias in renamed) or "pass"


def _replace(text: str, node: ast.stmt | ast.expr, new: str) -> _Edit:
    """The edit that puts ``new`` in the place of a node, with as many lines as that has."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    return first, last, new + "\n" * (node.end_lineno - node.lineno)


def _edited(text: str, edits: Iterable[_Edit]) -> str:
    data = text.encode()
    for first, last, new in sorted(edits, reverse=True):
        data = data[:first] + new.encode() + data[last:]
    return data.decode()
