"""CUDA graphs of compiled models on a GPU: every call has the results of an uncaptured one, and its own tensors."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opsmith.compile.report import GraphReport, Reports, collected

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Of torch's own compiler.
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]
CUDA = "cuda"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


@pytest.fixture
def reports() -> Iterator[Reports]:
    """Of all graphs of a test."""
    with collected() as found:
        yield found


def layers(depth: int = 8) -> nn.Sequential:
    """Many launches that take no time."""
    torch.manual_seed(0)
    pairs = [layer for _ in range(depth) for layer in (nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU(inplace=True))]
    return nn.Sequential(*pairs).to(CUDA).eval()


def compiled(model: Callable[..., Any], graphs: str = "on", **settings: bool) -> Callable[..., Any]:
    """With the backend opsmith."""
    return torch.compile(model, backend="opsmith", options={"graphs": graphs, **settings})


def captured(reports: Reports) -> Sequence[GraphReport]:
    """Graphs that are replayed."""
    return [one for one in reports.graphs if one.reason is None]


def drawn(shape: tuple[int, ...] = (4, 32)) -> Tensor:
    """New numbers."""
    return torch.randn(*shape, device=CUDA)


def close(found: Tensor, expected: Tensor) -> None:
    """Within what Inductor's code differs from eager by."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_every_call_has_results_of_its_own(reports: Reports) -> None:
    """For inputs that move; what an earlier call returned stays as it is."""
    model = layers()
    call = compiled(model)
    inputs = [drawn() for _ in range(12)]
    results = [call(x) for x in inputs]
    assert [1] == [one.copied for one in captured(reports)]
    assert len(results) == len({one.data_ptr() for one in results})
    for x, result in zip(inputs, results, strict=True):
        close(result, model(x))
    assert captured(reports)[0].pool_bytes > 0


def test_many_launches_are_faster_in_one(reports: Reports) -> None:
    """By the measurement that decides."""
    call, x = compiled(layers(depth=24), "auto"), drawn()
    for _ in range(4):
        call(x)
    (report,) = reports.graphs
    assert report.reason is None, report.line()
    assert report.before_us is not None
    assert report.after_us is not None
    assert report.after_us < report.before_us


def test_large_kernels_are_left_alone(reports: Reports) -> None:
    """The host is done long before the device."""
    call, x = compiled(lambda x: (x @ x) @ x, "auto"), drawn((4096, 4096))
    for _ in range(4):
        call(x)
    assert ["the device takes longer than the host"] == [one.reason for one in reports.graphs]


def test_an_input_that_stays_is_read_in_place_until_it_moves(reports: Reports) -> None:
    """Its values may change."""
    model = layers()
    call, x = compiled(model), drawn()
    for _ in range(6):
        x.normal_()
        close(call(x), model(x))
    held = [drawn() for _ in range(3)]
    for other in held:
        for _ in range(4):
            close(call(other), model(other))
    assert [0, 0, 1] == [one.copied for one in captured(reports)]


def test_parameters_may_change_and_be_replaced(reports: Reports) -> None:
    """In place, by other storage under the same Parameter, and after the old memory was given to others."""
    model = layers()
    call, x = compiled(model), drawn()
    for _ in range(5):
        call(x)
    first = model[0]
    assert isinstance(first, nn.Linear)
    first.weight.mul_(-2)
    close(call(x), model(x))
    first.weight.data = drawn((32, 32))
    gc.collect()
    junk = [torch.full((32, 32), 1e30, device=CUDA) for _ in range(50)]
    for _ in range(5):
        close(call(x), model(x))
    assert 2 == len(captured(reports))
    del junk


