"""What a kernel does not answer is answered as without it: values, types, layouts, errors and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.dispatch_tables import KERNELS, kernel_file
from torch import Tensor
from torch.utils._pytree import tree_map

import opsmith
from opsmith.dispatch.guards import Fallback
from opsmith.dispatch.layout import EagerLayout
from opsmith.dispatch.override import FallbackWarning

X, Y = torch.linspace(-2, 2, 12).reshape(3, 4), torch.linspace(3, -1, 12).reshape(3, 4)
IMAGE = torch.linspace(-1, 1, 24).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
#: What a call came to: a result or the type of an exception, and the warnings.
Came = tuple[Any, list[str]]


def fallbacks(op: str) -> dict[Fallback, int]:
    """The counted reasons of one op."""
    return next(one.fallbacks for one in opsmith.active().ops if one.op == op)


def came_to(call: Callable[[], Any]) -> Came:
    """Run a call and keep what can be compared."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, call())
        except Exception as exc:  # noqa: BLE001 - whatever eager raises
            result = type(exc)
    return result, [str(warning.message).partition("(Triggered")[0] for warning in caught]


def assert_as_eager(call: Callable[[], Any]) -> Came:
    """The call comes to the same with kernels and without; returns what that is."""
    came_to(call)  # Some warnings are given once in a process.
    expected, expected_warnings = came_to(call)
    with opsmith.enabled(KERNELS):
        actual, actual_warnings = came_to(call)
    assert expected_warnings == actual_warnings
    if not isinstance(expected, Tensor):
        assert expected == actual
        return expected, expected_warnings
    assert (expected.dtype, expected.shape, expected.layout) == (actual.dtype, actual.shape, actual.layout)
    if expected.layout is torch.strided and not expected.is_nested:
        assert expected.stride() == actual.stride()
    torch.testing.assert_close(actual, expected)
    return expected, expected_warnings


# ---------------------------------------------------------------- guards


class Sub(Tensor):
    """A subclass that changes nothing."""


GUARDED: dict[str, tuple[Callable[[], Any], str, dict[str, int]]] = {
    "declined": (lambda: torch.relu(X.half()), "relu.default", {"declined": 1}),
    "complex": (lambda: torch.add(X.to(torch.complex64), Y), "add.Tensor", {"dtype": 1}),
    "complex number": (lambda: torch.add(X, 2j), "add.Tensor", {"dtype": 1}),
    "float8": (lambda: torch.cat([X.to(torch.float8_e5m2)]).float(), "cat.default", {"dtype": 1}),
    "subclass": (lambda: torch.relu(X.as_subclass(Sub)).as_subclass(Tensor), "relu.default", {"subclass": 1}),
    "subclass in a list": (lambda: torch.cat([X.as_subclass(Sub)]).as_subclass(Tensor), "cat.default", {"subclass": 1}),
    "sparse": (lambda: torch.relu(X.to_sparse_csr()).to_dense(), "relu.default", {}),
    "quantised": (
        lambda: torch.relu(torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)).dequantize(),
        "relu.default",
        {},
    ),
    "nested": (lambda: torch.relu(torch.nested.nested_tensor([X[0], Y[0]])).unbind()[1], "relu.default", {}),
    "meta": (lambda: torch.relu(X.to("meta")).shape, "relu.default", {}),
    "python number": (lambda: X.half() * 2.5, "mul.Tensor", {"declined": 1}),
    "number beside an integer": (lambda: torch.arange(3) * 2.5, "mul.Tensor", {"declined": 1}),
    "number beside a 0-dim half": (lambda: torch.tensor(2.0).half() * 0.1, "mul.Tensor", {"declined": 1}),
    "number in float64": (lambda: torch.tensor([3.0]).half().double().long() + 0.1, "add.Tensor", {"declined": 1}),
    "bool beside a number": (lambda: torch.tensor([True]) + True, "add.Tensor", {"declined": 1}),
    "number with alpha": (lambda: torch.add(X.half(), 3, alpha=2), "add.Tensor", {"declined": 1}),
}


