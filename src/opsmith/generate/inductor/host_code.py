"""The Python module that Inductor writes, read and reduced to what a kernel file needs.

It holds the sources of its kernels and one function that allocates buffers, calls the kernels in order and returns
buffers. Anything else in that function is a call of somebody else's kernel, and then the call is declined.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opsmith.core.syntax_tree import expression_tree, syntax_tree
from opsmith.generate.inductor.cpp_text import standalone
from opsmith.generate.inductor.metal_text import MetalKernel, metal_kernels
from opsmith.generate.inductor.metal_text import launch as launch_metal
from opsmith.generate.inductor.rows import EmittedKernel
from opsmith.generate.inductor.triton_text import TritonKernel, launch

#: What the compiler calls its ways to make or to look at a buffer -> what the kernel file has for them.
_BUFFERS = {
    "empty_strided_cpu": "_empty",
    "empty_strided_cuda": "_empty",
    "empty_strided": "_empty",
    "reinterpret_tensor": "_view",
}
#: Of them, those that have to be told where: ``device`` is a variable of the function.
_ON_DEVICE = ("empty_strided_cuda", "empty_strided")
_CHECKS = ("assert_size_stride", "assert_alignment", "torch.cuda.set_device")
#: Assignments that say nothing to a kernel that is launched from Python.
_SETTING_UP = ("get_raw_stream", "copy_if_misaligned")
#: What a library computes -> what a module is allowed to call for it.
_LIBRARY = {
    f"extern_kernels.{name}": f"torch.{own}"
    for name, own in {
        "addmm": "addmm",
        "baddbmm": "baddbmm",
        "bias_addmm": "addmm",
        "bmm": "bmm",
        "convolution": "convolution",
        "mm": "mm",
    }.items()
}
#: Of sizes and shapes, in the code around kernels.
_ARITHMETIC = ("max", "min", "abs", "int", "float", "math.ceil", "math.floor", "math.trunc", "size", "stride")


class Unsupported(Exception):
    """The module does something that is no allocation and no call of its own kernel; the text names it."""


class HostCode(NamedTuple):
    """What is left of the module.

    Attributes:
        statements: of a function of the inputs, by the names that were asked for; the last one returns a tuple.
        kernels: that it calls, in the order of their first calls. A kernel is called as
            ``_run(NAME, argument, ...)``, with tensors for its pointers, one in Triton as Triton does it, one in Metal
            as a function.
        shares_memory: whether a result is, or looks at, an input.
    """

    statements: tuple[str, ...]
    kernels: tuple[EmittedKernel, ...]
    shares_memory: bool


class _Callee(NamedTuple):
    """A kernel, and names of the numbers that it takes beside what the compiler passes."""

    kernel: EmittedKernel
    numbers: tuple[str, ...]


def read_module(
    code: str,
    *,
    inputs: Sequence[str],
    symbols: Mapping[str, str],
    triton: Mapping[str, TritonKernel] | None = None,
    library: bool = False,
) -> HostCode:
    """Read a module.

    Args:
        code: its text.
        inputs: new names of the run-time arguments, in their order.
        symbols: new names of sizes and numbers.
        triton: its kernels in Triton, by name.
        library: let matrix products, convolutions and ATen ops be called.

    Raises:
        Unsupported: see there.
    """
    module = syntax_tree(code)
    kernels: dict[str, _Callee | TritonKernel | MetalKernel] = {
        kernel.name: _Callee(*standalone(kernel, symbols)) for kernel in _kernels(module)
    }
    kernels |= triton or {}
    kernels |= metal_kernels(module)
    function = next(node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == "call")
    body = [statement for statement in _statements(function) if not _is_dropped(statement)]
    names = dict(symbols)
    if body and _unpacks_arguments(body[0]):
        for target, name in zip(_targets(body[0]), inputs, strict=True):
            names |= {target: name, f"{target}_size": f"{name}_size", f"{target}_stride": f"{name}_stride"}
        body = body[1:]
    rewrite = _Rewrite(kernels, names, library=library)
    body = [rewrite.visit(statement) for statement in body]
    return HostCode(
        tuple(text for text in map(ast.unparse, body) if not _is_trivial(text)),
        tuple(rewrite.called.values()),
        _shares_memory(body, inputs),
    )


def _kernels(module: ast.Module) -> Iterator[EmittedKernel]:
    for node in module.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Attribute(attr="cpp_pybinding"), args=[ast.List(elts=types), ast.Constant(value=str(text))]
                ),
            ):
                yield EmittedKernel(name=name, source=text, arguments=tuple(ast.literal_eval(kind) for kind in types))


def _statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    """The statements of the function, those inside ``with`` blocks included."""
    pending = list(reversed(function.body))
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.With):
            pending += reversed(statement.body)
        else:
            yield statement


def _is_dropped(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass():  # In the place of a choice among devices, where there is one.
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id=name))):
            return name in _SETTING_UP
        case ast.Expr(value=ast.Call(func=function)) if ast.unparse(function) in _CHECKS:
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="args"), attr="clear"))):
            return True
    return False


def _unpacks_arguments(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(value=ast.Name(id="args")):
            return True
    return False


def _targets(statement: ast.stmt) -> list[str]:
    assert isinstance(statement, ast.Assign)
    (target,) = statement.targets
    assert isinstance(target, ast.Tuple)
    return [ast.unparse(element) for element in target.elts]


def _is_trivial(text: str) -> bool:
    """``alpha = alpha``: the compiler's symbol and the argument have one name now."""
    return re.fullmatch(r"(\w+) = \1", text) is not None


