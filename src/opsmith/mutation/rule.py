"""The judge's own comparison, asked about a call on which a mutant differs from its original.

A survivor differs for one of two reasons: no test had an input like this one, or the comparison allows the difference,
such as a rounding that the dtype grants or the sign of a zero. Only the first is a hole among the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from opsmith.aten.schemas import aten_schemas
from opsmith.calls.live import rebuild
from opsmith.calls.seeding import seed_of
from opsmith.core.case import CallRecord, OutputTensor
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement, Judgement
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.criteria.rules import rule_for
from opsmith.evaluation.eager.reference import observe, observe_eager, repetitions
from opsmith.runner.referee.candidate_outcomes import result_bytes
from opsmith.tasks.problem import record_call

CPU = torch.device("cpu")
SEED = 0

Kernel = Callable[..., Any]


class Rule:
    """Compares kernels of one op with eager, as the judge does on the CPU.

    Args:
        op: the overload.
        tolerance: (rtol, atol) that the suite declares for it, or None.
    """

    def __init__(self, op: str, tolerance: tuple[float, float] | None = None) -> None:
        self._op = op
        self._schema = aten_schemas()[op]
        self._tolerance = tolerance

    def refuses(self, original: Kernel, mutant: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Why the judge refuses the mutant on these arguments; empty if it accepts it.

        None where that says nothing: eager refuses the call, or the original is refused as well.
        """
        try:
            record = record_call(self._op, list(args), kwargs)
            case = self._case(record)
            known = _judged(case, record, original)
        except Exception:  # noqa: BLE001 - eager, the original and a record refuse in any way they like
            return None
        if known.detail:
            return None
        try:
            found = _judged(case, record, mutant)
        except Exception as exc:  # noqa: BLE001 - a mutant may raise anything
            return f"{type(exc).__name__} raised"
        return found.detail

    def _case(self, record: CallRecord) -> CaseUnderJudgement:
        live = rebuild(record, CPU)
        rule = rule_for(self._schema, JudgedCall(schema=self._schema, args=live.args, kwargs=live.kwargs))
        [first] = observe_eager(record, [live], [SEED], CPU)
        tensors = [output for output in first.form.outputs if isinstance(output, OutputTensor)]
        repeats = rule.repeats(max((math.prod(tensor.shape) for tensor in tensors), default=1))
        seeds = [seed_of(SEED, number, repeats) for number in range(1, repeats)]
        others = observe_eager(record, [rebuild(record, CPU) for _ in seeds], seeds, CPU)
        sizes = result_bytes(first.form)
        surround = rule.kind == "value" and "strided" not in self._op

        return CaseUnderJudgement(
            record,
            self._schema,
            rule,
            lambda: [first, *others],
            device=CPU,
            tolerance=self._tolerance,
            repeats=repeats,
            seed=SEED,
            run_again=lambda: repetitions(record, sizes, SEED, CPU, surround=surround),
        )


def _judged(case: CaseUnderJudgement, record: CallRecord, kernel: Kernel) -> Judgement:
    seeds = [seed_of(SEED, number, case.repeats) for number in range(case.repeats)]
    outcomes = observe(kernel, record, [rebuild(record, CPU) for _ in seeds], seeds, CPU)
    return case.judge(outcomes, tolerance="strict", layout="dense")
