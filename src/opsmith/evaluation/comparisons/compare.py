"""Compares what a kernel returned with what eager did, each result by its role."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from opsmith.aten.low_precision import is_low
from opsmith.aten.unrounded import SIGNING
from opsmith.evaluation.comparisons import (
    bias,
    distribution,
    exact,
    factorisation,
    indices,
    low_precision,
    placement,
    solutions,
    tails,
    value,
)
from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall, Result, Results
from opsmith.evaluation.criteria.results import PASSED, merge, near_the_work, wrong
from opsmith.evaluation.criteria.rules import ComparisonRule, is_elementwise, rule_for
from opsmith.evaluation.criteria.tolerance import Tolerance, relative_to, tolerance_for
from opsmith.evaluation.oracle.float64 import Oracle


def compare(call: JudgedCall, reference: Sequence[Results], candidate: Sequence[Results], *, tolerance: str) -> Finding:
    """Compare what a kernel returned with what eager did.

    Args:
        call: the call that both sides answered.
        reference: eager's results of each execution; ``rule_for(...).repeats(elements)`` of them.
        candidate: the kernel's, as many, equal in structure, shapes and dtypes.
        tolerance: ``strict``; ``backendbench`` and ``kernelbench`` replace the tolerances of
            values by those projects' own and ask no oracle.

    Raises:
        ValueError: there is no such tolerance.
    """
    rule = rule_for(call.schema, call)
    if rule.kind == "distribution":
        return distribution.compare(call, rule, reference, candidate)
    finding = _by_leaf(call, rule, reference[0], candidate[0], tolerance)
    if finding.passed:
        return finding
    if rule.kind == "indices":
        return indices.compare(call, rule, reference[0], candidate[0])
    if rule.kind == "placement":
        return placement.compare(call, reference[0], candidate[0])
    if rule.kind == "factorisation":
        return factorisation.compare(call, rule, reference[0], candidate[0], finding)
    if rule.stem in solutions.FITS:
        return solutions.compare(call, rule.stem, reference[0], candidate[0], finding)
    return finding


def _by_leaf(call: JudgedCall, rule: ComparisonRule, reference: Results, candidate: Results, mode: str) -> Finding:
    """Every result by its own role; indices and factors pass here when they simply equal eager's."""
    oracle = Oracle(call, rule.stem, len(reference))
    findings = []
    for index, (expected, got) in enumerate(zip(reference, candidate, strict=True)):
        role = rule.role(index)
        if role in ("metadata", "ignore"):
            findings.append(PASSED)
        elif mode == "strict" and role in ("exact", "view", "indices"):
            findings.append(exact.compare(expected, got, keeps_signs=rule.keeps_signs))
        else:
            ours, theirs = _near(expected), _near(got)
            limits = plain = tolerance_for(mode, _dtype(ours), call.tolerance)
            if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor) and is_low(ours):
                findings.append(low_precision.compare(ours, theirs, limits, counted=mode == "strict"))
                continue
            if mode == "strict" and (call.small_results or call.schema.kind.of_problems):
                limits = relative_to(ours, limits)
            # Of factors float64 may choose others: elements of one choice don't excuse those of another.
            asks = mode == "strict" and rule.kind != "factorisation"
            ask = partial(oracle.opinion, index) if asks else _no_opinion
            finding = value.compare(ours, theirs, limits, ask, believed_within=plain.atol)
            if finding.passed and asks and is_elementwise(call.schema, rule.stem):
                said = _hidden(call, rule, oracle, index, (reference, ours, theirs), limits)
                finding = finding if said is None else wrong(said, finding.figures)
            findings.append(finding)
    return merge(findings) if findings else PASSED


def _hidden(
    call: JudgedCall,
    rule: ComparisonRule,
    oracle: Oracle,
    index: int,
    results: tuple[Results, Result, Result],
    limits: Tolerance,
) -> str | None:
    """What is wrong with elements that are all near eager's, in words; None if nothing is."""
    reference, ours, theirs = results
    if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return None
    if rule.stem in SIGNING and call.bound().get("rounding_mode") is None and ours.is_floating_point():
        differs = (ours == 0) & (theirs == 0) & (ours.signbit() != theirs.signbit())
        if bool(differs.any()):
            return f"{int(differs.sum())} zeros have another sign than eager's"
    if bias.is_asked_of(ours):
        lean = bias.lean_of(ours, theirs, _truths(call, rule, oracle, index, reference))
        if lean is not None:
            return lean
    if not tails.is_asked_of(ours):
        return None
    return tails.hidden_error(ours, theirs, limits, partial(oracle.opinion, index), partial(oracle.moved, index))


def _truths(
    call: JudgedCall, rule: ComparisonRule, oracle: Oracle, index: int, results: Results
) -> Iterator[torch.Tensor | None]:
    """Float64's result, then that of the call with its numbers in the result's type, as a kernel may round them."""
    result = results[index]
    assert isinstance(result, torch.Tensor)
    for one in (oracle, Oracle(call.with_numbers_in(result.dtype), rule.stem, len(results))):
        opinion = one.opinion(index)
        yield None if opinion is None or opinion.value.shape != result.shape else opinion.value


def _near(result: Result) -> Result:
    return near_the_work(result) if isinstance(result, torch.Tensor) else result


def _dtype(result: Result) -> torch.dtype:
    """A Python number is as wide as a double."""
    if isinstance(result, torch.Tensor):
        return result.dtype
    return torch.complex128 if isinstance(result, complex) else torch.float64


def _no_opinion() -> None:
    """No oracle is asked."""
