"""The text of a kernel file: the compiler's sources, the guard table, and what brings them together."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

import msgspec

from opsmith.backends.scaffold import parameter_lines
from opsmith.backends.signature import Signature
from opsmith.core.case import ComplexValue, NamedValue, Value, digest
from opsmith.core.dtypes import TENSOR_DTYPES
from opsmith.core.op import OpSchema, folder_name
from opsmith.generate.inductor.cpp_text import HEADER
from opsmith.generate.inductor.messages import Facts, Language
from opsmith.generate.inductor.rows import (
    ConstantPattern,
    EmittedKernel,
    NumberPattern,
    Pattern,
    Row,
    SequencePattern,
    TensorPattern,
    condition,
    leaf_patterns,
    size_name,
    stride_name,
)

_CTYPES = {"int64_t": "c_int64", "double": "c_double"}

_CPP = '''"""{op} on a CPU: C++ that torch's compiler wrote, behind a table of guards.

The sources in SOURCE are Inductor's, of torch {torch}, as it emits them for this op alone. {guards_note}
The compiler is not needed to run this file; a C++ compiler is, once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
{imports}
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <{header}>

{source}
"""

_library = ctypes.CDLL(
    load_inline(
        name="{name}",
        cpp_sources=SOURCE,
        extra_cflags={cflags},
        extra_ldflags=["-fopenmp"],
        is_python_module=False,
        no_implicit_headers=True,
    )
)
{declarations}

#: Elements that are worth a thread of their own.
ELEMENTS_PER_THREAD = 32768


def _run(kernel: Callable[..., None], *arguments: Any) -> None:
    """Call a kernel with the addresses of tensors, with numbers as they are, and with the number of threads."""
    values, most = [], 0
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            most = max(most, argument.numel())
            argument = argument.data_ptr()
        values.append(argument)
    kernel(*values, min(torch.get_num_threads(), 1 + most // ELEMENTS_PER_THREAD))


def _empty(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


def _is_served(argument: torch.Tensor) -> bool:
    return argument.device.type == "cpu" and argument.layout is torch.strided

'''

_TRITON = '''"""{op} on a GPU: Triton that torch's compiler wrote, behind a table of guards.

The kernels are Inductor's, of torch {torch}, as it emits them for this op alone, with the blocks that it begins with.
{guards_note} The compiler is not needed to run this file.
"""

# No postponed annotations: Triton reads those of its constants.
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
{imports}
import torch
import triton
import triton.language as tl

{source}


def _empty(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


def _is_served(argument: torch.Tensor) -> bool:
    return argument.layout is torch.strided

'''

_METAL = '''"""{op} on MPS: Metal that torch's compiler wrote, behind a table of guards.

The kernels in SOURCE are Inductor's, of torch {torch}, as it emits them for this op alone. {guards_note}
The compiler is not needed to run this file; a Mac is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
{imports}
import torch

SOURCE = r"""
{source}
"""


@functools.cache
def _library() -> Any:
    """The kernels, compiled at the first call."""
    return torch.mps.compile_shader(SOURCE)


