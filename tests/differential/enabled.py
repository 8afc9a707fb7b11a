"""Every sample of torch's OpInfos through public Python functions with kernels enabled, against eager mode.

    python -m tests.differential.enabled --dtype f32 --device cuda --jobs 14 --samples 4 -o enabled.json

As :mod:`tests.differential.opinfo` compares compiled functions: outputs, what inputs hold afterwards, gradients, the
same after every output was written to, and a second call; each op's first sample also as a method and in place. All
kernels answer (``choose="all"``). An input that eager mode refuses has to be refused likewise: OpInfos have some.

A difference is *shared* if eager mode differs from itself as much. ``enabled_known.py`` gives the reason of each that
is left.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fnmatch
import itertools
import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
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
    cases,
    observe,
    read_lines,
    remaining,
)

import opsmith
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.seeds import derive_seed
from opsmith.dispatch import install
from opsmith.suites.opinfo import op_infos, seed_everything

#: Refused inputs of an OpInfo that are tried.
MOST_REFUSED = 20


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
        found = _problems(case, expected, seen(case))
        if found:
            with kernels.off():
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
                if at == 0:
                    of_sample += refused(name, dtype, device, settings["seed"])
                connection.send(record(kernels, of_sample))
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
    dtype = getattr(torch, TORCH_NAMES[given.dtype])
    names = [name for name, info in op_infos().items() if info.supports_dtype(dtype, torch.device(given.device).type)]
    if given.ops:
        patterns = given.ops.split(",")
        names = [name for name in names if any(fnmatch.fnmatchcase(name, one) for one in patterns)]
    lines = given.output.with_suffix(".jsonl")
    if not given.resume:
        lines.unlink(missing_ok=True)
    settings = {name: getattr(given, name) for name in ("dtype", "device", "seed", "samples", "kernels")}
    campaign = Campaign(lines, settings, jobs=given.jobs, limit_s=given.limit, serve=serve)
    campaign.run(remaining(names, read_lines(lines)), started + given.seconds)
    result = summary(read_lines(lines))
    on_gpu = torch.device(given.device).type == "cuda"
    facts = {
        "torch": torch.__version__,
        "device_name": torch.cuda.get_device_name(given.device) if on_gpu else "cpu",
        "command": " ".join(["python -m tests.differential.enabled", *sys.argv[1:]]),
        "seconds": round(time.monotonic() - started, 1),
    }
    result = {"ops_asked": len(names), **result, "settings": settings, **facts}
    given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    wrong, ran = len(result["failures"]), result["cases"]
    sys.stderr.write(f"{ran} cases of {result['ops']} ops, {wrong} wrong: {given.output}\n")
    return int(wrong > 0 or ran == 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="a JSON file; lines of samples go beside it")
    parser.add_argument("--kernels", default="opsmith", help="what opsmith.enable() takes")
    parser.add_argument("--dtype", choices=sorted(TORCH_NAMES), default="f32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ops", default="", help="names of OpInfos, separated by commas; * stands for anything")
    parser.add_argument("--samples", type=int, default=sys.maxsize, help="of each op, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=300, help="seconds that a sample may take")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="seconds after which to stop")
    parser.add_argument("--resume", action="store_true", help="go on after the samples that the file holds")
    return parser


if __name__ == "__main__":
    sys.exit(main())
