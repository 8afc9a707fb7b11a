"""The clock on a device: kernel time against the profiler, what can be captured, digests."""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch._C._autograd import DeviceType
from torch.utils.cpp_extension import CUDA_HOME, load_inline

from opsmith.calls.digests import digest_memory
from opsmith.calls.live import content_of, make_storages
from opsmith.calls.observer import Observer
from opsmith.core.case import CallRecord, GeneratedStorage, TensorValue
from opsmith.core.domains import Mask, Normal, Ordered
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.cuda_graphs import _runtime, capture, give_memory_back, graph_costs, memory_kind
from opsmith.evaluation.timing.inputs import TimedInputs
from opsmith.evaluation.timing.variation import variations
from opsmith.runner.machine.process_memory import foreign_memory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CUDA = torch.device("cuda")
aten = torch.ops.aten
CALLS = 4

#: Launches on the legacy default stream, which is not the one that torch captures on.
ON_STREAM_ZERO = """
__global__ void add_one(const float* x, float* y, int count) {
  int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place < count) y[place] = x[place] + 1;
}

torch::Tensor plus_one(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int count = x.numel();
  add_one<<<(count + 255) / 256, 256, 0, 0>>>(x.data_ptr<float>(), y.data_ptr<float>(), count);
  return y;
}
"""


def vectors(op: str, count: int, elements: int) -> CallRecord:
    """A call of so many vectors of float32."""
    storages = tuple(
        GeneratedStorage(4 * elements, "f32", (elements,), (1,), 0, Normal(), seed=n) for n in range(count)
    )
    args = tuple(TensorValue(number, "f32", (elements,), (1,), 0, "") for number in range(count))
    return CallRecord(op=op, args=args, kwargs={}, storages=storages)


def timed_call(function: Callable[..., Any], record: CallRecord, *, warm: bool = False) -> TimedCall:
    """A side with a few sets of inputs."""
    return TimedCall(function, fresh_inputs(record, CALLS), CUDA, warm=warm)


def fresh_inputs(record: CallRecord, count: int) -> TimedInputs:
    """Sets whose values are made anew as the referee would have it."""
    found = variations(record, make_storages([record], CUDA)[0], {})
    return TimedInputs(record, CUDA, count, variations=found)


def kernel_us(timed: TimedCall, blocks: int = 15) -> float:
    """K of a call, in the median of blocks on fresh values."""
    times = []
    for round_number in range(1, blocks + 1):
        time_us, _ = timed.device_block(CALLS, round_number=round_number)
        assert time_us is not None
        times.append(time_us)
    return statistics.median(times)


def works() -> None:
    """Torch launches, draws random numbers, allocates and captures as ever."""
    x = torch.rand(1000, device=CUDA)
    assert 990 < len(x.unique())
    assert torch.equal((x + x).cpu(), x.cpu() * 2)
    generator = torch.Generator(CUDA).manual_seed(3)
    assert 990 < len(torch.rand(1000, device=CUDA, generator=generator).unique())
    assert 0 < torch.nn.functional.dropout(x, 0.5).count_nonzero().item() < 1000
    torch.empty(64 << 20, device=CUDA).fill_(1)
    torch.cuda.synchronize()
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    captured = capture([partial(torch.add, x, 1)])
    assert captured is not None
    assert torch.equal(x + 1, captured.results[0])


def test_k_of_a_large_add_is_what_the_profiler_says() -> None:
    """Within 3 %: the mean time of its kernels in replays of the same graph."""
    timed = timed_call(aten.add.Tensor, vectors("add.Tensor", 2, 1 << 24), warm=True)
    ours_us = kernel_us(timed)
    graph = timed.captured(CALLS)
    assert graph is not None
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        graph.replay(10)
        torch.cuda.synchronize()
    kernels_us = [
        event.time_range.elapsed_us()
        for event in profile.events()
        if event.device_type == DeviceType.CUDA and "elementwise" in event.name
    ]
    assert 10 * CALLS == len(kernels_us)
    assert sum(kernels_us) / len(kernels_us) == pytest.approx(ours_us, rel=0.03)


