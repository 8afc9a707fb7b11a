"""Attention of compiled graphs on a GPU: whichever library a trial takes, results and gradients are those of eager."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import Tensor, nn

from opsmith.compile.report import collected

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Of torch's own compiler.
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]
CUDA, HALF = "cuda", torch.bfloat16


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, device=CUDA, dtype=HALF)


def _heads(queries: int, keys: int, *, heads: int = 8, groups: int = 8, width: int = 64) -> list[Tensor]:
    """As models lay them: heads behind tokens in memory."""
    shapes = [(2, queries, heads, width), (2, keys, groups, width), (2, keys, groups, width)]
    return [_drawn(*shape).transpose(1, 2) for shape in shapes]


def _near(found: Tensor, exact: Tensor, eager: Tensor) -> None:
    """As near to float32 as eager mode is, within half of it."""
    assert torch.equal(found.isnan(), eager.isnan())
    assert (found - exact).norm() <= 1.5 * (eager - exact).norm() + 1e-5 * exact.norm()


def _hiding_rows(queries: int, keys: int) -> Tensor:
    mask = torch.rand(2, 1, queries, keys, device=CUDA) < 0.7
    mask[0, :, queries // 2] = False
    return mask


MASKS: dict[str, Callable[[int, int], Tensor | None]] = {
    "none": lambda queries, keys: None,
    "rows that hide everything": _hiding_rows,
    "padded": lambda queries, keys: (torch.arange(keys, device=CUDA) < keys - 9)[None, None, None].expand(
        2, 1, queries, keys
    ),
    "numbers": lambda queries, keys: _drawn(2, 1, queries, keys),
    "numbers of another layout": lambda queries, keys: _drawn(queries, keys, 8)[None].permute(0, 3, 1, 2),
    "hidden by numbers": lambda queries, keys: torch.where(_hiding_rows(queries, keys), 0.0, -math.inf).to(HALF),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("queries", "keys", "groups"), [(1, 512, 2), (197, 197, 8), (128, 77, 8), (256, 256, 2)])
def test_results_are_those_of_eager(mask: str, queries: int, keys: int, groups: int) -> None:
    """With any mask, of any layout; a library that reads beyond its rows would take the process down."""
    q, k, v = _heads(queries, keys, groups=groups)
    given = MASKS[mask](queries, keys)

    def attend(q: Tensor, k: Tensor, v: Tensor, given: Tensor | None) -> Tensor:
        k, v = (one.repeat_interleave(8 // groups, 1) for one in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=given)

    with torch.no_grad():
        found = torch.compile(attend, backend="opsmith")(q, k, v, given).float()
        exact = attend(
            q.float(), k.float(), v.float(), given if given is None or given.dtype == torch.bool else given.float()
        )
        eager = attend(q, k, v, given).float()
    # What a query gets that sees no key is torch's choice of a library; it has to be that choice.
    open_rows = torch.ones_like(eager[..., :1], dtype=torch.bool)
    if given is not None:
        hidden = ~given if given.dtype == torch.bool else given == -math.inf
        open_rows = ~hidden.all(-1, keepdim=True).expand(2, 8, queries, 1)
    torch.testing.assert_close(found.masked_fill(open_rows, 0), eager.masked_fill(open_rows, 0), rtol=0.05, atol=0.05)
    _near(*(one.masked_fill(~open_rows, 0) for one in (found, exact, eager)))


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_gradients_are_those_of_eager(window: int | None, width: int) -> None:
    """Of causal attention and of a window, on keys that heads share."""
    tensors = _heads(256, 256, groups=2, width=width)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        distance = torch.arange(256, device=CUDA)[:, None] - torch.arange(256, device=CUDA)
        mask = (distance >= 0) if window is None else (distance >= 0) & (distance < window)
        k, v = (one.repeat_interleave(4, 1) for one in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def run(function: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        given = [one.detach().to(dtype).requires_grad_() for one in tensors]
        result = function(*given)
        return [result, *torch.autograd.grad(result, given, torch.ones_like(result))]

    with collected() as reports:
        found = run(torch.compile(attend, backend="opsmith"), HALF)
    assert [] == [one.undone for one in reports.passes if one.undone]
    for one, exact, eager in zip(found, run(attend, torch.float32), run(attend, HALF), strict=True):
        _near(one.float(), exact, eager.float())


class Decoder(nn.Module):
    """One layer that keeps what it has seen in a static cache, and counts."""

    keys: Tensor
    values: Tensor
    count: Tensor

    def __init__(self, length: int) -> None:
        super().__init__()
        self.project = nn.Linear(256, 256 * 3, dtype=HALF, device=CUDA)
        self.register_buffer("keys", torch.zeros(2, 4, length, 64, dtype=HALF, device=CUDA))
        self.register_buffer("values", torch.zeros(2, 4, length, 64, dtype=HALF, device=CUDA))
        self.register_buffer("count", torch.zeros((), dtype=torch.long, device=CUDA))

    def forward(self, x: Tensor) -> Tensor:
        """``[2, 1, 256]`` to the same."""
        q, k, v = (one.reshape(2, 1, 4, 64).transpose(1, 2) for one in self.project(x).chunk(3, -1))
        at = self.count[None]
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        mask = torch.arange(self.keys.shape[2], device=CUDA) <= self.count
        self.count.add_(1)
        result = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask[None, None, None])
        return result.transpose(1, 2).reshape(2, 1, 256)


@torch.no_grad()
def test_a_decoder_that_writes_its_cache_is_replayed_step_by_step() -> None:
    """Up to the last place of the cache; every step writes once, also while it is timed."""
    torch.manual_seed(0)
    model = Decoder(64)
    eager = Decoder(64)
    eager.load_state_dict(model.state_dict())
    call = torch.compile(model, backend="opsmith")
    with collected() as reports:
        for step in range(64):
            x = _drawn(2, 1, 256)
            torch.testing.assert_close(call(x), eager(x), rtol=0.05, atol=0.02)
            assert step + 1 == model.count == eager.count
    torch.testing.assert_close(model.keys, eager.keys, rtol=0.05, atol=0.02)
    assert [None] == [one.reason for one in reports.graphs]
