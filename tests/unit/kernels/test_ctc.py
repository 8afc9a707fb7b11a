from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import eager, kernel

T, C = 6, 5
INPUT_LENGTHS = [6, 5, 0, 2, 6]
TARGET_LENGTHS = [3, 2, 0, 4, 0]
N = len(INPUT_LENGTHS)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Triton's interpreter computes with numpy, which warns of infinities."""
    with np.errstate(all="ignore"):
        yield


def sequences(dtype: torch.dtype, blank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logarithms of probabilities, and padded targets with equal neighbours."""
    generator = torch.Generator().manual_seed(blank)
    log_probs = torch.randn(T, N, C, generator=generator, dtype=dtype).log_softmax(-1)
    targets = torch.randint(0, C - 1, (N, 4), generator=generator)
    targets[0, 2] = targets[0, 1]
    return log_probs, targets + (targets >= blank)


@pytest.mark.parametrize(("dtype", "blank"), [(torch.float32, 0), (torch.float64, 2)])
def test_losses_and_gradients(dtype: torch.dtype, blank: int) -> None:
    """Of empty sequences, empty targets and impossible ones; infinite losses have no gradient, or NaN."""
    log_probs, targets = sequences(dtype, blank)
    lengths = INPUT_LENGTHS, TARGET_LENGTHS
    expected = eager("_ctc_loss.default")(log_probs, targets, *lengths, blank)
    actual = kernel("_ctc_loss.default")(log_probs, targets, *lengths, blank)
    torch.testing.assert_close(actual[0], expected[0])
    assert expected[1].shape == actual[1].shape
    for n, (steps, labels) in enumerate(zip(*lengths, strict=True)):
        own = np.s_[n, :steps, : 2 * labels + 1]
        torch.testing.assert_close(actual[1][own], expected[1][own])
    for zero_infinity in (False, True):
        arguments = (log_probs, targets, *lengths, *expected, blank, zero_infinity)
        grad = torch.linspace(0.5, 2, N, dtype=dtype)
        gradient = kernel("_ctc_loss_backward.default")(grad, *arguments)
        wanted = eager("_ctc_loss_backward.default")(grad, *arguments)
        torch.testing.assert_close(gradient, wanted, equal_nan=True)


def test_targets_one_after_another_and_lengths_as_tensors() -> None:
    """The other forms of the same batch."""
    log_probs, targets = sequences(torch.float32, 0)
    joined = torch.cat([targets[n, :length] for n, length in enumerate(TARGET_LENGTHS)])
    lengths = torch.tensor(INPUT_LENGTHS), torch.tensor(TARGET_LENGTHS)
    expected = kernel("_ctc_loss.default")(log_probs, targets, INPUT_LENGTHS, TARGET_LENGTHS)
    actual = kernel("_ctc_loss.Tensor")(log_probs, joined.int(), *lengths)
    assert torch.equal(expected[0], actual[0])
    grad = torch.ones(()).expand(N)
    gradient = kernel("_ctc_loss_backward.Tensor")(grad, log_probs, joined, *lengths, *actual, 0, True)
    wanted = eager("_ctc_loss_backward.Tensor")(grad, log_probs, joined, *lengths, *actual, 0, True)
    torch.testing.assert_close(gradient, wanted)


def test_contradictions_are_refused() -> None:
    """As in eager."""
    log_probs, targets = sequences(torch.float32, 0)
    with pytest.raises(ValueError, match="class 5"):
        kernel("_ctc_loss.default")(log_probs, targets, INPUT_LENGTHS, TARGET_LENGTHS, 5)
    with pytest.raises(ValueError, match="between 0 and 6"):
        kernel("_ctc_loss.default")(log_probs, targets, [7] * N, TARGET_LENGTHS)
    with pytest.raises(ValueError, match="up to 5"):
        kernel("_ctc_loss.default")(log_probs, targets, INPUT_LENGTHS, [5] * N)
    with pytest.raises(TypeError, match="float32"):
        kernel("_ctc_loss.default")(log_probs, targets.float(), INPUT_LENGTHS, TARGET_LENGTHS)
