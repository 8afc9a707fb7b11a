"""What the reference side runs while it is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch

from opsmith.errors import BadInput, BaselineUnavailable, UnknownName
from opsmith.evaluation.timing.baselines import BASELINES, Preparable, baseline_function

pytestmark = pytest.mark.slow

aten = torch.ops.aten
CPU, CUDA = torch.device("cpu"), torch.device("cuda")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(scope="module", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What an earlier run has compiled would hide what this one does; no gradients, as the clock has it."""
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


class Scaled(torch.nn.Module):
    """A Model whose weight is changed between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two ops that a compiler fuses."""
        return torch.relu(x * self.weight)


class Broken(torch.nn.Module):
    """A Model with a graph break."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Branch on a value, which no graph can hold."""
        y = x + 1
        return y * 2 if y.sum() > 0 else y


def prepared(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """A baseline on the CPU, compiled for a call."""
    baseline = baseline_function(name, function, CPU)
    assert isinstance(baseline, Preparable)
    baseline.prepare(args, kwargs)
    return baseline


def test_eager_is_the_function_itself() -> None:
    """Nothing stands between the clock and what everybody else times."""
    assert aten.relu.default is baseline_function("eager", aten.relu.default, CPU)
    model = Scaled()
    assert model is baseline_function("eager", model, CPU)


def test_a_baseline_that_does_not_exist_is_told() -> None:
    """With those that do."""
    with pytest.raises(UnknownName, match="no baseline named 'tensorrt'; there is: compile, cudagraphs"):
        baseline_function("tensorrt", aten.relu.default, CPU)


def test_graphs_of_another_device_than_cuda_are_told() -> None:
    """Before anything is judged."""
    with pytest.raises(BadInput, match="cudagraphs needs a CUDA device, not cpu; use"):
        baseline_function("cudagraphs", aten.relu.default, CPU)


def test_a_compiled_op_answers_as_eager_does() -> None:
    """With the scalar that only some implementations read."""
    x, y = torch.randn(5, 7), torch.randn(5, 7)
    baseline = prepared("compile", aten.add.Tensor, x, y, alpha=2)
    assert torch.equal(x + 2 * y, baseline(x, y, alpha=2))


def test_an_op_is_compiled_before_the_clock_runs() -> None:
    """The calls that are timed find it compiled, whatever their values, and compile nothing."""
    first, second = torch.randn(2, 6, 3).unbind()
    baseline = prepared("compile", aten.relu.default, first)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(second.relu(), baseline(second))
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            baseline(torch.randn(4, 4, 4))


def test_a_compiled_in_place_op_writes_to_its_argument() -> None:
    """And returns it; compiling it has written nothing."""
    x, y = torch.ones(4), torch.full((4,), 3.0)
    baseline = prepared("compile", aten.add_.Tensor, x, y)
    assert torch.equal(torch.ones(4), x)
    result = baseline(x, y)
    assert x.data_ptr() == result.data_ptr()
    assert torch.equal(torch.full((4,), 4.0), x)


def test_a_compiled_out_variant_writes_to_its_out() -> None:
    """All results, if there are several."""
    x = torch.randn(3, 8)
    values, indices = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.long)
    baseline = prepared("compile", aten.topk.values, x, 2, values=values, indices=indices)
    assert torch.equal(torch.zeros(3, 2), values)
    result = baseline(x, 2, values=values, indices=indices)
    assert [values.data_ptr(), indices.data_ptr()] == [leaf.data_ptr() for leaf in result]
    assert torch.equal(x.topk(2).values, values)


def test_arguments_that_overlap_keep_their_values_while_it_is_compiled() -> None:
    """A view of what an op writes is written to, too."""
    whole = torch.arange(6.0)
    part, other = whole[:4], whole[2:]
    prepared("compile", aten.mul_.Tensor, part, torch.full((4,), 2.0))
    assert torch.equal(torch.arange(6.0), whole)
    assert torch.equal(torch.arange(2.0, 6.0), other)


def test_a_call_that_nobody_prepared_is_compiled_and_carried_out_once() -> None:
    """An in-place op that ran twice would give another answer."""
    x = torch.ones(4)
    baseline_function("compile", aten.add_.Scalar, CPU)(x, 1)
    assert torch.equal(torch.full((4,), 2.0), x)


def test_a_compiled_model_reads_its_state_at_each_call() -> None:
    """The clock perturbs nothing, but a compiled copy of the weights would be faster than the Model."""
    model, x = Scaled(), torch.ones(2, 4)
    baseline = prepared("compile", model, x)
    assert torch.equal(torch.arange(4.0).expand(2, 4), baseline(x))
    model.weight.fill_(5.0)
    assert torch.equal(torch.full((2, 4), 5.0), baseline(x))


def test_a_model_may_break_its_graph() -> None:
    """As it may for everybody who compiles it."""
    x = torch.ones(3)
    assert torch.equal(torch.full((3,), 4.0), prepared("compile", Broken(), x)(x))


def test_an_op_that_the_compiler_refuses_has_no_such_baseline() -> None:
    """In one line that says why: here eager would resize what it writes to."""
    x, out = torch.randn(3), torch.empty(0)
    with pytest.raises(BaselineUnavailable, match="the baseline compile cannot serve this call: ") as caught:
        prepared("compile", aten.add.out, x, x, out=out)
    assert "\n" not in str(caught.value)
    assert "Unsupported: Shape mismatch" in caught.value.reason


def test_a_baseline_serves_any_number_of_signatures() -> None:
    """Dynamo would give up at the ninth, because it usually means a mistake."""
    baseline = cast("Preparable", baseline_function("compile", aten.view.default, CPU))
    for size in range(2, 14):
        baseline.prepare((torch.zeros(2 * size), [2, size]), {})


