"""What a kernel's source shows before anything of it runs: evidence with line numbers, rarely a proof."""

from opsmith.evaluation.integrity.static.examination import TritonUse, examine, triton_use
from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding

__all__ = ["Kind", "StaticFinding", "TritonUse", "examine", "triton_use"]
