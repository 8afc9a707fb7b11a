"""Repeating what a call launched: what is safe, what is recorded when, and what calls return. Without a device."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import Tensor, nn

from opsmith.compile import backend
from opsmith.compile.options import read_options
from opsmith.compile.replay import replayed
from opsmith.compile.replay.cuda import Compiled, Launches
from opsmith.compile.replay.repeatable import Repeatability, _repeatability
from opsmith.compile.replay.replayed import MOST_RECORDINGS, Replayed
from opsmith.compile.report import GraphReport, collected
from opsmith.errors import BadInput


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# ---------------------------------------------------------------- what is repeatable


def _fakes(module: torch.fx.GraphModule) -> list[Any]:
    return [node.meta["example_value"] for node in module.graph.find_nodes(op="placeholder")]


def _found(function: Callable[..., Any], *inputs: Tensor) -> Repeatability:
    """Whether the graph that Dynamo records of a call is repeatable, if the CPU counts as the device."""
    found: list[Repeatability] = []

    def keep(module: Any, given: Any) -> Any:
        found.append(_repeatability(module, _fakes(module), "cpu"))
        return module.forward

    compiled: Any = torch.compile(function, backend=keep)
    compiled(*inputs)
    return found[0]


def _reason(function: Callable[..., Any], *inputs: Tensor) -> str | None:
    """Why it is not."""
    return _found(function, *inputs).reason


X = torch.randn(4, 6)


def _block(*, training: bool) -> nn.Module:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(5))
    layers(torch.randn(2, 3, 5, 5))
    return layers.train(training)


@torch.no_grad()
def test_writes_to_inputs_are_found() -> None:
    """Writes to what the graph made itself are none to an input; running statistics are three."""
    image = torch.randn(2, 3, 5, 5)
    assert Repeatability(None) == _found(_block(training=False), image)
    torch._dynamo.reset()
    found = _found(_block(training=True), image)
    assert (None, 3) == (found.reason, len(found.written))


@pytest.mark.parametrize(
    "function", [lambda x: x.add_(1).relu(), lambda x: x[1:].mul_(2) * 3, lambda x: torch.add(x, 1, out=x) * 3]
)
def test_an_input_is_written_to_in_any_way(function: Callable[..., Any]) -> None:
    """In place, through a view, as out=."""
    assert Repeatability(None, frozenset({0})) == _found(function, X.clone())


def test_switches_of_the_caller_change_no_answer() -> None:
    """Inference mode, autocast, and gradients that are switched on inside of a graph, which are off again after it."""
    image, model = torch.randn(2, 3, 5, 5), _block(training=False)
    with torch.inference_mode():
        assert _reason(model, image) is None
    torch._dynamo.reset()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert _reason(model, image) is None

    with torch.no_grad():
        graph = torch.fx.Graph()
        given = graph.placeholder("x")
        graph.call_function(torch._C._set_grad_enabled, (True,))
        graph.output((graph.call_function(torch.mul, (given, 2)),))
        assert _repeatability(torch.fx.GraphModule({}, graph), [X], "cpu").reason is None
        assert not torch.is_grad_enabled()


def _attended(x: Tensor) -> Tensor:
    return F.dropout(F.scaled_dot_product_attention(x, x, x), 0.5, training=True)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.relu() @ x.T, None),
        (lambda x: _attended(x[None, None]), None),
        (lambda x: torch.zeros(3, 4).index_put((torch.arange(3),), x.sum()), None),
        (lambda x: x.view(6, 4), "a result shares memory with an input"),
        (lambda x: x.detach(), "a result shares memory with an input"),
        (lambda x: ((y := x + 1), y[0]), None),
        (lambda x: x.split(2)[0], "a result shares memory with an input"),
        (lambda x: x[x > 0], "does not run on fake tensors"),
        (lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), "a constant is no tensor"),
    ],
)
def test_what_a_recording_would_not_repeat_has_a_reason(function: Callable[..., Any], reason: str | None) -> None:
    """Seen on fake tensors, before anything is compiled."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        found = _reason(function, X.clone())
    assert (reason is None) == (found is None), found
    assert (reason or "") in (found or "")


