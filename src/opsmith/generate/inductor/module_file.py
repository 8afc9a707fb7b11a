"""The text of a ``ModelNew``: the problem's constructor, the compiler's kernels, and its host code as ``forward``."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opsmith.core.syntax_tree import syntax_tree
from opsmith.generate.inductor.host_code import HostCode

_IMPORTS = "import torch\nimport triton\nimport triton.language as tl"
_OWN = """
def _empty(size, stride, dtype, device):
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


def _view(tensor, size, stride, offset):
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def _check(tensor, size, stride, dtype):
    if tensor.shape != size or tensor.stride() != stride or tensor.dtype != dtype:
        raise NotImplementedError(f"written for {dtype} {size} {stride}, not {tensor.dtype} {tuple(tensor.shape)}")
"""


class Expected(NamedTuple):
    """A tensor among the arguments of a call.

    Attributes:
        name: of the variable that holds it.
        path: the text that finds it in the arguments.
        size: of it.
        stride: of it.
        dtype: of it, as in ``torch.float32``.
    """

    name: str
    path: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


def module_file(
    problem: str, *, state: Mapping[str, str], expected: Sequence[Expected], host: HostCode, result: str
) -> str:
    """A file that defines ``ModelNew``.

    Args:
        problem: source of the problem.
        state: names of parameters and buffers -> of the variables that hold them.
        expected: the tensors among the arguments.
        host: what the compiler wrote around its kernels, in these names.
        result: what is returned, with ``{0}``, ``{1}`` for the tensors that the host code returns.
    """
    tree = syntax_tree(problem)
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    body = _forward_body(state, expected, host, result)
    _replace_forward(model, body)
    kept = _needed([node for node in tree.body if not _is_docstring(node)], model)
    imports = [ast.unparse(node) for node in kept if isinstance(node, (ast.Import, ast.ImportFrom))]
    rest = [ast.unparse(_Renamed().visit(node)) for node in kept if not isinstance(node, (ast.Import, ast.ImportFrom))]
    helpers = dict.fromkeys(text for kernel in host.kernels for text in kernel.helpers)
    kernels = [*helpers, *(kernel.source for kernel in host.kernels)]
    heading = "\n".join(dict.fromkeys([*_IMPORTS.splitlines(), *imports]))
    return "\n\n\n".join([heading, *kernels, _OWN.strip(), *rest]) + "\n"


def _forward_body(
    state: Mapping[str, str], expected: Sequence[Expected], host: HostCode, result: str
) -> list[ast.stmt]:
    lines = []
    for one in expected:
        if one.name != one.path:
            lines.append(f"{one.name} = {one.path}")
        lines.append(f"_check({one.name}, {one.size!r}, {one.stride!r}, {one.dtype})")
    lines += [f"{variable} = self{_attribute(name)}" for name, variable in state.items()]
    first = expected[0].name if expected else next(iter(state.values()))
    lines.append(f"device = {first}.device")
    *statements, last = host.statements
    body = syntax_tree("\n".join([*lines, *statements])).body
    returned = syntax_tree(last).body[0]
    assert isinstance(returned, ast.Return)
    assert isinstance(returned.value, ast.Tuple)
    values = [ast.unparse(value) for value in returned.value.elts]
    return [*body, *syntax_tree(f"return {result.format(*values)}").body]


def _attribute(name: str) -> str:
    """``0.weight`` as ``[0].weight``: modules in a list are found by their place."""
    return "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in name.split("."))


def _replace_forward(model: ast.ClassDef, body: list[ast.stmt]) -> None:
    """Leave the constructor, what it calls, and a ``forward`` with another body."""
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    forward = methods.pop("forward")
    forward.body = body
    forward.returns = None
    constructor = methods.get("__init__")
    called = _names(constructor) if constructor is not None else set()
    model.body = [
        node
        for node in model.body
        if not isinstance(node, ast.FunctionDef) or node.name in ("__init__", "forward") or node.name in called
    ]
    model.body = [node for node in model.body if not _is_docstring(node)]


def _needed(nodes: Sequence[ast.stmt], model: ast.ClassDef) -> list[ast.stmt]:
    """What a module's Model needs of the module, in order."""
    defined = {name: node for node in nodes for name in _defined(node)}
    wanted, pending = set[ast.stmt](), list[ast.stmt]([model])
    while pending:
        node = pending.pop()
        if node not in wanted:
            wanted.add(node)
            pending += [defined[name] for name in _names(node) if name in defined]
    return [node for node in nodes if node in wanted]


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(alias.asname or alias.name).partition(".")[0] for alias in names]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    return []


def _names(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _is_docstring(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


class _Renamed(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("ModelNew", node.ctx) if node.id == "Model" else node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if node.name == "Model":
            node.name = "ModelNew"
        return self.generic_visit(node)