@pytest.mark.parametrize("case", GUARDED)
@pytest.mark.filterwarnings("ignore:.*(Sparse CSR|nested tensors|torch.ao|quantiz).*")
def test_what_is_not_served_is_answered_by_pytorch(case: str) -> None:
    """And counted with its reason, where the dispatcher offered it to the kernel at all."""
    call, op, reasons = GUARDED[case]
    assert_as_eager(call)
    with opsmith.enabled(KERNELS):
        call()
        assert reasons == fallbacks(op)


def test_a_lazily_negated_tensor_is_not_handed_to_a_kernel(tmp_path: Path) -> None:
    """Its memory holds the opposite; ``clone`` is one of the few ops that see such tensors."""
    negated = torch.tensor([1 + 2j]).conj().imag
    assert negated.is_neg()
    kernel_file(tmp_path, "clone.default", "def kernel(x, *, memory_format=None): raise AssertionError")
    with opsmith.enabled(tmp_path):
        assert -2.0 == negated.clone().item()
        assert {"lazy": 1} == fallbacks("clone.default")


def test_attention_goes_to_a_kernel_only_where_it_drops_nothing(tmp_path: Path) -> None:
    """Torch tags it as random for the dropout that it may be asked for; dropped weights are a seed's business."""
    op = "_scaled_dot_product_flash_attention_for_cpu"
    kernel_file(tmp_path, f"{op}.default", "def kernel(q, k, v, *_, **__): return v * 0, v[..., 0] * 0")
    query = X.reshape(1, 1, 3, 4)
    attention = torch.nn.functional.scaled_dot_product_attention
    with opsmith.enabled(tmp_path):
        assert not attention(query, query, query).any()
        getattr(torch.ops.aten, op)(query, query, query, dropout_p=0.0)
        assert {} == fallbacks(f"{op}.default")
        with pytest.raises(RuntimeError, match="dropout"):  # Eager's own refusal, on a CPU.
            getattr(torch.ops.aten, op)(query, query, query, 0.5)
        with pytest.raises(RuntimeError, match="dropout"):
            getattr(torch.ops.aten, op)(query, query, query, dropout_p=0.5)
        assert {"random": 2} == fallbacks(f"{op}.default")


def test_an_op_inside_a_kernel_is_pytorchs_own(tmp_path: Path) -> None:
    """A kernel may use other ops, and even the one that it implements."""
    kernel_file(tmp_path, "relu.default", "def kernel(x): return torch.relu(x).add_(x * 0)")
    kernel_file(tmp_path, "mul.Tensor", "def kernel(x, y): raise AssertionError")
    with opsmith.enabled(tmp_path):
        assert torch.equal(X.clamp(min=0), torch.relu(X))
        assert [0, 1] == [one.calls for one in opsmith.active().ops if one.op in {"mul.Tensor", "relu.default"}]


def test_a_kernel_that_fails_on_a_good_call_is_warned_of_once(tmp_path: Path) -> None:
    """The model goes on; the report counts it."""
    kernel_file(tmp_path, "relu.default", "def kernel(x): raise ValueError('of the kernel')")
    with opsmith.enabled(tmp_path):
        with pytest.warns(FallbackWarning, match="relu.default on cpu: the kernel raised ValueError: of the kernel"):
            assert torch.equal(X.clamp(min=0), torch.relu(X))
        torch.relu(X)
        assert {"raised": 2} == fallbacks("relu.default")


HALF_WAY = """
calls = 0
def kernel(x):
    global calls
    calls += 1
    x.fill_(1)
    if calls != {good}:
        raise ValueError('half way')
    return x
"""


@pytest.mark.parametrize("strided", [False, True])
def test_what_a_kernel_wrote_before_it_raised_is_put_back(tmp_path: Path, *, strided: bool) -> None:
    """PyTorch's kernel starts from what was there before the call."""
    kernel_file(tmp_path, "relu_.default", HALF_WAY.format(good=0))
    x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    with opsmith.enabled(tmp_path):
        with pytest.warns(FallbackWarning, match="half way"):
            torch.relu_(x.t() if strided else x)
        assert {"raised": 1} == fallbacks("relu_.default")
    assert torch.equal(torch.tensor([[0.0, 2.0], [3.0, 0.0]]), x)


def test_a_kernel_that_raises_at_a_later_call_of_a_kind_is_not_tried_again(tmp_path: Path) -> None:
    """Nothing is copied by then, and PyTorch's kernel would start from half a result."""
    kernel_file(tmp_path, "relu_.default", HALF_WAY.format(good=1))
    with opsmith.enabled(tmp_path):
        torch.relu_(X.clone())
        with pytest.raises(ValueError, match="half way"):
            torch.relu_(X.clone())


