"""Suite ``opinfo``: every ATen call that torch's own operator tests make.

An OpInfo holds generators of sample inputs. Each sample is run in eager mode under a
:class:`~opsmith.calls.recording.CallRecorder`; what was dispatched to ATen becomes the cases. Six
sources a generator: ``sample``, ``inplace``, ``out``, ``backward`` (forward and gradient),
``reference`` (the wider reference inputs, special values included) and ``error`` (bad calls). A
seventh, ``probe``, asks the calls of the others again with other values: see
:mod:`opsmith.suites.probes`.
"""

from __future__ import annotations

import functools
import itertools
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo import core
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.schemas import overload
from opsmith.calls.recording import CallRecorder, RecordedCall, op_name, signature
from opsmith.calls.transfer import HostBytes
from opsmith.core.case import CaseAddress
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.seeds import derive_seed
from opsmith.suites import Skipped, SuiteCall
from opsmith.suites.probes import CallForms, Probe

#: The generators of an OpInfo; the source ``probe`` follows from their calls.
SOURCES = ("sample", "inplace", "out", "backward", "reference", "error")

#: Values that wait on a device for their copy to the host, at most about.
MAX_WAITING_BYTES = 64 << 20

#: A sample as one thing to run: called inside a recorder.
Thunk = Callable[[], Any]


class OpInfoSuite:
    """The suite; see the module's docstring."""

    name = "opinfo"

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:
        torch_dtype = getattr(torch, TORCH_NAMES[dtype])
        return tuple(name for name, info in op_infos().items() if info.supports_dtype(torch_dtype, device))

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall | Skipped]:
        info = op_infos()[entry]
        torch_dtype = getattr(torch, TORCH_NAMES[dtype])
        tolerance = _declared_tolerance(info, torch_dtype, device)
        forms = CallForms()
        for source in SOURCES:
            seed_everything(derive_seed(seed, self.name, entry, dtype, source))
            address = functools.partial(CaseAddress, self.name, entry, dtype, source)
            # Nobody asks a bad call again.
            seen = forms.see if source != "error" else _ignore
            batch = _Batch(seen, wanted, device, value_classes=source == "reference")
            describe = functools.partial(_suite_calls, info, source, address, tolerance=tolerance)
            problem = None
            try:
                for index, thunk in enumerate(_THUNKS[source](info, torch_dtype, device)):
                    batch.record(index, thunk)
                    if batch.is_full:
                        yield from describe(batch.take())
            except Exception as exc:  # noqa: BLE001 - an OpInfo's generator may raise anything
                problem = Skipped(address=address(-1, 0), reason=_one_line(exc))
            yield from describe(batch.take())
            if problem is not None:
                yield problem
        address = functools.partial(CaseAddress, self.name, entry, dtype, "probe")
        probes = forms.probes(derive_seed(seed, self.name, entry, dtype, "probe"))
        yield from _record_probes(info, probes, address, wanted, device, tolerance)


class _WatchedRecorder(CallRecorder):
    """A recorder that shows every call to ``see`` before it is made."""

    def __init__(
        self,
        see: Callable[[Any, tuple[Any, ...], dict[str, Any]], None],
        wanted: Callable[[str, str], bool],
        device: str,
        *,
        value_classes: bool,
        memory: HostBytes,
    ) -> None:
        super().__init__(wanted, device=device, value_classes=value_classes, memory=memory)
        self._see = see

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._see(func, args, kwargs or {})
        return super().__torch_dispatch__(func, types, args, kwargs)