def test_streams_follow_each_other(reports: Reports) -> None:
    """A call on another stream waits for the one before: they share what the graph writes."""
    model = layers(depth=24)
    call, inputs = compiled(model), [drawn((512, 32)) for _ in range(8)]
    expected = {step: model(x) for step, x in enumerate(inputs)}
    for x in inputs[:5]:
        call(x)
    assert [1] == [one.copied for one in captured(reports)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    results = {}
    for step in range(8):
        with torch.cuda.stream(streams[step % 2]):
            results[step] = call(inputs[step])
    torch.cuda.synchronize()
    for step, result in results.items():
        close(result, expected[step])


def test_two_threads_have_the_right_results(reports: Reports) -> None:
    """On streams of their own."""
    model = layers()
    call = compiled(model)
    for x in [drawn() for _ in range(4)]:
        call(x)
    assert [1] == [one.copied for one in captured(reports)]
    inputs = [[drawn() for _ in range(200)] for _ in range(2)]
    expected = [[model(x) for x in given] for given in inputs]
    torch.cuda.synchronize()
    found: list[list[Tensor]] = [[], []]

    def work(place: int) -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            found[place].extend(call(x) for x in inputs[place])
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for results, wanted in zip(found, expected, strict=True):
        assert len(wanted) == len(results)
        for result, one in zip(results, wanted, strict=True):
            close(result, one)


@pytest.mark.parametrize("fallback_random", [False, True])
def test_random_numbers_are_those_of_uncaptured_calls(reports: Reports, *, fallback_random: bool) -> None:
    """Call by call from one seed, and what is drawn afterwards."""

    def dropped(x: Tensor) -> Tensor:
        return nn.functional.dropout(x.relu(), 0.5, training=True) + torch.rand_like(x)

    x, sequences = drawn(), []
    for graphs in ("off", "on"):
        torch._dynamo.reset()
        call = compiled(dropped, graphs, fallback_random=fallback_random)
        torch.manual_seed(3)
        sequences.append([*(call(x) for _ in range(8)), torch.rand(4, device=CUDA)])
    assert captured(reports)
    torch.testing.assert_close(sequences[1], sequences[0])
    assert not torch.equal(sequences[1][6], sequences[1][7])


def test_other_sizes_are_other_graphs(reports: Reports) -> None:
    """Each static one is replayed; one with symbols is not."""
    model = layers()
    call = torch.compile(model, backend="opsmith", dynamic=False, options={"graphs": "on"})
    for batch in (2, 5):
        x = drawn((batch, 32))
        for _ in range(5):
            close(call(x), model(x))
    assert 2 == len(captured(reports))
    torch._dynamo.reset()
    dynamic = torch.compile(model, backend="opsmith", dynamic=True, options={"graphs": "on"})
    for batch in (3, 7, 3, 7):
        x = drawn((batch, 32))
        close(dynamic(x), model(x))
    assert 2 == len(captured(reports))


def test_a_capture_that_fails_leaves_everything_as_it_was(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, the current stream, random numbers, allocations and later captures."""
    from opsmith.compile.replay import replayed

    class Waits(replayed.Replayed):
        """Its call waits for the device, which a capture forbids."""

        def __init__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
            def waiting(*inputs: Tensor) -> Any:
                results = call(*inputs)
                torch.rand(1, device=CUDA)
                results[0].sum().item()
                return results

            super().__init__(waiting, *args, **kwargs)

    model = layers()
    monkeypatch.setattr("opsmith.compile.backend.Replayed", Waits)
    stream = torch.cuda.current_stream()
    call = compiled(model)
    for _ in range(5):
        x = drawn()
        close(call(x), model(x))
    (report,) = reports.graphs
    assert report.reason is not None
    assert stream == torch.cuda.current_stream()
    assert not torch.cuda.is_current_stream_capturing()
    torch.rand(3, device=CUDA)
    monkeypatch.undo()
    torch._dynamo.reset()
    call = compiled(model)
    for _ in range(5):
        x = drawn()
        close(call(x), model(x))
    assert captured(reports)


def test_a_call_inside_somebody_else_s_capture_is_part_of_it(reports: Reports) -> None:
    """Uncaptured by us, with results of that graph."""
    model = layers()
    call, x = compiled(model), drawn()
    for _ in range(5):
        call(x)
    assert captured(reports)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call(x)
    x.normal_()
    graph.replay()
    close(result, model(x))


def test_memory_goes_with_the_compiled_model(reports: Reports) -> None:
    """Of the graph's pool, once nobody can call it."""
    call, x = compiled(layers()), drawn()
    for _ in range(5):
        call(x)
    assert captured(reports)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    del call
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < before


def test_training_and_autocast(reports: Reports) -> None:
    """Training is not replayed; inference under autocast is."""
    model = layers()
    call, x = compiled(model), drawn()
    with torch.enable_grad():
        for _ in range(4):
            call(x).sum().backward()
    assert {"results may need gradients"} == {one.reason for one in reports.graphs}
    with torch.autocast(CUDA, torch.bfloat16):
        for _ in range(6):
            torch.testing.assert_close(call(x), model(x), rtol=3e-2, atol=3e-2)
    assert 1 == len(captured(reports))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_model_on_another_device_than_the_current_one(reports: Reports) -> None:
    """Its graph is that device's."""
    model = layers().to("cuda:1")
    call = compiled(model)
    for _ in range(6):
        x = torch.randn(4, 32, device="cuda:1")
        close(call(x), model(x))
    assert captured(reports)