def test_a_kernel_that_writes_or_takes_one_tensor_is_handed_no_number(tmp_path: Path) -> None:
    """PyTorch's own code copies and converts numbers: for ``x << 3``, and where a sum goes into another type."""
    kernel_file(tmp_path, "copy_.default", "def kernel(x, source, non_blocking=False):\n    return x.set_(source)")
    kernel_file(tmp_path, "_to_copy.default", "def kernel(x, **options):\n    return x.set_()")
    with opsmith.enabled(tmp_path):
        assert torch.equal(torch.full((2,), 3.0), torch.ops.aten.copy_(torch.ones(2), 3))
        assert torch.equal(torch.tensor(3), torch.ops.aten._to_copy(3))
        assert [Fallback.NUMBER] == [*fallbacks("copy_.default")] == [*fallbacks("_to_copy.default")]


# ---------------------------------------------------------------- errors and destinations


def partly_itself(x: Tensor) -> Tensor:
    """Written where it is read, one element further."""
    return x[1:].add_(x[:-1])


def transposed_itself(x: Tensor) -> Tensor:
    """Written where it is read, in another order."""
    return x.add_(x.t())


def itself(x: Tensor) -> Tensor:
    """Read where it is written: allowed."""
    return x.add_(x)


def neighbours(x: Tensor) -> Tensor:
    """Two halves of one storage: allowed."""
    return x[:3].add_(x[3:])


def shifted(x: Tensor) -> Tensor:
    """As :func:`partly_itself`, with ``out=``."""
    return torch.add(x[:-1], 1, out=x[1:])


AS_EAGER: dict[str, Callable[[], Any]] = {
    "shapes that do not broadcast": lambda: torch.add(torch.ones(3), torch.ones(4)),
    "a product of wrong sizes": lambda: torch.mm(X, X),
    "in place, the result is larger": lambda: torch.ones(1).add_(X),
    "in place, the result is of a higher kind": lambda: torch.ones(3, dtype=torch.int64).add_(torch.ones(3)),
    "in place, into an expanded tensor": lambda: torch.ones(1).expand(3).add_(torch.ones(3)),
    "in place, overlapping": lambda: torch.ones(6)[1:].add_(torch.ones(6)[:5]),
    "in place, partly itself": lambda: partly_itself(torch.arange(6.0)),
    "in place, itself transposed": lambda: transposed_itself(torch.arange(9.0).reshape(3, 3)),
    "in place, itself": lambda: itself(torch.arange(6.0)),
    "in place, neighbours": lambda: neighbours(torch.arange(6.0)),
    "in place, with broadcasting": lambda: X.clone().add_(Y[0]),
    "in place, of half precision": lambda: X.half().add_(Y),
    "in place, of a view": lambda: X.clone().t()[1:].mul_(Y.t()[1:]),
    "out, of the right shape": lambda: torch.add(X, Y, out=torch.zeros(3, 4)),
    "out, empty": lambda: torch.add(X, Y, out=torch.zeros(0)),
    "out, of another shape": lambda: torch.add(X, Y, out=torch.zeros(2)),
    "out, of another shape, of a product": lambda: torch.mm(X, Y.t(), out=torch.zeros(2, 2)),
    "out, of a wider type": lambda: torch.add(X, Y, out=torch.zeros(3, 4, dtype=torch.float64)),
    "out, of a lower kind": lambda: torch.add(X, Y, out=torch.zeros(3, 4, dtype=torch.int32)),
    "out, of a product, of another type": lambda: torch.mm(X, Y.t(), out=torch.zeros(3, 3, dtype=torch.float64)),
    "out, with a gradient": lambda: torch.add(X.clone().requires_grad_(), Y, out=torch.zeros(3, 4)),
    "out, strided": lambda: torch.add(X, Y, out=torch.zeros(4, 3).t()),
    "out, partly an argument": lambda: shifted(torch.arange(6.0)),
    "out, several": lambda: torch.ops.aten.native_layer_norm.out(
        X, [4], None, None, 1e-5, out0=torch.zeros(3, 4), out1=torch.zeros(3, 1), out2=torch.zeros(0)
    )[2],
    "in place, needs a gradient": lambda: X.clone().requires_grad_().relu_(),
    "a leaf that inference made": lambda: torch.relu(torch.ones(3, requires_grad=True)).detach(),
    "a dtype argument": lambda: X.sum([0], dtype=torch.float64),
    "nothing at all": lambda: torch.relu(torch.zeros(0, 3)),
    "no dimension": lambda: torch.relu(torch.tensor(-1.0)),
}


