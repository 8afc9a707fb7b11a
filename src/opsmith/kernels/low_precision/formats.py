"""Number formats of 8 bits and fewer in registers: conversions, largest magnitudes, and scales that are powers of two.

OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2), OCP Microscaling Formats 1.0 (E8M0, E2M1). All round to
nearest, ties to even. What is beyond the range of a format of 8 bits becomes its largest number, as Hopper's
instruction has it (``cvt.rn.satfinite``); NaN stays NaN.

Scales follow eager's operations one by one, so that they have eager's bits: a division by a number is one on a CPU, and
a multiplication by its reciprocal on a GPU, as ATen has it.

Triton's interpreter rounds to 8 bits without the carry and knows neither infinities nor NaN there: it takes other
instructions to the same numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

from ..common.indexing import converted
from ..common.launch import INTERPRETED, require_served

_INTERPRETED = tl.constexpr(INTERPRETED)
#: What a row's largest magnitude is taken for at least: 1e-12 in float32.
_LEAST = tl.constexpr(1e-12)
#: 1.5 * 2^23: a number of up to 22 bits that is added to it is rounded to an integer, which its last bits then hold.
_ROUNDING = tl.constexpr(12582912.0)

#: E4M3, E5M2 and E8M0, E2M1 with two numbers a byte, and E4M3 without a negative zero.
E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu
PACKED, FNUZ = torch.float4_e2m1fn_x2, torch.float8_e4m3fnuz
FLOAT8 = (E4M3, E5M2)
E4M3_LARGEST, E2M1_LARGEST = 448.0, 6.0
#: What products and widened weights are rounded to.
ROUNDED = torch.bfloat16
#: What is quantised, and what float scales may be.
SOURCES = (torch.bfloat16, torch.float16, torch.float32)


# ---------------------------------------------------------------- host


def require_low(*tensors: torch.Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    """As :func:`~..common.launch.require_served`; GPUs without instructions for E4M3 are declined as well.

    Raises:
        NotImplementedError: with one line that says which property is not served.
    """
    require_served(*tensors, dtypes=dtypes)
    # Ada has the conversions, and Hopper the tensor cores that wgmma asks; nothing was run on Ada.
    if not INTERPRETED and not cuda_capability_geq(9):
        raise NotImplementedError("formats of 8 bits need a GPU of compute capability 9.0 at least")


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor of a format, as kernels get them."""
    return tensor.view(torch.uint8)


# ---------------------------------------------------------------- largest magnitudes


@triton.jit
def magnitude_bits(x: tl.tensor) -> tl.tensor:
    """The bits of ``|x|`` in float32, which are in the order of the numbers, NaN above all of them."""
    return x.to(tl.float32).to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def as_number(bits: tl.tensor) -> tl.tensor:
    """The float32 that some bits are."""
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def over_number(x: tl.tensor, NUMBER: tl.constexpr) -> tl.tensor:
    """``x / NUMBER`` with the bits that ATen's division by a Python number has on the same device."""
    if _INTERPRETED:
        result = tl.div_rn(x, tl.full(x.shape, NUMBER, tl.float32))
    else:
        result = x * (1.0 / NUMBER)
    return result


@triton.jit
def scale_of(bits: tl.tensor, LARGEST: tl.constexpr) -> tl.tensor:
    """``max(largest, 1e-12) / LARGEST`` of the bits of a largest magnitude; NaN stays NaN."""
    largest = as_number(bits)
    return over_number(tl.where(largest < _LEAST, _LEAST, largest), LARGEST)


@triton.jit
def quotients(x: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """``x / scale`` of scales above zero, rounded as IEEE 754 says; shapes are broadcast.

    A product with the reciprocal and one correction by the remainder (Markstein, 1990): three instructions an element,
    where a division takes some ten. Of an infinite scale, whose quotients are 0 and NaN, the remainder is left out.
    """
    if _INTERPRETED:
        result = tl.div_rn(x, scale)  # It rounds the product of a fused operation as well.
    else:
        reciprocal = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)
        finite = tl.where(scale < float("inf"), scale, 0.0)
        first = x * reciprocal
        left = tl.fma(-first, tl.broadcast_to(finite, x.shape), x)
        result = tl.fma(left, tl.broadcast_to(reciprocal, x.shape), first)
    return result


@triton.jit
def scale_at(scale_ptr: tl.tensor) -> tl.tensor:
    """Scales of any float type, in float32."""
    return converted(tl.load(scale_ptr), tl.float32)