def test_inputs_decide_too() -> None:
    """Their sizes, gradients, kinds and devices."""
    weight = torch.randn(6, requires_grad=True)
    assert "results may need gradients" == _reason(lambda x, w: x * w, X, weight)
    with torch.no_grad():
        assert _reason(lambda x, w: x * w, X, weight) is None
    dynamic = X.clone()
    torch._dynamo.mark_dynamic(dynamic, 0)
    torch._dynamo.reset()
    assert _reason(lambda x: x * 2, dynamic) in {"sizes change", "an input is no tensor"}
    torch._dynamo.reset()
    assert "an input is a lazy conjugate or negative" == _reason(
        lambda x: x + 1, torch.randn(3).to(torch.cfloat).conj()
    )
    module = torch.fx.symbolic_trace(lambda x: x + 1)
    assert "its inputs are not all on one cuda device" == _repeatability(module, [X], "cuda").reason


def test_calls_on_other_devices_and_of_other_libraries_are_not_repeated() -> None:
    """A copy from the host's memory would be repeated from an address that is somebody else's by then."""
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    host = graph.call_function(torch.arange, (3,))
    there = graph.call_method("to", (host,), {"device": "meta", "non_blocking": True})
    graph.output((graph.call_function(torch.add, (given, there)),))
    module = torch.fx.GraphModule({}, graph)
    reason = _repeatability(module, [torch.empty(3, device="meta")], "meta").reason
    assert "aten::_to_copy reads a tensor on cpu" == reason
    with torch.library._scoped_library("opsmith_replay", "FRAGMENT") as library:
        library.define("odd(Tensor x) -> Tensor")
        library.impl("odd", lambda x: x + 1, "CompositeExplicitAutograd")
        graph = torch.fx.Graph()
        graph.output((graph.call_function(torch.ops.opsmith_replay.odd.default, (graph.placeholder("x"),)),))
        module = torch.fx.GraphModule({}, graph)
        assert "it calls opsmith_replay::odd" == _repeatability(module, [X], "cpu").reason


# ---------------------------------------------------------------- recordings


class Repeats:
    """A graph that calls a function again."""

    def __init__(self, call: Compiled, inputs: Sequence[Tensor]) -> None:
        self.call, self.inputs = call, inputs
        kept = [one.clone() for one in inputs]
        with torch.inference_mode(False):  # A device writes to any tensor.
            self.outputs = list(call(*inputs))
            for one, before in zip(inputs, kept, strict=True):
                if not one.equal(before):
                    one.copy_(before)  # Nothing runs while it is recorded.
        self.replays = 0

    def replay(self) -> None:
        """Overwrite the outputs."""
        self.replays += 1
        for output, result in zip(self.outputs, self.call(*self.inputs), strict=True):
            output.set_(result)  # type: ignore[call-overload]


class Stand:
    """Stands in for a device; the clock advances by what a call costs."""

    def __init__(self, *, called_s: float = 1.0, repeated_s: float = 0.1, device_s: float = 0.0) -> None:
        self.graphs: list[Repeats] = []
        self.costs = {"called": called_s, "repeated": repeated_s, "device": device_s}
        self.recorded_elsewhere = False
        self.error: Exception | None = None
        self.now = 0.0
        self.waiting = 0.0

    def record(self, call: Compiled, inputs: Sequence[Tensor]) -> Launches:
        """As a device does."""
        if self.error is not None:
            raise self.error
        graph = Repeats(call, inputs)
        self.graphs.append(graph)
        return Launches(graph, graph.outputs, 1000)

    def are_at(self, inputs: list[Any], addresses: list[int | None], places: list[int]) -> bool:
        """One by one."""
        return all(inputs[place].data_ptr() == addresses[place] for place in places)

    def busy_recording(self) -> bool:
        """As it was set."""
        return self.recorded_elsewhere

    def follow(self) -> None:
        """There is one stream; this is called once for each repetition."""
        self.now += self.costs["repeated"] - self.costs["called"]  # The repetition calls the function.

    def synchronise(self) -> None:
        """What was enqueued takes its time."""
        self.now += self.waiting
        self.waiting = 0.0

    def same_random_numbers(self) -> contextlib.AbstractContextManager[None]:
        """Of the CPU's generator."""
        return torch.random.fork_rng(devices=[])

    def work(self) -> None:
        """The compiled function was called."""
        self.now += self.costs["called"]
        self.waiting += self.costs["device"]