@pytest.mark.parametrize("case", AS_EAGER)
def test_a_call_comes_to_the_same_with_kernels(case: str) -> None:
    """The same exception type or the same result, type, strides and warnings."""
    assert_as_eager(AS_EAGER[case])


def test_resizing_a_destination_warns_as_eager_does() -> None:
    """Eager deprecates it, and a model that does it should be told."""
    came = assert_as_eager(lambda: torch.add(X, Y, out=torch.zeros(2)))
    assert "An output with one or more elements was resized" in came[1][0]


# ---------------------------------------------------------------- layout

LAYOUTS: dict[str, Callable[[], Any]] = {
    "transposed": lambda: torch.relu(X.t()),
    "channels last": lambda: torch.relu(IMAGE),
    "one transposed operand": lambda: torch.add(X.t(), Y.t().contiguous()),
    "broadcast": lambda: torch.mul(X.t(), Y[:, :1].t()),
    "strided": lambda: torch.relu(X[:, ::2]),
    "expanded": lambda: torch.relu(X[:1].expand(3, 4)),
    "permuted": lambda: torch.relu(torch.linspace(-1, 1, 24).reshape(2, 3, 4).permute(2, 0, 1)),
    "product of transposed": lambda: torch.mm(X.t(), Y),
    "softmax of transposed": lambda: torch.softmax(X.t(), 0),
    "layer norm of transposed": lambda: torch.native_layer_norm(X.t(), [3], None, None, 1e-5)[0],
    "joined, channels last": lambda: torch.cat([IMAGE, IMAGE], 1),
    "sum of transposed": lambda: X.t().sum([0], keepdim=True),
    "one column": lambda: torch.relu(X[:, :1]),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_results_are_laid_out_as_eager_lays_them_out(case: str) -> None:
    """The kernels here answer contiguously; a model that calls ``view`` must not notice."""
    assert_as_eager(LAYOUTS[case])


def test_a_layout_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's kernel runs beside the first call of a signature, not beside the others."""
    looked_up: list[int] = []
    forms = EagerLayout._forms

    def counted(layout: EagerLayout, *call: Any) -> Any:
        found = forms(layout, *call)
        looked_up.append(len(layout._known))
        return found

    monkeypatch.setattr(EagerLayout, "_forms", counted)
    with opsmith.enabled(KERNELS):
        seen = {torch.relu(x).stride() for x in (X.t(), Y.t(), X.t()[:, :2])}
    assert ({(1, 4)}, [1, 1, 2]) == (seen, looked_up)


def test_a_number_beside_a_composite_op_is_passed_on(tmp_path: Path) -> None:
    """``subtract`` is decomposed into ``sub``, and takes a number where its schema says Tensor."""
    kernel_file(tmp_path, "subtract.Tensor", "def kernel(x, y, *, alpha=1): return torch.full_like(x, y)")
    with opsmith.enabled(tmp_path):
        assert torch.equal(torch.full((2,), 3.0), torch.subtract(torch.ones(2), 3))
        assert 1 == opsmith.active().calls


def test_a_result_whose_size_depends_on_values_is_laid_out_each_time(tmp_path: Path) -> None:
    """Two calls of one signature with results of two sizes; eager returns ``nonzero`` by columns."""
    kernel_file(tmp_path, "nonzero.default", "def kernel(x): return torch.nonzero(x).contiguous()")
    few, many = torch.tensor([[1, 0], [0, 0], [1, 0]]), torch.ones(3, 2, dtype=torch.int64)
    expected = [torch.nonzero(x).stride() for x in (few, many, few)]
    with opsmith.enabled(tmp_path):
        assert expected == [torch.nonzero(x).stride() for x in (few, many, few)]
        assert 3 == opsmith.active().calls
