"""Every sample of torch's OpInfos through public Python functions with kernels enabled, against eager mode.

    python -m tests.differential.enabled --dtype f32 --device cuda --jobs 14 --samples 4 -o enabled.json

As :mod:`tests.differential.opinfo` compares compiled functions: outputs, what inputs hold afterwards, gradients, the
same after every output was written to, and a second call; each op's first sample also as a method and in place. All
kernels answer (``choose="all"``). An input that eager mode refuses has to be refused likewise: OpInfos have some.

A difference counts unless eager mode differs from itself, or the kernels' results are about as near to those in float64
as eager mode's are. ``enabled_known.py`` gives the reason of each that is left.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from tests.differential.enabled_known import KNOWN
from tests.differential.opinfo import (
    Campaign,
    Case,
    Seen,
    _failed,
    _of_three,
    _problems,
    asked,
    cases,
    facts_of,
    observe,
    parser_of,
    read_lines,
    remaining,
)
from torch.utils._pytree import tree_map

import opsmith
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.seeds import derive_seed
from opsmith.dispatch import install
from opsmith.suites.opinfo import op_infos, seed_everything

#: Refused inputs of an OpInfo that are tried.
MOST_REFUSED = 20
#: Results may be so many times as far from float64 as eager mode's are.
FACTOR = 3.0


class Kernels:
    """Kernels that are enabled, and switched off while eager mode is asked; its calls of ops cost nothing then.

    Args:
        kernels: as for :func:`opsmith.enable`.
        device: the device type.
    """

    def __init__(self, kernels: str, device: str) -> None:
        opsmith.enable(kernels, device=torch.device(device).type, choose="all")
        choice = install._installed.choice
        assert choice is not None
        overrides = install._installed.registry.overrides
        self._served = [(overrides[one.schema.name, one.device_type], one) for one in choice.servings]

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """PyTorch's own kernels answer."""
        for override, _ in self._served:
            override.serve(None)
        try:
            yield
        finally:
            for override, serving in self._served:
                override.serve(serving)

    @property
    def answered(self) -> int:
        """How many calls kernels have answered."""
        return sum(serving.counts().answered for _, serving in self._served)


def seen(case: Case) -> Seen | Exception:
    """What a case does now, or raises."""
    try:
        return observe(case, _of_three(case.function))
    except Exception as exc:  # noqa: BLE001 - whatever an op raises is what it does
        return exc