def _replayed(
    stand: Stand,
    function: Compiled,
    *,
    eager: Compiled | None = None,
    written: frozenset[int] = frozenset(),
    always: bool = False,
) -> Replayed:
    def compiled(*inputs: Tensor) -> Sequence[Tensor]:
        stand.work()
        return function(*inputs)

    return Replayed(compiled, stand, eager=eager, written=written, always=always, clock=lambda: stand.now)


def _double(x: Tensor, weight: Tensor) -> Sequence[Tensor]:
    return (x * 2 + weight, x - weight)


def _right(call: Replayed, x: Tensor, weight: Tensor) -> Sequence[Tensor]:
    found = call(x, weight)
    torch.testing.assert_close(list(found), list(_double(x, weight)))
    return found


def test_the_third_call_is_recorded_and_later_ones_repeat_it() -> None:
    """Each with results of its own, for inputs that stay, that move and that are written to."""
    stand, weight = Stand(), torch.randn(3)
    call = _replayed(stand, _double)
    with collected() as reports:
        kept = [(x := torch.randn(3), _right(call, x, weight)) for _ in range(6)]
    assert 1 == len(stand.graphs)
    before = stand.graphs[0].replays
    weight_then = weight.clone()
    weight += 1
    _right(call, torch.randn(3), weight)
    assert before + 1 == stand.graphs[0].replays
    for x, results in kept:
        torch.testing.assert_close(list(results), list(_double(x, weight_then)))
    (report,) = reports.graphs
    assert (None, 1000, 1) == (report.reason, report.pool_bytes, report.copied)
    assert "is replayed as a CUDA graph" in report.line()


def test_an_input_that_stays_is_read_where_it_is() -> None:
    """And one that leaves is recorded again, then copied; never read where it was."""
    stand, weight, x = Stand(), torch.randn(3), torch.randn(3)
    call = _replayed(stand, _double)
    with collected() as reports:
        for _ in range(4):
            _right(call, x, weight)
        held = []
        for _ in range(4):
            held.append(torch.randn(3))
            for _ in range(3):
                _right(call, held[-1], weight)
    assert [0, 0, 1] == [one.copied for one in reports.graphs]
    moved, held = torch.randn(3), [weight]
    _right(call, x, moved)


def test_inputs_that_never_stay_end_recording() -> None:
    """After so many recordings calls are as before."""
    stand = Stand()
    many = MOST_RECORDINGS + 1
    call = _replayed(stand, lambda *inputs: (sum(inputs),), always=True)
    inputs = [torch.randn(2) for _ in range(many)]
    with collected() as reports:
        for place in range(many):
            for _ in range(3):
                call(*inputs)
            inputs = list(inputs)
            inputs[place] = torch.randn(2)
        torch.testing.assert_close(call(*inputs)[0], sum(inputs))
    assert MOST_RECORDINGS == len(stand.graphs)
    assert str(reports.graphs[-1].reason).startswith("its inputs moved after each")


