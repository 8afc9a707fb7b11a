"""What a call has to do: the bytes that it moves, and the products that it computes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from opsmith.core.case import CallRecord, OutputTensor, TensorValue, tensor_values
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.timing import Work
from opsmith.evaluation.criteria.rules import METADATA, rule_for, stem_of
from opsmith.evaluation.roofline.call import BoundCall
from opsmith.evaluation.roofline.products import matmul_dtype, matmul_flops
from opsmith.evaluation.roofline.reading import required
from opsmith.evaluation.roofline.touched import most_touched
from opsmith.evaluation.roofline.windows import Window, fewest_bytes, item_bytes, most_bytes

#: In place they forget what was there: one write does, or one read that shows that nothing changes.
OVERWRITING = frozenset(
    [
        "fill",
        "zero",
        "copy",
        "normal",
        "uniform",
        "bernoulli",
        "random",
        "exponential",
        "cauchy",
        "geometric",
        "log_normal",
    ]
)

#: Arguments of which an implementation looks at the form alone.
_FORMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        [
            "zeros_like",
            "ones_like",
            "full_like",
            "rand_like",
            "randn_like",
            "randint_like",
            "new_zeros",
            "new_ones",
            "new_full",
            "avg_pool2d_backward",
            "avg_pool3d_backward",
            "_adaptive_avg_pool2d_backward",
            "_adaptive_avg_pool3d_backward",
            "max_pool2d_with_indices_backward",
            "max_pool3d_with_indices_backward",
            "adaptive_max_pool2d_backward",
            "adaptive_max_pool3d_backward",
            "fractional_max_pool2d_backward",
            "fractional_max_pool3d_backward",
            "nll_loss_backward",
            "nll_loss2d_backward",
            "reflection_pad1d_backward",
            "reflection_pad2d_backward",
            "reflection_pad3d_backward",
            "replication_pad1d_backward",
            "replication_pad2d_backward",
            "replication_pad3d_backward",
        ],
        ("self",),
    ),
    **dict.fromkeys(OVERWRITING, ("self",)),
}


def work_of(record: CallRecord, schema: OpSchema, results: Sequence[OutputTensor]) -> Work | None:
    """The work of one call.

    Args:
        record: its arguments.
        schema: of its op, or the module's.
        results: eager's result tensors in order, described without their data.

    Returns:
        None where a result is no strided tensor, or where the call moves tensors between the host and the
        device, since that is not the device's traffic alone.
    """
    arguments = tensor_values((*record.args, *record.kwargs.values()))
    tensors: list[TensorValue | OutputTensor] = [*arguments, *results]
    crosses = len({t.device for t in tensors}) > 1 and any(
        t.device == "cpu" and math.prod(t.shape) > 1 for t in tensors
    )
    if crosses or any(result.layout != "strided" for result in results):
        return None
    return _module_work(record, results) if schema.kind is TaskKind.MODULE else _op_work(record, schema, results)


def _module_work(record: CallRecord, results: Sequence[OutputTensor]) -> Work:
    # Its weights are not in the record, and which of its inputs it needs is its own affair.
    written = _fresh_bytes(results)
    arguments = _by_storage(tensor_values((*record.args, *record.kwargs.values())))
    return Work(least_bytes=written, traffic_bytes=written + sum(map(most_bytes, arguments.values())))


def _op_work(record: CallRecord, schema: OpSchema, results: Sequence[OutputTensor]) -> Work:
    call, stem = BoundCall(record, schema), stem_of(schema)
    is_view = not call.written and results and all(result.input_storage is not None for result in results)
    if stem in METADATA or is_view or "inplace_view" in schema.tags:
        return Work(least_bytes=0, traffic_bytes=0)
    rule = rule_for(schema)
    asked = [result for number, result in enumerate(results) if rule.role(number) != "ignore"]
    return Work(
        least_bytes=_fresh_bytes(asked) + _least_of_arguments(call, stem, schema.variant, asked),
        traffic_bytes=_fresh_bytes(results) + _read_bytes(call, stem, results) + _written_bytes(call, stem, results),
        matmul_flops=matmul_flops(call, stem),
        matmul_dtype=matmul_dtype(call, stem),
    )


def _least_of_arguments(call: BoundCall, stem: str, variant: Variant, results: Sequence[OutputTensor]) -> int:
    """Bytes of arguments that are surely read, or surely written (or found to be right already)."""
    written = {tensor.storage for name in call.written for tensor in call.tensors.get(name, ())}
    # Of ``x.copy_(x)`` and ``add(x, 0, out=x)`` nothing has to be moved.
    shared = written & {tensor.storage for tensor in call.inputs}
    least = _by_storage(required(call, stem, results))
    if variant is Variant.OUT or (variant is Variant.INPLACE and stem in OVERWRITING):
        for number, windows in _by_input_storage(results).items():
            least[number].extend(windows)
    return sum(fewest_bytes(windows) for number, windows in least.items() if number not in shared)


def _read_bytes(call: BoundCall, stem: str, results: Sequence[OutputTensor]) -> int:
    whole: list[TensorValue] = []
    parts = 0
    for name, tensors in call.tensors.items():
        touched = most_touched(call, stem, name, results)
        if name in _FORMS.get(stem, ()) or name in call.only_written:
            continue
        if touched is None:
            whole.extend(tensors)
        else:
            parts += _at_most(touched, tensors)
    return parts + sum(map(most_bytes, _by_storage(whole).values()))


def _written_bytes(call: BoundCall, stem: str, results: Sequence[OutputTensor]) -> int:
    # An ``out=`` tensor may have been resized: what is written is the result.
    seen = _by_input_storage(results)
    written = 0
    for name in call.written & call.tensors.keys():
        tensors = call.tensors[name]
        touched = most_touched(call, stem, name, results)
        if touched is None:
            found = _by_storage(tensors)
            written += sum(most_bytes(seen.get(number) or windows) for number, windows in found.items())
        else:
            written += _at_most(touched, tensors)
    return written


def _at_most(elements: int, tensors: list[TensorValue]) -> int:
    whole = sum(map(most_bytes, _by_storage(tensors).values()))
    return min(elements * item_bytes(tensors[0].dtype), whole)


def _fresh_bytes(results: Sequence[OutputTensor]) -> int:
    """Unique bytes of the results that use no memory of an input or of an earlier result."""
    fresh = [Window.of(result) for result in results if result.input_storage is None and result.output is None]
    return sum(window.unique_bytes for window in fresh if window)


def _by_storage(tensors: Iterable[TensorValue]) -> dict[int, list[Window]]:
    return _grouped((tensor.storage, Window.of(tensor)) for tensor in tensors)


def _by_input_storage(results: Iterable[OutputTensor]) -> dict[int, list[Window]]:
    return _grouped((r.input_storage, Window.of(r)) for r in results if r.input_storage is not None)


def _grouped(windows: Iterable[tuple[int, Window | None]]) -> dict[int, list[Window]]:
    found: dict[int, list[Window]] = defaultdict(list)
    for number, window in windows:
        if window is not None:
            found[number].append(window)
    return found