def _empty(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


def _is_served(argument: torch.Tensor) -> bool:
    if not torch.backends.mps.is_available():
        raise NotImplementedError("a kernel in Metal needs MPS, which this machine does not have")
    return argument.device.type == "mps" and argument.layout is torch.strided

'''

_GUARDS_NOTE = """Each row of GUARDS
says for which calls one of them was written: dtype, rank and layout of each tensor, the other arguments, and
what the compiler took for granted of the sizes. A call is answered by the first row that fits, and declined
where none does."""

_FILE = '''
def _view(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)

{rows}

class TensorKind(NamedTuple):
    """A dtype, a rank and a class of layouts.

    Attributes:
        dtype: of the elements.
        empty: of each dimension whether its size is 0.
        layout: "contiguous", or of each dimension the stride where it is 0 or 1 and None where any will do.
    """

    dtype: torch.dtype
    empty: tuple[bool, ...]
    layout: str | tuple[int | None, ...]


class Guard(NamedTuple):
    """One row: the kinds of the arguments, what else has to hold of sizes and numbers, and what to run then."""

    kinds: tuple[Any, ...]
    assumes: Callable[..., bool]
    run: Callable[..., Any]


GUARDS = (
{guards}
)

#: Why some calls have no row.
WITHOUT_A_ROW = (
{without}
)

_BY_KINDS: dict[tuple[Any, ...], list[Guard]] = {{}}
for _guard in GUARDS:
    _BY_KINDS.setdefault(_guard.kinds, []).append(_guard)


def _kind(argument: Any) -> Any:
    """What a guard compares: of a tensor its kind, of a number its type, of anything else the value."""
    if isinstance(argument, torch.Tensor):
        layout = "contiguous"
        if not argument.is_contiguous():
            layout = tuple([stride if stride < 2 else None for stride in argument.stride()])
        return TensorKind(argument.dtype, tuple([size == 0 for size in argument.shape]), layout)
    if isinstance(argument, (list, tuple)):
        return tuple([_kind(item) for item in argument])
    return type(argument) if type(argument) in (int, float) else argument


def _packed(argument: Any) -> Any:
    """A tensor in row-major order; anything else as it is."""
    if isinstance(argument, (list, tuple)):
        return [_packed(item) for item in argument]
    return argument.contiguous() if isinstance(argument, torch.Tensor) else argument


def _leaves(arguments: Sequence[Any]) -> Iterator[Any]:
    """The tensors and numbers among the arguments, in order."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            if not _is_served(argument):
                raise NotImplementedError(f"{{argument.device}} and {{argument.layout}} are not served")
            if argument.is_conj() or argument.is_neg():
                raise NotImplementedError("conjugate and negative views are not served")
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from _leaves(argument)
        elif type(argument) in (int, float):
            yield argument


def _run_for(arguments: Sequence[Any], leaves: Sequence[Any]) -> Callable[..., Any] | None:
    """What the first row runs that lets a call pass."""
    for guard in _BY_KINDS.get(_kind(arguments), ()):
        if guard.assumes(*leaves):
            return guard.run
    return None


def _answer(*arguments: Any) -> Any:
    leaves = tuple(_leaves(arguments))
    run = _run_for(arguments, leaves)
    if run is None:
        # Few layouts have a row of their own; every call has one for contiguous tensors, or none at all.
{stay}        arguments = tuple([_packed(argument) for argument in arguments])
        leaves = tuple(_leaves(arguments))
        run = _run_for(arguments, leaves)
    if run is None:
        raise NotImplementedError(f"no row of {op} serves {{_told(arguments)}}; {{WITHOUT_A_ROW}}")
    return run(*leaves)


def _told(argument: Any) -> str:
    """An argument in few words: dtype and sizes of a tensor."""
    if isinstance(argument, torch.Tensor):
        return f"{{argument.dtype}}{{list(argument.shape)}}".removeprefix("torch.")
    if isinstance(argument, (list, tuple)):
        return f"({{', '.join(map(_told, argument))}})"
    return repr(argument)


def {folder}_kernel_impl(
{parameters}) -> {returns}:
    """{schema}

    Raises:
        NotImplementedError: no kernel was written for such a call.
    """
    return _answer({names})
'''

#: Of the reasons why calls have no row, those that a file tells.
MOST_REASONS = 3
#: Overloads that write to arguments without saying so in their schema -> the places of these.
_WRITTEN = {"native_batch_norm.default": (3, 4)}
_STAY = """\
        if any(arguments[place] is not None and not arguments[place].is_contiguous() for place in {written}):
            raise NotImplementedError("what is written to cannot be a copy")
"""

_ROW = """

def _assumes_{number}({leaves}) -> bool:
{assumes}


def _row_{number}({leaves}) -> Any:
{host}
"""


def kernel_file(
    schema: OpSchema,
    signature: Signature,
    rows: Sequence[Row],
    facts: Facts,
    language: Language = Language.CPP,
    *,
    without: Sequence[str] = (),
) -> str:
    """The file for an overload.

    Args:
        schema: of the overload.
        signature: of the function in it.
        rows: of the table, those first that are to be tried first.
        facts: about the compiler.
        language: of the kernels.
        without: why calls that it was to serve have no row.
    """
    reasons = "; ".join(without[:MOST_REASONS]) or "it was written for other kinds of calls"
    head = {Language.CPP: _cpp, Language.TRITON: _triton, Language.METAL: _metal}[language]
    rows = [_numbered(number, row, language) for number, row in enumerate(rows)]
    escaped = schema.schema.replace("\\", "\\\\").replace('"', r"\"")
    return head(schema, rows, facts) + _FILE.format(
        op=schema.name,
        without="\n".join(f"    {line!r}" for line in textwrap.wrap(reasons, 100, drop_whitespace=False)),
        stay=_STAY.format(written=_WRITTEN[schema.name]) if schema.name in _WRITTEN else "",
        rows="".join(_row(number, row) for number, row in enumerate(rows)),
        guards="\n".join(_guard(number, row) for number, row in enumerate(rows)),
        folder=folder_name(schema.name),
        parameters=parameter_lines(signature),
        returns=signature.returns,
        schema=textwrap.fill(escaped, width=112, subsequent_indent="    ", break_long_words=False),
        names=", ".join(parameter.name for parameter in signature.parameters),
    )


def _head(schema: OpSchema, rows: Sequence[Row], facts: Facts) -> dict[str, str]:
    """What a file of any language begins with."""
    return {"op": schema.name, "torch": facts.torch, "guards_note": _GUARDS_NOTE, "imports": _imports(rows)}


def _cpp(schema: OpSchema, rows: Sequence[Row], facts: Facts) -> str:
    kernels = [kernel for row in rows for kernel in row.kernels]
    source = "\n\n".join(kernel.source for kernel in kernels)
    flags = ["-O3", "-DNDEBUG", "-fopenmp", "-ffp-contract=off", "-fno-math-errno", "-w", *facts.vector_flags]
    return _CPP.format(
        **_head(schema, rows, facts),
        header=HEADER,
        source=source,
        name=f"opsmith_{folder_name(schema.name)}_{digest(source.encode())}",
        cflags=_list(flags),
        declarations="\n".join(map(_declaration, kernels)),
    )


def _metal(schema: OpSchema, rows: Sequence[Row], facts: Facts) -> str:
    includes, kernels = _texts(rows)
    source = "\n\n".join(["\n".join(sorted(includes)), *kernels])
    return _METAL.format(**_head(schema, rows, facts), source=source)


def _texts(rows: Iterable[Row]) -> tuple[list[str], list[str]]:
    """What kernels use, each once, and the kernels."""
    kernels = [kernel for row in rows for kernel in row.kernels]
    return list(dict.fromkeys(text for kernel in kernels for text in kernel.helpers)), [k.source for k in kernels]


def _triton(schema: OpSchema, rows: Sequence[Row], facts: Facts) -> str:
    helpers, kernels = _texts(rows)
    return _TRITON.format(**_head(schema, rows, facts), source="\n\n\n".join([*helpers, *kernels]))


def _numbered(number: int, row: Row, language: Language) -> Row:
    """The row with names of its own for its kernels."""
    new = {kernel.name: f"row{number}_{kernel.name}" for kernel in row.kernels}
    library = {Language.CPP: "_library.", Language.TRITON: "", Language.METAL: "_library()."}[language]
    host = [_renamed(text, {name: f"{library}{value}" for name, value in new.items()}) for text in row.host]
    kernels = [
        msgspec.structs.replace(kernel, name=new[kernel.name], source=_renamed(kernel.source, new))
        for kernel in row.kernels
    ]
    return msgspec.structs.replace(row, host=tuple(host), kernels=tuple(kernels))


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b\w+\b", lambda word: names.get(word[0], word[0]), text)


def _imports(rows: Iterable[Row]) -> str:
    return "import math\n" if any("math." in text for row in rows for text in (*row.conditions, *row.host)) else ""


def _declaration(kernel: EmittedKernel) -> str:
    types = []
    for argument in kernel.arguments:
        words = argument.replace("*", " * ").split()
        types.append("ctypes.c_void_p" if "*" in words else f"ctypes.{_CTYPES[words[-1]]}")
    return f"_library.{kernel.name}.argtypes = {_list(types, quoted=False)}\n_library.{kernel.name}.restype = None"


def _list(items: Iterable[str], *, quoted: bool = True) -> str:
    return "[" + ", ".join(f'"{item}"' if quoted else item for item in items) + "]"


# ---------------------------------------------------------------- rows


def _row(number: int, row: Row) -> str:
    host = (*row.host[:-1], _result(row.host[-1], row.returns))
    return _ROW.format(
        number=number,
        leaves=", ".join(f"{name}: {_annotation(row, name)}" for name in row.leaves),
        assumes=textwrap.indent("\n".join(_assumptions(row)), "    "),
        host=textwrap.indent("\n".join(host), "    "),
    )


def _result(statement: str, returns: str) -> str:
    """The last statement, which returns a tuple, with what the overload returns."""
    values = re.fullmatch(r"return \((.*?),?\)", statement, re.DOTALL)
    assert values is not None, statement
    return {"tensor": f"return {values[1]}", "tuple": statement, "list": f"return [{values[1]}]"}[returns]


def _annotation(row: Row, name: str) -> str:
    numbers = dict(_numbers(row.patterns.items()))
    return numbers.get(name, "torch.Tensor")


def _numbers(patterns: Iterable[tuple[str, Pattern]]) -> Iterable[tuple[str, str]]:
    for name, pattern in leaf_patterns(patterns):
        if isinstance(pattern, NumberPattern):
            yield name, pattern.python


def _tensors(patterns: Iterable[tuple[str, Pattern]]) -> Iterable[tuple[str, TensorPattern]]:
    for name, pattern in leaf_patterns(patterns):
        if isinstance(pattern, TensorPattern):
            yield name, pattern


def _assumptions(row: Row) -> Iterable[str]:
    """The statements of the function that says whether the conditions hold."""
    used = frozenset[str]().union(*(condition(text).names for text in row.conditions))
    for name, pattern in _tensors(row.patterns.items()):
        dims = range(len(pattern.empty))
        for fact, names in (
            ("shape", [size_name(name, dim) for dim in dims]),
            ("stride()", [stride_name(name, dim) for dim in dims]),
        ):
            if used.intersection(names):
                yield f"{', '.join(names)}{',' if len(names) == 1 else ''} = {name}.{fact}"
    if not row.conditions:
        yield "return True"
    elif len(row.conditions) == 1:
        yield f"return {row.conditions[0]}"
    else:
        yield "return (\n    " + "\n    and ".join(map(_operand, row.conditions)) + "\n)"


def _operand(text: str) -> str:
    """A condition as an operand of ``and``."""
    return f"({text})" if " or " in text else text


# ---------------------------------------------------------------- guards


def _guard(number: int, row: Row) -> str:
    return f"    Guard({_tuple(map(_kind, row.patterns.values()))}, _assumes_{number}, _row_{number}),"


def _kind(pattern: Pattern) -> str:
    match pattern:
        case TensorPattern():
            layout = '"contiguous"' if pattern.strides is None else repr(pattern.strides)
            return f"TensorKind(torch.{TENSOR_DTYPES[pattern.dtype]}, {pattern.empty!r}, {layout})"
        case NumberPattern():
            return pattern.python
        case ConstantPattern():
            return _constant(pattern.value)
        case SequencePattern():
            return _tuple(map(_kind, pattern.items))


def _tuple(items: Iterable[str]) -> str:
    texts = list(items)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _constant(value: Value) -> str:
    if isinstance(value, NamedValue):
        return f'torch.device("{value.name}")' if value.kind == "device" else f"torch.{value.name}"
    return repr(complex(value.real, value.imag)) if isinstance(value, ComplexValue) else repr(value)
