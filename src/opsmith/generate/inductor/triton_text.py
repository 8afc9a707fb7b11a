"""Emitted Triton, changed so that it can stand in a file of its own.

The compiler surrounds a kernel with a tuner, and lets it use functions of torch's and of the device's library. Here
the kernel is launched as the tuner would before it measures anything, torch's functions come along as text, and those
of the library become Triton's own or the few that are written out below: the text runs on any device, and in
Triton's interpreter.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from opsmith.core.case import digest
from opsmith.core.syntax_tree import expression_tree, syntax_tree

#: Functions of the device's library that Triton has itself.
_TRITONS_OWN = frozenset(
    {"abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "fma", "log", "log2", "rsqrt", "sin", "sqrt"}
)
#: Others, written out: each is exact where the plain formula would lose digits or overflow.
_WRITTEN_OUT = {
    "expm1": """
        # Kahan's way: the rounding of exp(x) cancels against that of its logarithm.
        y = tl.exp(x)
        log = tl.log(y)
        exact = (y - 1.0) * x / tl.where(log == 0.0, 1.0, log)
        # Far below zero y has few digits itself, or none.
        return tl.where(y == 1.0, x, tl.where((y < 1e-17) | (y == float("inf")), y - 1.0, exact))
    """,
    "isinf": "return (x == float('inf')) | (x == float('-inf'))",
    "isnan": "return x != x",
    "log10": "return tl.log(x) * 0.4342944819032518",
    "log1p": """
        # As expm1: what 1 + x loses of x is made good by a quotient.
        y = 1.0 + x
        lost = y - 1.0
        exact = tl.log(y) * x / tl.where(lost == 0.0, 1.0, lost)
        return tl.where(lost == 0.0, x, tl.where(y == float("inf"), y, exact))
    """,
    "nearbyint": """
        down = tl.floor(x)
        above = x - down
        odd = down - 2.0 * tl.floor(down * 0.5) == 1.0
        return tl.where((above > 0.5) | ((above == 0.5) & odd), down + 1.0, down)
    """,
    "pow": """
        # In float64, where the logarithm's rounding does not grow to the result's.
        exponent = y.to(tl.float64)
        size = tl.exp2(exponent * tl.log2(tl.abs(x).to(tl.float64)))
        whole = exponent == tl.floor(exponent)
        odd = whole & (exponent - 2.0 * tl.floor(exponent * 0.5) == 1.0)
        real = whole | (tl.abs(x) == float("inf"))
        signed = tl.where(x >= 0.0, size, tl.where(odd, -size, tl.where(real, size, float("nan"))))
        return tl.where(exponent == 0.0, 1.0, signed).to(x.dtype)
    """,
    "tan": "return tl.sin(x) / tl.cos(x)",
    "tanh": """
        # Small arguments by the odd series, since 1 - exp(-2x) has no digits left there.
        size = tl.abs(x)
        e = tl.exp(-2.0 * size)
        large = (1.0 - e) / (1.0 + e)
        s = x * x
        small = size * (1.0 + s * (-0.3333333333 + s * (0.1333333333 + s * (-0.0539682540 + s * 0.0218694885))))
        value = tl.where(size < 0.2, small, large)
        return tl.where(x < 0.0, -value, value)
    """,
    "trunc": "return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))",
}
#: Of torch's own functions those that reduce by a function, for which Triton's interpreter takes an element at a time.
_REDUCTIONS = {
    **{
        f"{name}_with_index(value, index, dim)": f"""
        lost = tl.max((value != value).to(tl.int32), dim) > 0
        best = tl.where(lost, tl.sum(tl.where(value != value, value, 0), dim), tl.{name}(value, dim))
        wide = tl.expand_dims(best, dim)
        found = (value == wide) | ((value != value) & (wide != wide))
        return best, tl.min(tl.where(found, index, 2147483647), dim)
        """
        for name in ("max", "min")
    },
    "any(a, dim)": "return tl.max(a.to(tl.int32), dim) > 0",
    "max2(a, dim)": """
        lost = tl.max((a != a).to(tl.int32), dim) > 0
        return tl.where(lost, tl.sum(tl.where(a != a, a, 0), dim), tl.max(a, dim))
    """,
    "min2(a, dim)": """
        lost = tl.max((a != a).to(tl.int32), dim) > 0
        return tl.where(lost, tl.sum(tl.where(a != a, a, 0), dim), tl.min(a, dim))
    """,
    "welford(mean, m2, weight, dim)": """
        count = tl.sum(weight, dim)
        combined = tl.sum(mean * weight, dim) / tl.where(count == 0.0, 1.0, count)
        shift = mean - tl.expand_dims(combined, dim)
        return combined, tl.sum(m2 + weight * shift * shift, dim), count
    """,
}
#: The grid of each kind of kernel, for blocks that the tuner chose.
_GRIDS = {"Grid1D": "x", "Grid2D": "xy", "Grid3D": "xyz", "Grid2DWithYZOverflow": "xy"}
_FLOAT_SYMBOL = re.compile(r"\bzf\d+\b")
_USED = re.compile(r"\b(libdevice|triton_helpers|tl_math|math)\.(\w+)")


class NotPortable(Exception):
    """A kernel needs something that cannot come along; the text names it."""


class TritonKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel as text.

    Attributes:
        name: of the function.
        source: of it, with its decorator.
        helpers: sources of the functions that it uses, each after those that it uses itself.
        parameters: names of what it is called with, in order.
        grid: blocks in each dimension, in terms of the parameters.
        numbers: floats that it takes besides, by the compiler's names.
        meta: constants of the launch, such as ``XBLOCK`` and ``num_warps``.
    """

    name: str
    source: str
    helpers: tuple[str, ...]
    parameters: tuple[str, ...]
    numbers: tuple[str, ...]
    grid: tuple[str, ...]
    meta: dict[str, int]