def _ignore(_func: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    """See nothing."""


def _record_probes(
    info: OpInfo,
    probes: Iterable[Probe],
    address: Callable[[int, int], CaseAddress],
    wanted: Callable[[str, str], bool],
    device: str,
    tolerance: tuple[float, float] | None,
) -> Iterator[SuiteCall]:
    for number, probe in enumerate(probes):
        try:
            call = _record_probe(probe, wanted, device)
        except Exception:  # noqa: BLE001, S112 - eager does not take these values, so nobody is asked for them
            continue
        if call is not None:
            yield SuiteCall(
                address=address(number, 0),
                op=call.op,
                signature=call.signature,
                record=call.record,
                tolerance=tolerance if _is_main_op(info, call) else None,
            )


def _record_probe(probe: Probe, wanted: Callable[[str, str], bool], device: str) -> RecordedCall | None:
    """Make the call and record it, unless it is not wanted."""
    args, kwargs = probe.arguments()
    op = op_name(probe.function)
    # Probes of one call differ in nothing but values.
    signed = f"{signature(op, args, kwargs)}~{probe.fill}"
    if not wanted(op, signed):
        return None
    recorder = CallRecorder(lambda *_: True, device=device)
    with recorder, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probe.function(*args, **kwargs)
    if not recorder.calls:
        return None  # A result that has no serialized form.
    call = recorder.calls[0]
    call.signature = signed
    return call


class _Sample(NamedTuple):
    """A sample that was run.

    Attributes:
        number: of the sample inside its source.
        recorder: holds its calls.
        problem: what it raised, in one line.
    """

    number: int
    recorder: CallRecorder
    problem: str | None


class _Batch:
    """Samples that were run and whose values come to the host together.

    On a device every copy to the host is a wait, and where many referees share it each wait is a
    turn in a queue. On the CPU there is nothing to wait for, so a batch is one sample.
    """

    def __init__(
        self,
        see: Callable[[Any, tuple[Any, ...], dict[str, Any]], None],
        wanted: Callable[[str, str], bool],
        device: str,
        *,
        value_classes: bool,
    ) -> None:
        self._see = see
        self._wanted = wanted
        self._device = device
        self._value_classes = value_classes
        self._start()

    def _start(self) -> None:
        self._memory = HostBytes()
        self._samples: list[_Sample] = []
        self._signatures: set[str] = set()

    def record(self, index: int, thunk: Thunk) -> None:
        """Run a sample and keep the calls that it makes."""
        recorder = _WatchedRecorder(
            self._see, self._is_new, self._device, value_classes=self._value_classes, memory=self._memory
        )
        problem = None
        try:
            with recorder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                thunk()
        except Exception as exc:  # noqa: BLE001 - eager refuses the sample in any way it likes
            problem = _one_line(exc)
        self._samples.append(_Sample(index, recorder, problem))

    def _is_new(self, op: str, signature: str) -> bool:
        if signature in self._signatures or not self._wanted(op, signature):
            return False
        self._signatures.add(signature)
        return True

    @property
    def is_full(self) -> bool:
        """Whether the values should be fetched now."""
        waiting_bytes = self._memory.waiting_bytes
        return waiting_bytes == 0 or waiting_bytes > MAX_WAITING_BYTES

    def take(self) -> list[_Sample]:
        """The samples, their calls complete; the batch is empty afterwards."""
        contents = self._memory.collect()
        samples = self._samples
        for sample in samples:
            sample.recorder.resolve(contents)
        self._start()
        return samples


def _suite_calls(
    info: OpInfo,
    source: str,
    address: Callable[[int, int], CaseAddress],
    samples: Iterable[_Sample],
    *,
    tolerance: tuple[float, float] | None,
) -> Iterator[SuiteCall | Skipped]:
    for sample, recorder, problem in samples:
        if problem is not None and source != "error":
            yield Skipped(address=address(sample, 0), reason=problem)
        for number, call in enumerate(recorder.calls):
            if call.raised is (source == "error") and _asks_a_kernel(call.op):
                yield SuiteCall(
                    address=address(sample, number),
                    op=call.op,
                    # A bad call is another question than a good one that happens to look like it.
                    signature=f"{call.signature}!" if call.raised else call.signature,
                    record=call.record,
                    expects_error=call.raised,
                    tolerance=tolerance if _is_main_op(info, call) else None,
                )
        for reason in sorted(recorder.unrecordable):
            yield Skipped(address=address(sample, 0), reason=reason)


@functools.cache
def _asks_a_kernel(op: str) -> bool:
    """Whether tensors go in or come out; ``can_cast`` and its like answer questions about types."""
    schema = overload(op)._schema
    return any("Tensor" in str(value.type) for value in (*schema.arguments, *schema.returns))


def _is_main_op(info: OpInfo, call: RecordedCall) -> bool:
    """Whether the call is the op that the OpInfo is about, rather than one it happens to use."""
    packet = call.op.rpartition(".")[0].strip("_")
    names = {info.name, info.aten_name or info.name, *(alias.name for alias in info.aliases)}
    stems = {name.rpartition(".")[2].strip("_") for name in names} | {name.replace(".", "_") for name in names}
    return packet.removesuffix("_backward") in stems


# ---------------------------------------------------------------- the six sources


def _samples(info: OpInfo, dtype: torch.dtype, device: str) -> Iterator[Thunk]:
    for sample in info.sample_inputs(device, dtype):
        yield functools.partial(_call, info, sample)


def _inplace(info: OpInfo, dtype: torch.dtype, device: str) -> Iterator[Thunk]:
    variant = info.get_inplace()
    if variant is None:
        return
    for sample in info.sample_inputs(device, dtype):
        if not sample.broadcasts_input and isinstance(sample.input, torch.Tensor):
            clone = torch.clone(sample.input)
            yield functools.partial(variant, clone, *sample.args, **sample.kwargs)


def _out(info: OpInfo, dtype: torch.dtype, device: str) -> Iterator[Thunk]:
    if not info.supports_out:
        return
    for sample in info.sample_inputs(device, dtype):
        try:
            result = _call(info, sample)
        except Exception:  # noqa: BLE001, S112 - the same sample is reported by source `sample`
            continue
        out = tree_map(lambda r: torch.empty_like(r) if isinstance(r, torch.Tensor) else r, result)
        yield functools.partial(info.op, sample.input, *sample.args, **sample.kwargs, out=out)


def _backward(info: OpInfo, dtype: torch.dtype, device: str) -> Iterator[Thunk]:
    if not info.supports_autograd or dtype not in info.supported_backward_dtypes(torch.device(device).type):
        return
    for sample in info.sample_inputs(device, dtype, requires_grad=True):
        yield functools.partial(_call_and_differentiate, info, sample)


def _reference(info: OpInfo, dtype: torch.dtype, device: str) -> Iterator[Thunk]:
    if info.reference_inputs_func is None:
        return
    for sample in info.reference_inputs(device, dtype):
        yield functools.partial(_call, info, sample)


def _errors(info: OpInfo, dtype: torch.dtype, device: str) -> Iterator[Thunk]:
    # error_inputs chooses its own dtypes, so it belongs to one of them.
    if info.error_inputs_func is None or dtype is not torch.float32:
        return
    for error in info.error_inputs(device):
        yield functools.partial(_call, info, error.sample_input)


_THUNKS: dict[str, Callable[[OpInfo, torch.dtype, str], Iterable[Thunk]]] = {
    "sample": _samples,
    "inplace": _inplace,
    "out": _out,
    "backward": _backward,
    "reference": _reference,
    "error": _errors,
}


def _call(info: OpInfo, sample: SampleInput) -> Any:
    return info.op(sample.input, *sample.args, **sample.kwargs)


def _call_and_differentiate(info: OpInfo, sample: SampleInput) -> None:
    result = _call(info, sample)
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [
        t
        for t in tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if outputs and inputs:
        # Random cotangents: with ones, a kernel that forgets to multiply by them would pass.
        with _disable_current_modes():
            cotangents = [torch.randn_like(t) for t in outputs]
        torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)


# ---------------------------------------------------------------- torch's internals


@functools.cache
def op_infos() -> dict[str, OpInfo]:
    """Those of torch by their full names; a number tells apart those that share one."""
    from torch.testing._internal.common_methods_invocations import op_db

    for module in (common_utils, core):
        vars(module)["extract_test_fn"] = _in_no_test
    infos: dict[str, OpInfo] = {}
    for info in op_db:
        name = info.full_name
        for number in itertools.count(2):
            if name not in infos:
                break
            name = f"{info.full_name}#{number}"
        infos[name] = info
    return infos


def _in_no_test() -> None:
    """The test that asks for a sample, which the generators look for in the whole stack, their sources read.

    That takes a hundred times as long as making the sample, and here there is none.
    """


#: The tests of torch's that compare an op's values with a reference's on the same inputs.
_VALUE_TESTS = {
    ("TestCommon", "test_compare_cpu"),
    ("TestCommon", "test_noncontiguous_samples"),
    ("TestCommon", "test_numpy_ref"),
    ("TestCommon", "test_out"),
    ("TestCommon", "test_variant_consistency_eager"),
    ("TestBinaryUfuncs", "test_reference_numerics"),
    ("TestBinaryUfuncs", "test_reference_numerics_small_values"),
    ("TestReductions", "test_reference_numerics"),
    ("TestUnaryUfuncs", "test_reference_numerics_normal"),
    ("TestUnaryUfuncs", "test_reference_numerics_small"),
}


def _declared_tolerance(info: OpInfo, dtype: torch.dtype, device: str) -> tuple[float, float] | None:
    """The loosest (rtol, atol) that the OpInfo's own tests of values are allowed for this dtype."""
    declared = [
        override.d[dtype]
        for wrapper in info.decorators
        if isinstance(wrapper, DecorateInfo) and (wrapper.cls_name, wrapper.test_name) in _VALUE_TESTS
        if wrapper.is_active(wrapper.cls_name, wrapper.test_name, torch.device(device).type, dtype, {})
        for override in wrapper.decorators
        if isinstance(override, toleranceOverride) and dtype in override.d
    ]
    if not declared:
        return None
    return max(t.rtol for t in declared), max(t.atol for t in declared)


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), numpy and random: OpInfo's generators draw from each.

    The generators start over from ``common_utils.SEED`` before every sample, so that has to follow
    the run's seed too: left alone, the values of all samples are known to everybody.
    """
    common_utils.SEED = seed % 2**32
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the generators use the legacy global state
    random.seed(seed)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300]