def test_k_does_not_depend_on_how_the_calls_are_queued() -> None:
    """As a graph or one by one, behind the gate: the host's pace does not count."""
    timed = timed_call(aten.add.Tensor, vectors("add.Tensor", 2, 1 << 22))
    in_a_graph = kernel_us(timed)
    times = [timed.device_block(CALLS, round_number=number, captured=False)[0] for number in range(15)]
    one_by_one = statistics.median([time_us for time_us in times if time_us is not None])
    assert in_a_graph == pytest.approx(one_by_one, rel=0.15, abs=2.0)


def test_a_call_is_as_many_nodes_as_it_launches() -> None:
    """One kernel; a view launches nothing."""
    one = timed_call(aten.relu.default, vectors("relu.default", 1, 1000))
    none = timed_call(lambda x: aten.view.default(x, [10, 100]), vectors("view.default", 1, 1000))
    assert 1.0 == one.device_block(CALLS)[1]
    assert 0.0 == none.device_block(CALLS)[1]


def test_every_call_of_a_graph_reads_its_own_fresh_values() -> None:
    """They are written after capture; any result can be looked at afterwards."""
    timed = timed_call(aten.relu.default, vectors("relu.default", 1, 1000))
    for round_number in (1, 2):
        timed.device_block(CALLS, round_number=round_number)
        for slot in range(CALLS):
            observer = Observer()
            observer.keep([timed.observe(slot, observer)])
            [outcome] = observer.outcomes()
            [before] = timed.inputs.before(slot, round_number)
            values = torch.empty(0, device=CUDA).set_(before, 0, (1000,), (1,))
            expected = values.relu().cpu().numpy().tobytes()
            assert expected == outcome.outputs[0].data  # type: ignore[union-attr]
            assert {} == outcome.changed


@pytest.mark.skipif(CUDA_HOME is None, reason="needs nvcc")
def test_a_launch_on_the_default_stream_is_measured_though_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would run once, while the graph is captured, and be missing in every replay."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability()))
    extension = load_inline(
        "opsmith_test_stream_zero",
        cpp_sources="torch::Tensor plus_one(torch::Tensor x);",
        cuda_sources=ON_STREAM_ZERO,
        functions=["plus_one"],
    )
    elements = 1 << 24
    timed = timed_call(extension.plus_one, vectors("relu.default", 1, elements))
    time_us, nodes = timed.device_block(CALLS, round_number=1)
    assert nodes is None
    assert time_us is not None
    eager_us = kernel_us(timed_call(lambda x: aten.add.Scalar(x, 1), vectors("relu.default", 1, elements)))
    assert 0.5 * eager_us < time_us < 3 * eager_us
    [before] = timed.inputs.before(2, 1)
    values = torch.empty(0, device=CUDA).set_(before, 0, (elements,), (1,))
    observer = Observer()
    observer.keep([timed.observe(2, observer)])
    [outcome] = observer.outcomes()
    assert (values + 1).cpu().numpy().tobytes() == outcome.outputs[0].data  # type: ignore[union-attr]
    works()


def test_k_of_a_call_that_waits_for_the_device_is_none() -> None:
    """Captured it cannot be, and behind the gate it waits for the gate."""
    timed = timed_call(aten.nonzero.default, vectors("relu.default", 1, 1000))
    assert (None, None) == timed.device_block(CALLS, round_number=1)
    assert (None, None) == timed.device_block(CALLS, round_number=2, captured=False)
    works()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.nonzero(),
        lambda x: x.sum().item(),
        lambda x: torch.cuda.synchronize(),
        lambda x: (torch.rand(10, device=CUDA), x.nonzero()),
        lambda x: (torch.empty(1 << 20, device=CUDA), x.cpu()),
        lambda x: x.view(7, 7),
    ],
    ids=["nonzero", "item", "synchronize", "random numbers first", "memory first", "raises"],
)
def test_everything_works_after_a_capture_that_failed(call: Callable[[torch.Tensor], Any]) -> None:
    """Random numbers, launches, memory and the next capture; several times over."""
    x = torch.rand(1000, device=CUDA)
    for _ in range(3):
        assert capture([partial(call, x)] * 2) is None
        works()


