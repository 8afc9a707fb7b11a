"""What enabled kernels do for one model: whether its results are right, and how much of its work they do."""

from __future__ import annotations

import contextlib
import copy
import functools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import msgspec
import torch
from benchmarks.models.zoo import Workload
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

import opsmith
from opsmith.aten.schemas import aten_schemas, overload
from opsmith.core.op import Variant
from opsmith.dispatch.activity import Active
from opsmith.dispatch.registry import is_composite
from opsmith.evaluation.integrity.policy import COPIES, FILLS, computes, stem

#: How much further from the float64 result than eager a result with kernels may be.
FACTOR = 3.0
#: Packets whose time is told one by one.
SLOWEST = 8

Enter = Callable[[], AbstractContextManager[None]]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One model, eager and with kernels; times are of one call and, for a decoder, its tokens.

    Attributes:
        parameters: how many numbers the model has.
        calls_asked: ATen calls with a tensor on the device, without views, allocation and metadata.
        calls_served: of these the ones that kernels answered.
        fallbacks: calls that kernels did not answer, by reason.
        no_kernel: calls of ops without a kernel, by op.
        op_time_us: with kernels, in ATen calls: on the device's clock, or on the host's for the CPU.
        op_time_served_us: of that in calls that kernels answered.
        eager_op_time_us: the same without kernels.
        eager_op_time_served_us: of that in calls that kernels would have answered.
        slowest_us: time with kernels and without, of the packets that take the most with them.
        eager_ms: wall time of eager, median.
        kernels_ms: wall time with kernels, median.
        eager_error: largest distance of eager's outputs from float64's, relative to the largest element.
        kernels_error: the same with kernels.
        allowed_error: what ``kernels_error`` may be.
        tokens_equal: whether the tokens are eager's, or None for a model that writes none.
        token_gap: at the first token that differs, how far eager's two best scores are from each other, relative to
            the largest.
    """

    model: str
    parameters: int
    calls_asked: int
    calls_served: int
    fallbacks: dict[str, int]
    no_kernel: dict[str, int]
    op_time_us: float
    op_time_served_us: float
    eager_op_time_us: float
    eager_op_time_served_us: float
    slowest_us: dict[str, tuple[float, float]] = {}
    eager_ms: float
    kernels_ms: float
    eager_error: float
    kernels_error: float
    allowed_error: float
    tokens_equal: bool | None
    token_gap: float | None = None

    @property
    def right(self) -> bool:
        """Whether results are in tolerance, and tokens eager's up to where two are equally good within it."""
        tied = self.token_gap is not None and self.token_gap <= self.allowed_error
        return self.kernels_error <= self.allowed_error and (self.tokens_equal is not False or tied)


class Results(NamedTuple):
    """What one run of a model returned."""

    outputs: Sequence[Tensor]
    tokens: Tensor | None


class Subject:
    """A model on its device.

    Args:
        workload: the model and its inputs, which stay as they are.
    """

    def __init__(self, workload: Workload, device: str, dtype: torch.dtype) -> None:
        self._workload = workload
        self._device, self._dtype = device, dtype
        self._module = workload.module.to(device, dtype)
        self._inputs = _in_dtype(workload.inputs, device, dtype)

    @torch.no_grad()
    def __call__(self) -> Results:
        """Run the model once."""
        tokens = None if self._workload.decode is None else self._workload.decode(self._module, self._inputs)
        return Results(self._workload.outputs(self._module, self._inputs), tokens)

    @torch.no_grad()
    def exact(self) -> Sequence[Tensor]:
        """What it returns in float64, for the same weights and inputs."""
        module: nn.Module = copy.deepcopy(self._module).double()
        return self._workload.outputs(module, _in_dtype(self._inputs, self._device, torch.float64))

    @torch.no_grad()
    def moved(self) -> Sequence[Tensor]:
        """The same for weights and inputs that are half a unit of their last digit off, up or down at random."""
        generator = torch.Generator().manual_seed(0)
        half_a_unit = torch.finfo(self._dtype).eps / 2

        def moved(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return tensor
            signs = torch.randint(2, tensor.shape, generator=generator).mul_(2).sub_(1).to(tensor.device)
            return tensor.double() * (1 + half_a_unit * signs)

        module: nn.Module = copy.deepcopy(self._module).double()
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.copy_(moved(tensor))
        inputs: dict[str, Tensor] = tree_map_only(Tensor, moved, self._inputs)
        return self._workload.outputs(module, _in_dtype(inputs, self._device, torch.float64))

    @torch.no_grad()
    def token_gap(self, tokens: Tensor, others: Tensor) -> float | None:
        """How far the two best scores are from each other, relative to the largest, where tokens first differ."""
        differ = (tokens != others).any(0).nonzero()
        if not len(differ):
            return None
        [scores] = self._workload.outputs(self._module, {"input_ids": tokens[:1, : int(differ[0])]})
        last = scores[0, -1].double()
        best, second = last.topk(2).values
        return float((best - second) / last.abs().max())

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self._module.parameters())


