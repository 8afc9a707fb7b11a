"""Layouts of images in compiled graphs: as a trial of the graph's convolutions says. The CPU stands for a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.compile.on_a_cpu import finding, trials_on_a_cpu
from torch import nn
from torch._inductor import config
from torch._inductor.graph import GraphLowering
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.compile import layouts
from opsmith.compile.report import collected
from opsmith.compile.trials import trying
from opsmith.trials.book import Trial
from opsmith.trials.turns import Way

pytestmark = pytest.mark.slow

AS_THEY_ARE = {layouts.AS_THEY_ARE: 100.0, layouts.CHANNELS_LAST: 91.0}
TURNED = {layouts.AS_THEY_ARE: 100.0, layouts.CHANNELS_LAST: 89.0}
UNKNOWN = {layouts.AS_THEY_ARE: 100.0}


class ProfiledCalls(TorchDispatchMode):
    """Notes what is called within it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **kwargs or {})


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with trials_on_a_cpu(monkeypatch, tmp_path), torch.no_grad():
        yield


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether Inductor was allowed to turn images, each time that it asked itself whether to."""
    found: list[bool] = []

    def decide(*args: Any, **kwargs: Any) -> bool:
        found.append(config.layout_optimization)
        return False

    monkeypatch.setattr(GraphLowering, "decide_layout_opt", staticmethod(decide))
    return found


def _compile(model: nn.Module, shape: tuple[int, ...], **options: Any) -> list[Trial]:
    x = torch.randn(shape)
    with collected() as reports:
        result = torch.compile(model, backend="opsmith", options=options)(x)
    torch.testing.assert_close(result, model(x))
    assert [] == reports.fallbacks
    return reports.trials


@pytest.mark.parametrize(
    ("us", "turned"),
    [pytest.param(AS_THEY_ARE, False, id="no gain"), pytest.param(TURNED, True), pytest.param(UNKNOWN, True)],
)
def test_images_are_turned_where_convolutions_gain(
    monkeypatch: pytest.MonkeyPatch, asked: list[bool], us: dict[str, float], *, turned: bool
) -> None:
    """In strict float32, by a tenth at least; where nobody knows, Inductor's rule decides."""
    finding(monkeypatch, us)
    monkeypatch.setattr(layouts, "convolution_precision", lambda: "ieee")
    trials = _compile(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1)), (2, 3, 6, 6))
    assert 2 == len(trials)
    assert [turned] == asked
    assert config.layout_optimization


@pytest.mark.parametrize(("turned_us", "turned"), [(109.0, True), (112.0, False), (50.0, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_elsewhere_images_are_turned_unless_convolutions_lose(
    monkeypatch: pytest.MonkeyPatch, asked: list[bool], dtype: torch.dtype, turned_us: float, *, turned: bool
) -> None:
    """In TF32 and in half precision: what else is in a graph gains, too."""
    finding(monkeypatch, {layouts.AS_THEY_ARE: 100.0, layouts.CHANNELS_LAST: turned_us})
    monkeypatch.setattr(layouts, "convolution_precision", lambda: "tf32" if dtype == torch.float32 else "ieee")
    model, x = nn.Conv2d(3, 4, 3).to(dtype), torch.randn(2, 3, 6, 6, dtype=dtype)
    torch.compile(model, backend="opsmith")(x)
    assert [turned] == asked


def test_all_convolutions_of_a_graph_count_together(monkeypatch: pytest.MonkeyPatch, asked: list[bool]) -> None:
    """A slow one decides."""

    def hold(call: str, ways: object, **settings: object) -> Trial:
        slow = "f32[4, 4, 1, 1]" in call
        return Trial(call=call, us={layouts.AS_THEY_ARE: 1000.0 if slow else 10.0, layouts.CHANNELS_LAST: 50.0})

    monkeypatch.setattr(trying, "hold_trial", hold)
    _compile(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)), (2, 3, 6, 6))
    assert [True] == asked


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Conv2d(3, 4, 3, stride=2), (2, 3, 8, 8)),
        (nn.Conv2d(4, 4, 3, groups=4, bias=False), (2, 4, 8, 8)),
        (nn.ConvTranspose2d(3, 4, 3, output_padding=1, stride=2), (2, 3, 8, 8)),
        (nn.Conv1d(3, 4, 3), (2, 3, 8)),
    ],
)
def test_a_trial_times_both_layouts(asked: list[bool], model: nn.Module, shape: tuple[int, ...]) -> None:
    """Really; they give the same."""
    (trial,) = _compile(model, shape)
    assert ([layouts.AS_THEY_ARE, layouts.CHANNELS_LAST], {}) == ([*trial.us], trial.notes)


@pytest.mark.parametrize("in_training", [False, True])
def test_gradients_count_where_there_are_some(
    monkeypatch: pytest.MonkeyPatch, asked: list[bool], *, in_training: bool
) -> None:
    """They are made in the layout of what they are gradients of."""
    texts: list[str] = []

    def hold(call: str, ways: Mapping[str, Way], **settings: object) -> Trial:
        with ProfiledCalls() as called:
            ways[layouts.CHANNELS_LAST]()
        texts.extend(called.names)
        return Trial(call=call, us=TURNED)

    monkeypatch.setattr(trying, "hold_trial", hold)
    with torch.enable_grad():
        x = torch.randn(2, 3, 6, 6, requires_grad=in_training)
        model = nn.Conv2d(3, 4, 3).requires_grad_(in_training)
        result = torch.compile(model, backend="opsmith")(x)
        if in_training:
            result.sum().backward()
    backward = ["aten.convolution_backward.default"] if in_training else []
    assert ["aten.convolution.default", *backward] == texts


@pytest.mark.parametrize("model", [nn.Linear(6, 3), nn.AvgPool1d(2)])
def test_without_convolutions_there_is_nothing_to_try(asked: list[bool], model: nn.Module) -> None:
    """Nor anything to turn, in Inductor's eyes either."""
    assert [] == [one for one in _compile(model, (4, 6)) if layouts.CHANNELS_LAST in one.us]
    assert [False] == asked


def test_volumes_stay_as_they_are(asked: list[bool]) -> None:
    """Inductor turns images only; kernels may be tried for the rest."""
    assert [] == _compile(nn.Conv3d(3, 4, 2), (1, 3, 4, 4, 4))
    assert [False] == asked


@pytest.mark.parametrize("wanted", [True, False])
def test_who_asks_for_a_layout_gets_it(monkeypatch: pytest.MonkeyPatch, asked: list[bool], *, wanted: bool) -> None:
    """Without a trial."""
    finding(monkeypatch, AS_THEY_ARE)
    assert [] == _compile(nn.Conv2d(3, 4, 3), (2, 3, 6, 6), layout_optimization=wanted)
    assert [wanted] == asked
