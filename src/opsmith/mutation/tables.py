"""A study in figures: killed, survived and equivalent, by op and by operator, beside the public harness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from opsmith.mutation.outcomes import EQUIVALENCE, OPSMITH, ORIGINAL, Outcome, Result


class Row(msgspec.Struct, kw_only=True):
    """Counts of mutants; one that was judged in two dtypes counts twice.

    Attributes:
        mutants: those judged, without the void ones.
        equivalent: of these, equal to their originals; no other figure counts them.
        killed: refused by opsmith.
        survived: accepted by opsmith.
        allowed: of these, known to differ by no more than its comparison allows, wherever that was tried.
        harness_killed: refused by the public harness.
        harness_survived: accepted by it.
        harness_not_asked: of ops that it has no test of.
        only_harness: refused by it and accepted by opsmith.
    """

    mutants: int = 0
    equivalent: int = 0
    killed: int = 0
    survived: int = 0
    allowed: int = 0
    harness_killed: int = 0
    harness_survived: int = 0
    harness_not_asked: int = 0
    only_harness: int = 0

    @property
    def score(self) -> float | None:
        """Share of the mutants that are not equivalent which opsmith kills."""
        return _share(self.killed, self.killed + self.survived)

    @property
    def input_score(self) -> float | None:
        """As :attr:`score`, without the allowed: what is missing from 1 no test had the input for, or is unknown."""
        return _share(self.killed, self.killed + self.survived - self.allowed)

    @property
    def harness_score(self) -> float | None:
        """As :attr:`score`, of the public harness; what it is not asked it does not kill."""
        return _share(self.harness_killed, self.harness_killed + self.harness_survived + self.harness_not_asked)


class Survivor(msgspec.Struct, frozen=True, kw_only=True):
    """A mutant that opsmith accepts, and that is not known to be equivalent.

    Attributes:
        witness: an input on which it differs from its original, or on how much it does not.
    """

    mutant: str
    op: str
    origin: str
    operator: str
    dtype: str
    before: str
    after: str
    compared: str
    witness: str


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """What a book of outcomes says.

    Attributes:
        total: of all.
        ops: so many have a mutant.
        operators: so many made one.
        distinct: so many different mutants, each counted once.
        void: refused for how the answer came about; in no row.
        refused: kernels without a fault that opsmith does not accept -> why; no mutant of them was judged.
        harness: the public harness's name; empty if it was not asked.
        harness_refused: kernels without a fault that it does not accept.
        by_dtype: rows.
        by_operator: rows.
        by_op: rows.
        survivors: see :class:`Survivor`.
    """

    total: Row
    ops: int
    operators: int
    distinct: int
    void: int
    refused: dict[str, str]
    harness: str
    harness_refused: tuple[str, ...]
    by_dtype: dict[str, Row]
    by_operator: dict[str, Row]
    by_op: dict[str, Row]
    survivors: tuple[Survivor, ...]


def summarise(outcomes: Iterable[Outcome]) -> Study:
    """Count the outcomes of a book."""
    judged: dict[tuple[str, str], dict[str, Outcome]] = {}
    for each in outcomes:
        judged.setdefault((each.mutant, each.dtype), {})[each.judge] = each
    originals = [found for found in judged.values() if next(iter(found.values())).operator == ORIGINAL]
    mutants = [found for found in judged.values() if OPSMITH in found and found[OPSMITH].operator != ORIGINAL]
    counted = [found for found in mutants if found[OPSMITH].result in (Result.KILLED, Result.SURVIVED)]
    harness = next((judge for found in judged.values() for judge in found if judge not in (OPSMITH, EQUIVALENCE)), "")
    return Study(
        total=_row(counted, harness),
        ops=len({found[OPSMITH].op for found in counted}),
        operators=len({found[OPSMITH].operator for found in counted}),
        distinct=len({found[OPSMITH].mutant for found in counted}),
        void=len(mutants) - len(counted),
        refused={
            f"{one.op} {one.dtype} ({one.origin})": one.why
            for found in originals
            if (one := found.get(OPSMITH)) is not None and one.result in (Result.KILLED, Result.VOID)
        },
        harness=harness,
        harness_refused=tuple(
            sorted(
                f"{one.op} {one.dtype}"
                for found in originals
                if (one := found.get(harness)) is not None and one.result is Result.KILLED
            )
        ),
        by_dtype=_rows(counted, harness, lambda one: one.dtype),
        by_operator=_rows(counted, harness, lambda one: one.operator),
        by_op=_rows(counted, harness, lambda one: one.op),
        survivors=tuple(_survivors(counted)),
    )


def _rows(counted: list[dict[str, Outcome]], harness: str, key: Callable[[Outcome], str]) -> dict[str, Row]:
    groups: dict[str, list[dict[str, Outcome]]] = {}
    for found in counted:
        groups.setdefault(key(found[OPSMITH]), []).append(found)
    return {name: _row(groups[name], harness) for name in sorted(groups)}


def _row(counted: list[dict[str, Outcome]], harness: str) -> Row:
    row = Row(mutants=len(counted))
    for found in counted:
        if _was(found, Result.EQUAL):
            row.equivalent += 1
            continue
        killed = found[OPSMITH].result is Result.KILLED
        row.killed += killed
        row.survived += not killed
        row.allowed += not killed and _was(found, Result.ALLOWED)
        theirs = found[harness].result if harness in found else None
        row.harness_killed += theirs is Result.KILLED
        row.harness_survived += theirs is Result.SURVIVED
        row.harness_not_asked += theirs is Result.NOT_ASKED
        row.only_harness += theirs is Result.KILLED and not killed
    return row


def _was(found: dict[str, Outcome], compared: Result) -> bool:
    return EQUIVALENCE in found and found[EQUIVALENCE].result is compared


def _survivors(counted: list[dict[str, Outcome]]) -> Iterator[Survivor]:
    for found in counted:
        one, compared = found[OPSMITH], found.get(EQUIVALENCE)
        if one.result is Result.SURVIVED and not _was(found, Result.EQUAL):
            yield Survivor(
                mutant=one.mutant,
                op=one.op,
                origin=one.origin,
                operator=one.operator,
                dtype=one.dtype,
                before=one.before,
                after=one.after,
                compared=compared.result.value if compared else "not compared",
                witness=compared.why if compared else "",
            )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def markdown(study: Study) -> str:
    """The study as a page of tables."""
    harness = study.harness or "no public harness"
    names = ("", "mutants", "equivalent", "killed", "survived", "allowed", "score", f"killed by {harness}", "score")
    head = f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n"

    def line(name: str, row: Row) -> str:
        cells = (row.mutants, row.equivalent, row.killed, row.survived, row.allowed, _percent(row.score))
        return f"| {name} | {' | '.join(map(str, cells))} | {row.harness_killed} | {_percent(row.harness_score)} |\n"

    def table(title: str, rows: dict[str, Row]) -> str:
        return f"\n## {title}\n\n{head}" + "".join(line(name, row) for name, row in rows.items())

    refused = "".join(f"- {name}: {why}\n" for name, why in study.refused.items())
    allowed, unseen = (
        "".join(
            f"- {each.op} {each.dtype}, {each.operator}: `{_inline(each.before)}` -> `{_inline(each.after)}` "
            f"({each.compared}: {_inline(each.witness)})\n"
            for each in study.survivors
            if (each.compared == Result.ALLOWED.value) == is_allowed
        )
        for is_allowed in (True, False)
    )
    return (
        f"# Mutants\n\n{study.distinct} mutants of {study.ops} ops by {study.operators} operators. "
        f"{study.void} further ones were refused for how they compute and are not counted. "
        f"{study.total.only_harness} are killed by {harness} only. Without those that the comparison allows, "
        f"{_percent(study.total.input_score) or 'none'} are killed.\n\n{head}{line('all', study.total)}"
        + "".join(line(name, row) for name, row in study.by_dtype.items())
        + table("By operator", study.by_operator)
        + table("By op", study.by_op)
        + (f"\n## Survivors that no input told apart\n\n{unseen}" if unseen else "")
        + (f"\n## Survivors that the comparison allows\n\n{allowed}" if allowed else "")
        + (f"\n## Kernels without a fault that were not accepted\n\n{refused}" if refused else "")
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")[:200]
