"""Where a kernel has numpy compute on what was a tensor. torch's dispatcher never hears of that."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.source import (
    Function,
    Source,
    is_tensor_parameter,
    once_per_source,
    resolve,
)
from opsmith.evaluation.integrity.static.tables import names

#: Methods of a tensor that give an array, and of a ctypes type that show memory as one.
_FROM_ADDRESS = "from_address"
_CONVERSION_METHODS = frozenset({"numpy", "__array__", _FROM_ADDRESS})
#: These make an array of whatever they are given, a list of sizes included.
_CONVERSIONS = frozenset(
    {f"numpy.{name}" for name in ("array", "asarray", "asanyarray", "ascontiguousarray", "from_dlpack")}
)
#: Modules of numpy that compute.
_COMPUTING = ("numpy.linalg.", "numpy.fft.", "numpy.random.", "numpy.ma.", "numpy.polynomial.")
#: Libraries that compute on numpy's arrays.
_ON_ARRAYS = ("scipy.", "numexpr.", "numba.np.", "bottleneck.")
#: Members of an array that are no array, or that another name above already stands for.
_NO_ARRAY = frozenset({"item", "tolist", "tobytes", "data_as", "tofile"})
#: What numpy may do: types, memory, copies, views and pointers.
_PLAIN = names(
    """
    array asarray ascontiguousarray asanyarray asfortranarray from_dlpack frombuffer fromiter empty empty_like
    zeros zeros_like ones ones_like full full_like copy copyto dtype shape ndim size prod finfo iinfo errstate
    result_type promote_types can_cast issubdtype isscalar reshape ravel transpose squeeze expand_dims moveaxis
    swapaxes broadcast_to broadcast_shapes shares_memory may_share_memory byte_bounds array_equal
    set_printoptions
    """
)
_PLAIN_MEMBERS = names(
    """
    astype byteswap copy ctypes data dtype fill flags flat flatten itemsize nbytes ndim newbyteorder ravel
    reshape resize setflags shape size squeeze strides swapaxes tobytes tofile tolist transpose view item T
    __array_interface__ __cuda_array_interface__ __dlpack__ base
    """
)


#: Arrays are handed on from name to name and from function to function at most this often.
_PASSES = 4
#: What lies deeper in an expression than this goes unseen.
_DEEPEST = 24


@once_per_source
def numpy_use(source: Source) -> Iterator[StaticFinding]:
    """Conversions of tensors to arrays, and computations on such arrays; on other data they are weaker evidence."""
    functions = {node.name: _Arrays(source, node) for node, _ in source.functions()}
    for _ in range(_PASSES):
        for arrays in functions.values():
            arrays.follow(functions)
    for arrays in functions.values():
        for line, kind, text in arrays.findings():
            yield StaticFinding(path=source.path, line=line, kind=kind, text=text)


class _Arrays:
    """The names of one function that hold arrays which came from tensors."""

    def __init__(self, source: Source, function: Function) -> None:
        self._function = function
        self._scope = source.scopes[function]
        self._nodes = source.within.get(function, [])
        self._names: set[str] = set()
        #: Those of them that are arrays of ctypes: their elements are Python's own numbers.
        self._ctypes: set[str] = set()

    def follow(self, functions: Mapping[str, _Arrays]) -> None:
        """Follow the assignments of this function once, and its calls of the others."""
        for name, bound in self._scope.bindings.items():
            arrays = [value for value in bound if isinstance(value, ast.expr) and self.is_array(value)]
            if arrays:
                self._add(name, of_ctypes=all(map(self._is_of_ctypes, arrays)))
        for node, _ in self._nodes:
            match node:
                case ast.Call(func=ast.Name(id=name), args=args) if name in functions:
                    called = functions[name]
                    for parameter, argument in zip(called.parameters, args, strict=False):
                        if self.is_array(argument):
                            called._add(parameter, of_ctypes=self._is_of_ctypes(argument))

    def _add(self, name: str, *, of_ctypes: bool) -> None:
        """Note that a name holds an array, of ctypes where it never holds another one."""
        if of_ctypes and name not in self._names:
            self._ctypes.add(name)
        elif not of_ctypes:
            self._ctypes.discard(name)
        self._names.add(name)

    def _is_of_ctypes(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._ctypes
            case ast.Call(func=ast.Attribute(attr=name)):
                return name == _FROM_ADDRESS
        return False

    @property
    def parameters(self) -> list[str]:
        return [argument.arg for argument in (*self._function.args.posonlyargs, *self._function.args.args)]

    def is_array(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is an array that came from a tensor."""
        if depth > _DEEPEST:
            return False
        match node:
            case ast.Name(id=name):
                return name in self._names
            case ast.Call():
                return self._is_array_call(node, depth + 1)
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
                return self.is_array(left, depth + 1) or self.is_array(right, depth + 1)
            case ast.Subscript(value=inner) if self._is_of_ctypes(inner):
                return False
            case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
                return self.is_array(inner, depth + 1)
            case ast.Attribute(value=inner, attr="T" | "real" | "imag" | "flat"):
                return self.is_array(inner, depth + 1)
        return False

    def _is_array_call(self, node: ast.Call, depth: int) -> bool:
        found = resolve(node.func, self._scope)
        if found is not None and found.name in _CONVERSIONS:
            return self._converts(node, depth)
        if found is not None and found.name.startswith("numpy."):
            return any(self.is_array(argument, depth) for argument in node.args)
        if isinstance(node.func, ast.Attribute) and found is None:
            name = node.func.attr
            return name in _CONVERSION_METHODS or (name not in _NO_ARRAY and self.is_array(node.func.value, depth))
        return False

    def _converts(self, node: ast.Call, depth: int = 0) -> bool:
        """Whether a call of a function that makes arrays is given a tensor, or an array that was one."""
        if not node.args:
            return False
        return is_tensor_parameter(node.args[0], self._scope) or self.is_array(node.args[0], depth)

    def findings(self) -> Iterator[tuple[int, Kind, str]]:
        for node, _ in self._nodes:
            match node:
                case ast.Call():
                    yield from self._call(node)
                case ast.BinOp() | ast.UnaryOp() | ast.Compare() if self.is_array(node):
                    yield node.lineno, Kind.NUMPY_COMPUTE, "an operator on an array"
                case ast.AugAssign(target=target) if self.is_array(target):
                    yield node.lineno, Kind.NUMPY_COMPUTE, "an operator on an array"

    def _call(self, node: ast.Call) -> Iterator[tuple[int, Kind, str]]:
        found = resolve(node.func, self._scope)
        if found is not None and found.name.startswith(_ON_ARRAYS) and any(map(self.is_array, node.args)):
            yield node.lineno, Kind.NUMPY_COMPUTE, found.name
        elif found is not None and found.name.startswith("numpy."):
            name = found.name
            of_tensor = any(self.is_array(argument) for argument in node.args)
            if name in _CONVERSIONS and self._converts(node):
                yield node.lineno, Kind.NUMPY_CONVERSION, name
            elif name.startswith(_COMPUTING) or (name.count(".") == 1 and name.partition(".")[2] not in _PLAIN):
                yield node.lineno, Kind.NUMPY_COMPUTE if of_tensor else Kind.ARRAY_LIBRARY, name
        elif found is None and isinstance(node.func, ast.Attribute):
            name, line = node.func.attr, node.func.end_lineno or node.lineno
            if name in _CONVERSION_METHODS:
                yield line, Kind.NUMPY_CONVERSION, f".{name}()"
            elif name not in _PLAIN_MEMBERS and self.is_array(node.func.value):
                yield line, Kind.NUMPY_COMPUTE, f".{name}() of an array"
