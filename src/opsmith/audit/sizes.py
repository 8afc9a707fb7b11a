"""How large a problem is: counted at its full sizes on fake tensors, which have shapes and no content.

A problem is launch-bound where a large device needs less time for the work than the host needs to launch it: a
faster kernel then changes nothing that anybody can measure. The time is a lower bound, so what exceeds it is
not launch-bound on any device: each call at the device's full bandwidth, or at its full rate of products.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from opsmith.aten.low_precision import is_low
from opsmith.audit.draws import every_call_shown
from opsmith.audit.redundancy import op_name
from opsmith.core.audit import AuditFigures, AuditFinding, Check
from opsmith.core.dtypes import SHORT_NAMES
from opsmith.evaluation.integrity.policy import COPIES, FILLS, computes, stem
from opsmith.evaluation.roofline.datasheets import datasheet_of
from opsmith.suites.modules import MOST_CASE_BYTES
from opsmith.tasks.problem import BrokenProblem, ProblemFile
from opsmith.traces.transformers_models import eager_paths

#: The large device that problems are sized for.
DEVICE = "NVIDIA H200"
#: What eager's host needs for one small call there, microseconds.
LAUNCH_US = 5.0
#: How many times longer than its launches the work has to take.
LAUNCHES_HIDDEN = 2.0
#: What a card of 24 GB has for each of Model and ModelNew, which are timed side by side.
MOST_PEAK_BYTES = 11 << 30

_CPU_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
#: Packets that read a part of a table.
_GATHERS = frozenset({"embedding", "index", "index_select", "gather", "take", "select_scatter"})
#: Gates of each kind of recurrent layer.
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class NotCounted(Exception):
    """A problem's sizes cannot be told without running it, in one line."""


def figures(file: Path, *, small: bool) -> AuditFigures:
    """Count what one call of a problem takes.

    Args:
        file: of the problem.
        small: at the sizes of its ``SMALL``.

    Raises:
        NotCounted: it does not load, or does not run without values.
    """
    try:
        problem = ProblemFile(file, small=small)  # What it imports is real.
        model = _model(problem)
        try:
            with _usual_paths():
                return _counted(problem, model)
        except DataDependentOutputException:
            return _counted(problem, model)  # A library may do without that content where it sees that there is none.
    except BrokenProblem as exc:
        raise NotCounted(str(exc)) from exc
    except Exception as exc:
        raise NotCounted(f"{type(exc).__name__}: {' '.join(str(exc).split())[:200]}") from exc


def _counted(problem: ProblemFile, model: torch.nn.Module) -> AuditFigures:
    with _fake(), torch.no_grad(), every_call_shown():
        inputs = problem.inputs(0)
        counter = _Counter(_tensors((inputs, list(model.parameters()), list(model.buffers()))))
        with _recurrent_layers_as_one_call(model, counter), counter:
            result = model(*inputs)
        del result
    return counter.figures()


def _model(problem: ProblemFile) -> torch.nn.Module:
    """Model without content, or, where its constructor reads the content of a tensor, a real one."""
    init = problem.init_inputs(0)
    try:
        with _fake(), torch.no_grad():
            return problem.model(init, 0)
    except BrokenProblem as exc:
        if not isinstance(exc.__cause__, DataDependentOutputException):
            raise
    return problem.model(init, 0)


def _fake() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=True)


def findings(counted: AuditFigures) -> Iterator[AuditFinding]:
    """What is wrong with a problem's sizes."""
    launches_us = counted.launches * LAUNCH_US
    if counted.least_us < LAUNCHES_HIDDEN * launches_us:
        yield AuditFinding(
            check=Check.LAUNCH_BOUND,
            detail=f"{counted.least_us:.0f} us of work on an H200 at least, {launches_us:.0f} us to launch its "
            f"{counted.launches} calls; {LAUNCHES_HIDDEN:g} times that would hide them",
        )
    if counted.peak_bytes > MOST_PEAK_BYTES:
        yield AuditFinding(
            check=Check.MEMORY,
            detail=f"{counted.peak_bytes / 2**30:.1f} GiB at its peak; Model and ModelNew have "
            f"{MOST_PEAK_BYTES >> 30} each on a card of 24 GB",
        )
    if counted.case_bytes > MOST_CASE_BYTES:
        yield AuditFinding(
            check=Check.MEMORY,
            detail=f"inputs and state of a case take {counted.case_bytes / 2**30:.1f} GiB; "
            f"{MOST_CASE_BYTES >> 30} are the most",
        )


def _usual_paths() -> AbstractContextManager[None]:
    """Transformers takes other paths for fake tensors than for real ones."""
    return eager_paths() if "transformers" in sys.modules else contextlib.nullcontext()


