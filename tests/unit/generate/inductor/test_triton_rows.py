"""Triton by the real compiler, on a machine that has no GPU; Triton's interpreter runs it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from tests.unit.generate.inductor.loading import load

from opsmith.core.case import CallRecord, TensorValue, digest
from opsmith.core.op import OpSchema, Variant
from opsmith.generate.inductor import Compiler, Language, write_kernel
from opsmith.generate.inductor.messages import AskModule, WroteModule
from opsmith.generate.inductor.rows import row_major

pytestmark = pytest.mark.slow

SOFTMAX = "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"

PROBLEM = '''"""A small network."""

import torch
from torch import nn

WIDTH = 64
SMALL = {"WIDTH": 6}


class Unused(nn.Module):
    pass


class Model(nn.Module):
    """With a weight, a buffer and a list."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.LayerNorm(width)])
        self.register_buffer("offset", torch.ones(width))

    def helper(self):
        return self.offset

    def forward(self, x, scales):
        return self.layers[0](x) + self.helper(), torch.tanh(x * scales[0])


def get_inputs():
    return [torch.randn(5, WIDTH), [torch.randn(WIDTH)]]


def get_init_inputs():
    return [WIDTH]
'''


def test_one_kernel_serves_every_size(compiler: Compiler, tmp_path: Path) -> None:
    """A softmax whose row is longer than a block, though the compiler saw a short one."""
    args = (TensorValue(0, "f32", (3, 5), row_major((3, 5)), 0, "cpu"), 1, False)
    call = CallRecord(op="_softmax.default", args=args, kwargs={}, storages=())
    schema = OpSchema(name="_softmax.default", schema=SOFTMAX, variant=Variant.FUNCTIONAL)
    written = write_kernel(schema, [call], compiler=compiler, language=Language.TRITON)
    assert (1, ()) == (written.rows, written.left_out)
    module = load(written.source, tmp_path)
    x = torch.randn(4, 3000)
    torch.testing.assert_close(module._softmax__default_kernel_impl(x, 1, False), torch.softmax(x, 1))
    with pytest.raises(NotImplementedError):
        module._softmax__default_kernel_impl(x.double(), 1, False)


def test_a_problem_becomes_a_solution(compiler: Compiler, tmp_path: Path) -> None:
    """With the constructor and the state of ``Model``, and with the arguments as they are."""
    file = tmp_path / "problem.py"
    file.write_text(PROBLEM)
    question = AskModule(file=str(file), content_hash=digest(PROBLEM.encode()), small=True)
    answer = compiler.ask(question)
    assert isinstance(answer, WroteModule)
    problem, solution = load(PROBLEM, tmp_path), load(answer.source, tmp_path)
    model, new = problem.Model(6), solution.ModelNew(6)
    model.layers[0].weight.data.normal_()
    new.load_state_dict(model.state_dict())
    arguments = [torch.randn(5, 6), [torch.randn(6)]]
    with torch.no_grad():
        torch.testing.assert_close(new(*arguments), model(*arguments))
    with pytest.raises(NotImplementedError, match="written for"):
        new(torch.randn(5, 7), arguments[1])
    classes = {node.name for node in ast.walk(ast.parse(answer.source)) if isinstance(node, ast.ClassDef)}
    assert {"ModelNew"} == classes
