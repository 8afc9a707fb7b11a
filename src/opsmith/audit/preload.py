"""Imported once, by the server that audits are forked from: what each of them would do again."""

from __future__ import annotations

import torch._dynamo
import torch.fx.experimental.symbolic_shapes  # Fake tensors need it.

import opsmith.audit
from opsmith.aten.schemas import aten_schemas

__all__ = ["opsmith", "torch"]

aten_schemas()  # Parsing them takes longer than most problems.
