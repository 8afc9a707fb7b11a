"""Short dtype names, the ones used in traces, records and on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from opsmith.errors import UnknownName

#: short name -> name of the attribute of ``torch``.
TORCH_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "b8": "bool",
    "c128": "complex128",
    "c64": "complex64",
    "c32": "complex32",
}

SHORT_NAMES = {long: short for short, long in TORCH_NAMES.items()}

#: Formats of 8 bits and fewer, which no arithmetic is done in: floats, scales of blocks, and two packed numbers a byte.
#: The short names are torch's own.
LOW_PRECISION = {
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f4e2m1fnx2": "float4_e2m1fn_x2",
}

#: Those that a tensor of a record or a trace can have: a generator's state is u64. No suite is asked
#: for one that is not among the first.
TENSOR_DTYPES = {**TORCH_NAMES, "u64": "uint64", "u32": "uint32", "u16": "uint16", **LOW_PRECISION}
TENSOR_SHORT_NAMES = {long: short for short, long in TENSOR_DTYPES.items()}

#: Those of numbers that are rounded.
ROUNDED_DTYPES = frozenset({"f64", "f32", "f16", "bf16", "c128", "c64", "c32", *LOW_PRECISION})


def of_call(dtypes: Iterable[str]) -> frozenset[str]:
    """The dtypes that decide who answers a call, of those that its tensors have: where any are rounded, these alone.

    Indices and masks beside floats have dtypes of their own in every call.
    """
    found = frozenset(dtypes)
    return found & ROUNDED_DTYPES or found


#: Stands for the dtypes that a dataset's inputs were recorded with.
RECORDED = "recorded"


def parse_dtypes(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of dtype names, short or long, ``all``, or ``recorded``.

    Raises:
        UnknownName: a name that is neither.
    """
    if text == "all":
        return tuple(TORCH_NAMES)
    names = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        short = SHORT_NAMES.get(word.removeprefix("torch."), word)
        if short not in TORCH_NAMES and short != RECORDED:
            raise UnknownName("dtype", word, [*TORCH_NAMES, *SHORT_NAMES])
        names.append(short)
    return tuple(dict.fromkeys(names))