@pytest.mark.parametrize(
    ("stand", "recordings", "reason"),
    [
        (Stand(repeated_s=0.98), 1, "repeating it is not faster"),
        (Stand(called_s=1.0, device_s=25.0), 0, "the device takes longer than the host"),
    ],
)
def test_what_is_not_faster_runs_as_before(stand: Stand, recordings: int, reason: str) -> None:
    """Measured with the call's own inputs."""
    call, x = _replayed(stand, _double), torch.randn(3)
    with collected() as reports:
        for _ in range(5):
            _right(call, x, x)
    assert ([reason], recordings) == ([one.reason for one in reports.graphs], len(stand.graphs))
    before = [one.replays for one in stand.graphs]
    _right(call, x, x)
    assert before == [one.replays for one in stand.graphs]


def _counted(x: Tensor, count: Tensor) -> Sequence[Tensor]:
    count.add_(1)
    return (x * count,)


def _count_up(call: Replayed, calls: int, count: Tensor) -> None:
    for _ in range(calls):
        x, expected = torch.randn(3), count.clone() + 1
        torch.testing.assert_close(call(x, count)[0], x * expected)
        torch.testing.assert_close(count, expected)


@pytest.mark.parametrize(("repeated_s", "kept"), [(0.1, True), (0.98, False)])
def test_what_writes_to_its_inputs_is_timed_on_calls_that_count(repeated_s: float, *, kept: bool) -> None:
    """Each runs once, whichever way; then the faster way is taken."""
    stand, count = Stand(repeated_s=repeated_s), torch.zeros(3)
    call = _replayed(stand, _counted, written=frozenset({1}))
    turns = 2 * replayed.TURNS - 1  # The last repetition is behind the last turn of the compiled call.
    with collected() as reports:
        _count_up(call, replayed.RECORDED_AT + turns, count)
        assert [] == reports.graphs
        version = count._version
        _count_up(call, 10, count)
    (graph,), (report,) = stand.graphs, reports.graphs
    assert (kept, replayed.TURNS + 9 * kept) == (report.reason is None, graph.replays)
    assert count._version >= version + 10


def test_a_written_input_that_moves_is_never_written_elsewhere() -> None:
    """A recording would change what somebody else has there by then."""
    stand, kept = Stand(), []
    call = _replayed(stand, _counted, written=frozenset({1}), always=True)
    with collected() as reports:
        for _ in range(12):
            kept.append(torch.zeros(3))
            _count_up(call, 1, kept[-1])
    assert ["an input that it writes to moves"] == [one.reason for one in reports.graphs]
    assert [0] == [one.replays for one in stand.graphs]
    count = torch.zeros(3)
    call = _replayed(Stand(), _counted, written=frozenset({1}), always=True)
    _count_up(call, 6, count)
    _count_up(call, 6, torch.zeros(3))
    assert 6 == count[0]


def test_a_written_input_that_overlaps_another_is_not_recorded() -> None:
    """The other one would be read before it is written."""
    memory, stand = torch.zeros(6), Stand()
    call = _replayed(stand, _counted, written=frozenset({1}), always=True)
    with collected() as reports:
        for _ in range(5):
            call(memory[1:4], memory[2:5])
    assert ["an input that it writes to shares memory with another one"] == [one.reason for one in reports.graphs]
    assert [] == stand.graphs


@pytest.mark.parametrize(("eager_s", "is_taken"), [(4.0, True), (5.95, False)])
def test_eager_mode_answers_where_it_is_faster(eager_s: float, *, is_taken: bool) -> None:
    """Measured where the device is what takes time."""
    stand, calls = Stand(called_s=1.0, device_s=5.0), list[Tensor]()

    def eager(*inputs: Tensor) -> Sequence[Tensor]:
        stand.waiting += eager_s
        calls.append(inputs[0])
        return _double(*inputs)

    call, x = _replayed(stand, _double, eager=eager), torch.randn(3)
    with collected() as reports:
        for _ in range(replayed.RECORDED_AT):
            _right(call, x, x)
        tried = len(calls)
        for _ in range(4):
            _right(call, x, x)
    (report,) = reports.graphs
    assert (is_taken, 4 * is_taken) == ("eager mode is faster" in str(report.reason), len(calls) - tried)


