"""Masks that are read from constants, and the library that computes attention. A CPU stands for the GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from tests.graphs import outcome
from tests.unit.compile.on_a_cpu import preferring, trials_on_a_cpu
from torch import Tensor

from opsmith.compile import choose_passes
from opsmith.compile.report import collected
from opsmith.compile.traced.attention_ways import CUDNN, FLASH, LIBRARY, MEAN, WINDOW, ZEROS, Form, possible_ways
from opsmith.compile.traced.known import Constants

BATCH, HEADS, GROUPS, LENGTH, WIDTH = 2, 4, 2, 16, 8


def _random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def _heads(heads: int = HEADS, length: int = LENGTH, dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    return [_random(BATCH, HEADS, LENGTH, WIDTH, dtype=dtype)] + [
        _random(BATCH, heads, length, WIDTH, dtype=dtype) + place for place in range(2)
    ]


# ---------------------------------------------------------------- masks


def _positions() -> tuple[Tensor, Tensor]:
    return torch.arange(LENGTH)[:, None], torch.arange(LENGTH)[None]


def _lower(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())


def _by_positions(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As transformers makes it: the keys up to each query, of the same text."""
    queries, keys = _positions()
    texts = (torch.diff(torch.arange(LENGTH), prepend=torch.tensor([-1])) != 1).cumsum(-1)
    mask = queries.new_ones((), dtype=torch.bool) & (keys <= queries) & (texts[:, None] == texts)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(BATCH, 1, LENGTH, LENGTH), scale=0.3)


