"""Domains: which values make sense for a tensor that was recorded without them.

An index has to lie inside what it indexes, a variance is positive, a probability lies between 0
and 1. A domain says so in a few numbers; ``opsmith.calls.synthetic`` draws values from it.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

#: Every so many of a loss's targets one is ignored.
IGNORED_EVERY = 8


class Normal(msgspec.Struct, frozen=True, tag="normal", array_like=True):
    """Numbers of both signs with a root mean square of ``scale``.

    Their magnitude varies along the memory by a factor of 16, so that no two parts of a tensor
    look alike to a kernel that mixes them up.
    """

    scale: float = 1.0


class Uniform(msgspec.Struct, frozen=True, tag="uniform", array_like=True):
    """Numbers between ``low`` and ``high``."""

    low: float
    high: float


class Magnitude(msgspec.Struct, frozen=True, tag="magnitude", array_like=True):
    """Numbers whose size lies between ``low`` and ``high``, evenly over the orders of magnitude.

    Attributes:
        low: the smallest size, above 0.
        high: the largest size.
        signed: half of them are negative.
    """

    low: float
    high: float
    signed: bool = False


class Integers(msgspec.Struct, frozen=True, tag="integers", array_like=True):
    """``origin + unit * k`` for whole numbers ``low <= k < high``."""

    low: int
    high: int
    unit: float = 1.0
    origin: float = 0.0


class Mask(msgspec.Struct, frozen=True, tag="mask", array_like=True):
    """Truth values.

    Attributes:
        share: how many of them are true, on average.
        mixed: of two and more elements at least one is true and one is not.
    """

    share: float
    mixed: bool = True


class Specials(msgspec.Struct, frozen=True, tag="specials", array_like=True):
    """Numbers as in :class:`Normal`, with a share of NaN and, if wanted, of both infinities."""

    share: float
    infinities: bool = True


class Subset(msgspec.Struct, frozen=True, tag="subset", array_like=True):
    """Truth values, exactly ``count`` of them true."""

    count: int


class Distinct(msgspec.Struct, frozen=True, tag="distinct", array_like=True):
    """Whole numbers ``0 <= k < high``, none of them twice along ``dims`` taken together.

    A tensor may hold one digit of ``k``: ``k // divisor % modulus``. Several such tensors with one
    seed make up places in a space of several dimensions, none of them twice.

    Attributes:
        high: at least as many as there are elements along ``dims``.
        dims: the dimensions.
        divisor: of the digit.
        modulus: of the digit, or None for all that is left.
    """

    high: int
    dims: tuple[int, ...]
    divisor: int = 1
    modulus: int | None = None


class SegmentForm(enum.StrEnum):
    """How a division into segments is written down."""

    STARTS = "starts"  #: Where each segment begins.
    ENDS = "ends"  #: Where each segment ends.
    BOUNDS = "bounds"  #: Where each segment begins, and the total.
    SIZES = "sizes"  #: How long each segment is.
    NUMBERS = "numbers"  #: For each position the number of its segment.


class Segments(msgspec.Struct, frozen=True, tag="segments", array_like=True):
    """``total`` positions divided into ``count`` segments, some of them empty.

    Forms with one seed, total and count describe the same division.

    Attributes:
        total: number of positions.
        count: number of segments.
        form: what the tensor holds.
        longest: no segment is longer than this, or None.
        unit: every segment but the last ends at a multiple of this.
    """

    total: int
    count: int
    form: SegmentForm
    longest: int | None = None
    unit: int = 1

    @property
    def length(self) -> int:
        """Number of elements of the tensor."""
        if self.form is SegmentForm.NUMBERS:
            return self.total
        return self.count + 1 if self.form is SegmentForm.BOUNDS else self.count


class Ordered(msgspec.Struct, frozen=True, tag="ordered", array_like=True):
    """Numbers between ``low`` and ``high`` in ascending (or descending) order along the last dimension."""

    low: float
    high: float
    descending: bool = False


class Probabilities(msgspec.Struct, frozen=True, tag="probabilities", array_like=True):
    """Positive numbers that add up to 1 along ``dim``, or their logarithms."""

    dim: int
    logarithms: bool = False


class PoolIndices(msgspec.Struct, frozen=True, tag="pool_indices", array_like=True):
    """Places in a plane, each inside the window that its output pools over.

    The last dimensions of the tensor, as many as the plane has, are the outputs; a place is a
    row-major number. The other attributes have one value a dimension; without ``kernel`` the
    windows are those of adaptive pooling.
    """

    plane: tuple[int, ...]
    kernel: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()


class Definite(msgspec.Struct, frozen=True, tag="definite", array_like=True):
    """Well-conditioned Hermitian positive definite matrices in the last two dimensions."""


class Targets(msgspec.Struct, frozen=True, tag="targets", array_like=True):
    """Class numbers ``0 <= k < classes``; every eighth element is ``ignored`` instead.

    Of ``n`` elements exactly ``n // IGNORED_EVERY`` are ignored, and no other happens to have that value.
    """

    classes: int
    ignored: int


#: Every element is drawn by itself, so that the shape of the tensor does not matter.
IndependentDomain: TypeAlias = Normal | Uniform | Magnitude | Integers | Mask | Specials
#: The elements of a tensor depend on each other.
StructuredDomain: TypeAlias = Subset | Distinct | Segments | Ordered | Probabilities | PoolIndices | Definite | Targets
Domain: TypeAlias = IndependentDomain | StructuredDomain
