"""Metal by the real compiler, on a machine without MPS; what surrounds it runs on tensors without memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tests.unit.generate.inductor.loading import load
from torch._subclasses.fake_tensor import FakeTensorMode

from opsmith.core.case import CallRecord, TensorValue, Value
from opsmith.core.op import OpSchema, Variant
from opsmith.generate.inductor import Compiler, Language, NothingWritten, Written, write_kernel
from opsmith.generate.inductor.rows import row_major

pytestmark = pytest.mark.slow

SCHEMAS = {
    "_softmax.default": "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
    "div.Scalar": "aten::div.Scalar(Tensor self, Scalar other) -> Tensor",
    "embedding_dense_backward.default": "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, "
    "SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq) -> Tensor",
    "relu.default": "aten::relu(Tensor self) -> Tensor",
}


def tensor(*shape: int, dtype: str = "f32") -> TensorValue:
    """A recorded tensor in row-major order."""
    return TensorValue(0, dtype, shape, row_major(shape), 0, "cpu")


def write(compiler: Compiler, op: str, *args: Value) -> Written:
    """The kernel file of an op for one call."""
    schema = OpSchema(name=op, schema=SCHEMAS[op], variant=Variant.FUNCTIONAL)
    call = CallRecord(op=op, args=args, kwargs={}, storages=())
    return write_kernel(schema, [call], compiler=compiler, language=Language.METAL)


class Library:
    """Stands in for what ``torch.mps.compile_shader`` makes: notes what each kernel is called with."""

    def __init__(self, source: str) -> None:
        found = re.findall(r"kernel void (\w+)\((.*?)\) \{", source, re.DOTALL)
        self.parameters = {name: [line.strip() for line in text.strip().splitlines()] for name, text in found}
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values, **options: self.calls.append((name, values, options))


def run(module: Any, function: str, *args: Any) -> tuple[torch.Tensor, Library]:
    """Call a written file as if this were a Mac; tensors are given as shapes."""
    library = Library(module.SOURCE)
    with (
        mock.patch.object(torch.backends.mps, "is_available", return_value=True),
        mock.patch.object(torch.mps, "compile_shader", return_value=library),
        FakeTensorMode(),
    ):
        filled = [torch.empty(arg, device="mps") if isinstance(arg, tuple) else arg for arg in args]
        return getattr(module, function)(*filled), library


def test_a_pointwise_kernel_takes_any_size_and_number(compiler: Compiler, tmp_path: Path) -> None:
    """The call passes what the kernel's parameters say, in their order, the number last."""
    written = write(compiler, "div.Scalar", tensor(3, 5), 2.5)
    assert (1, ()) == (written.rows, written.left_out)
    module = load(written.source, tmp_path)
    assert [torch.float32] == [guard.kinds[0].dtype for guard in module.GUARDS]
    result, library = run(module, "div__Scalar_kernel_impl", (70, 80), 0.1)
    assert ((70, 80), "mps") == (tuple(result.shape), result.device.type)
    [(name, (buffer, given, elements, number), options)] = library.calls
    assert result is buffer
    assert ((70, 80), 5600, 0.1) == (tuple(given.shape), elements, number)
    assert {"threads": [5600]} == options
    kinds = [text.rpartition(" ")[0] for text in library.parameters[name]]
    assert ["device float*", "constant float*", "constant long&", "constant float&"] == kinds[:4]


def test_a_reduction_has_a_group_of_threads_for_a_row(compiler: Compiler, tmp_path: Path) -> None:
    """A softmax whose row is longer than a group of threads, though the compiler saw a short one."""
    written = write(compiler, "_softmax.default", tensor(3, 5), 1, False)
    module = load(written.source, tmp_path)
    assert "[[max_total_threads_per_threadgroup(1024)]]\nkernel void row0_" in module.SOURCE
    assert 1 == module.SOURCE.count("#include <c10/metal/reduction_utils.h>")
    result, library = run(module, "_softmax__default_kernel_impl", (4, 3000), 1, False)
    assert (4, 3000) == tuple(result.shape)
    [(_, _, options)] = library.calls
    assert {"threads": [4, 1024], "group_size": [1, 1024]} == options


def test_a_file_does_not_depend_on_those_before_it(compiler: Compiler) -> None:
    """What a reduction includes stays with the reduction."""
    write(compiler, "_softmax.default", tensor(2, 7, 5), 1, False)
    written = write(compiler, "relu.default", tensor(3, 5))
    assert ["#include <c10/metal/utils.h>"] == re.findall("#include.*", written.source)


def test_without_mps_a_call_is_declined_in_a_line(compiler: Compiler, tmp_path: Path) -> None:
    """The file can be imported anywhere."""
    module = load(write(compiler, "relu.default", tensor(3, 5)).source, tmp_path)
    with (
        mock.patch.object(torch.backends.mps, "is_available", return_value=False),
        pytest.raises(NotImplementedError, match="needs MPS, which this machine does not have"),
    ):
        module.relu__default_kernel_impl(torch.ones(3, 5))


def test_methods_that_switch_devices_can_be_traced_without_the_device(compiler: Compiler) -> None:
    """Decompositions use ``~`` and ``copy_``, which ask for a torch that is built for the device."""
    args = (tensor(4, 3), tensor(4, dtype="i64"), 10, -1, False)
    assert 1 == write(compiler, "embedding_dense_backward.default", *args).rows


def test_what_metal_cannot_hold_is_named(compiler: Compiler) -> None:
    """There is no float64 on MPS."""
    with pytest.raises(NothingWritten, match="Metal has no float64"):
        write(compiler, "relu.default", tensor(3, 5, dtype="f64"))