def _added(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.full((LENGTH, LENGTH), -math.inf, dtype=q.dtype).triu(1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _nothing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    queries, keys = _positions()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(keys >= 0) | (queries < 0))


@pytest.mark.parametrize("function", [_lower, _by_positions, _added, _nothing])
def test_a_mask_of_constants_is_named(function: Callable[..., Tensor]) -> None:
    """Whoever made it; results and gradients are those of the mask."""
    found = outcome(function, _heads(dtype=torch.float32), choose_passes("attention_mask"))
    assert 1 == found.fired
    found.assert_equal()


def _window(q: Tensor, k: Tensor, v: Tensor, width: int = 5) -> Tensor:
    queries, keys = _positions()
    mask = (keys <= queries) & (keys > queries - width)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    mask[3:, :2] = False
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _written_in_a_view(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    ones = torch.ones(2, LENGTH, LENGTH, dtype=torch.bool)
    mask = ones[1]
    ones.logical_and_(torch.arange(LENGTH) < 9)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _one_batch_hides(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.arange(BATCH)[:, None, None, None] >= torch.arange(LENGTH) - 9
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _shifted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    queries, keys = _positions()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keys <= queries + 1)


def _of_an_input(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = q[0, 0, 0, 0] < torch.arange(LENGTH)[None] + 9
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.0, attn_mask=mask)


@pytest.mark.parametrize(
    "function",
    [_window, _written, _written_in_a_view, _one_batch_hides, _shifted, _of_an_input],
    ids=lambda one: one.__name__,
)
def test_any_other_mask_stays(function: Callable[..., Tensor]) -> None:
    """What is written to, what hangs on an input, what is almost the causal one."""
    found = outcome(function, _heads(dtype=torch.float32), choose_passes("attention_mask"), gradients=False)
    assert 0 == found.fired
    found.assert_equal()


def test_a_causal_mask_of_fewer_queries_stays() -> None:
    """``is_causal`` puts the first query beside the first key, as this mask does; libraries differ in it."""

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = torch.arange(LENGTH)[:, None] >= torch.arange(2 * LENGTH)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    given = _heads(length=2 * LENGTH, dtype=torch.float32)
    assert 0 == outcome(function, given, choose_passes("attention_mask"), gradients=False).fired


def test_constants_of_a_gpu_are_computed_on_the_cpu() -> None:
    """Whether a model names the device by a string or not."""
    graph = torch.fx.Graph()
    made = [graph.call_function(torch.arange, (4,), {"device": one}) for one in ("cuda:1", torch.device("cuda"))]
    moved = graph.call_method("to", (made[0], "cuda"))
    grid = graph.call_function(torch.meshgrid, (moved, made[1]), {"indexing": "ij"})
    for node in (*made, moved, grid):
        node.meta["example_value"] = torch.empty(4, device="meta")
    constants = Constants(graph)
    torch.testing.assert_close(list(constants.of(grid)), list(torch.meshgrid(*[torch.arange(4)] * 2, indexing="ij")))


def test_random_and_uninitialised_masks_are_no_constants() -> None:
    """A mask that is computed twice is not the same."""

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        drawn = torch.rand(LENGTH, LENGTH) > -1
        unknown = torch.empty(LENGTH, LENGTH).isnan() | True
        return F.scaled_dot_product_attention(q, k, v, drawn) + F.scaled_dot_product_attention(q, k, v, unknown)

    assert 0 == outcome(function, _heads(), choose_passes("attention_mask"), gradients=False).fired


def _of_any_length(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    positions = torch.arange(q.shape[-2])
    mask = (positions[None] <= positions[:, None])[None, None].expand(q.shape[0], 1, -1, -1)
    return F.scaled_dot_product_attention(q, k, v, mask)


def _lower_of_any_length(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, mask)


def _window_of_any_length(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    positions = torch.arange(q.shape[-2])
    distance = positions[:, None] - positions[None]
    return F.scaled_dot_product_attention(q, k, v, (distance >= 0) & (distance < 4096))


def _half_of_any_length(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    positions = torch.arange(q.shape[-2])
    return F.scaled_dot_product_attention(q, k, v, (positions[None] < q.shape[-2] // 2).expand(q.shape[-2], -1))


class _Scaled:
    """A number of an object is an input of the graph, if sizes are."""

    scale = 0.37

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(q, k, v, mask, scale=self.scale)


def _shifted_for_any_length(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    queries = torch.arange(8192)[4096:][: q.shape[-2]]
    return F.scaled_dot_product_attention(q, k, v, torch.arange(q.shape[-2])[None] <= queries[:, None])


def _begun_later_for_any_length(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    queries = torch.arange(4096, 4096 + q.shape[-2])
    return F.scaled_dot_product_attention(q, k, v, torch.arange(q.shape[-2])[None] <= queries[:, None])


def _below_a_filled_number(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.arange(q.shape[-2])[None] < torch.full((q.shape[-2], 1), 4096)
    return F.scaled_dot_product_attention(q, k, v, mask)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "is_named"),
    [
        (_Scaled(), True),
        (_shifted_for_any_length, False),
        (_begun_later_for_any_length, False),
        (_below_a_filled_number, False),
        (_of_any_length, True),
        (_lower_of_any_length, True),
        (_window_of_any_length, False),
        (_half_of_any_length, False),
    ],
)
def test_a_mask_of_symbolic_sizes_is_named_where_it_is_one_for_all(
    function: Callable[..., Tensor], *, is_named: bool
) -> None:
    """A window of thousands of tokens looks causal for every size that is tried."""
    found = outcome(function, _heads(dtype=torch.float32), choose_passes("attention_mask"), dynamic=True)
    assert is_named == bool(found.fired)
    found.assert_equal()


# ---------------------------------------------------------------- libraries


def _flash(query: Tensor, key: Tensor, value: Tensor, *rest: Any, scale: float | None = None) -> Any:
    is_causal = len(rest) > 1 and rest[1]
    result = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal, scale=scale, enable_gqa=True)
    sums = torch.zeros(query.shape[:3])
    return (result, sums, None, None, query.shape[2], key.shape[2], *(torch.zeros(()) for _ in range(3)))


def _windowed_flash(
    query: Tensor, key: Tensor, value: Tensor, *_: Any, scale: float | None = None, window_size_left: int, **__: Any
) -> Any:
    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    distance = torch.arange(query.shape[2])[:, None] - torch.arange(key.shape[2])
    mask = (distance >= 0) & (distance <= window_size_left)
    result = F.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=True)
    return (result.transpose(1, 2), *(torch.zeros(()) for _ in range(4)))


def _cudnn(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *rest: Any, scale: float | None = None
) -> Any:
    """What a query gets that sees no key is not a number."""
    is_causal = len(rest) > 2 and rest[2]
    assert bias is None or bias.is_contiguous()
    result = F.scaled_dot_product_attention(query, key, value, bias, is_causal=is_causal, scale=scale, enable_gqa=True)
    if bias is not None:
        result = result.masked_fill(bias.eq(-math.inf).all(-1, keepdim=True), math.nan)
    others = (torch.zeros(()) for _ in range(3))
    return (result, torch.zeros(()), None, None, query.shape[2], key.shape[2], *others)


@pytest.fixture(autouse=True)
def _libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Stand-ins for CUDA's libraries; a trial calls none of them unless a test asks for it."""
    with torch.library._scoped_library("aten", "IMPL") as library, trials_on_a_cpu(monkeypatch, tmp_path):
        library.impl("_scaled_dot_product_flash_attention", _flash, "CPU")
        library.impl("_flash_attention_forward", _windowed_flash, "CPU")
        library.impl("_scaled_dot_product_cudnn_attention", _cudnn, "CPU")
        yield


def _repeated(one: Tensor) -> Tensor:
    batch, heads, length, width = one.shape
    groups = HEADS // heads
    return one[:, :, None, :, :].expand(batch, heads, groups, length, width).reshape(batch, HEADS, length, width)


def _unsqueezed(one: Tensor) -> Tensor:
    return one.unsqueeze(2).expand(-1, -1, HEADS // GROUPS, -1, -1).reshape(BATCH, HEADS, -1, WIDTH)


def _interleaved(one: Tensor) -> Tensor:
    return torch.repeat_interleave(one, HEADS // GROUPS, dim=1)


@pytest.mark.parametrize("repeat", [_repeated, _unsqueezed, _interleaved, lambda one: one.repeat_interleave(2, -3)])
@pytest.mark.parametrize("way", [FLASH, CUDNN])
def test_keys_that_heads_share_are_not_copied(
    repeat: Callable[[Tensor], Tensor], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library gets them as they are; the copies go."""
    preferring(monkeypatch, way)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, repeat(k), repeat(v), is_causal=True, scale=0.4)

    with collected() as reports:
        found = outcome(function, _heads(GROUPS), choose_passes("attention_calls"), gradients=False)
    assert 1 == found.fired
    assert not {"expand", "repeat_interleave"} & set(found.targets)
    found.assert_equal()
    (trial,) = reports.trials
    assert f"bf16[{BATCH}, {GROUPS}, {LENGTH}, {WIDTH}]" in trial.call


def test_heads_that_are_repeated_in_another_order_stay() -> None:
    """``repeat`` puts the first head's copy behind the last head."""

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (one.repeat(1, HEADS // GROUPS, 1, 1) for one in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    with collected() as reports:
        outcome(function, _heads(GROUPS), choose_passes("attention_calls"), gradients=False)
    assert all(f"bf16[{BATCH}, {GROUPS}," not in one.call for one in reports.trials)


@pytest.mark.parametrize("way", [CUDNN, ZEROS, MEAN])
@pytest.mark.parametrize("is_boolean", [True, False])
def test_masks_are_handed_over_as_the_library_takes_them(
    way: str, monkeypatch: pytest.MonkeyPatch, *, is_boolean: bool
) -> None:
    """Contiguous numbers; a row that hides everything is what the way says."""
    preferring(monkeypatch, way)
    hidden = torch.rand(LENGTH, LENGTH, BATCH, 1, generator=torch.Generator().manual_seed(3)).permute(2, 3, 0, 1) < 0.4
    hidden[1, 0, 3] = True
    mask = ~hidden if is_boolean else torch.where(hidden, -math.inf, 0.5).to(torch.bfloat16)

    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    given = [*_heads(), mask]
    found = outcome(function, given, choose_passes("attention_calls"), gradients=False)
    assert 1 == found.fired
    row = found.results[0][1, :, 3].float()
    if way == ZEROS:
        found.assert_equal()
    elif way == MEAN and is_boolean:
        torch.testing.assert_close(row, given[2][1].float().mean(-2), atol=3e-2, rtol=3e-2)
    else:
        assert row.isnan().all()
    found.results[0][1, :, 3] = found.expected[0][1, :, 3] = 0
    found.assert_equal()


def test_a_window_is_said_instead_of_its_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash attention skips what is outside of it; nothing else is left of the mask."""
    preferring(monkeypatch, WINDOW)
    found = outcome(_window, _heads(), choose_passes("attention_calls"), gradients=False)
    assert (1, True) == (found.fired, any("_flash_attention_forward" in one for one in found.targets))
    found.assert_equal()


def test_autocast_casts_what_the_library_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows the function, not the overload that stands for it; without it float32 stays."""
    preferring(monkeypatch, CUDNN)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    given, passes = _heads(dtype=torch.float32), choose_passes("attention_calls")
    with torch.autocast("cpu", torch.bfloat16):
        found = outcome(function, given, passes, gradients=False)
    assert (1, torch.bfloat16) == (found.fired, found.results[0].dtype)
    found.assert_equal()
    assert 0 == outcome(function, given, passes, gradients=False).fired


def test_a_trial_compares_what_the_ways_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mask that hides a whole row: here the library returns zeros for it."""
    monkeypatch.setattr("opsmith.compile.traced.attention_calls.LEAST_US", 0.0)

    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    mask = torch.rand(BATCH, 1, LENGTH, LENGTH) > 0.2
    with collected() as reports:
        outcome(function, [*_heads(), mask], choose_passes("attention_calls"), gradients=False)
    (trial,) = reports.trials
    assert {LIBRARY, ZEROS} == set(trial.us)
    assert {CUDNN, MEAN} == set(trial.notes)


def test_nothing_hangs_on_a_measurement_where_results_have_to_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under deterministic algorithms calls are as they were."""
    preferring(monkeypatch, FLASH)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    torch.use_deterministic_algorithms(True)
    try:
        assert 0 == outcome(function, _heads(), choose_passes("attention_calls"), gradients=False).fired
    finally:
        torch.use_deterministic_algorithms(False)


def _ways(tensors: Sequence[Tensor], window: int | None = None) -> list[str]:
    return possible_ways(Form(False, None, grouped=False, window=window), tensors)


def test_libraries_get_only_what_they_read_without_checking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that begin at 16 bytes, of heads that are not too wide; keys as many as are read at once."""
    q, k, v = (torch.empty(2, 4, 16, 64, dtype=torch.bfloat16) for _ in range(3))
    assert [LIBRARY, FLASH, CUDNN] == _ways([q, k, v])
    assert [LIBRARY, WINDOW, CUDNN, ZEROS, MEAN] == _ways([q, k, v, torch.ones(16, 16, dtype=torch.bool)], window=4)
    for odd in (q[..., :63], q.transpose(2, 3), torch.empty(2, 4, 16, 65, dtype=q.dtype)[..., :64], q[:0]):
        assert [LIBRARY] == _ways([q, odd, v])
    wide = torch.empty(1, 1, 16, 264, dtype=q.dtype)
    assert [LIBRARY] == _ways([wide, wide, wide])
    assert [LIBRARY, FLASH] == _ways([q, k[:, :, :9], v[:, :, :9]])
    monkeypatch.setattr(torch.backends.cuda, "flash_sdp_enabled", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "cudnn_sdp_enabled", lambda: False)
    assert [LIBRARY] == _ways([q, k, v])
