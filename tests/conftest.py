"""Settings that must be made before anything imports Triton, which reads them once."""

from __future__ import annotations

import os

# Without a device, kernels run under Triton's interpreter; TRITON_INTERPRET=0 runs them on a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")
