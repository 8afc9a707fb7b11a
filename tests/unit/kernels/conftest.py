"""Kernels run here as the judge runs them."""

from __future__ import annotations

import os

from opsmith.runner.child.triton_start import make_interpreter_quick

if os.environ["TRITON_INTERPRET"] == "1":
    make_interpreter_quick()
