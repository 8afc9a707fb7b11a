from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import (
    FLOATS,
    HALF,
    assert_as_eager,
    kernel,
    small_tiles,
    tiles_of_a_device,
    values,
)

from opsmith.kernels.common.launch import launch
from opsmith.kernels.losses import class_losses

MODES = [0, 1, 2]
IGNORED = -100


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", MODES)
def test_likelihoods_with_ignored_targets(dtype: torch.dtype, reduction: int) -> None:
    """Weighted or not, of one sample or several, in any layout."""
    target = torch.tensor([0, IGNORED, 4, 2])
    for x in (values(4, 5, dtype=dtype), values(5, 4, dtype=dtype).t(), values(4, 10, dtype=dtype)[:, ::2]):
        for weight in (None, values(5, dtype=dtype).abs()):
            assert_as_eager("nll_loss_forward.default", x, target, weight, reduction, IGNORED)
    for t in target:
        assert_as_eager("nll_loss_forward.default", values(5, dtype=dtype), t, None, reduction, IGNORED)


@pytest.mark.parametrize("reduction", MODES)
def test_likelihoods_of_images(reduction: int) -> None:
    """Channels last, transposed targets."""
    x = values(2, 5, 3, 4).to(memory_format=torch.channels_last)
    target = torch.arange(24).reshape(2, 4, 3).transpose(1, 2) % 5
    assert_as_eager("nll_loss2d_forward.default", x, target, values(5).abs(), reduction, 3)


@pytest.mark.parametrize("op", ["nll_loss_forward.default", "nll_loss_backward.default"])
def test_nothing_has_no_mean(op: str) -> None:
    """All targets ignored, and none at all."""
    for count in (0, 3):
        x, target = values(count, 5), torch.full((count,), IGNORED)
        if op == "nll_loss_forward.default":
            assert_as_eager(op, x, target, None, 1, IGNORED)
        else:
            assert_as_eager(op, torch.ones(()), x, target, None, 1, IGNORED, torch.zeros(()))


@pytest.mark.parametrize("reduction", MODES)
def test_gradients_are_written_everywhere(reduction: int) -> None:
    """Zero but at the target."""
    x, target, weight = values(4, 5), torch.tensor([0, IGNORED, 4, 2]), values(5).abs()
    total = weight[[0, 4, 2]].sum()
    grad = values(4) if reduction == 0 else values()
    assert_as_eager("nll_loss_backward.default", grad, x, target, weight, reduction, IGNORED, total)
    x, target = values(2, 5, 3, 4), torch.arange(24).reshape(2, 3, 4) % 5
    grad = values(2, 3, 4) if reduction == 0 else values()
    assert_as_eager("nll_loss2d_backward.default", grad, x, target, weight, reduction, 3, values().abs())
    assert_as_eager("nll_loss_backward.default", values(), x[0, :, 0, 0], target[0, 0, 0], None, 1, 3, torch.ones(()))


@pytest.mark.parametrize("classes", [16, 17, 33, 50])
@pytest.mark.parametrize("reduction", MODES)
def test_gradients_of_long_rows_are_written_in_stretches(
    monkeypatch: pytest.MonkeyPatch, reduction: int, classes: int
) -> None:
    """Rows as long as a stretch and longer ones; targets at the ends of rows and stretches, or ignored."""
    small_tiles(monkeypatch, 16)
    launched = []

    def noted(kernel: Any, *args: Any, **meta: Any) -> None:
        launched.append(kernel)
        launch(kernel, *args, **meta)

    monkeypatch.setattr(class_losses, "launch", noted)
    target = torch.tensor([classes - 1, 0, IGNORED, 15, classes - 1, 7])
    for dtype in HALF:
        x, weight = values(6, classes, dtype=dtype), values(classes, dtype=dtype).abs()
        grad = values(6, dtype=dtype) if reduction == 0 else values(dtype=dtype)
        total = torch.tensor(2.0, dtype=dtype)
        for given in (None, weight):
            assert_as_eager("nll_loss_backward.default", grad, x, target, given, reduction, IGNORED, total)
    x, target, total = values(classes), torch.tensor(3), torch.ones(())
    assert_as_eager("nll_loss_backward.default", values(), x, target, None, 1, IGNORED, total)
    assert set(launched) == {class_losses.long_rows_gradient_kernel}


def test_many_targets_are_shared_among_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sums are added up in a second launch."""
    tiles_of_a_device(monkeypatch)
    target = torch.arange(9000) % 3
    for reduction in MODES:
        assert_as_eager("nll_loss_forward.default", values(9000, 3).abs(), target, None, reduction, 2)


def test_targets_that_do_not_fit_are_refused() -> None:
    """By shape or by type."""
    with pytest.raises(ValueError, match="target"):
        kernel("nll_loss_forward.default")(values(4, 5), torch.zeros(3, dtype=torch.int64), None, 1, IGNORED)
    with pytest.raises(TypeError):
        kernel("nll_loss_forward.default")(values(4, 5), torch.zeros(4), None, 1, IGNORED)


@pytest.mark.parametrize("reduction", MODES)
@pytest.mark.parametrize("p", [1, 2])
def test_margins_of_one_target(reduction: int, p: int) -> None:
    """Of rows in two layouts, weighted or not; and of one row."""
    target = torch.tensor([4, 0, 2])
    for x in (values(3, 5), values(5, 3).t()):
        for weight in (None, values(5).abs()):
            assert_as_eager("multi_margin_loss.default", x, target, p, 0.5, weight, reduction)
            grad = values(3) if reduction == 0 else values()
            actual = kernel("multi_margin_loss_backward.default")(grad, x, target, p, 0.5, weight, reduction)
            expected = torch.ops.aten.multi_margin_loss_backward(grad, x, target, p, 0.5, weight, reduction)
            torch.testing.assert_close(actual, expected)
    assert_as_eager("multi_margin_loss.default", values(5), target[0], p, 1, None, reduction)


@pytest.mark.parametrize("reduction", MODES)
def test_margins_of_several_targets(reduction: int) -> None:
    """A negative number ends the list; a class may be in it twice."""
    target = torch.tensor([[0, 3, -1, 2, 1], [1, 1, -1, 0, 0], [-1, 0, 0, 0, 0], [4, 3, 2, 1, 0]])
    x = values(4, 5)
    assert_as_eager("multilabel_margin_loss_forward.default", x, target, reduction)
    assert_as_eager("multilabel_margin_loss_forward.default", x[0], target[0], reduction)
    is_target = torch.ops.aten.multilabel_margin_loss_forward(x, target, reduction)[1]
    grad = values(4) if reduction == 0 else values()
    assert_as_eager("multilabel_margin_loss_backward.default", grad, x, target, reduction, is_target)