def test_eager_mode_answers_where_it_is_faster_than_a_repetition() -> None:
    """Where the host is what takes time; one that lacks memory costs nothing but its trial."""
    stand = Stand(called_s=1.0, repeated_s=0.9)

    def eager(*inputs: Tensor) -> Sequence[Tensor]:
        stand.now += 0.5
        return _double(*inputs)

    def without_memory(*_: Tensor) -> Sequence[Tensor]:
        raise torch.OutOfMemoryError("none left")

    x = torch.randn(3)
    for chosen, reason in ((eager, "eager mode is faster (500,000.0 us)"), (without_memory, None)):
        call = _replayed(stand, _double, eager=chosen)
        with collected() as reports:
            for _ in range(replayed.RECORDED_AT + 2):
                _right(call, x, x)
        assert [reason] == [one.reason for one in reports.graphs]


def test_graphs_on_does_not_measure() -> None:
    """Whoever asks for recordings has them."""
    stand = Stand(repeated_s=9.0)
    call, x = _replayed(stand, _double, always=True), torch.randn(3)
    for _ in range(5):
        _right(call, x, x)
    assert [2] == [one.replays for one in stand.graphs]


def test_what_cannot_be_recorded_runs_as_before() -> None:
    """The reason is reported once."""
    stand = Stand()
    stand.error = RuntimeError("operation not permitted when stream is capturing")
    call, x = _replayed(stand, _double), torch.randn(3)
    with collected() as reports:
        for _ in range(6):
            _right(call, x, x)
    assert ["RuntimeError: operation not permitted when stream is capturing"] == [one.reason for one in reports.graphs]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, y: (x.view(-1),), "a result shares memory with an input"),
        (lambda x, y: (nn.Parameter(x + y),), "a result is no plain tensor"),
        (lambda x, y: ((x + y).requires_grad_(),), "a result needs a gradient"),
    ],
)
def test_results_that_cannot_be_copied_out_are_not_recorded(function: Compiled, reason: str) -> None:
    """Seen on the results themselves, whatever the graph said."""
    stand = Stand()
    call, x = _replayed(stand, function, always=True), torch.randn(3)
    with collected() as reports:
        for _ in range(4):
            call(x, x)
    assert ([reason], []) == ([one.reason for one in reports.graphs], stand.graphs)


def test_results_keep_their_strides() -> None:
    """Of transposed, channels-last, padded and expanded results; padding is what compilers align rows with."""

    def function(x: Tensor) -> Sequence[Tensor]:
        padded = torch.zeros(3, 8)[:, :5].copy_(x)
        channels_last = (x[None, :, None] * 2).to(memory_format=torch.channels_last)
        return (x + 1).t(), channels_last, padded, (x - 1)[:, None].expand(3, 4, 5), x[0].sum().expand(2), x[:0] + 1

    stand = Stand()
    call = _replayed(stand, function)
    x = torch.randn(3, 5)
    for _ in range(5):
        results, expected = call(x), function(x)
        torch.testing.assert_close(list(results), list(expected))
        assert [one.stride() for one in expected] == [one.stride() for one in results]
    assert stand.graphs[0].replays


def test_results_share_the_memory_that_they_shared() -> None:
    """A matrix, its transpose, a part of another dtype: writing to one is seen in the others, and in no other call."""

    def function(x: Tensor) -> Sequence[Tensor]:
        product = x @ x.t()
        return product, product.t(), product[1:, 1].view(torch.int32), x + 1

    stand = Stand()
    call, x = _replayed(stand, function), torch.randn(3, 5)
    kept = [call(x) for _ in range(5)]
    assert stand.graphs[0].replays
    for results in kept[1:]:
        results[0][2, 1] = 0.0
        assert (0.0, 0) == (results[1][1, 2].item(), results[2][1].item())
        assert kept[0][0][2, 1] != 0
        torch.testing.assert_close(results[3], x + 1)


