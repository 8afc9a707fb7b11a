"""Unchanged models, small, on the C++ kernels of ``examples/cpp_backend``: eager's results, by kernels' work."""

from __future__ import annotations

import argparse
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch
from benchmarks.models import training
from benchmarks.models.loss_plot import draw
from benchmarks.models.measurement import Subject, Tally, allowed_error, calls, error
from benchmarks.models.zoo import GREEDY_TOKENS, MODELS, Workload, build
from tests.dispatch_tables import kernel_file
from torch import Tensor, nn

import opsmith

#: Of the small one.
LLAMA_LAYERS = 2

KERNELS = Path(__file__).parents[2] / "examples/cpp_backend"

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Of torch.jit, and of transformers' own.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),  # A traced module is for one size of image.
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small models are slower on several, and results do not depend on the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


#: The least share of calls that kernels answer. The others are integer arithmetic on positions and masks.
SHARES = {"resnet50": 1.0, "unet": 1.0, "mamba": 0.95, "vit_b": 1.0, "gpt2": 0.95, "whisper_tiny": 0.9}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_as_exact_on_kernels_as_in_eager_mode(name: str) -> None:
    """Measured against the same model in float64, which tells how much the model enlarges a rounding."""
    workload = build(name, "small")
    subject = Subject(workload._replace(decode=None), "cpu", torch.float32)
    exact, eager = subject.exact(), subject()
    with opsmith.enabled(KERNELS):
        with_kernels, active = subject(), opsmith.active()
        with Tally("cpu") as tally:
            subject()
    allowed = allowed_error(error(eager.outputs, exact), error(subject.moved(), exact))
    assert allowed < 1e-4
    assert error(with_kernels.outputs, exact) <= allowed
    counted = calls(active, tally.calls, "cpu")
    assert {*counted["fallbacks"]} <= {"declined"}
    assert counted["calls_served"] >= SHARES.get(name, 0.7) * counted["calls_asked"] > 20


def test_a_decoder_with_a_cache_writes_the_same_tokens() -> None:
    """Each token is computed from keys and values that kernels computed before."""
    workload = build("llama", "small")
    assert workload.decode is not None
    expected = workload.decode(workload.module, workload.inputs)
    with opsmith.enabled(KERNELS):
        actual = workload.decode(workload.module, workload.inputs)
        served = {one.op: one.calls for one in opsmith.active().ops}
    assert expected.shape[1] == workload.inputs["input_ids"].shape[1] + GREEDY_TOKENS
    assert torch.equal(expected, actual)
    assert LLAMA_LAYERS * GREEDY_TOKENS == served["_scaled_dot_product_flash_attention_for_cpu.default"]


