"""OpInfos of which calls with enabled kernels differ from eager mode, with the reason.

An entry here is a decision: what it names is no fault of a kernel.
"""

from __future__ import annotations

KNOWN: dict[str, str] = {
    "median": "PyTorch's kernel for CUDA refuses tensors of more than 25 dimensions; ours takes them",
}
