"""Kernels by torch's own compiler: no language model, no key, and for C++ no GPU.

For an op and its calls the compiler is asked for one kernel after another, each as general as it gets (sizes are
arguments), until every call has one. What it writes becomes one kernel file with a guard table.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from opsmith.backends.signature import signature_of
from opsmith.core.case import CallRecord
from opsmith.core.op import OpSchema, Variant
from opsmith.errors import OpsmithError
from opsmith.generate.inductor.calls import bind, by_weight, packed
from opsmith.generate.inductor.compiler import Compiler
from opsmith.generate.inductor.kernel_file import kernel_file
from opsmith.generate.inductor.messages import Ask, Language, Refused, Wrote
from opsmith.generate.inductor.rows import BoundCall, Row

__all__ = ["Compiler", "Language", "LeftOut", "NothingWritten", "Written", "write_kernel"]

#: Each takes a third of a second to write and a tenth to compile, and is one more that a call may have to pass by.
MOST_ROWS = 384
#: Of these, tried for calls with tensors that are not in row-major order; other such calls copy them first.
MOST_LAYOUT_ROWS = 8
#: Of the compiler's sources: a judge reads no file above 1 MiB.
MOST_SOURCE_BYTES = 900_000


class NothingWritten(OpsmithError):
    """The compiler has no kernel of its own for any of an op's calls; the message says why."""


class LeftOut(msgspec.Struct, frozen=True):
    """Calls without a row.

    Attributes:
        calls: how many.
        reason: why, in one line.
    """

    calls: int
    reason: str


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel file.

    Attributes:
        source: its text.
        rows: of its guard table.
        first_row: the kernels of the first row, and the code around them.
        left_out: calls that it declines, the most frequent reason first.
    """

    source: str
    rows: int
    first_row: str
    left_out: tuple[LeftOut, ...]


def write_kernel(
    schema: OpSchema,
    calls: Iterable[CallRecord],
    *,
    compiler: Compiler,
    language: Language = Language.CPP,
    most_rows: int = MOST_ROWS,
) -> Written:
    """Have torch's compiler write the kernel of an overload.

    Args:
        schema: a functional overload.
        calls: that it should serve; their values do not matter.
        compiler: is asked.
        language: to write in.
        most_rows: of the guard table; what the most frequent calls need comes first.

    Raises:
        NothingWritten: see there.
        CompilerDied: the compiler does not start.
    """
    if schema.variant is not Variant.FUNCTIONAL:
        raise NothingWritten(f"{schema.name} is no functional op; in-place and out= ops are derived from that")
    signature = signature_of(schema)
    keyword_only = tuple(parameter.name for parameter in signature.parameters if parameter.keyword_only)
    table = _Table(compiler, schema.name, keyword_only, language, most_rows)
    bound = [bind(record, signature) for record in calls]
    for call, count in by_weight(map(packed, bound)):
        table.add(call, count)
    for call, _ in by_weight(call for call in bound if call != packed(call)):
        table.add_layout(call)
    if not table.rows:
        reason = next(iter(table.left_out()), LeftOut(0, "there are no calls of it")).reason
        raise NothingWritten(f"no kernel for {schema.name}: {reason}")
    return Written(
        source=kernel_file(
            schema,
            signature,
            table.rows,
            compiler.facts,
            language,
            without=[f"{left.calls} calls had none: {left.reason}" for left in table.left_out()],
        ),
        rows=len(table.rows),
        first_row=_text(table.rows[0]),
        left_out=table.left_out(),
    )


def _text(row: Row) -> str:
    kernels = [text for kernel in row.kernels for text in (*kernel.helpers, kernel.source)]
    return "\n\n".join([*dict.fromkeys(kernels), "\n".join(row.host)])


class _Table:
    """A guard table that grows by a row for each call that no row serves yet."""

    def __init__(
        self, compiler: Compiler, op: str, keyword_only: tuple[str, ...], language: Language, most_rows: int
    ) -> None:
        self._compiler = compiler
        self._op = op
        self._keyword_only = keyword_only
        self._language = language
        self._most_rows = most_rows
        self._reasons: dict[str, int] = {}
        self._layouts = 0
        self.rows: list[Row] = []

    def add(self, call: BoundCall, count: int) -> None:
        """Make sure that a call has a row, or note why not."""
        if any(row.serves(call) for row in self.rows):
            return
        reason = self._extend(call)
        if reason is not None:
            self._reasons[reason] = self._reasons.get(reason, 0) + count

    def add_layout(self, call: BoundCall) -> None:
        """Give a call with tensors in another order than row-major a row that takes them as they are.

        Without one they are copied first, so that nothing is lost where the compiler has none.
        """
        if self._layouts < MOST_LAYOUT_ROWS and not any(row.serves(call) for row in self.rows):
            self._layouts += 1
            self._extend(call)

    def _extend(self, call: BoundCall) -> str | None:
        if len(self.rows) >= self._most_rows:
            return f"the table is full at {self._most_rows} rows"
        if sum(len(kernel.source) for row in self.rows for kernel in row.kernels) >= MOST_SOURCE_BYTES:
            return f"the file is full at {MOST_SOURCE_BYTES} bytes"
        question = Ask(op=self._op, call=call, keyword_only=self._keyword_only, language=self._language)
        answer = self._compiler.ask(question)
        if isinstance(answer, Refused):
            return answer.reason
        assert isinstance(answer, Wrote)
        if not answer.row.serves(call):
            return "the compiler's guards exclude the call that they were made from"
        self.rows.append(answer.row)
        return None

    def left_out(self) -> tuple[LeftOut, ...]:
        ordered = sorted(self._reasons.items(), key=lambda item: -item[1])
        return tuple(LeftOut(count, reason) for reason, count in ordered)
