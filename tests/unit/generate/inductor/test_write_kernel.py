"""Kernel files by the real compiler, in its own process; nothing of what it writes is compiled here."""

from __future__ import annotations

import ast

import pytest

from opsmith.core.case import CallRecord, SequenceValue, TensorValue, Value
from opsmith.core.op import OpSchema, Variant
from opsmith.generate.inductor import Compiler, NothingWritten, write_kernel
from opsmith.generate.inductor.rows import row_major

pytestmark = pytest.mark.slow

RELU = "aten::relu(Tensor self) -> Tensor"
ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"


def schema(name: str, text: str, variant: Variant = Variant.FUNCTIONAL) -> OpSchema:
    """An overload."""
    return OpSchema(name=name, schema=text, variant=variant)


def call(op: str, *shapes: tuple[int, ...], **kwargs: Value) -> CallRecord:
    """A call with float tensors in row-major order."""
    args = tuple(TensorValue(0, "f32", shape, row_major(shape), 0, "cpu") for shape in shapes)
    return CallRecord(op=op, args=args, kwargs=kwargs, storages=())


def test_one_row_serves_every_size(compiler: Compiler) -> None:
    """Sizes are arguments of the kernel, so that a shape that nobody recorded is served too."""
    calls = [call("relu.default", (3, 5)), call("relu.default", (70, 2)), call("relu.default", (3, 5))]
    written = write_kernel(schema("relu.default", RELU), calls, compiler=compiler)
    assert (1, ()) == (written.rows, written.left_out)


def test_the_file_needs_no_compiler_of_torchs(compiler: Compiler) -> None:
    """What is installed must not compile graphs when it is called."""
    calls = [call("add.Tensor", (3, 5), (3, 5), alpha=2.5), call("add.Tensor", (3, 5), (3, 5), alpha=0.5)]
    written = write_kernel(schema("add.Tensor", ADD), calls, compiler=compiler)
    assert 1 == written.rows
    tree = ast.parse(written.source)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {"__future__", "ctypes", "collections.abc", "torch", "torch.utils.cpp_extension", "typing"} == imported
    assert "const double zf" in written.source


def test_an_answer_by_aten_alone_is_no_kernel(compiler: Compiler) -> None:
    """The compiler hands a matrix product to a library; the error names the call."""
    with pytest.raises(NothingWritten, match=r"mm\.default: the compiler answers with extern_kernels\.mm"):
        write_kernel(schema("mm.default", MM), [call("mm.default", (4, 5), (5, 6))], compiler=compiler)


def test_in_place_ops_are_left_to_derivation(compiler: Compiler) -> None:
    """Their functional op's kernel answers them, with a copy."""
    inplace = schema("relu_.default", "aten::relu_(Tensor(a!) self) -> Tensor(a!)", Variant.INPLACE)
    with pytest.raises(NothingWritten, match="no functional op"):
        write_kernel(inplace, [call("relu_.default", (4,))], compiler=compiler)


def test_numbers_that_eager_treats_apart_have_kernels_of_their_own(compiler: Compiler) -> None:
    """A power of 0.5 is a square root; any other exponent is an argument, and is none of these."""
    text = "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor"
    calls = [
        CallRecord(op="pow.Tensor_Scalar", args=(tensor(3, 5), exponent), kwargs={}, storages=())
        for exponent in (2.5, 0.5, 1.25, -0.5)
    ]
    written = write_kernel(schema("pow.Tensor_Scalar", text), calls, compiler=compiler)
    assert (3, ()) == (written.rows, written.left_out)
    assert "exponent != 0.5" in written.source
    assert ".sqrt()" in written.source


def test_small_arguments_of_expm1_keep_their_digits(compiler: Compiler) -> None:
    """The compiler would write a difference of an exponential and 1."""
    text = "aten::expm1(Tensor self) -> Tensor"
    written = write_kernel(schema("expm1.default", text), [call("expm1.default", (3, 50))], compiler=compiler)
    assert ".expm1()" in written.source
    assert ".exp() -" not in written.source


def test_a_result_that_nobody_wants_is_none(compiler: Compiler) -> None:
    """In its place among the others."""
    name = "native_layer_norm_backward.default"
    text = (
        "aten::native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean,"
        " Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
    )
    shape, mask = (SequenceValue(items, is_tuple=False) for items in ((6,), (True, False, True)))
    args = (tensor(4, 6), tensor(4, 6), shape, tensor(4, 1), tensor(4, 1), tensor(6), tensor(6), mask)
    record = CallRecord(op=name, args=args, kwargs={}, storages=())
    written = write_kernel(schema(name, text), [record], compiler=compiler)
    assert (1, ()) == (written.rows, written.left_out)
    [returned] = [line for line in written.source.splitlines() if line.startswith("    return (buf")]
    assert "None" == returned.split(", ")[1]


def test_numbers_in_the_place_of_tensors_are_arguments(compiler: Compiler) -> None:
    """Their values are others in every run."""
    record = CallRecord(op="add.Tensor", args=(2.25, 8.5), kwargs={}, storages=())
    written = write_kernel(schema("add.Tensor", ADD), [record], compiler=compiler)
    assert "2.25" not in written.source


def test_what_is_written_to_is_not_copied_first(compiler: Compiler) -> None:
    """Running statistics are arguments that a kernel of batch norm changes, though the schema does not say so."""
    name = "native_batch_norm.default"
    text = (
        "aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,"
        " bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)"
    )
    args = (tensor(4, 6, 5), None, None, tensor(6), tensor(6), True, 0.1, 1e-5)
    record = CallRecord(op=name, args=args, kwargs={}, storages=())
    written = write_kernel(schema(name, text), [record], compiler=compiler)
    assert "for place in (3, 4)" in written.source


def tensor(*shape: int) -> TensorValue:
    """A float tensor in row-major order."""
    return TensorValue(0, "f32", shape, row_major(shape), 0, "cpu")


def test_a_file_says_which_call_it_declines_and_why_it_has_no_row(compiler: Compiler) -> None:
    """The second call would need a row that the table has no room for."""
    calls = [call("relu.default", (3, 5)), call("relu.default", (3, 5)), call("relu.default", (0, 4))]
    written = write_kernel(schema("relu.default", RELU), calls, compiler=compiler, most_rows=1)
    assert "no row of relu.default serves {_told(arguments)}; {WITHOUT_A_ROW}" in written.source
    assert "1 calls had none: the table is full at 1 rows" in written.source
    complete = write_kernel(schema("relu.default", RELU), calls[:1], compiler=compiler)
    assert "it was written for other kinds of calls" in complete.source