def refused(name: str, dtype: torch.dtype, device: str, seed: int) -> Iterator[Case]:
    """Cases that eager mode is to refuse, of those that an OpInfo has in the dtype."""
    info = op_infos()[name]
    if info.error_inputs_func is None:
        return
    seed_everything(derive_seed(seed, "refused", name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, one in enumerate(itertools.islice(info.error_inputs(device), MOST_REFUSED)):
            given = one.sample_input
            if not isinstance(given.input, torch.Tensor) or given.input.dtype is dtype:
                arguments = (given.input, tuple(given.args), dict(given.kwargs))
                yield Case(name, number, "refused", info.op, arguments, gradients=False)


def in_float64(case: Case) -> Case:
    """The case with floating point numbers of 64 bits."""

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.detach().double().requires_grad_(value.requires_grad)
        return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value

    return case._replace(arguments=tree_map(wide, case.arguments))


def is_near(expected: Seen | Exception, actual: Seen | Exception, exact: Seen | Exception) -> bool:
    """Whether all floating point results are about as near to exact ones as eager mode's, and others equal."""
    if isinstance(expected, Exception) or isinstance(actual, Exception) or isinstance(exact, Exception):
        return False
    triples = [
        zip(expected.parts[part], actual.parts[part], exact.parts[part], strict=False) for part in expected.parts
    ]
    return all(_is_near(*leaves) for leaves in itertools.chain.from_iterable(triples))


def _is_near(expected: Any, actual: Any, exact: Any) -> bool:
    if not all(isinstance(one, torch.Tensor) for one in (expected, actual, exact)):
        return type(expected) is type(actual)
    if (expected.shape, expected.dtype) != (actual.shape, actual.dtype) or expected.shape != exact.shape:
        return False
    if not expected.is_floating_point():
        return torch.equal(expected, actual)
    if not torch.equal(expected.isfinite(), actual.isfinite()):
        return False
    rounding = torch.finfo(expected.dtype).eps * exact.nan_to_num(0, 0, 0).abs().amax() if exact.numel() else 0
    distances = [(one.double() - exact).nan_to_num(0, 0, 0).abs() for one in (expected, actual)]
    return not exact.numel() or bool(distances[1].amax() <= FACTOR * distances[0].amax() + 4 * rounding)


def record(kernels: Kernels, of_sample: Sequence[Case]) -> dict[str, Any]:
    """How a sample fared in all variants, as the line of results that it becomes."""
    started, before = time.perf_counter(), kernels.answered
    counts: collections.Counter[str] = collections.Counter()
    problems = []
    for case in of_sample:
        with kernels.off():
            expected = seen(case)
        if isinstance(expected, Exception) and case.variant != "refused":
            counts["refused by eager"] += 1
            continue
        counts["refusals" if isinstance(expected, Exception) else "cases"] += 1
        actual = seen(case)
        found = _problems(case, expected, actual)
        if found:
            with kernels.off():
                if is_near(expected, actual, seen(in_float64(case))):
                    counts["near"] += 1
                    continue
                shared = bool(_problems(case, expected, seen(case)))
            problems.append({"variant": case.variant, "mode": "", "shared": shared, "what": found})
    first = of_sample[0]
    return {
        "op": first.name,
        "sample": first.number,
        "gradients": first.gradients,
        "counts": dict(+counts),
        "answered": kernels.answered - before,
        "problems": problems,
        "seconds": round(time.perf_counter() - started, 3),
    }


def serve(connection: Connection, settings: Mapping[str, Any]) -> None:
    """Answer requests for an op's samples from a number on, as :func:`tests.differential.opinfo.serve` does."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dtype, device = getattr(torch, TORCH_NAMES[settings["dtype"]]), settings["device"]
    kernels = Kernels(settings["kernels"], device)
    while (request := connection.recv()) is not None:
        name, at = request
        connection.send(at)
        try:
            for of_sample in cases(name, dtype, device, settings["seed"], at):
                if at >= settings["samples"]:
                    break
                extra = refused(name, dtype, device, settings["seed"]) if at == 0 else ()
                connection.send(record(kernels, [*of_sample, *extra]))
                at = of_sample[0].number + 1
                connection.send(at)
            connection.send({"op": name, "complete": True})
        except Exception as exc:  # noqa: BLE001 - a generator of samples may raise anything
            connection.send(_failed(name, at, f"no samples from here on: {type(exc).__name__}: {exc}"))
        connection.send(None)


def summary(records: Sequence[Mapping[str, Any]], known: Mapping[str, str] = KNOWN) -> dict[str, Any]:
    """What the records of samples come to; ``failures`` must be empty."""
    samples = [one for one in records if "sample" in one]
    counts: collections.Counter[str] = collections.Counter()
    for one in samples:
        counts.update(one.get("counts", {}))
    problems = [{"op": one["op"], "sample": one["sample"], **each} for one in samples for each in one["problems"]]
    differing = {one["op"] for one in problems if not one["shared"]}
    return {
        "ops": len({one["op"] for one in samples}),
        "ops_complete": len({one["op"] for one in records if one.get("complete")}),
        "ops_with_backward": len({one["op"] for one in samples if one.get("gradients")}),
        "samples": len(samples),
        "cases": counts["cases"],
        "refusals": counts["refusals"],
        "as_near_to_float64_as_eager": counts["near"],
        "refused_by_eager": counts["refused by eager"],
        "calls_answered_by_kernels": sum(one.get("answered", 0) for one in samples),
        "eager_differs_from_itself": sorted({one["op"] for one in problems if one["shared"]}),
        "known": {op: known[op] for op in sorted(differing & known.keys())},
        "failures": [one for one in problems if not one["shared"] and one["op"] not in known],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit status is 1 if something differs."""
    given = _parser().parse_args(arguments)
    started = time.monotonic()
    names, lines = asked(given), given.output.with_suffix(".jsonl")
    if not given.resume:
        lines.unlink(missing_ok=True)
    settings = {name: getattr(given, name) for name in ("dtype", "device", "seed", "samples", "kernels")}
    campaign = Campaign(lines, settings, jobs=given.jobs, limit_s=given.limit, serve=serve)
    campaign.run(remaining(names, read_lines(lines)), started + given.seconds)
    result = summary(read_lines(lines))
    facts = facts_of(given, time.monotonic() - started, "tests.differential.enabled")
    result = {"ops_asked": len(names), **result, "settings": settings, **facts}
    given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    wrong, ran = len(result["failures"]), result["cases"]
    sys.stderr.write(f"{ran} cases of {result['ops']} ops, {wrong} wrong: {given.output}\n")
    return int(wrong > 0 or ran == 0)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    parser.add_argument("--kernels", default="opsmith", help="what opsmith.enable() takes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