def gradients(workload: Workload, *, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Those of all parameters, of a loss that every output takes part in."""
    module = workload.module.train().to(dtype)
    module.zero_grad()
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    inputs = {name: x.to(dtype) if x.is_floating_point() else x for name, x in workload.inputs.items()}
    logits = workload.outputs(module, inputs)[0].flatten(0, -2)
    nn.functional.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[1]).backward()
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


#: Ops of the backward of a language model and of a convolutional network.
BACKWARD = {
    "gpt2": {"native_layer_norm_backward.default", "nll_loss_backward.default", "embedding_dense_backward.default"},
    "resnet50": {"native_batch_norm_backward.default", "convolution_backward.default", "threshold_backward.default"},
}


@pytest.mark.parametrize("name", BACKWARD)
def test_the_gradients_of_a_model_are_as_exact_as_eagers(name: str) -> None:
    """For each parameter: 3 times eager's distance from float64, or a rounding of the largest gradient."""
    workload = build(name, "small")
    eager = [gradient.clone() for gradient in gradients(workload)]
    with opsmith.enabled(KERNELS):
        with_kernels = [gradient.clone() for gradient in gradients(workload)]
        called = {one.op for one in opsmith.active().ops if one.calls}
    exact = gradients(workload, dtype=torch.float64)
    assert called >= BACKWARD[name]
    assert len(exact) == len(with_kernels) == len(list(workload.module.parameters()))
    rounding = torch.finfo(torch.float32).eps * max(gradient.abs().max() for gradient in exact)
    for mine, eagers, right in zip(with_kernels, eager, exact, strict=True):
        assert (mine - right).abs().max() <= 3 * (eagers - right).abs().max() + rounding


def in_inference_mode(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """Without views' and versions' books."""
    with torch.inference_mode():
        return [model(x)]


def under_autocast(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """In bfloat16 where autocast says so."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return [model(x).float()]


def exported(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """As a graph of ATen ops."""
    with torch.no_grad():
        return [torch.export.export(model, (x,)).module()(x)]


def compiled(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """Traced by Dynamo and AOTAutograd, forward and backward."""
    torch._dynamo.reset()
    torch.compile(model, backend="aot_eager")(x).square().mean().backward()
    return gradients_of(model)


def traced(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """Written down by TorchScript and run by its interpreter."""
    with torch.no_grad():
        return [torch.jit.trace(model, (x,))(x)]


def with_hooks(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """What hooks see on the way, forward and backward."""
    seen: list[Tensor] = []
    for part in model.modules():
        part.register_forward_hook(lambda module, args, result: seen.append(result.detach()))
        part.register_full_backward_hook(lambda module, of_args, of_result: seen.extend(of_result))
    model(x.clone().requires_grad_()).square().mean().backward()
    return [tensor.mean() for tensor in seen]


def checkpointed(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """With the forward made again in the backward."""
    torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).square().mean().backward()
    return gradients_of(model)


def channels_last(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """In a layout that nobody but the caller chose; the result's strides, too."""
    with torch.no_grad():
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        out = model(x.to(memory_format=torch.channels_last))
    return [out, torch.tensor(out.stride())]


def in_threads(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """Side by side."""
    results: list[Tensor] = []
    threads = [threading.Thread(target=lambda: results.extend(in_inference_mode(model, x))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def batched(model: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """Under vmap."""
    with torch.no_grad():
        return [torch.vmap(model)(torch.stack([x, 2 * x]))]


def gradients_of(model: nn.Module) -> Sequence[Tensor]:
    """Those that a backward left."""
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize(
    "run",
    [
        *(in_inference_mode, under_autocast, exported, compiled, traced, with_hooks, checkpointed),
        *(channels_last, in_threads, batched),
    ],
)
def test_a_model_is_eagers_in_every_mode(run: Callable[[nn.Module, Tensor], Sequence[Tensor]]) -> None:
    """Modes, transforms and compilers stand above the kernels, and hooks beside them."""

    def results() -> Sequence[Tensor]:
        workload = build("unet", "small")
        return run(workload.module, workload.inputs["x"])

    expected = results()
    with opsmith.enabled(KERNELS):
        actual = results()
        active = opsmith.active()
    assert active.calls > 15
    assert {reason.value for op in active.ops for reason in op.fallbacks} <= {"declined", "traced"}
    assert len(expected) == len(actual) > 0
    largest = max(tensor.abs().max() for tensor in expected)
    for mine, eagers in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, eagers, rtol=1e-4, atol=1e-5 * float(largest))


WRONG_GELU_BACKWARD = "def kernel(gradient, x, *, approximate='none'): return gradient * 1.5"


def trained(kernels: Path) -> training.Record:
    """A few steps of the benchmark's GPT."""
    options = argparse.Namespace(
        device="cpu", kernels=str(kernels), steps=6, seeds=3, moved=1, kernel_runs=1, threads=1
    )
    return training.record(options)


def test_training_on_kernels_stays_in_the_band_of_eager_runs() -> None:
    """Forward, backward and the optimiser; the record says so and holds every loss."""
    made = trained(KERNELS)
    assert 0 == made.outside
    assert made.drift < 1e-4 < made.eager[0].losses[0] - made.eager[0].losses[-1]
    assert {"gelu_backward.default", "addmm.default", "lerp_.Scalar"} <= made.calls.keys()
    assert 3 + 1 == len(made.eager)


def test_training_on_a_wrong_backward_kernel_leaves_the_band(tmp_path: Path) -> None:
    """The loss still falls, which is why nobody would notice without a band."""
    made = trained(kernel_file(tmp_path, "gelu_backward.default", WRONG_GELU_BACKWARD))
    assert not made.right
    assert made.drift > 1e-4
    assert made.kernels_runs[0].losses[-1] < made.kernels_runs[0].losses[0]


def test_a_plot_shows_the_band_and_each_run() -> None:
    """As an SVG that parses, with finite losses only."""
    drawn = ET.fromstring(draw("Loss", [(1.0, 2.0), (0.5, 1.5)], [[1.5, 1.0], [2.0, math.nan]]))
    space = "{http://www.w3.org/2000/svg}"
    points = [line.attrib["points"].split() for line in drawn.iter(f"{space}polyline")]
    assert [2, 1] == [len(one) for one in points]
    assert 4 == len(next(drawn.iter(f"{space}polygon")).attrib["points"].split())
