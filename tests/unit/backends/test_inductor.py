"""The compiler as a backend."""

from __future__ import annotations

import pytest
import torch

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.inductor import Inductor
from opsmith.core.task import Task
from opsmith.runner.worker.loading import load_kernel


@pytest.mark.slow
@pytest.mark.parametrize("op", ["add.Tensor", "add_.Tensor"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dynamo's own imports
def test_an_op_is_compiled_and_answers_like_eager(op: str) -> None:
    """Also where it writes to its argument."""
    schema = aten_schemas()[op]
    kernel = Inductor().kernel_for(Task(name=op, op=schema, suite="smoke"))
    assert kernel is not None
    compiled = load_kernel(kernel, None, schema)
    x = torch.arange(6.0)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] == compiled(x, torch.ones(6)).tolist()
    assert before + 1 == torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert (1.0 if op == "add_.Tensor" else 0.0) == x[0].item()
