"""Operator folders to start from: typed stubs in the public layout, and a README on how to go on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from opsmith.backends.signature import Signature, signature_of
from opsmith.core.op import OpSchema, folder_name, version_file
from opsmith.errors import BadInput

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
        files[version_file(schema.name, 1)] = stub(schema, sorted(answers.get(schema.name, ())))
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
    signature = signature_of(schema)
    answers = f"\n    Answers these too, with a copy at the end: {', '.join(derived)}.\n" if derived else ""
    parameters = parameter_lines(signature)
    escaped = schema.schema.replace("\\", "\\\\").replace('"', r"\"")
    return _STUB.format(
        op=schema.name,
        folder=folder_name(schema.name),
        imports="from collections.abc import Sequence\n\n" if "Sequence[" in parameters + signature.returns else "",
        parameters=parameters,
        returns=signature.returns,
        schema=textwrap.fill(escaped, width=112, subsequent_indent="    ", break_long_words=False),
        derived=answers,
    )


def parameter_lines(signature: Signature) -> str:
    """The parameters of a function definition, one a line."""
    positional = [parameter.text for parameter in signature.parameters if not parameter.keyword_only]
    keyword_only = [parameter.text for parameter in signature.parameters if parameter.keyword_only]
    lines = [*positional, *(["*"] if keyword_only else []), *keyword_only]
    return "".join(f"    {line},\n" for line in lines)


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
