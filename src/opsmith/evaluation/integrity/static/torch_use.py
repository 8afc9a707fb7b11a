"""Where a kernel's Python has torch compute for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.evaluation.integrity.static.aten_names import computation, is_delegation, method_computation
from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.source import Scope, Source, is_tensor_parameter, once_per_source, resolve

_LOADERS = frozenset({"ctypes", "cffi", "torch.utils", "torch.utils.cpp_extension"})
#: Layers that hold things and compute nothing.
_CONTAINERS = frozenset({"Buffer", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList"})


def torch_use(source: Source, *, policy: str, own: str | None) -> Iterator[StaticFinding]:
    """Uses of torch's computations; under policy ``any`` only of the task's own op.

    A method of an object of unknown type counts where nothing but a tensor has a method of that name,
    an operator where an operand is annotated as a tensor.

    Args:
        source: the file.
        policy: ``native`` or ``any``.
        own: the task's op as :func:`~.aten_names.task_op` writes it, or None.
    """
    for line, op, text in _uses(source):
        delegated = is_delegation(op, own)
        if delegated or policy == "native":
            kind = Kind.DELEGATION if delegated else Kind.TORCH_COMPUTE
            yield StaticFinding(path=source.path, line=line, kind=kind, text=text)


@once_per_source
def _uses(source: Source) -> Iterator[tuple[int, str, str]]:
    """``(line, op, text)`` of every use, whatever the task and the policy."""
    return _Reader(source).uses()


class _Reader:
    """Finds ``(line, op, text)`` in one file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        #: Names that lead on to an attribute: of ``torch.nn.functional.relu`` only the whole counts.
        self._inner = {id(node.value) for node, _ in source.nodes if isinstance(node, ast.Attribute)}
        self._own_methods: set[str] = set()
        #: What the classes of the file keep in ``self.name``.
        self._layers: dict[str, tuple[ast.expr, Scope]] = {}
        #: Whether it loads libraries: then what a function of its own returns may be one.
        self._loads_libraries = False
        for node, scope in source.nodes:
            match node:
                case ast.FunctionDef(name=name) if isinstance(scope.node, ast.ClassDef):
                    self._own_methods.add(name)
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call(func=maker)
                ):
                    self._layers[name] = maker, scope
                case ast.Import(names=imported) if any(alias.name in _LOADERS for alias in imported):
                    self._loads_libraries = True
                case ast.ImportFrom(module=module) if module in _LOADERS:
                    self._loads_libraries = True

    def uses(self) -> Iterator[tuple[int, str, str]]:
        for node, scope in self._source.host_nodes():
            match node:
                case ast.Attribute(ctx=ast.Load()) | ast.Name(ctx=ast.Load()) if id(node) not in self._inner:
                    found = resolve(node, scope)
                    op = computation(found.name) if found is not None else None
                    if found is not None and op is not None:
                        yield node.lineno, op, found.name
                case ast.Call():
                    yield from self._call(node, scope)
                case ast.BinOp(left=left, op=operator, right=right):
                    operation = _OPERATIONS.get(type(operator))
                    if operation and (is_tensor_parameter(left, scope) or is_tensor_parameter(right, scope)):
                        yield node.lineno, operation, f"{operation} of a tensor, by an operator"

    def _call(self, node: ast.Call, scope: Scope) -> Iterator[tuple[int, str, str]]:
        if isinstance(node.func, ast.Attribute) and resolve(node.func, scope) is None:
            name = node.func.attr
            op = method_computation(name)
            if op is not None and name not in self._own_methods and not self._is_made_elsewhere(node.func.value, scope):
                yield node.func.end_lineno or node.lineno, op, f".{name}()"
        layer = self._layer(node, scope)
        if layer is not None:
            name = layer.rpartition(".")[2]
            yield node.lineno, _op_of_layer(name), f"{layer}, called"

    def _is_made_elsewhere(self, owner: ast.expr, scope: Scope) -> bool:
        """Whether the owner of a method was made by what makes no tensors: a library, an extension, a plan."""
        if isinstance(owner, ast.Call):
            return self._makes_no_tensor(owner, scope)
        found = scope.lookup(owner.id) if isinstance(owner, ast.Name) else None
        calls = [value for value in found[1] if isinstance(value, ast.Call)] if found is not None else []
        return any(self._makes_no_tensor(call, found[0]) for call in calls if found is not None)

    def _makes_no_tensor(self, call: ast.Call, scope: Scope) -> bool:
        maker = resolve(call.func, scope)
        if maker is None:
            return self._loads_libraries and isinstance(call.func, ast.Name)
        return "cpp_extension" in maker.name or not maker.name.startswith(("torch.", "builtins."))

    def _layer(self, node: ast.Call, scope: Scope) -> str | None:
        """The layer that is called: ``torch.nn.ReLU()(x)``, or ``self.act(x)`` where ``self.act`` is one."""
        match node.func:
            case ast.Call(func=maker):
                found = resolve(maker, scope)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self._layers:
                found = resolve(*self._layers[name])
            case _:
                return None
        if found is None or not found.name.startswith("torch.nn."):
            return None
        name = found.name.rpartition(".")[2]
        return found.name if name[:1].isupper() and name not in _CONTAINERS else None


_OPERATIONS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "mm",
    ast.Pow: "pow",
    ast.Mod: "remainder",
}


def _op_of_layer(name: str) -> str:
    """``LayerNorm`` -> ``layer_norm``; close enough to compare with a task's op."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