def _shares_memory(statements: Sequence[ast.stmt], inputs: Sequence[str]) -> bool:
    """Whether what is returned is an input, or a view of one, under whatever name."""
    shared = set(inputs)
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _looked_at(value) in shared:
                shared.add(name)
            case ast.Return(value=ast.Tuple(elts=results)):
                return any(_looked_at(result) in shared for result in results)
    return False


def _looked_at(value: ast.expr) -> str | None:
    match value:
        case ast.Name(id=name) | ast.Call(func=ast.Name(id="_view"), args=[ast.Name(id=name), *_]):
            return name
    return None


class _Rewrite(ast.NodeTransformer):
    """Gives things their new names and refuses calls of what the module does not hold.

    Attributes:
        called: the kernels that were met, by their names.
    """

    def __init__(
        self,
        kernels: Mapping[str, _Callee | TritonKernel | MetalKernel],
        names: Mapping[str, str],
        *,
        library: bool,
    ) -> None:
        self._kernels = kernels
        self._names = names
        self._library = library
        self.called: dict[str, EmittedKernel] = {}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return _name(self._names.get(node.id, node.id))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = ast.unparse(node.func)
        kernel = self._kernels.get(re.sub(r"\.(run|generated_kernel)$", "", name))
        if isinstance(kernel, MetalKernel):
            self.called.setdefault(kernel.kernel.name, kernel.kernel)
            self.generic_visit(node)
            return launch_metal(kernel, node.args, node.keywords, self._names)
        if kernel is not None:
            return self._kernel_call(kernel, [self.visit(argument) for argument in node.args])
        if name in _BUFFERS:
            node.func = _name(_BUFFERS[name])
            if name in _ON_DEVICE:
                dtypes = [keyword.value for keyword in node.keywords if keyword.arg == "dtype"]
                node.args += [*dtypes, _name("device")]
                node.keywords = []
        elif self._library and name in _LIBRARY:
            node.func = expression_tree(_LIBRARY[name])
        elif self._library and name.startswith("torch.ops.aten."):
            pass
        elif name not in _ARITHMETIC and name.rpartition(".")[2] not in ("size", "stride"):
            raise Unsupported(name)
        return self.generic_visit(node)

    def _kernel_call(self, kernel: _Callee | TritonKernel, arguments: Sequence[ast.expr]) -> ast.expr:
        if isinstance(kernel, TritonKernel):
            emitted = EmittedKernel(name=kernel.name, source=kernel.source, helpers=kernel.helpers)
            self.called.setdefault(kernel.name, emitted)
            return launch(kernel, arguments, [_name(self._names[number]) for number in kernel.numbers])
        self.called.setdefault(kernel.kernel.name, kernel.kernel)
        arguments = [_name(kernel.kernel.name), *arguments, *map(_name, kernel.numbers)]
        return ast.Call(func=_name("_run"), args=arguments, keywords=[])

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.stmt) and not isinstance(node, ast.Assign | ast.Delete | ast.Expr | ast.Return):
            raise Unsupported(type(node).__name__.lower())
        return super().generic_visit(node)


def _name(name: str) -> ast.Name:
    return ast.Name(id=name, ctx=ast.Load())
