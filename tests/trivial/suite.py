"""Suite ``trivial``: a few entries of ``opinfo``, those whose ops random numbers cannot tell from trivial ones."""

from __future__ import annotations

from opsmith.suites.opinfo import OpInfoSuite

#: Entries whose ops a trivial kernel answers rightly on every sample input, and some on which it really is right.
ENTRIES = (
    *("all", "any", "allclose", "equal", "isin", "isneginf", "isposinf"),
    *("logical_not", "logical_xor", "nan_to_num"),
    *("nn.functional.hardshrink", "nn.functional.softshrink", "t", "t_copy"),
    *("zeros_like", "ones_like", "empty_like", "clone", "conj_physical", "alias_copy", "zero_"),
)


class Trivial(OpInfoSuite):
    name = "trivial"

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:
        return tuple(entry for entry in super().entries(dtype, device) if entry in ENTRIES)