def test_nothing_is_collected_while_calls_are_captured() -> None:
    """What a collection destroys may be CUDA's, and end the capture; afterwards it works again, whatever came of it."""
    x = torch.rand(1000, device=CUDA)
    collects: list[bool] = []

    def call() -> torch.Tensor:
        collects.append(gc.isenabled())
        return x + 1

    assert capture([call] * 2) is not None
    assert gc.isenabled()
    assert capture([call, x.nonzero]) is None
    assert gc.isenabled()
    assert {False} == {*collects}


def test_what_is_no_fault_of_the_capture_is_raised() -> None:
    """A mistake in Python would be one outside of it, too; nothing is left behind either."""
    x = torch.rand(1000, device=CUDA)
    with pytest.raises(ZeroDivisionError):
        capture([partial(x.add, 1), lambda: 1 // 0])
    works()


def test_random_numbers_differ_from_replay_to_replay() -> None:
    """A graph with one set of numbers for ever would be another op."""
    captured = capture([partial(torch.rand, 1000, device=CUDA)])
    assert captured is not None
    first = captured.results[0].clone()
    captured.replay()
    assert not torch.equal(first, captured.results[0])


def test_replays_are_run_as_often_as_is_asked() -> None:
    """The judge's own clock counts on it."""
    x = torch.zeros(1, device=CUDA)
    captured = capture([partial(x.add_, 1)] * 3)
    assert captured is not None
    assert (3, 3) == (x.item(), captured.nodes)  # Recorded, then run once.
    captured.replay(4)
    assert 15 == x.item()


@pytest.mark.skipif(os.environ["TRITON_INTERPRET"] == "1", reason="the empty kernel is Triton's: TRITON_INTERPRET=0")
def test_an_empty_node_takes_next_to_no_time() -> None:
    """It is what remains of a launch in a graph, and the same each time within a third of a microsecond."""
    found = [graph_costs(CUDA) for _ in range(3)]
    assert all(0.1 < costs.node_us < 3.0 for costs in found)
    assert all(0.0 < costs.graph_us < 10.0 for costs in found)
    for times in ([costs.node_us for costs in found], [costs.graph_us / 3 for costs in found]):
        assert max(times) - min(times) < 0.3


@pytest.mark.parametrize("size", [0, 1, 8, 1000, 4097, (1 << 20) + 3])
@pytest.mark.parametrize("start", [0, 1, 8])
def test_a_digest_is_the_same_on_device_and_host(size: int, start: int) -> None:
    """Of the same bytes, wherever they begin."""
    around = torch.randint(0, 256, (size + 8,), dtype=torch.uint8)
    on_host, on_device = around[start : start + size], around.to(CUDA)[start : start + size]
    assert digest_memory(on_host).tolist() == digest_memory(on_device).tolist()


def test_a_device_holds_the_values_that_the_referee_makes_again() -> None:
    """Bytes and generated storages alike, over rounds: blended, chosen, drawn and fixed ones."""
    floats = torch.randn(60)
    vectors_of = [("f16", 50), ("c64", 30), ("i64", 6), ("f32", 31), ("b8", 40), ("f32", 3_000_001), ("f32", 20)]
    vectors_of.append(("i64", 1))
    record = CallRecord(
        op="relu.default",
        args=tuple(
            TensorValue(number, dtype, (elements,), (1,), 0, "")
            for number, (dtype, elements) in enumerate(
                [
                    ("f16", 50),
                    ("c64", 30),
                    ("i64", 6),
                    ("f32", 31),
                    ("b8", 40),
                    ("f32", 3_000_001),
                    ("f32", 20),
                    ("i64", 1),
                ]
            )
        ),
        kwargs={},
        storages=(
            struct.pack("50e", *floats[:50].tolist()),
            struct.pack("60f", *floats.tolist()),
            struct.pack("6q", 3, 0, 3, 1, 0, 1),
            GeneratedStorage(124, "f32", (31,), (1,), 0, Normal(), seed=2),
            GeneratedStorage(40, "b8", (40,), (1,), 0, Mask(0.3), seed=3),
            GeneratedStorage(12_000_004, "f32", (3_000_001,), (1,), 0, Normal(), seed=4),
            GeneratedStorage(80, "f32", (20,), (1,), 0, Ordered(0, 1), seed=5),
            struct.pack("q", 3),
        ),
    )
    inputs = fresh_inputs(record, 6)
    seen: list[set[bytes]] = [set() for _ in record.storages]
    for key in (0, 3, 1 << 61):
        inputs.renew(key, 6)
        for slot, live in enumerate(inputs.lives):
            met = [_content(storage) for storage in live.storages]
            assert [content_of(storage, CUDA) for storage in inputs.record_of(slot, key).storages] == met
            assert [_content(storage) for storage in inputs.before(slot, key)] == met
            for contents, content in zip(seen, met, strict=True):
                contents.add(content)
    assert [18] * 7 + [1] == [len(contents) for contents in seen]


def _content(storage: torch.UntypedStorage) -> bytes:
    on_host = storage.cpu()
    return ctypes.string_at(on_host.data_ptr(), on_host.nbytes())


def test_memory_of_graphs_that_are_gone_is_given_back() -> None:
    """Two processes share the device: what one keeps for its next graph the other lacks."""
    x = torch.rand(64 << 20, device=CUDA)
    captured = capture([partial(torch.add, x, 1)] * 8)
    assert captured is not None
    del captured
    torch.cuda.empty_cache()
    kept = torch.cuda.memory_reserved()
    assert kept > 9 * x.nbytes - (64 << 20)
    give_memory_back(CUDA, kept)
    assert kept == torch.cuda.memory_reserved()
    give_memory_back(CUDA, kept - 1)
    assert torch.cuda.memory_reserved() < 3 * x.nbytes
    works()


def test_k_holds_what_another_stream_does_when_the_calls_own_is_done() -> None:
    """A result that is completed there is no earlier than that."""
    other = torch.cuda.Stream()

    def leaves_work(x: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(other):
            torch.cuda._sleep(4_000_000)
        return x + 1

    timed = timed_call(leaves_work, vectors("neg.default", 1, 1 << 10))
    own_us, _ = timed.device_block(CALLS, round_number=1, captured=False)
    assert own_us is not None
    assert own_us > 1_000.0


@pytest.mark.parametrize(
    ("flags", "kind"), [(None, None), ("managed", "managed memory"), ("host", "memory of the host")]
)
def test_memory_that_is_not_the_devices_own_is_known(flags: str | None, kind: str | None) -> None:
    """A result in it may be written by the host when the clock has stopped."""
    if flags is None:
        assert memory_kind(torch.empty(8, device=CUDA).data_ptr()) is None
        return
    address = ctypes.c_void_p()
    if flags == "managed":
        assert 0 == _runtime().cudaMallocManaged(ctypes.byref(address), ctypes.c_size_t(4096), ctypes.c_uint(1))
    else:
        assert 0 == _runtime().cudaHostAlloc(ctypes.byref(address), ctypes.c_size_t(4096), ctypes.c_uint(2))
    assert address.value is not None
    assert kind == memory_kind(address.value)


def test_results_of_the_device_are_its_own() -> None:
    """Of torch's allocator, and of a graph's pool; nothing of them lies on the host."""
    timed = timed_call(torch.neg, vectors("neg.default", 1, 1 << 10))
    timed.renew(1, CALLS)
    timed.host_block(CALLS)
    assert timed.foreign_results() is None
    assert [] == timed.host_spans()
    timed.device_block(CALLS, round_number=2)
    assert timed.foreign_results() is None


def test_pinned_memory_of_torchs_is_a_processs_own() -> None:
    """A result on the host may lie there."""
    pinned = torch.empty(1 << 20, pin_memory=True)
    assert foreign_memory(os.getpid(), [(pinned.data_ptr(), pinned.data_ptr() + 4 * pinned.numel())]) is None
