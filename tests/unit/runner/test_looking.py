"""Looks at kernels: what a worker says is data, and no more of it is kept than a picture needs."""

from __future__ import annotations

import math

from opsmith.core.evidence import CallProfile, CompiledKernel, ErrorMap, Evidence, LineTimes, Span
from opsmith.runner.judge.looking import MOST_KERNELS, MOST_LINES, MOST_NAME_CHARS, MOST_SPANS, plain


def test_what_a_worker_says_is_kept_in_bounds() -> None:
    """A kernel can write its own reply: endless names, no numbers, more than anybody reads, errors of its own."""
    spans = (Span("b", 5.0, 1.0), Span("a\n" * 500, 0.0, 1.0), Span("x", math.nan, 1.0), Span("y", 0.0, -math.inf))
    kernel = CompiledKernel(name="k" * 999, registers=1, spills=0, shared_bytes=0, warps=1)
    error = ErrorMap(result=0, shape=(1,), rows=1, columns=1, row_step=1, column_step=1, wrong=(1.0,), worst=None)
    found = plain(
        Evidence(
            profile=CallProfile(device="lies", spans=spans + (Span("z", 9.0, 1.0),) * 10_000, left_out=-3),
            compiled=(kernel,) * 99,
            lines=LineTimes(
                file="f" * 999, us={-1: 1.0, 1 << 40: 1.0, 3: math.nan} | dict.fromkeys(range(5, 9999), 1.0)
            ),
            errors=error,
            problem="all is well",
        ),
        "cpu",
    )
    assert found.profile is not None
    assert found.lines is not None
    assert ["a", "b", "z"] == [span.name.split(" ")[0] for span in found.profile.spans[:3]]
    assert ("cpu", 0) == (found.profile.device, found.profile.left_out)
    assert len(found.profile.spans) <= MOST_SPANS
    assert len(found.lines.us) <= MOST_LINES
    assert all(line > 0 and math.isfinite(us) for line, us in found.lines.us.items())
    assert MOST_KERNELS == len(found.compiled)
    names = (found.profile.spans[0].name, found.lines.file, found.compiled[0].name)
    assert all(len(name) <= MOST_NAME_CHARS for name in names)
    assert (None, "") == (found.errors, found.problem)
    assert Evidence() == plain(Evidence(), "cpu")