def _in_dtype(inputs: dict[str, Tensor], device: str, dtype: torch.dtype) -> dict[str, Tensor]:
    def convert(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    converted: dict[str, Tensor] = tree_map_only(Tensor, convert, inputs)
    return converted


class Tally(TorchDispatchMode):
    """Counts the ATen calls that reach a device and are more than a view, an allocation or a question."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = torch.device(device).type
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        op = str(func).removeprefix("aten.")
        reaches = any(isinstance(v, Tensor) and v.device.type == self._device for v in tree_leaves((args, kwargs)))
        if reaches and (computes(op) or stem(op.rpartition(".")[0]) in COPIES | FILLS):
            self.calls[op] += 1
        return func(*args, **(kwargs or {}))


def measure(subject: Subject, enter: Enter, device: str, repeats: int) -> dict[str, Any]:
    """What kernels that ``enter`` enables do for a model: all fields of :class:`Found` but its name."""
    with enter():
        subject()  # Kernels are compiled, and tuned, at their first call.
    exact, eager = subject.exact(), subject()
    with enter():
        with_kernels, active = subject(), opsmith.active()
        with Tally(device) as tally:
            subject()
    eager_error = error(eager.outputs, exact)
    written = None if eager.tokens is None or with_kernels.tokens is None else (eager.tokens, with_kernels.tokens)
    return {
        "parameters": subject.parameters,
        **calls(active, tally.calls, device),
        **_op_times(subject, enter, active, device),
        **_wall_times(subject, enter, device, repeats),
        "eager_error": eager_error,
        "kernels_error": error(with_kernels.outputs, exact),
        "allowed_error": allowed_error(eager_error, error(subject.moved(), exact)),
        "tokens_equal": None if written is None else torch.equal(*written),
        "token_gap": None if written is None else subject.token_gap(*written),
    }


def error(outputs: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The largest distance from the exact outputs, relative to an output's largest element."""
    distances = [
        ((output.double() - right).abs().max() / right.abs().max()).item()
        for output, right in zip(outputs, exact, strict=True)
    ]
    return max(distances)


def allowed_error(eager_error: float, moved_error: float) -> float:
    """What :func:`error` may be, by eager's own and by what a rounding of weights and inputs alone comes to.

    Eager may be near the exact result by luck, where there are few outputs.
    """
    return FACTOR * max(eager_error, moved_error)


def calls(active: Active, tally: Counter[str], device: str) -> dict[str, Any]:
    """How many calls were asked and served, from what was active and a tally of the same run."""
    served = [op for op in active.ops if op.device == torch.device(device).type]
    fallbacks: Counter[str] = Counter()
    for op in served:
        fallbacks.update({reason.value: count for reason, count in op.fallbacks.items()})
    # The tally also sees what is served; calls that served ops make of each other are in neither.
    no_kernel = {op: count for op, count in tally.most_common() if op not in {one.op for one in served}}
    answered = sum(op.calls for op in served)
    return {
        "calls_asked": answered + fallbacks.total() + sum(no_kernel.values()),
        "calls_served": answered,
        "fallbacks": dict(fallbacks),
        "no_kernel": no_kernel,
    }


def _op_times(subject: Subject, enter: Enter, active: Active, device: str) -> dict[str, Any]:
    """Time in ATen calls, and in the share of them that kernels answer: by packet, as the profiler names calls."""
    calls: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for op in active.ops:
        packet = op.op.rpartition(".")[0]
        calls[packet] += op.calls + sum(op.fallbacks.values())
        answered[packet] += op.calls
    shares = {packet: answered[packet] / count for packet, count in calls.items() if count}
    found: dict[str, Any] = {}
    by_state: list[Counter[str]] = []
    for prefix, state in (("", enter), ("eager_", contextlib.nullcontext)):
        with state():
            times = time_by_packet(subject, shares, device)
        by_state.append(times)
        found[f"{prefix}op_time_us"] = sum(times.values())
        found[f"{prefix}op_time_served_us"] = sum(us * shares.get(packet, 0) for packet, us in times.items())
    ours, eagers = by_state
    found["slowest_us"] = {packet: (us, eagers[packet]) for packet, us in ours.most_common(SLOWEST)}
    return found


def time_by_packet(run: Callable[[], object], served: Collection[str], device: str) -> Counter[str]:
    """Microseconds of a run in ATen calls; ops that PyTorch decomposes are looked into, others are not.

    Args:
        run: what is timed.
        served: packets that are not looked into, because kernels answer them.
        device: where the time is taken.
    """
    on_device = not device.startswith("cpu")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    with profile(activities=activities, acc_events=True) as profiler:
        run()
        _synchronise(device)
    times: Counter[str] = Counter()
    for event in profiler.events():
        packet = _packet(event, served)
        if packet is not None and not any(_packet(parent, served) for parent in _parents(event)):
            times[packet] += event.device_time_total if on_device else event.cpu_time_total
    return times


def _packet(event: Any, served: Collection[str]) -> str | None:
    """The ATen packet whose computation an event is, or None."""
    namespace, _, packet = event.name.partition("::")
    return packet if namespace == "aten" and (packet in served or not _decomposes(packet)) else None


@functools.cache
def _decomposes(packet: str) -> bool:
    """Whether PyTorch makes each call of a packet into calls of others."""
    # Overloads with named dimensions are composite in packets that are not.
    functional = [
        schema.name
        for schema in aten_schemas().values()
        if schema.packet == packet and schema.variant is not Variant.OUT and "Dimname" not in schema.schema
    ]
    return all(is_composite(overload(op), "CPU") for op in aten_schemas().keys() & functional)


def _parents(event: Any) -> Iterator[Any]:
    while (event := event.cpu_parent) is not None:
        yield event


def _wall_times(subject: Subject, enter: Enter, device: str, repeats: int) -> dict[str, float]:
    ms: dict[str, list[float]] = {"eager_ms": [], "kernels_ms": []}
    for _ in range(repeats):  # In turns: what else the machine does meets both.
        for name, state in (("eager_ms", contextlib.nullcontext), ("kernels_ms", enter)):
            with state():
                _synchronise(device)
                start = time.perf_counter()
                subject()
                _synchronise(device)
                ms[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in ms.items()}


def _synchronise(device: str) -> None:
    if not device.startswith("cpu"):
        torch.accelerator.synchronize()
