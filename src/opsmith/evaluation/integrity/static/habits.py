"""Ways of working that are suspicious only together with what a run shows."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Collection, Iterator, Sequence

from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.source import Function, Scope, Source, once_per_source, resolve
from opsmith.evaluation.integrity.static.tables import names

_NARROW = names("float16 half bfloat16 float8_e4m3fn float8_e5m2 float8e4nv float8e5 int8")
_NARROWING_METHODS = frozenset({"half", "bfloat16"})
_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
#: What a name may be asked for without a byte of its memory being written.
_FACTS = names(
    """
    shape dtype device stride numel size dim ndim layout is_cuda element_size storage_offset
    """
)
_MEMOS = frozenset({"functools.lru_cache", "functools.cache", "functools.cached_property"})
#: A size below this is a corner that honest kernels treat apart too.
_ODD_SIZE = 16


def habits(source: Source, called: Collection[str]) -> Iterator[StaticFinding]:
    """Narrower types, results kept by address or shape, ways for one shape, outputs that nothing writes.

    Args:
        source: the file.
        called: names that some file of the kernel calls: what such a function allocates its caller may write.
    """
    yield from _own_habits(source)
    for name, finding in _unwritten_outputs(source):
        if name not in called:
            yield finding


@once_per_source
def _own_habits(source: Source) -> Iterator[StaticFinding]:
    """Those that a file shows by itself."""
    for node, scope in source.nodes:  # Device code too: that is where types matter most.
        for kind, text in _precision(node, scope):
            yield StaticFinding(path=source.path, line=getattr(node, "lineno", 1), kind=kind, text=text)
    for node, _ in source.host_nodes():
        for kind, text in _input_branch(node):
            yield StaticFinding(path=source.path, line=getattr(node, "lineno", 1), kind=kind, text=text)
    for function, scope in source.functions():
        for line, kind, text in _caches(source, function, scope):
            yield StaticFinding(path=source.path, line=line, kind=kind, text=text)


@once_per_source
def _unwritten_outputs(source: Source) -> Iterator[tuple[str, StaticFinding]]:
    """Functions, by name, that return memory which they never wrote."""
    for function, scope in source.functions():
        for line, kind, text in _unwritten(source, function, scope):
            yield function.name, StaticFinding(path=source.path, line=line, kind=kind, text=text)


def fallbacks(source: Source, computing: Collection[int]) -> Iterator[StaticFinding]:
    """``except`` blocks in which torch computes.

    Args:
        source: the file.
        computing: the lines of it where torch computes.
    """
    lines = sorted(computing)
    for first, last in _handlers(source):
        following = bisect.bisect_left(lines, first)
        if following < len(lines) and lines[following] <= last:
            yield StaticFinding(
                path=source.path, line=first, kind=Kind.FALLBACK, text="torch computes where the kernel raises"
            )


@once_per_source
def _handlers(source: Source) -> Iterator[tuple[int, int]]:
    """The first and the last line of every ``except`` block."""
    for node, _ in source.host_nodes():
        if isinstance(node, ast.ExceptHandler):
            yield node.lineno, node.end_lineno or node.lineno


def _precision(node: ast.AST, scope: Scope) -> Iterator[tuple[Kind, str]]:
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=[]) if name in _NARROWING_METHODS:
            yield Kind.LOWER_PRECISION, f".{name}()"
        case ast.Call(func=function, args=args, keywords=keywords):
            types = [*args, *[keyword.value for keyword in keywords if keyword.arg in ("dtype", "out_dtype")]]
            for value in types:
                found = resolve(value, scope) if isinstance(value, ast.Attribute | ast.Name) else None
                if found is not None and found.name.rpartition(".")[2] in _NARROW:
                    yield Kind.LOWER_PRECISION, found.name
            for keyword in keywords:
                yield from _precision_option(keyword)
            called = resolve(function, scope)
            if called is not None and called.name == "torch.set_float32_matmul_precision":
                yield Kind.LOWER_PRECISION, called.name
        case ast.Assign(targets=[ast.Attribute(attr="allow_tf32" | "fp32_precision" as name)]):
            yield Kind.LOWER_PRECISION, f"{name} is set"


def _precision_option(keyword: ast.keyword) -> Iterator[tuple[Kind, str]]:
    match keyword:
        case ast.keyword(arg="allow_tf32", value=ast.Constant(value=True)):
            yield Kind.LOWER_PRECISION, "allow_tf32=True"
        case ast.keyword(arg="input_precision", value=ast.Constant(value="tf32" | "tf32x3" | "bf16x3" as name)):
            yield Kind.LOWER_PRECISION, f"input_precision={name!r}"
        case ast.keyword(arg="extra_cflags" | "extra_cuda_cflags", value=ast.List(elts=flags)):
            for flag in flags:
                if isinstance(flag, ast.Constant) and flag.value in ("-ffast-math", "-Ofast", "--use_fast_math"):
                    yield Kind.LOWER_PRECISION, str(flag.value)


def _input_branch(node: ast.AST) -> Iterator[tuple[Kind, str]]:
    match node:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.In()], comparators=[right]):
            for asked, value in ((left, right), (right, left)):
                fact = _fact(asked)
                if fact is not None and (_is_odd_size(value) or fact in ("data_ptr", "id")):
                    yield Kind.INPUT_BRANCH, f"compares {fact} with {ast.unparse(value)[:60]}"
                    return


def _fact(node: ast.expr) -> str | None:
    """What an expression asks of a tensor: ``shape`` of ``tuple(x.shape)`` and of ``x.shape[0]``."""
    match node:
        case ast.Attribute(attr="shape"):
            return "shape"
        case ast.Call(func=ast.Attribute(attr="size" | "numel" | "data_ptr" as name)):
            return name
        case ast.Call(func=ast.Name(id="id")):
            return "id"
        case ast.Call(func=ast.Name(id="tuple" | "list"), args=[inner]) | ast.Subscript(value=inner):
            return _fact(inner)
    return None


def _is_odd_size(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=int(number)):
            return abs(number) >= _ODD_SIZE
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(_is_odd_size(part) for part in parts)
        case ast.Call(func=ast.Attribute(attr="Size"), args=[inner]):
            return _is_odd_size(inner)
    return False


# ---------------------------------------------------------------- results that are kept


def _caches(source: Source, function: Function, scope: Scope) -> Iterator[tuple[int, Kind, str]]:
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        found = resolve(target, scope)
        if found is not None and found.name in _MEMOS and _takes_tensor(function):
            yield function.lineno, Kind.RESULT_CACHE, f"{found.name} on {function.name}"
    nodes = source.within.get(function, ())
    returned = {name for node, _ in nodes if (name := _returned_name(node)) is not None}
    for node, own in nodes:
        match node:
            case ast.Assign(targets=[*_, ast.Subscript(value=owner, slice=key)], value=value):
                fact = _key_fact(key, own, 0)
                kept = {part.id for tree in (owner, value) for part in ast.walk(tree) if isinstance(part, ast.Name)}
                if fact in ("data_ptr", "id") or (fact is not None and kept & returned):
                    yield node.lineno, Kind.RESULT_CACHE, f"keeps a value under {fact}"


def _returned_name(node: ast.AST) -> str | None:
    """The name that a ``return`` hands back, or the one of what it takes an item of: ``return answers[key]``."""
    match node:
        case ast.Return(value=ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name))):
            return name
        case ast.Return(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get" | "setdefault"))):
            return name
    return None


def _takes_tensor(function: Function) -> bool:
    """Whether a function takes what looks like a tensor; a cache of a plan takes shapes and types."""
    arguments = (*function.args.posonlyargs, *function.args.args)
    return any(
        argument.annotation is not None and "Tensor" in ast.unparse(argument.annotation) for argument in arguments
    ) or function.name.endswith("_kernel_impl")


def _key_fact(key: ast.expr, scope: Scope, depth: int) -> str | None:
    """What a key is made of: an address, an identity or a shape; through one assignment."""
    for part in ast.walk(key):
        fact = _fact(part) if isinstance(part, ast.expr) else None
        if fact is None and isinstance(part, ast.Attribute) and part.attr == "data_ptr":
            fact = "data_ptr"
        if fact is not None:
            return fact
    if depth == 0 and isinstance(key, ast.Name):
        for value in scope.bindings.get(key.id, ()):
            if isinstance(value, ast.expr) and (found := _key_fact(value, scope, 1)) is not None:
                return found
    return None


# ---------------------------------------------------------------- outputs that nothing writes


def _unwritten(source: Source, function: Function, scope: Scope) -> Iterator[tuple[int, Kind, str]]:
    """Memory that every way through a function returns as it was allocated."""
    nodes = [node for node, _ in source.within.get(function, ())]
    returns = [node for node in nodes if isinstance(node, ast.Return)]
    if returns and all(_is_untouched(node.value, nodes, scope) for node in returns):
        yield returns[-1].lineno, Kind.UNWRITTEN_OUTPUT, f"{function.name} returns memory that it never wrote"


def _is_untouched(value: ast.expr | None, nodes: Sequence[ast.AST], scope: Scope) -> bool:
    """Whether a value is a fresh allocation, or a name for one that is only asked for facts and returned."""
    if isinstance(value, ast.Name):
        bound = scope.bindings.get(value.id, [])
        uses = sum(isinstance(node, ast.Name) and node.id == value.id for node in nodes) - 1  # Less the assignment.
        if len(bound) != 1 or uses != sum(_is_harmless_use(node, value.id) for node in nodes):
            return False
        value = bound[0] if isinstance(bound[0], ast.expr) else None
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _ALLOCATIONS


def _is_harmless_use(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Return(value=ast.Name(id=used)):
            return used == name
        case ast.Attribute(value=ast.Name(id=used), attr=attr):
            return used == name and attr in _FACTS
    return False
