"""Whether a mutant and its original are the same function: bit for bit, on seeded inputs.

Inputs are the suite's calls with other values, layouts and sizes. Values are drawn from a pool that holds NaN,
infinities, both zeros, denormals, the largest and smallest numbers, halves, and many equal numbers. Every call with
one floating tensor is also asked all 65,536 values of a half type.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

#: Elements that two kernels are compared on before they are called equal.
ELEMENTS = 10_000_000
#: Calls with values drawn again that they are compared on at least, each in one of several layouts.
CALLS = 300
#: Calls that are made larger, and asked the half types.
FEW = 12
_POOL = 1 << 20
_LONG, _MANY = 3000, 200_000


#: (original, mutant, arguments, keywords) -> why the judge's comparison refuses the mutant on them; empty if it does
#: not, None if that says nothing. See :meth:`opsmith.mutation.rule.Rule.refuses`.
Refuses = Callable[[Callable[..., Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]], str | None]


class Compared(NamedTuple):
    """What was found.

    Attributes:
        differs: the first input on which results differ, in words; empty if none does. Of several it is the first that
            the judge's comparison refuses.
        allowed: so many of such inputs the judge's comparison allows; 0 where it refuses one, or was not asked.
        unknown: on so many it says nothing, since eager or the original fails there; 0 as for ``allowed``.
        elements: that they were equal on.
        large: a row above the longest that kernels treat apart, and a result of many blocks, were among them.
    """

    differs: str
    allowed: int
    unknown: int
    elements: int
    large: bool


class _Call(NamedTuple):
    leaves: list[Any]
    spec: Any

    def with_leaves(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = tree_unflatten(list(leaves), self.spec)
        return args, kwargs


def compare(
    original: Callable[..., Any],
    mutant: Callable[..., Any],
    calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
    *,
    seed: int,
    limit_s: float,
    elements: int = ELEMENTS,
    refuses: Refuses | None = None,
) -> Compared:
    """Compare two kernels on so many elements, or for so long, in seconds of a processor.

    It ends where they differ; with ``refuses`` where they differ by more than the judge's comparison allows.
    """
    until = time.process_time() + limit_s
    torch.manual_seed(seed)
    draw = random.Random(seed)  # noqa: S311 - inputs, nothing secret
    pools: dict[torch.dtype, torch.Tensor] = {}
    done, redrawn, large = 0, 0, False
    first, allowed, unknown = "", 0, 0
    inputs = _inputs([_Call(*tree_flatten(call)) for call in calls], pools, draw)
    for number, (leaves, call, kind) in enumerate(inputs):
        if done >= elements and redrawn >= CALLS:
            break
        if number % 8 == 0 and time.process_time() > until:
            break
        problem = _differs(original, mutant, call, leaves)
        if problem:
            first = first or f"{problem} on {_in_words(leaves)}"
            refusal = None if refuses is None else refuses(original, mutant, *_fresh(call, leaves)[0])
            if refuses is None or refusal:
                return Compared(f"{refusal or problem} on {_in_words(leaves)}", 0, 0, done, large)
            allowed += refusal is not None
            unknown += refusal is None
        redrawn += kind == "redrawn"
        if problem is not None:
            done += sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
            large |= kind == "resized"
    return Compared(first, allowed, unknown, done if redrawn >= CALLS else 0, large)


def _inputs(
    calls: Sequence[_Call], pools: dict[torch.dtype, torch.Tensor], draw: random.Random
) -> Iterator[tuple[list[Any], _Call, str]]:
    """Leaves of calls without end: as they are, larger, in half types, then with values drawn again and again."""
    for call in calls:
        yield call.leaves, call, "given"
    few = draw.sample(list(calls), min(len(calls), FEW))
    for call in few:
        for half in _halves(call):
            yield half, call, "halves"
    can_grow = False
    for call in few:
        for larger in _resized(call, pools, draw):
            can_grow = True
            yield larger, call, "resized"
    larger_again = ((leaves, call) for call in itertools.cycle(few) for leaves in _resized(call, pools, draw))
    for number, call in enumerate(itertools.cycle(draw.sample(list(calls), len(calls)))):
        leaves = [_redrawn(leaf, leaf.shape, pools, draw) if _floating(leaf) else leaf for leaf in call.leaves]
        yield leaves, call, "redrawn"
        if can_grow and number % 10 == 9:
            yield *next(larger_again), "resized"


def _floating(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _redrawn(
    leaf: torch.Tensor, shape: Sequence[int], pools: dict[torch.dtype, torch.Tensor], draw: random.Random
) -> torch.Tensor:
    """Values in a shape, in one of several layouts: from the pool, or the tensor's own if they are not floating."""
    if not _floating(leaf):
        return leaf.flatten()[torch.randint(leaf.numel(), tuple(shape))]
    if leaf.dtype not in pools:
        pools[leaf.dtype] = _pool(leaf.dtype)
    pool = pools[leaf.dtype]
    count = 1
    for size in shape:
        count *= size
    regular = draw.random() < 0.3
    if count <= _POOL // 2:
        values = pool[_POOL // 2 * (not regular) :][: _POOL // 2]
        start = draw.randrange(_POOL // 2 - count + 1)
        values = values[start : start + count].reshape(tuple(shape))
    else:
        values = pool[torch.randint(_POOL, (count,))].reshape(tuple(shape))
    layout = draw.randrange(4)
    if layout == 1 and len(shape) > 1:
        order = draw.sample(range(len(shape)), len(shape))
        back = [order.index(each) for each in range(len(shape))]
        return values.permute(order).contiguous().permute(back)
    if layout == 2 and len(shape):
        wide = torch.zeros((*shape[:-1], shape[-1] * 2 + 1), dtype=values.dtype)
        view = wide[..., 1::2][..., : shape[-1]]
        view.copy_(values)
        return view
    return values.clone()


def _pool(dtype: torch.dtype) -> torch.Tensor:
    """A first half of ordinary numbers, a second with everything that is special among them."""
    info = torch.finfo(dtype)
    half = _POOL // 2
    ordinary = torch.randn(half, dtype=torch.float64)
    spread = torch.randn(half, dtype=torch.float64) * torch.exp2(
        torch.empty(half, dtype=torch.float64).uniform_(-30, 30)
    )
    special = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, info.max, info.min, info.tiny, -info.tiny]
    special += [
        info.tiny / 2,
        info.smallest_normal / 4,
        info.eps,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        2.0,
        3.0,
        100.0,
    ]
    special += [20.0, -20.0, 88.0, -88.0, 6.0, -3.0, 1 / 3]
    table = torch.tensor(special, dtype=torch.float64)
    chosen = table[torch.randint(len(special), (half,))]
    rounded = torch.round(torch.randn(half, dtype=torch.float64) * 3)
    kind = torch.rand(half)
    mixed = torch.where(
        kind < 0.3, spread, torch.where(kind < 0.55, rounded, torch.where(kind < 0.7, chosen, ordinary.flip(0)))
    )
    return torch.cat([ordinary, mixed]).to(dtype)


def _resized(call: _Call, pools: dict[torch.dtype, torch.Tensor], draw: random.Random) -> Iterator[list[Any]]:
    """The call with one size, wherever it occurs, made large: a long row, and many elements."""
    tensors = [leaf for leaf in call.leaves if isinstance(leaf, torch.Tensor)]
    if not any(leaf.dim() for leaf in tensors) or not all(leaf.numel() for leaf in tensors):
        return
    most = max(tensors, key=lambda leaf: leaf.dim())
    for at in {most.dim() - 1, 0}:
        size = most.shape[at]
        rest = max(1, most.numel() // max(1, size))
        places = {dim - leaf.dim() for leaf in tensors for dim, each in enumerate(leaf.shape) if each == size}
        # In two places it may come together to its square: in a square tensor, an outer product, a broadcast.
        for long in {_LONG, max(_LONG, _MANY // rest)} if len(places) == 1 else {_LONG, _LONG // 2}:
            if rest * long > 2_000_000:
                continue
            shapes = [
                tuple(long if each == size and each > 1 else each for each in leaf.shape)
                if isinstance(leaf, torch.Tensor)
                else None
                for leaf in call.leaves
            ]
            if any(shape is not None and torch.Size(shape).numel() > 4_000_000 for shape in shapes):
                continue
            yield [
                leaf if shape is None else _redrawn(leaf, shape, pools, draw)
                for leaf, shape in zip(call.leaves, shapes, strict=True)
            ]


def _halves(call: _Call) -> Iterator[list[Any]]:
    floating = [leaf for leaf in call.leaves if isinstance(leaf, torch.Tensor)]
    if len(floating) != 1 or not _floating(floating[0]):
        return
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        values = every.view(dtype).to(floating[0].dtype)
        values = values.reshape(256, 256) if floating[0].dim() != 1 else values
        yield [values.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in call.leaves]


def _differs(original: Callable[..., Any], mutant: Callable[..., Any], call: _Call, leaves: list[Any]) -> str | None:
    """How the two differ on these arguments; empty if they do not, None if the original raises as well."""
    (expected, refused, before), (found, raised, after) = (_answer(each, call, leaves) for each in (original, mutant))
    if refused:
        return None if raised else "an answer where the original raises"
    if raised:
        return f"{raised} raised"
    for one, other in zip(before, after, strict=True):
        if not _same(one, other):
            return "an argument is left otherwise"
    (wanted, spec), (given, other_spec) = tree_flatten(expected), tree_flatten(found)
    if spec != other_spec:
        return "a result of another structure"
    for one, other in zip(wanted, given, strict=True):
        if not _same(one, other):
            return "another result"
    shared = [_shares(tree, args) for tree, args in ((wanted, before), (given, after))]
    return "" if shared[0] == shared[1] else "memory is shared otherwise"


def _answer(kernel: Callable[..., Any], call: _Call, leaves: list[Any]) -> tuple[Any, str, list[Any]]:
    (args, kwargs), own = _fresh(call, leaves)
    torch.default_generator.manual_seed(0)
    try:
        return kernel(*args, **kwargs), "", own
    except Exception as exc:  # noqa: BLE001 - a mutant may raise anything
        return None, type(exc).__name__, own


def _fresh(call: _Call, leaves: list[Any]) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], list[Any]]:
    """The arguments with copies of all tensors, and their leaves."""
    own = [_copied(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    return call.with_leaves(own), own


def _copied(leaf: torch.Tensor) -> torch.Tensor:
    """A copy with its whole storage, so that reads outside the view see the same."""
    count = leaf.untyped_storage().nbytes() // leaf.element_size()
    return leaf.as_strided((count,), (1,), 0).clone().as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())


def _same(one: object, other: object) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other) and (one == other or one != one)  # noqa: PLR0124 - NaN
    if one.dtype != other.dtype or one.shape != other.shape or _is_dense(one) != _is_dense(other):
        return False
    if one.dtype.is_complex:
        return _same(torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj()))
    if one.dtype.is_floating_point:
        same = (one == other) & (torch.signbit(one) == torch.signbit(other)) | (torch.isnan(one) & torch.isnan(other))
        return bool(same.all())
    return bool(torch.equal(one, other))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether it has neither gaps nor overlaps; in which order its dimensions lie is no part of an answer."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return tensor.numel() == 0
            expected *= size
    return True


def _shares(results: Sequence[Any], arguments: Sequence[Any]) -> list[tuple[int, int]]:
    def storage(leaf: object) -> int | None:
        return leaf.untyped_storage().data_ptr() if isinstance(leaf, torch.Tensor) and leaf.numel() else None

    return [
        (i, j)
        for i, one in enumerate(results)
        for j, other in enumerate(arguments)
        if storage(one) is not None and storage(one) == storage(other)
    ]


def _in_words(leaves: Sequence[Any]) -> str:
    def word(leaf: object) -> str:
        if not isinstance(leaf, torch.Tensor):
            return repr(leaf)[:40]
        values = f" {leaf.flatten()[:6].tolist()}" if leaf.numel() else ""
        return f"{str(leaf.dtype)[6:]}{list(leaf.shape)}{list(leaf.stride())}{values}"

    return ", ".join(map(word, leaves))[:300]