def test_random_numbers_are_those_of_before() -> None:
    """Recording and timing draw none."""
    call, x = _replayed(Stand(), lambda x: (x + torch.rand(3),)), torch.zeros(3)
    torch.manual_seed(7)
    expected = [torch.rand(3) for _ in range(3)]
    torch.manual_seed(7)
    torch.testing.assert_close([call(x)[0] for _ in range(3)], expected)


def test_calls_that_somebody_else_records_are_called() -> None:
    """A graph cannot hold the launch of another one that is enqueued."""
    stand = Stand()
    call, x = _replayed(stand, _double), torch.randn(3)
    for _ in range(4):
        call(x, x)
    before = stand.graphs[0].replays
    stand.recorded_elsewhere = True
    _right(call, x, x)
    assert before == stand.graphs[0].replays


def test_a_call_during_another_thread_s_does_not_wait() -> None:
    """What is recorded has one set of results; a second call at the same time has its own."""
    stand, x = Stand(), torch.randn(3)
    call = _replayed(stand, _double)
    for _ in range(4):
        call(x, x)
    inside, go_on = threading.Event(), threading.Event()
    graph = stand.graphs[0]
    replay = graph.replay

    def slowly() -> None:
        inside.set()
        assert go_on.wait(10)
        replay()

    graph.replay = slowly  # type: ignore[method-assign]
    thread = threading.Thread(target=_right, args=(call, x, x))
    thread.start()
    assert inside.wait(10)
    before = graph.replays
    _right(call, x + 1, x)
    assert before == graph.replays
    go_on.set()
    thread.join(10)
    assert before + 1 == graph.replays


def test_a_result_of_inference_mode_is_no_trap() -> None:
    """Recorded in inference mode and called outside of it, or the other way round."""
    call, weight = _replayed(Stand(), _double), torch.randn(3)
    with torch.inference_mode():
        for _ in range(5):
            _right(call, torch.randn(3), weight)
    _right(call, torch.randn(3), weight)


@pytest.mark.slow
@torch.no_grad()
def test_a_compiled_model_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the backend, if the CPU counts as the device; parameters that are written to are seen."""
    stand = Stand()
    monkeypatch.setattr(backend, "repeatability", lambda module, inputs: _repeatability(module, _fakes(module), "cpu"))
    monkeypatch.setattr(backend, "Cuda", lambda device: stand)
    first = nn.Linear(6, 8)
    eager = nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(inplace=True)).eval()
    compiled = torch.compile(eager, backend="opsmith", options={"graphs": "on"})
    with collected() as reports:
        for step in range(6):
            first.weight += 1
            x = torch.randn(4, 6) + step
            torch.testing.assert_close(compiled(x), eager(x))
    assert ([None], []) == ([one.reason for one in reports.graphs], reports.fallbacks)
    assert stand.graphs[0].replays >= 3


def test_graphs_that_are_not_replayed_are_reported() -> None:
    """With the reason, when they are compiled."""
    with collected() as reports, torch.no_grad():
        torch.compile(lambda x: x + 1, backend="opsmith")(X)
        torch.compile(lambda x: x + 2, backend="opsmith", options={"graphs": "off"})(X)
        torch.compile(lambda x: x + 3, backend="opsmith", options={"triton.cudagraphs": True})(X)
    reasons = ["its inputs are not all on one cuda device", "graphs=off", "Inductor makes its own"]
    assert reasons == [one.reason for one in reports.graphs]


def test_the_option() -> None:
    """It is auto, on or off."""
    assert ["auto", "on"] == [read_options(None, one).graphs for one in ({}, {"graphs": "on"})]
    with pytest.raises(BadInput, match="auto, on, off"):
        read_options(None, {"graphs": "sometimes"})


def test_a_report_says_what_was_measured() -> None:
    """In one line."""
    report = GraphReport(before_us=80.04, after_us=50, pool_bytes=2_500_000, copied=1)
    assert "is replayed as a CUDA graph (80.0 us -> 50.0 us): 2.5 MB, 1 inputs copied" == report.line()
    assert replayed.RECORDED_AT == 3