def test_a_baseline_drops_what_the_last_one_compiled() -> None:
    """Otherwise each call of a late case would first be compared with all the cases before it."""
    x = torch.randn(6)
    before = prepared("compile", aten.view.default, x, [6])
    baseline = prepared("compile", aten.view.default, x, [2, 3])
    with torch.compiler.set_stance("fail_on_recompile"):
        assert (2, 3) == baseline(x, [2, 3]).shape
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            before(x, [6])


def test_tuning_is_a_baseline_of_its_own() -> None:
    """It takes longer to compile and answers alike."""
    x = torch.randn(16, 16)
    assert torch.equal(x.relu(), prepared("max-autotune", aten.relu.default, x)(x))


@pytest.mark.parametrize("first", ["prepare", "call"])
def test_one_process_compiles(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """A pool of others would stay, and run beside the clock."""
    from torch._inductor import compile_fx, config

    seen: list[int | None] = []
    compile_graph = compile_fx.compile_fx

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(config.compile_threads)
        return compile_graph(*args, **kwargs)

    monkeypatch.setattr(compile_fx, "compile_fx", watched)
    x = torch.randn(3)
    baseline = baseline_function("compile", aten.view.default, CPU)
    with config.patch(compile_threads=4):
        if first == "prepare":
            cast("Preparable", baseline).prepare((x, [3]), {})
        baseline(x, [3])
    assert [1] == seen


def test_every_baseline_is_known() -> None:
    """In the order in which they are listed; on the CPU all but graphs."""
    assert ("eager", "compile", "max-autotune", "cudagraphs") == BASELINES
    assert [True] * 3 == [callable(baseline_function(name, aten.relu.default, CPU)) for name in BASELINES[:3]]


# ---------------------------------------------------------------- CUDA graphs


def graphed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The baseline of graphs, captured for one set of arguments."""
    baseline = baseline_function("cudagraphs", function, CUDA)
    assert isinstance(baseline, Preparable)
    baseline.prepare(args, kwargs)
    return baseline


@pytest.mark.gpu
@needs_gpu
def test_each_set_of_arguments_has_a_graph_of_its_own() -> None:
    """Replayed on the values that the set has by then; results of other sets stay as they are."""
    sets = [(torch.full((1000,), float(number), device=CUDA), torch.ones(1000, device=CUDA)) for number in range(4)]
    baseline = graphed(aten.add.Tensor, *sets[0], alpha=2)
    for args in sets[1:]:
        cast("Preparable", baseline).prepare(args, {"alpha": 2})
    results = [baseline(*args, alpha=2) for args in sets]
    assert [2.0, 3.0, 4.0, 5.0] == [float(result[7]) for result in results]
    sets[1][0].fill_(-1.0)
    assert results[1] is baseline(*sets[1], alpha=2)
    assert [2.0, 1.0, 4.0, 5.0] == [float(result[7]) for result in results]


@pytest.mark.gpu
@needs_gpu
def test_a_captured_in_place_op_runs_once_a_replay() -> None:
    """Neither warming up nor capturing leaves a trace in its argument."""
    x = torch.ones(100, device=CUDA)
    baseline = graphed(aten.add_.Scalar, x, 1)
    assert [1.0, 1.0] == [float(x[0]), float(x[-1])]
    assert x.data_ptr() == baseline(x, 1).data_ptr()
    assert 2.0 == float(x[0])
    y = torch.ones(100, device=CUDA)
    baseline(y, 1)  # Nobody has prepared this one.
    assert 2.0 == float(y[0])


@pytest.mark.gpu
@needs_gpu
def test_each_replay_draws_other_numbers() -> None:
    """A dropout with one mask for ever would be another op."""
    x = torch.ones(10_000, device=CUDA)
    baseline = graphed(aten.native_dropout.default, x, 0.5, True)
    first = baseline(x, 0.5, True)[1].clone()
    assert not torch.equal(first, baseline(x, 0.5, True)[1])


@pytest.mark.gpu
@needs_gpu
def test_an_op_that_waits_for_the_device_cannot_be_captured() -> None:
    """It is told why, and everything works as before: streams, memory, random numbers."""
    x = torch.randn(100, device=CUDA)
    stream = torch.cuda.current_stream()
    with pytest.raises(BaselineUnavailable, match="the baseline cudagraphs cannot serve this call: ") as caught:
        graphed(aten.nonzero.default, x)
    assert "\n" not in str(caught.value)
    assert stream == torch.cuda.current_stream()
    assert 100 == len(torch.rand(100, device=CUDA).unique())
    assert torch.equal(x.relu(), graphed(aten.relu.default, x)(x))


@pytest.mark.gpu
@needs_gpu
def test_an_out_argument_that_is_resized_cannot_be_captured() -> None:
    """A graph writes to the memory that it was captured with."""
    x = torch.randn(1000, device=CUDA)
    with pytest.raises(BaselineUnavailable, match="it resizes an argument"):
        graphed(aten.add.out, x, x, out=torch.empty(0, device=CUDA))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["compile", "max-autotune"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # The compiler's own.
def test_a_compiled_op_can_be_captured_for_its_kernel_time(name: str) -> None:
    """K of a compiled baseline comes from a graph, as K of eager does."""
    x = torch.randn(64, 64, device=CUDA)
    baseline = baseline_function(name, aten.mm.default, CUDA)
    assert isinstance(baseline, Preparable)
    baseline.prepare((x, x), {})
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = baseline(x, x)
    graph.replay()
    torch.testing.assert_close(result, x @ x, rtol=1e-2, atol=1e-2)