class _Counter(TorchDispatchMode):
    """Counts calls, work and living memory.

    Args:
        held: what is alive from beginning to end.
    """

    def __init__(self, held: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        sheet = datasheet_of(DEVICE)
        assert sheet is not None
        self._sheet = sheet
        self._seen: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()
        self._launches = self._flops = self._moved_bytes = 0
        self._least_us = 0.0
        self._living_bytes = self._peak_bytes = 0
        self.quiet = False
        for tensor in held:
            self._live(tensor)
        self._case_bytes = self._living_bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        for leaf in _tensors(result):
            self._live(leaf)
        name = op_name(func)
        if not self.quiet and (computes(name) or stem(name.partition(".")[0]) in COPIES | FILLS):
            flops = _flops(func, args, kwargs, result)
            gathers = name.partition(".")[0] in _GATHERS
            self.count(_tensors((args, kwargs)), _tensors(result), flops, gathers=gathers)
        return result

    def count(
        self, arguments: list[torch.Tensor], results: list[torch.Tensor], flops: int, *, gathers: bool = False
    ) -> None:
        """Add one call that runs on the device.

        Args:
            gathers: it reads no more than it writes, however large its arguments are.
        """
        written = _unique_bytes(results)
        moved = min(_unique_bytes(arguments), written) + written if gathers else _unique_bytes([*arguments, *results])
        rate = _rate_of([*arguments, *results], self._sheet.matmul_tflops)
        self._launches += 1
        self._flops += flops
        self._moved_bytes += moved
        self._least_us += max(moved / self._sheet.bandwidth_gbps / 1e3, flops / rate / 1e6)

    def _live(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._seen:
            return
        self._seen.add(storage)
        size = storage.nbytes()
        self._living_bytes += size
        self._peak_bytes = max(self._peak_bytes, self._living_bytes)
        weakref.finalize(storage, self._gone, size)

    def _gone(self, size: int) -> None:
        self._living_bytes -= size

    def figures(self) -> AuditFigures:
        return AuditFigures(
            launches=self._launches,
            flops=self._flops,
            moved_bytes=self._moved_bytes,
            least_us=round(self._least_us, 2),
            peak_bytes=self._peak_bytes,
            case_bytes=self._case_bytes,
        )


@contextlib.contextmanager
def _recurrent_layers_as_one_call(model: torch.nn.Module, counter: _Counter) -> Iterator[None]:
    """Count ``nn.LSTM`` and its like as the one call that they are on a GPU; a CPU's ATen unrolls them."""

    def before(_module: torch.nn.Module, _args: Any) -> None:
        counter.quiet = True

    def after(module: torch.nn.RNNBase, args: Any, result: Any) -> None:
        counter.quiet = False
        counter.count([*_tensors(args), *module.parameters()], _tensors(result), _recurrent_flops(module, args[0]))

    hooks = []
    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase):
            hooks += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _recurrent_flops(module: torch.nn.RNNBase, inputs: torch.Tensor) -> int:
    directions = 2 if module.bidirectional else 1
    positions = math.prod(inputs.shape[:-1])
    per_position = 0
    for layer in range(module.num_layers):
        width = module.input_size if layer == 0 else (module.proj_size or module.hidden_size) * directions
        recurrent = module.proj_size or module.hidden_size
        per_position += directions * 2 * _GATES[module.mode] * module.hidden_size * (width + recurrent)
    return positions * per_position


def _flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    packet = func._overloadpacket
    if func._schema.name == f"aten::{_CPU_ATTENTION}":
        whole = int(sdpa_flop_count(args[0].shape, args[1].shape, args[2].shape))
        causal = kwargs.get("is_causal", args[4] if len(args) > 4 else False)
        return whole // 2 if causal else whole
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=result))
    return 0


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _unique_bytes(tensors: list[torch.Tensor]) -> int:
    """Bytes of all elements, those that several tensors show counted once."""
    largest: dict[int, int] = {}
    for tensor in tensors:
        # An expanded dimension repeats what is there once.
        sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size]
        key = tensor.untyped_storage()._cdata
        largest[key] = max(largest.get(key, 0), math.prod(sizes) * tensor.element_size())
    return sum(largest.values())


def _rate_of(tensors: list[torch.Tensor], tflops: Mapping[str, float]) -> float:
    """The rate of products that counts, 1e12 a second: that of the first float; below 16 bits twice that of 16."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    if floats and is_low(floats[0]):
        return 2 * tflops["f16"]
    return tflops[SHORT_NAMES[str(floats[0].dtype).removeprefix("torch.")] if floats else "f32"]
