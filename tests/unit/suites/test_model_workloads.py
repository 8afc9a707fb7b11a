"""The call of a whole model: what it returns, what it changes, and what it forgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from opsmith.suites.models import INFER, TRAIN, Models
from opsmith.suites.models.workload import ModelCall, Workload, mean_square, other_state, plain, without_dropout
from opsmith.tasks.module_call import in_order

OWN = ("perceptron", "conv_net", "unet", "gpt", "text_lengths")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def workload(module: nn.Module, width: int) -> Workload:
    """A module that takes samples of one width."""
    return Workload(module, lambda: {"input": torch.randn(3, width)}, plain, mean_square)


@pytest.mark.parametrize("name", OWN)
def test_own_models_answer_every_batch_in_both_modes(name: str) -> None:
    """A training step adds the loss of each batch and a gradient for each layer that has parameters."""
    made = Models().workload(name, small=True)
    batches = made.batches()
    assert len(batches) > 1
    state = other_state(made.module, torch.Generator().manual_seed(1))
    assert len(batches) == len(ModelCall(made, INFER)(*batches, state=state))
    call = ModelCall(made, TRAIN)
    trained = call(*batches, state=other_state(call.module, torch.Generator().manual_seed(1)))
    # The oracle takes results in the order of their names.
    assert [*map(id, tree_leaves(trained))] == [*map(id, tree_leaves(in_order(trained)))]
    layers = {parameter.rpartition(".")[0] for parameter, _ in call.module.named_parameters()}
    assert layers == set(trained["gradients"])
    assert len(batches) == len(trained["results"])
    assert all(parameter.grad is None for parameter in call.module.parameters())


def test_gradients_of_a_layer_are_one_tensor_and_add_up_over_the_batches() -> None:
    """Weight first, then bias, as the layer has them."""
    layer = nn.Linear(4, 2)
    made = workload(layer, 4)
    batches = made.batches()
    gradients = ModelCall(made, TRAIN)(*batches)["gradients"]
    with torch.enable_grad():
        torch.stack([layer(**batch).square().mean() for batch in batches]).sum().backward()
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    torch.testing.assert_close(gradients["model"], torch.cat([layer.weight.grad.flatten(), layer.bias.grad]))


def test_what_a_training_step_changes_in_a_buffer_is_given_back() -> None:
    """The statistics of a batch norm are a result like any other."""
    call = ModelCall(workload(nn.BatchNorm1d(4), 4), TRAIN)
    state = other_state(call.module, torch.Generator().manual_seed(1))
    before = state["model.running_mean"].clone()
    call(torch_batch(), state=state)
    assert not torch.equal(before, state["model.running_mean"])


def torch_batch() -> dict[str, Any]:
    """Three samples of width 4."""
    return {"input": torch.randn(3, 4)}


def test_results_outlive_the_next_call_of_what_answers_from_one_buffer() -> None:
    """As a replayed CUDA graph does, which writes its results over those of the call before."""
    buffer = torch.empty(3, 4)

    def compiler(_module: nn.Module) -> Callable[..., Any]:
        return lambda **batch: buffer.copy_(batch["input"])

    first, second = torch_batch(), torch_batch()
    answers = ModelCall(workload(nn.Identity(), 4), INFER, compiler=compiler)(first, second)
    assert torch.equal(first["input"], answers[0])
    assert torch.equal(second["input"], answers[1])


def test_no_scale_is_one_and_no_bias_zero_and_tied_weights_stay_tied() -> None:
    """A pass that leaves a scale or a bias out would not be noticed otherwise."""
    embedding, norm = nn.Embedding(5, 4), nn.LayerNorm(4)
    head = nn.Linear(4, 5, bias=False)
    head.weight = embedding.weight
    state = other_state(nn.Sequential(embedding, norm, head), torch.Generator().manual_seed(1))
    assert not (state["1.weight"] == 1).any()
    assert not (state["1.bias"] == 0).any()
    assert state["0.weight"] is state["2.weight"]


def test_nothing_is_dropped_in_training() -> None:
    """A compiler's random numbers are not eager's."""
    module = without_dropout(nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5))).train()
    batch = torch.randn(2, 3, 4, 4)
    assert torch.equal(batch, module(batch))


def test_a_workload_of_lengths_times_all_of_them_and_any_other_one_batch() -> None:
    """What one timed call does is what its user does."""
    lengths, one = (Models().workload(name, small=True) for name in ("text_lengths", "perceptron"))
    assert len(lengths.lengths) == len(lengths.timed(lengths.batches()))
    assert 1 == len(one.timed(one.batches()))
