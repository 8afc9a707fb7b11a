"""Operator folders to start from: typed stubs in the public layout, and a README on how to go on."""

from __future__ import annotations

import ast
import keyword
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from torchgen.model import Argument, BaseTy, BaseType, FunctionSchema, ListType, OptionalType, Type

from opsmith.core.op import OpSchema, folder_name
from opsmith.errors import BadInput

_PYTHON_TYPES = {
    BaseTy.Tensor: "torch.Tensor",
    BaseTy.int: "int",
    BaseTy.SymInt: "int",
    BaseTy.float: "float",
    BaseTy.bool: "bool",
    BaseTy.str: "str",
    BaseTy.Scalar: "int | float | complex",
    BaseTy.ScalarType: "torch.dtype",
    BaseTy.Layout: "torch.layout",
    BaseTy.Device: "torch.device",
    BaseTy.MemoryFormat: "torch.memory_format",
    BaseTy.Generator: "torch.Generator",
    BaseTy.Storage: "torch.UntypedStorage",
    BaseTy.Stream: "torch.Stream",
}
#: Schemas print enumerations as numbers: ``ScalarType? dtype=4``, ``MemoryFormat memory_format=0``.
_ENUMERATED_DEFAULTS = {
    (BaseTy.ScalarType, "4"): "torch.int64",
    (BaseTy.ScalarType, "6"): "torch.float32",
    (BaseTy.MemoryFormat, "0"): "torch.contiguous_format",
}
# torchgen splits arguments at ", " and so does not read the default in `int[2] stride=[1, 1]`.
_LIST_DEFAULT = re.compile(r"=\[[^\]]*\]")

_STUB = '''"""A kernel for {op}."""

from __future__ import annotations

{imports}import torch


def {folder}_kernel_impl(
{parameters}) -> {returns}:
    """{schema}
{derived}
    To decline a case (a dtype, a layout), raise NotImplementedError before writing to anything.
    """
    raise NotImplementedError("{op} is not written yet")
'''

_README = """# Kernels

One folder for each operator, named after its ATen overload with `__` for the dot:
`add__Tensor` is `add.Tensor`, `add___Tensor` is `add_.Tensor`.

1. Write the function in `<folder>/<folder>_implementation_v1.py`. Its signature is the overload's
   schema. Any language will do that Python can call: Triton, CUDA or C++ through
   `torch.utils.cpp_extension`, plain PyTorch.
2. Judge one kernel while you write it:

       opsmith check {first}/{first}_implementation_v1.py --task {first_op}

3. Judge the directory:

       opsmith run --suite opinfo --backend .

A second version is a file `..._v2.py`; the highest number is judged. Further files in a folder
can be imported relatively (`from . import tiles`). In-place and `out=` overloads are answered by
the functional kernel and a copy; give one a folder of its own where a direct kernel is faster.
A kernel declines a case by raising `NotImplementedError` before it writes to anything.
"""


class Scaffolded(msgspec.Struct, frozen=True, kw_only=True):
    """What was done.

    Attributes:
        written: new files, relative to the directory.
        kept: files that were there already and stay as they are.
    """

    written: tuple[str, ...]
    kept: tuple[str, ...]


def scaffold(directory: Path, schemas: Iterable[OpSchema], *, derived: Iterable[OpSchema] = ()) -> Scaffolded:
    """Write a stub for each of ``schemas`` and a README; existing files are never touched.

    Args:
        directory: made where it does not exist.
        schemas: the overloads to write a kernel for.
        derived: overloads that need none because their functional one answers; named in its stub.

    Raises:
        BadInput: the directory cannot be written.
    """
    chosen = sorted(schemas, key=lambda schema: schema.name)
    answers: dict[str | None, list[str]] = {}
    for variant in derived:
        answers.setdefault(variant.functional, []).append(variant.name)
    files = {}
    for schema in chosen:
        folder = folder_name(schema.name)
        files[f"{folder}/{folder}_implementation_v1.py"] = stub(schema, sorted(answers.get(schema.name, ())))
    if chosen:
        files["README.md"] = _README.format(first=folder_name(chosen[0].name), first_op=chosen[0].name)
    written = [name for name, text in files.items() if _write_new(directory / name, text)]
    return Scaffolded(written=tuple(written), kept=tuple(name for name in files if name not in written))


def stub(schema: OpSchema, derived: Sequence[str] = ()) -> str:
    """The source of a stub for one overload.

    Args:
        schema: the overload.
        derived: names of the in-place and ``out=`` overloads that the kernel answers as well.
    """
    parsed = _parse(schema.schema)
    answers = f"\n    Answers these too, with a copy at the end: {', '.join(derived)}.\n" if derived else ""
    parameters, returns = _parameters(parsed), _returns(parsed)
    escaped = schema.schema.replace("\\", "\\\\").replace('"', r"\"")
    return _STUB.format(
        op=schema.name,
        folder=folder_name(schema.name),
        imports="from collections.abc import Sequence\n\n" if "Sequence[" in parameters + returns else "",
        parameters=parameters,
        returns=returns,
        schema=textwrap.fill(escaped, width=112, subsequent_indent="    ", break_long_words=False),
        derived=answers,
    )


def _parse(text: str) -> FunctionSchema:
    compact = _LIST_DEFAULT.sub(lambda default: default[0].replace(", ", ","), text)
    return FunctionSchema.parse(compact.removeprefix("aten::"))


def _parameters(schema: FunctionSchema) -> str:
    arguments = schema.arguments
    positional = [_parameter(argument) for argument in arguments.flat_positional]
    keyword_only = [_parameter(argument) for argument in (*arguments.flat_kwarg_only, *arguments.out)]
    lines = [*positional, *(["*"] if keyword_only else []), *keyword_only]
    return "".join(f"    {line},\n" for line in lines)


def _parameter(argument: Argument) -> str:
    # `from` of random_.from and uniform: the judge passes positional arguments by position.
    name = f"{argument.name}_" if keyword.iskeyword(argument.name) else argument.name
    default = "" if argument.default is None else f" = {_default(argument.type, argument.default)}"
    return f"{name}: {_annotation(argument.type)}{default}"


def _annotation(kind: Type) -> str:
    match kind:
        case OptionalType(elem=element):
            return f"{_annotation(element)} | None"
        case ListType(elem=element):
            return f"Sequence[{_annotation(element)}]"
        case BaseType(name=name):
            return _PYTHON_TYPES.get(name, "object")
    return "object"


def _default(kind: Type, text: str) -> str:
    base = kind.elem if isinstance(kind, OptionalType) else kind
    if isinstance(base, BaseType) and (base.name, text) in _ENUMERATED_DEFAULTS:
        return _ENUMERATED_DEFAULTS[base.name, text]
    value = ast.literal_eval(text)
    if isinstance(base, ListType) and value is not None:
        # `int[2] padding=0` means the same number for both.
        value = tuple(value) if isinstance(value, list) else (value,) * (base.size or 1)
    return repr(value)


def _returns(schema: FunctionSchema) -> str:
    kinds = [_annotation(returned.type) for returned in schema.returns]
    if not kinds:
        return "None"
    return kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]"


def _write_new(path: Path, text: str) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        if path.is_file():
            return False
        raise BadInput(f"{path} cannot be written: something else is in its place") from None
    except OSError as exc:
        raise BadInput(f"{path} cannot be written: {exc.strerror}") from exc
    return True
