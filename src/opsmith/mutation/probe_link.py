"""The driver's end of a probe: a process that runs mutants outside of any sandbox, with a time limit."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from opsmith.core.case import CallRecord
from opsmith.core.kernel import Kernel
from opsmith.mutation.outcomes import Result


class KnownCalls(msgspec.Struct, frozen=True):
    """The calls that a suite has of an op, with the (rtol, atol) that it declares for it."""

    records: list[CallRecord]
    tolerance: tuple[float, float] | None


class ProbeLink:
    """A probe process; a context manager.

    Args:
        dtype: of the samples that the public harness is asked.
        ops: that it will be asked about.
        public: whether it will be asked.
        harness: the folder of the harness's package, where that is not installed.
    """

    def __init__(self, dtype: str, ops: Collection[str], *, public: bool, harness: str | None) -> None:
        self._asked = {"dtype": dtype, "ops": sorted(ops), "public": public, "harness": harness}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()

    @functools.cached_property
    def harness_name(self) -> str:
        """The public harness's name in outcomes; the process is started with the first question."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "opsmith.mutation.probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # torch warns of the samples.
        )
        name: str = self._exchange(self._process, self._asked)["name"]
        return name

    def harness(self, op: str, kernel: Kernel) -> tuple[Result, str]:
        """What the public harness says of a kernel."""
        reply = self._ask({"do": "harness", "op": op, "kernel": msgspec.to_builtins(kernel)})
        return Result(reply["result"]), reply["why"]

    def compare(
        self, op: str, calls: Path, original: Kernel, mutant: Kernel, seed: int, limit_s: float
    ) -> tuple[Result, str]:
        """Whether a mutant gives what its original gives, or what the judge's comparison takes for it.

        ``calls`` is a file that holds :class:`KnownCalls`.
        """
        kernels = {"original": msgspec.to_builtins(original), "mutant": msgspec.to_builtins(mutant)}
        reply = self._ask({"do": "compare", "op": op, "calls": str(calls), "seed": seed, "limit_s": limit_s, **kernels})
        return Result(reply["result"]), reply["why"]

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self.harness_name is not None
        assert self._process is not None
        return self._exchange(self._process, request)

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], request: Mapping[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        process.stdin.flush()
        reply: dict[str, Any] = msgspec.json.decode(process.stdout.readline())
        return reply