@triton.jit
def block_exponent(bits: tl.tensor, LARGEST: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The E8M0 code of a block, and the factor that scales it.

    The scale is the smallest power of two that is not below ``largest / LARGEST``, by its bits. The factor is one over
    it; eager's logarithm makes it infinite for a block of zeros, whose elements are then NaN, and 0 where the largest
    is infinite.
    """
    largest = over_number(as_number(bits), LARGEST)
    bits = largest.to(tl.int32, bitcast=True)
    code = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(tl.int32)
    factor = as_number((254 - tl.minimum(code, 254)) << 23)
    factor = tl.where(largest < float("inf"), factor, 0.0)
    # Zero and NaN are not above zero: infinity comes of the one, and NaN of the other.
    return code.to(tl.uint8), tl.where(largest > 0, factor, largest + float("inf"))


# ---------------------------------------------------------------- to and from the formats


@triton.jit
def to_float8(x: tl.tensor, FORMAT: tl.constexpr) -> tl.tensor:
    """The byte of float32 in the FORMAT "E4M3" or "E5M2"."""
    if _INTERPRETED:
        DIGITS: tl.constexpr = 3 if FORMAT == "E4M3" else 2
        BIAS: tl.constexpr = 7 if FORMAT == "E4M3" else 15
        LARGEST: tl.constexpr = 448.0 if FORMAT == "E4M3" else 57344.0
        size = tl.where(tl.abs(x) > LARGEST, LARGEST, tl.abs(x))
        bits = magnitude_bits(size)
        # Half of the last digit that stays is added, or a little less, so that ties go to the even one.
        rounded = (bits + ((1 << (22 - DIGITS)) - 1) + ((bits >> (23 - DIGITS)) & 1)) >> (23 - DIGITS)
        normal = rounded - ((127 - BIAS) << DIGITS)
        steps = (size * 2.0 ** (BIAS - 1 + DIGITS) + _ROUNDING).to(tl.int32, bitcast=True) & 0xFF
        code = tl.where(size < 2.0 ** (1 - BIAS), steps, normal)
        code = tl.where(x == x, code, 0x7F)  # noqa: PLR0124 - false for NaN
        byte = (code | ((x.to(tl.int32, bitcast=True) >> 24) & 0x80)).to(tl.uint8)
    else:
        TYPE: tl.constexpr = tl.float8e4nv if FORMAT == "E4M3" else tl.float8e5
        byte = x.to(TYPE).to(tl.uint8, bitcast=True)
    return byte


@triton.jit
def as_float8(byte: tl.tensor, FORMAT: tl.constexpr) -> tl.tensor:
    """A byte as the number of 8 bits that it is."""
    TYPE: tl.constexpr = tl.float8e4nv if FORMAT == "E4M3" else tl.float8e5
    return byte.to(TYPE, bitcast=True)


@triton.jit
def from_float8(x: tl.tensor) -> tl.tensor:
    """The float32 of E4M3 or E5M2."""
    wide = x.to(tl.float32)
    if _INTERPRETED:
        size = x.to(tl.uint8, bitcast=True) & 0x7F
        if x.dtype == tl.float8e4nv:
            wide = tl.where(size == 0x7F, float("nan"), wide)
        else:
            wide = tl.where(size > 0x7C, float("nan"), tl.where(size == 0x7C, wide * float("inf"), wide))
    return wide


@triton.jit
def to_float4(x: tl.tensor) -> tl.tensor:
    """The code of float32 in E2M1, 4 bits in int32; what is too large becomes 6, NaN zero.

    Steps are a half below 2, one below 4, and two above. In steps a number is rounded to an integer, ties to even: of
    the codes every second one is even, and so are its steps.
    """
    size = tl.abs(x)
    size = tl.where(size > 6.0, 6.0, tl.where(x == x, size, 0.0))  # noqa: PLR0124 - false for NaN
    per_step = tl.where(size < 4.0, tl.where(size < 2.0, 2.0, 1.0), 0.5)
    first = tl.where(size < 4.0, tl.where(size < 2.0, 0, 2), 4)
    steps = (size * per_step + _ROUNDING).to(tl.int32, bitcast=True) & 7
    return (steps + first) | tl.where(x < 0, 8, 0)


@triton.jit
def from_float4(code: tl.tensor) -> tl.tensor:
    """The float32 of a code in E2M1: its exponent, whose bias is 126 less than float32's, and its digit moved there."""
    code = code.to(tl.int32)
    size = as_number(((code & 7) << 22) + (126 << 23))
    size = tl.where((code & 7) < 2, (code & 7).to(tl.float32) * 0.5, size)  # Zero, and the only subnormal number.
    return tl.where(code > 7, -size, size)


@triton.jit
def from_exponent(byte: tl.tensor) -> tl.tensor:
    """The float32 of a byte in E8M0, ``2^(byte - 127)``; 255 is NaN, and 0 a subnormal number."""
    code = byte.to(tl.int32)
    bits = tl.where(code == 0, 0x400000, tl.where(code == 255, 0x7FC00000, code << 23))
    return as_number(bits)


@triton.jit
def packed(code_RC: tl.tensor) -> tl.tensor:
    """Codes of 4 bits as bytes, two neighbours along the columns in one, the first in the lower half."""
    pair_RC2 = tl.reshape(code_RC, [code_RC.shape[0], code_RC.shape[1] // 2, 2])
    low_RC, high_RC = tl.split(pair_RC2)
    return (low_RC | (high_RC << 4)).to(tl.uint8)
