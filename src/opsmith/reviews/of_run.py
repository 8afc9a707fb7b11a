"""The kernels that a run judged, and what people said of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from opsmith.core.kernel import Kernel
from opsmith.core.run import PlannedOp, RunManifest, RunPlan
from opsmith.reviews.book import ReviewBook, standing_of
from opsmith.reviews.records import Review, Standing


def judged_kernel(run: Path, planned: PlannedOp) -> Kernel | None:
    """A kernel as the run keeps it: its files are those in the run; None without files."""
    kernel = planned.kernel
    if kernel is None or kernel.snapshot_name is None:
        return None
    return msgspec.structs.replace(kernel, root=str(run / "kernels" / kernel.snapshot_name))


def reviews_about(run: Path, manifest: RunManifest) -> list[Review]:
    """The reviews in a run, and those beside the kernel directory that it judged.

    Raises:
        BadInput: a file of reviews cannot be read.
    """
    backend = Path(manifest.options.backend)
    folders = dict.fromkeys([run, backend if backend.is_dir() else backend.parent if backend.is_file() else run])
    return list({each.id: each for folder in folders for each in ReviewBook(folder).reviews()}.values())


def standings(run: Path, manifest: RunManifest, plan: RunPlan) -> Mapping[str, Standing]:
    """Op -> state of its kernel, of those that have files; empty where nobody reviewed anything.

    Raises:
        BadInput: a file of reviews cannot be read.
    """
    reviews = reviews_about(run, manifest)
    if not reviews:
        return {}
    kernels = {planned.op: judged_kernel(run, planned) for planned in plan.ops}
    return {op: standing_of(reviews, kernel) for op, kernel in kernels.items() if kernel is not None}
