"""Settings that must be made before anything imports Triton or torch, which read them once."""

from __future__ import annotations

import gc
import os

# Without a device, kernels run under Triton's interpreter; TRITON_INTERPRET=0 runs them on a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

# With an empty cache Inductor would compile for 6 s of a processor to find out which vector extensions work. A pool of
# processes to compile in takes seconds to start, and tests run beside each other already.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# Tests of installed kernels want them called, faster or not; those of the choice say choose="measured".
os.environ.setdefault("OPSMITH_CHOOSE", "all")


def pytest_collection_finish() -> None:
    """What was imported stays: no collection has to look through it."""
    gc.freeze()
