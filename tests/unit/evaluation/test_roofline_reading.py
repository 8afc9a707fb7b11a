"""What the tables say must be read does decide the result: one element more or less is noticed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.calls.live import LiveCall, rebuild
from opsmith.calls.observer import Observer
from opsmith.calls.recording import CallRecorder
from opsmith.core.case import CallRecord, Outcome, OutputTensor, TensorValue
from opsmith.evaluation.criteria.rules import stem_of
from opsmith.evaluation.roofline.call import BoundCall
from opsmith.evaluation.roofline.reading import TABLE, required

CPU = torch.device("cpu")


def x(*shape: int) -> torch.Tensor:
    """Numbers between 0.1 and 0.9, no two equal: in the domain of every op below."""
    count = int(torch.Size(shape).numel())
    return torch.linspace(0.1, 0.9, count)[torch.randperm(count)].view(shape)


def layer_norm_backward(mask: list[bool]) -> tuple[Any, ...]:
    """A gradient, the input, and its statistics."""
    return x(4, 6), x(4, 6), [6], x(4, 1), x(4, 1), x(6), x(6), mask


OF_ONE_TENSOR = """
    abs.default acos.default atan.default exp.default gelu.default log.default mish.default neg.default
    reciprocal.default relu.default rsqrt.default selu.default sigmoid.default silu.default sin.default
    softplus.default square.default tanh.default clone.default sum.default mean.default prod.default
    amax.default nansum.default norm.Scalar relu_.default tanh_.default sort.default elu.default
    log_sigmoid_forward.default leaky_relu.default hardswish.default aminmax.default t_copy.default
