"""A probe: runs mutants for the public harness and for the comparison with their originals, each in a fork.

It reads one request a line and answers each with one line. The first request configures it.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from opsmith.calls.live import rebuild
from opsmith.core.kernel import Kernel
from opsmith.loading import from_file
from opsmith.mutation.equivalence import ELEMENTS, compare
from opsmith.mutation.outcomes import Result
from opsmith.mutation.probe_link import KnownCalls
from opsmith.mutation.rule import Rule

if TYPE_CHECKING:
    from opsmith.mutation.public_harness import Harness

#: Seconds for the public harness's judgement of one kernel, and to load two kernels for a comparison.
HARNESS_S, LOADING_S = 60.0, 60.0
#: So many times the seconds of a processor that a comparison may take on a busy machine.
BUSY = 8
#: Of memory that a comparison may take beside what the probe has.
MEMORY_BYTES = 6 << 30


def main() -> None:
    """Answer requests until there are no more."""
    torch.set_num_threads(1)
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # What a mutant prints is no answer.
    configured = msgspec.json.decode(sys.stdin.buffer.readline())
    harness = None
    if configured["public"]:
        from opsmith.mutation.public_harness import open_harness  # torch's OpInfos take seconds.

        harness = open_harness(configured["dtype"], configured["ops"], configured["harness"])
    replies.write(msgspec.json.encode({"name": harness.name if harness else ""}) + b"\n")
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line)
        if request["do"] == "harness":
            assert harness is not None
            reply = _apart(lambda: _harness(harness, request), HARNESS_S, Result.KILLED)  # noqa: B023 - called at once
        else:
            reply = _apart(lambda: _compare(request), request["limit_s"] * BUSY + LOADING_S, Result.DIFFERS)  # noqa: B023
        replies.write(msgspec.json.encode(reply) + b"\n")


def _apart(work: Callable[[], tuple[Result, str]], limit_s: float, otherwise: Result) -> dict[str, str]:
    """Do some work in a fork; ``otherwise`` is the result if it crashes or takes too long."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.setpgid(0, 0)
        try:
            result, why = work()
            os.write(write, msgspec.json.encode({"result": result.value, "why": why[:1000]}))
        finally:
            os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], limit_s)
    content = os.read(read, 1 << 16) if ready else b""
    os.close(read)
    if not content:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if content:
        answer: dict[str, str] = msgspec.json.decode(content)
        return answer
    return {"result": otherwise.value, "why": "crashed" if ready else f"took longer than {limit_s:.0f} s"}


def _limit_memory() -> None:
    """Have a call on large inputs that takes more than :data:`MEMORY_BYTES` raise; it says nothing of the two."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _loaded(described: Mapping[str, Any]) -> Any:
    kernel = msgspec.convert(described, Kernel)
    assert kernel.root is not None
    return from_file(kernel, Path(kernel.root))


def _harness(harness: Harness, request: Mapping[str, Any]) -> tuple[Result, str]:
    try:
        kernel = _loaded(request["kernel"])
    except Exception as exc:  # noqa: BLE001 - a mutant may raise anything
        return Result.KILLED, f"does not load: {type(exc).__name__}"
    return harness.judge(request["op"], kernel)


def _compare(request: Mapping[str, Any]) -> tuple[Result, str]:
    _limit_memory()
    original, mutant = _loaded(request["original"]), _loaded(request["mutant"])
    known = msgspec.msgpack.decode(Path(request["calls"]).read_bytes(), type=KnownCalls)
    calls = [(live.args, live.kwargs) for live in (rebuild(record, torch.device("cpu")) for record in known.records)]
    rule = Rule(request["op"], known.tolerance)
    found = compare(original, mutant, calls, seed=request["seed"], limit_s=request["limit_s"], refuses=rule.refuses)
    if found.allowed:
        return Result.ALLOWED, f"{found.differs}; the comparison allows it, on {found.allowed:,} inputs"
    if found.unknown:
        return Result.UNDECIDED, f"{found.differs}; eager or the original fails on all {found.unknown:,} such inputs"
    if found.differs:
        return Result.DIFFERS, found.differs
    if found.elements < ELEMENTS or not found.large:
        return (
            Result.UNDECIDED,
            f"equal on {found.elements:,} elements, large inputs {'among them' if found.large else 'not'}",
        )
    return Result.EQUAL, f"equal on {found.elements:,} elements"


if __name__ == "__main__":
    main()
