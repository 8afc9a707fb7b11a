"""What a run says about the kernels that are to be packaged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from opsmith.core.kernel import Kernel
from opsmith.core.run import OpSummary, RunDirectory, RunManifest
from opsmith.errors import BadInput

NAME = "judged.json"


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """``judged.json``: the run that accepted a package's kernels.

    Attributes:
        run: where and how they were judged.
        ops: what was found, for each op of the package that was asked.
    """

    run: RunManifest
    ops: dict[str, OpSummary]


class JudgedRun:
    """A run, asked about kernels.

    Raises:
        BadInput: there is no finished run at ``path``.
    """

    def __init__(self, path: Path) -> None:
        run = RunDirectory.open(path)
        self._path = path
        self._manifest = run.manifest()
        if self._manifest.finished_utc is None:
            raise BadInput(f"the run {path} has not ended; resume it with `opsmith run --resume -o {path}`")
        self._summaries = run.summary().per_op
        self._hashes = {planned.op: planned.kernel_hash for planned in run.plan().ops}

    def why_refused(self, kernel: Kernel) -> str | None:
        """Why a kernel is not to be packaged, or None if the run accepted it.

        A derived kernel that the run did not ask is accepted with the functional one that it is derived from.

        Raises:
            BadInput: the run judged another kernel for this op.
        """
        found = self._hashes.get(kernel.task)
        if kernel.task not in self._summaries or found is None:
            return self._why_derived_refused(kernel)
        if found != kernel.content_hash:
            raise BadInput(
                f"the kernel of {kernel.task} is {kernel.content_hash} and the run {self._path} judged {found}; "
                "judge the directory as it is now"
            )
        summary = self._summaries[kernel.task]
        if summary.accepted:
            return None
        counted = f"{summary.passed} of {summary.cases} cases passed, {summary.dishonest} were dishonest"
        return f"not accepted: {counted}" + (f", {summary.policy} broke the policy" if summary.policy else "")

    def record(self, ops: Iterable[str]) -> Judged:
        """What goes into a package that serves these ops."""
        return Judged(run=self._manifest, ops={op: self._summaries[op] for op in ops if op in self._summaries})

    def _why_derived_refused(self, kernel: Kernel) -> str | None:
        functional = None if kernel.derived_from is None else self._summaries.get(kernel.derived_from)
        if functional is None:
            return "not judged"
        return None if functional.accepted else f"{kernel.derived_from} is not accepted"