def portable(name: str, emitted: str, tuner: Any) -> TritonKernel:
    """Reduce an emitted kernel to its text and its launch.

    Args:
        name: of the kernel.
        emitted: the module that the compiler wrote for it.
        tuner: what that module's function is once it is imported.

    Raises:
        NotPortable: see there.
    """
    helpers: dict[str, str] = {}
    *combining, function = _functions(emitted)
    for text in combining:  # Of scans and sorts: each kernel has its own, under the same names.
        own = f"_combine_{digest(text.encode())[:8]}"
        old = syntax_tree(text).body[0].name  # type: ignore[attr-defined]
        helpers[own] = _replaced(text.replace(f"def {old}(", f"def {own}("), helpers)
        function = re.sub(rf"\b{old}\b", own, function)
    numbers = tuple(sorted(set(_FLOAT_SYMBOL.findall(function))))
    source = _replaced(_with_parameters(function, numbers), helpers)
    config = tuner.configs[0]
    names = tuner.fn.arg_names
    meta = {key: value for key, value in config.kwargs.items() if key in names}
    meta |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
    kind = tuner.inductor_meta["grid_type"]
    if kind not in _GRIDS:
        raise NotPortable(f"a {kind}")
    return TritonKernel(
        name=name,
        source=source,
        helpers=tuple(helpers.values()),
        parameters=tuple(key for key in names if key not in meta),
        numbers=numbers,
        grid=tuple(f"triton.cdiv({axis}numel, {meta.get(f'{axis.upper()}BLOCK', 1)})" for axis in _GRIDS[kind]),
        meta=meta,
    )


def _with_parameters(function: str, names: Sequence[str]) -> str:
    """The function with more parameters, before its constants: the compiler mentions floats without passing them."""
    if not names:
        return function
    head, separator, rest = function.partition("):\n")
    opening = head.index("(") + 1
    given = head[opening:].split(", ")
    place = next((at for at, text in enumerate(given) if "constexpr" in text), len(given))
    return f"{head[:opening]}{', '.join([*given[:place], *names, *given[place:]])}{separator}{rest}"


def _functions(emitted: str) -> list[str]:
    """The functions of a module, each with Triton's decorator alone; the kernel is the last."""
    lines = emitted.splitlines()
    return [
        "\n".join(["@triton.jit", *lines[node.lineno - 1 : node.end_lineno]])
        for node in syntax_tree(emitted).body
        if isinstance(node, ast.FunctionDef)
    ]


def launch(kernel: TritonKernel, arguments: Sequence[ast.expr], numbers: Sequence[ast.expr] = ()) -> ast.expr:
    """The expression that launches a kernel."""
    given = dict(zip(kernel.parameters, arguments, strict=True))
    grid = ", ".join(ast.unparse(_Substituted(given).visit(expression_tree(size))) for size in kernel.grid)
    texts = [*map(ast.unparse, (*arguments, *numbers)), *(f"{key}={value}" for key, value in kernel.meta.items())]
    comma = "," if len(kernel.grid) == 1 else ""
    return expression_tree(f"{kernel.name}[({grid}{comma})]({', '.join(texts)})")


class _Substituted(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._values.get(node.id, node)


def _replaced(text: str, helpers: dict[str, str]) -> str:
    """The text with every function of others under a name in the same file; adds these to ``helpers``."""
    return _USED.sub(lambda found: _own_name(found[1], found[2], helpers), text)


def _own_name(module: str, name: str, helpers: dict[str, str]) -> str:
    if module in ("math", "tl_math") or (module == "libdevice" and name in _TRITONS_OWN):
        return f"tl.{name}" if name in _TRITONS_OWN else f"tl.math.{name}"
    own = f"_{name}"
    if own not in helpers:
        helpers[own] = _written_out(name) if module == "libdevice" else _torchs(name, helpers)
    return own


def _written_out(name: str) -> str:
    if name not in _WRITTEN_OUT:
        raise NotPortable(f"libdevice.{name}")
    return _function(f"{name}({'x, y' if name == 'pow' else 'x'})", _WRITTEN_OUT[name])


def _function(signature: str, body: str) -> str:
    return f"@triton.jit\ndef _{signature}:\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}"


def _torchs(name: str, helpers: dict[str, str]) -> str:
    """The source of one of the compiler's own functions, with what it uses before it."""
    from torch._inductor.runtime import triton_helpers

    for signature, body in _REDUCTIONS.items():
        if signature.startswith(f"{name}("):
            return _function(signature, body)
    function = getattr(triton_helpers, name)
    text = textwrap.dedent(inspect.getsource(getattr(function, "fn", function))).strip()
    for used in sorted({node.id for node in ast.walk(syntax_tree(text)) if isinstance(node, ast.Name)} - {name}):
        other = getattr(triton_helpers, used, None)
        if used in ("tl", "triton", "math", "libdevice") or other is None:
            continue
        if not hasattr(other, "fn"):
            raise NotPortable(f"triton_helpers.{used}")
        if f"_{used}" not in helpers:
            helpers[f"_{used}"] = _torchs(used, helpers)
        text = re.sub(rf"(?<![\w.]){used}\b(?!\s*=[^=])", f"_{used}", text)
    text = text.replace("@constexpr_function", "@triton.constexpr_function")
    return _replaced(re.sub(rf"\bdef {name}\b", f"def _{name}", text), helpers)