"""

#: Op -> names of the arguments that must be read, its positional arguments, its keyword arguments.
CALLS: dict[str, tuple[str, Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    **{op: ("self", lambda: (x(4, 6),), {}) for op in OF_ONE_TENSOR.split()},
    "mul.Tensor": ("self other", lambda: (x(4, 6), x(6)), {}),
    "maximum.default": ("self other", lambda: (x(4, 6), x(4, 6)), {}),
    "add_.Tensor": ("other", lambda: (x(4, 6), x(4, 6)), {}),
    "copy_.default": ("src", lambda: (x(4, 6), x(4, 6)), {}),
    "addcmul.default": ("self tensor1 tensor2", lambda: (x(4, 6), x(4, 6), x(4, 6)), {}),
    "mse_loss.default": ("self target", lambda: (x(4, 6), x(4, 6)), {}),
    "gelu_backward.default": ("grad_output self", lambda: (x(4, 6), x(4, 6)), {}),
    "silu_backward.default": ("grad_output self", lambda: (x(4, 6), x(4, 6)), {}),
    "mish_backward.default": ("grad_output self", lambda: (x(4, 6), x(4, 6)), {}),
    "sigmoid_backward.default": ("grad_output output", lambda: (x(4, 6), x(4, 6)), {}),
    "tanh_backward.default": ("grad_output output", lambda: (x(4, 6), x(4, 6)), {}),
    "cumsum.default": ("self", lambda: (x(4, 6), 1), {}),
    "logsumexp.default": ("self", lambda: (x(4, 6), [1]), {}),
    "var.correction": ("self", lambda: (x(4, 6), [1]), {"correction": 1}),
    "max.dim": ("self", lambda: (x(4, 6), 1), {}),
    "_softmax.default": ("self", lambda: (x(4, 6), 1, False), {}),
    "_log_softmax_backward_data.default": ("grad_output output", lambda: (x(4, 6), x(4, 6), 1, torch.float32), {}),
    "native_layer_norm.default": ("input", lambda: (x(4, 6), [6], x(6), x(6), 1e-5), {}),
    "native_layer_norm_backward.default": ("grad_out input", lambda: layer_norm_backward([True, True, True]), {}),
    "native_group_norm.default": ("input", lambda: (x(2, 6, 3), None, None, 2, 6, 3, 2, 1e-5), {}),
    "native_batch_norm.default": ("input", lambda: (x(2, 6, 3), None, None, None, None, True, 0.1, 1e-5), {}),
    "native_batch_norm_backward.default": (
        "grad_out",
        lambda: (x(2, 6, 3), x(2, 6, 3), x(6), None, None, x(6), x(6), True, 1e-5, [True, True, True]),
        {},
    ),
    "cat.default": ("tensors", lambda: ([x(4, 6), x(2, 6)],), {}),
    "stack.default": ("tensors", lambda: ([x(4, 6), x(4, 6)],), {}),
    "constant_pad_nd.default": ("self", lambda: (x(4, 6), [1, 2]), {}),
    "reflection_pad1d.default": ("self", lambda: (x(4, 6), [1, 2]), {}),
    "split_with_sizes_copy.default": ("self", lambda: (x(4, 6), [1, 3], 0), {}),
    "repeat.default": ("self", lambda: (x(4, 6), [2, 1]), {}),
    "pixel_shuffle.default": ("self", lambda: (x(4, 3, 3), 2), {}),
    "mm.default": ("self mat2", lambda: (x(4, 6), x(6, 5)), {}),
    "addmm.default": ("self mat1 mat2", lambda: (x(5), x(4, 6), x(6, 5)), {}),
    "baddbmm.default": ("self batch1 batch2", lambda: (x(2, 4, 5), x(2, 4, 6), x(2, 6, 5)), {}),
    "addmv.default": ("self mat vec", lambda: (x(4), x(4, 6), x(6)), {}),
    "dot.default": ("self tensor", lambda: (x(6), x(6)), {}),
    "_foreach_add.List": ("self other", lambda: ([x(4), x(6)], [x(4), x(6)]), {}),
}


def recorded(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallRecord:
    """The serialized call."""
    recorder = CallRecorder(lambda *_: True)
    with recorder, torch.no_grad():
        overload(op)(*args, **kwargs)
    record = recorder.calls[0].record
    assert record is not None
    return record


def outcome(record: CallRecord, spoil: Callable[[LiveCall], None]) -> Outcome:
    """What eager makes of the arguments after ``spoil`` has changed them."""
    live = rebuild(record, CPU)
    spoil(live)
    observer = Observer()
    observer.keep([observer.describe(overload(record.op)(*live.args, **live.kwargs), live, ())])
    return observer.outcomes()[0]


def tensors_of(found: Outcome) -> list[OutputTensor]:
    """Its results that are tensors."""
    return [output for output in found.outputs if isinstance(output, OutputTensor)]


@pytest.mark.parametrize("op", CALLS)
def test_every_element_that_must_be_read_changes_the_result(op: str) -> None:
    """A NaN in its place comes out somewhere, so that no kernel can leave it unread."""
    names, arguments, kwargs = CALLS[op]
    record = recorded(op, arguments(), kwargs)
    before = outcome(record, lambda _: None)
    schema = aten_schemas()[op]
    call = BoundCall(record, schema)
    found = required(call, stem_of(schema), tensors_of(before))
    assert [tensor for name in names.split() for tensor in call.tensors[name]] == found
    for tensor in found:
        for element in range(int(torch.Size(tensor.shape).numel())):
            after = outcome(record, functools.partial(_spoil, tensor=tensor, element=element))
            assert before.outputs != after.outputs, (tensor, element)


def _spoil(live: LiveCall, *, tensor: TensorValue, element: int) -> None:
    elements = torch.empty(0).set_(live.storages[tensor.storage], tensor.offset, tensor.shape, tensor.strides)
    elements.view(-1)[element] = torch.nan


def test_most_of_the_table_is_asked() -> None:
    """What is not, is of the same kind as something that is."""
    asked = {stem_of(aten_schemas()[op]) for op in CALLS}
    assert asked <= TABLE.keys()
    assert 55 <= len(asked)
