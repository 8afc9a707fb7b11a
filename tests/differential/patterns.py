"""Steps of generated programs that passes look for, in the spellings that models have, and close to those."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from tests.differential.grammar import NAME, Builder, Unfit

Steps = Callable[[Builder], None]


def _real(b: Builder, rank: int, least: int = 1) -> str:
    """A float32 value with that many dimensions, or a new one."""
    if b.chance(60):
        try:
            return b.pick(
                lambda one: one.dim() == rank and one.dtype == torch.float32 and min(one.shape, default=0) >= least
            )
        except Unfit:
            pass
    return b.fresh(*(b.choice([2, 3, 4, 5]) for _ in range(rank)))


def _any_real(b: Builder, least_rank: int) -> str:
    return _real(b, b.integer(least_rank, 4))


def _last(b: Builder, name: str) -> int:
    return b[name].shape[-1]


def _finish(b: Builder, texts: Sequence[str], **names: str) -> str:
    """Statements one after the other: each makes ``{0}``, ``{1}``, ... for those behind it."""
    made: list[str] = []
    for text in texts:
        made.append(b.value(text.format(*made, **names), rounds=True))
    return made[-1]


# ---------------------------------------------------------------- norms, softmax, gelu


def _softmax(b: Builder) -> None:
    x = _any_real(b, 1)
    dim = b.integer(-1, b[x].dim() - 1)
    keep = f"{dim}, keepdim=True"
    forms = [
        ["torch.exp({x} - {x}.amax(" + keep + "))", "{0} / {0}.sum(" + keep + ")"],
        ["({x} - {x}.max(" + keep + ")[0]).exp()", "{0}.div({0}.sum(dim=" + str(dim) + ", keepdim=True))"],
        ["{x}.exp()", "{0} / torch.sum({0}, " + keep + ")"],
        [f"F.softmax({{x}}, dim={dim})", "{0}.log()"],
        [f"torch.log({{x}}.softmax({dim}))"],
        [f"torch.log(F.softmax({{x}}, {dim}, dtype=torch.float64))"],
    ]
    _finish(b, b.choice(forms), x=x)


def _rms_norm(b: Builder) -> None:
    x = _any_real(b, 2)
    eps = b.choice(["1e-6", "1e-5", "0.1"] if b[x].shape[-1] > 1 else ["0.1"])  # One element: all rounding.
    weight = b.fresh(_last(b, x), positive=True)
    if b.chance(25):
        x = b.value(f"{x}.{b.choice(['half', 'bfloat16', 'double'])}()")
    root = f"(torch.rsqrt({{x}}.pow(2).mean(-1, keepdim=True) + {eps}))"
    wide = f"torch.rsqrt({{0}}.pow(2).mean(-1, keepdim=True) + {eps})"
    forms = [
        [f"{{x}} * {root}", "{0} * {w}"],
        [f"{{x}} * {root}"],
        ["{x}.float()", f"({{0}} * {wide}).to({b[x].dtype})", "{w} * {1}"],
        ["{x}.to(torch.float32)", f"{{0}} * {wide}", f"{{w}} * {{1}}.to({b[x].dtype})"],
        [f"{{x}} / torch.sqrt(({{x}} * {{x}}).mean(dim=-1, keepdim=True) + {eps})", "{0} * {w}"],
        [f"{{x}} / ({{x}}.square().mean((-1,), keepdim=True) + {eps}).sqrt()"],
    ]
    _finish(b, b.choice(forms), x=x, w=weight)


def _layer_norm(b: Builder) -> None:
    x = _any_real(b, 2)
    eps = b.choice(["1e-5", "0.1"] if b[x].shape[-1] > 1 else ["0.1"])
    weight, bias = b.fresh(_last(b, x), positive=True), b.fresh(_last(b, x))
    if b.chance(15):
        x = b.value(f"{x}.{b.choice(['half', 'bfloat16', 'double'])}()")
    mean = "{x}.mean(-1, keepdim=True)"
    forms = [
        [mean, "(({x} - {0}) ** 2).mean(-1, keepdim=True)", f"({{x}} - {{0}}) / torch.sqrt({{1}} + {eps})"],
        [f"{{x}} - {mean}", f"{{0}} * torch.rsqrt({{x}}.var(-1, keepdim=True, unbiased=False) + {eps})"],
        [f"{{x}} - {mean}", f"{{0}} * torch.rsqrt({{x}}.var(-1, keepdim=True, correction=0) + {eps})"],
        [f"{{x}} - {mean}", "{0}.pow(2).mean(-1, keepdim=True)", f"{{0}} / ({{1}} + {eps}).sqrt()"],
        [f"{{x}} - {mean}", f"{{0}} * torch.rsqrt({{x}}.var(-1, keepdim=True) + {eps})"],
    ]
    normed = _finish(b, b.choice(forms), x=x)
    ends = ["{n} * {w} + {c}", "{w} * {n} + {c}", "{c} + {n} * {w}", "{n} * {w}", "{n} + {c}", "{n} * 1"]
    _finish(b, [b.choice(ends)], n=normed, w=weight, c=bias)


def _gelu(b: Builder) -> None:
    x = _any_real(b, 1)
    if b.chance(20):
        x = b.value(f"{x}.{b.choice(['half', 'bfloat16', 'double'])}()")
    root = math.sqrt(2 / math.pi)
    forms = [
        f"0.5 * {{x}} * (1 + torch.tanh({root!r} * ({{x}} + 0.044715 * torch.pow({{x}}, 3))))",
        "{x} * 0.5 * (1.0 + torch.erf({x} / 1.4142135623730951))",
        "{x} * 0.5 * (1 + torch.tanh(0.7978845608 * {x} * (1 + 0.044715 * {x} * {x})))",
        "0.5 * {x} * (1 + ({x} * 0.7071067811865476).erf())",
        "{x} * ((1 + torch.erf({x} / 1.4142135623730951)) / 2)",
        "{x} * 0.5 * (1.0 + torch.erf({x} / 1.5))",
    ]
    _finish(b, [b.choice(forms)], x=x)


def _cross_entropy(b: Builder) -> None:
    x = _any_real(b, 2)
    shape = list(b[x].shape)
    targets = b.value(f"torch.zeros({b.sizes([shape[0], *shape[2:]])}, dtype=torch.long)")
    if shape[1] > 1 and b.chance(60):
        targets = b.value(f"{targets} + 1")
    reduction = b.choice(["mean", "sum", "none"])
    extra = b.choice(["", ", ignore_index=1", f", weight={b.fresh(shape[1], positive=True, trained=False, kind='x')}"])
    dim = b.choice([1, 1 - len(shape)])
    forms = [f"F.log_softmax({x}, dim={dim})", f"{x}.log_softmax({dim})", f"torch.log_softmax({x}, {dim})"]
    b.value(f'F.nll_loss({b.choice(forms)}, {targets}{extra}, reduction="{reduction}")', rounds=True)


def _rotary(b: Builder) -> None:
    length, width = b.integer(2, 4), b.integer(1, 3)
    x = b.fresh(b.integer(1, 2), length, 2 * width)
    angles = b.fresh(length, width, kind="x", trained=False)
    turns = b.value(f"torch.polar(torch.ones({length}, {width}), {angles})", rounds=True)
    pairs = f"torch.view_as_complex({x}.float().reshape(*{x}.shape[:-1], -1, 2))"
    forms = [f"torch.view_as_real({pairs} * {turns}).flatten(-2)", f"torch.view_as_real({turns} * {pairs})"]
    b.value(b.choice(forms), rounds=True)


# ---------------------------------------------------------------- attention


def _attention(b: Builder) -> None:
    batch = [b.integer(1, 2), *([b.integer(1, 3)] if b.chance(60) else [])]
    length, width = b.integer(2, 5), b.integer(2, 4)
    keys = length if b.chance(70) else b.integer(2, 5)
    q, k = b.fresh(*batch, length, width, kind="x"), b.fresh(*batch, keys, width, kind="x")
    v = b.fresh(*batch, keys, b.integer(2, 4), kind="x")
    if b.chance(12):
        half = b.choice(["half", "bfloat16"])
        q, k, v = (b.value(f"{one}.{half}()") for one in (q, k, v))
    letters = "bh"[: len(batch)]
    products = [f"{q} @ {k}.transpose(-2, -1)", f"torch.matmul({q}, {k}.mT)", f"{q}.matmul({k}.transpose(-1, -2))"]
    products += [f'torch.einsum("{letters}id,{letters}jd->{letters}ij", {q}, {k})']
    scores = b.choice(products)
    scale = b.choice(["", " * 0.5", " / 2.0", " * 0.3", " * -0.5"])
    scores = b.value(f"({scores}){scale}" if scale else scores, rounds=True)
    scores = b.value(_masked(b, scores, length, keys), rounds=True) if b.chance(60) else scores
    weights = b.choice(
        [f"F.softmax({scores}, dim=-1)", f"{scores}.softmax(-1)", f"torch.softmax({scores}.float(), -1)"]
    )
    weights = b.choice([weights, weights, f"F.dropout({weights}, 0.5, training=False)"])
    if b[q].dtype != torch.float32:
        weights = f"{weights}.to({b[q].dtype})"
    weights = b.value(weights, rounds=True)
    outs = [f"{weights} @ {v}", f"torch.matmul({weights}, {v})"]
    outs += [f'torch.einsum("{letters}ij,{letters}jd->{letters}id", {weights}, {v})']
    b.value(b.choice(outs), rounds=True)


def _masked(b: Builder, scores: str, length: int, keys: int) -> str:
    kind = b.integer(0, 4)
    inf = 'float("-inf")'
    if kind == 0:
        mask = b.value(f"torch.tril(torch.ones({length}, {keys})) == 0")
        return f"{scores}.masked_fill({mask}, {inf})"
    if kind == 1:
        mask = b.value(f"torch.ones({length}, {keys}, dtype=torch.bool).triu(1)")
        return f"{scores}.masked_fill({mask}, {inf})"
    if kind == 2:
        given = b.fresh(length, keys, dtype=torch.bool, kind="x")
        mask = b.value(f"{given}.logical_and(torch.arange({keys}) > 0)")
        return f"{scores}.masked_fill({mask}, {inf})"
    if kind == 3:
        added = b.fresh(length, keys, kind="x", trained=False)
        return b.choice([f"{scores} + {added}", f"{added} + {scores}"])
    # A copy that is used otherwise, too.
    added = b.fresh(1, keys, kind=None)
    return f"{scores} + {added}"


# ---------------------------------------------------------------- convolutions


def _convolution(
    b: Builder, *, rank: int | None = None, taps: int | None = None, batched: bool | None = None, squares: int = 20
) -> str:
    """A convolution of any kind; ``squares`` of a hundred have as many positions as channels."""
    rank = rank or b.choice([1, 1, 1, 2, 2, 3])
    transposed, groups = b.chance(35), b.choice([1, 1, 1, 2])
    batched = b.chance(65) if batched is None else batched
    inputs, outputs = b.integer(1, 2) * groups, b.integer(1, 3) * groups
    sizes = [b.integer(3, 5) for _ in range(rank)]
    square = taps is None and b.chance(squares)
    if square:  # Equal sizes are where one dimension is taken for another, and nothing is refused.
        outputs = max(outputs, 2)
        sizes, taps = [outputs] * rank, 1
    batch = [b.integer(1, 3)] if batched else []
    x = _image(b, [*batch, inputs, *sizes])
    window = [taps or b.integer(1, 2) for _ in range(rank)]
    weight = [inputs, outputs // groups] if transposed else [outputs, inputs // groups]
    w = b.fresh(*weight, *window)
    bias = b.fresh(outputs) if b.chance(50) else "None"
    stride = 1 if square else b.choice([1, 1, 1, 2])
    settings = f"stride={stride}, padding={0 if square else b.choice([0, 0, 1])}, groups={groups}"
    if taps is None and b.chance(15):
        settings += ", dilation=2"
    if not transposed and stride == 1 and b.chance(10):
        settings = f'padding="same", groups={groups}'
    function = f"F.conv{'_transpose' * transposed}{rank}d"
    b.features.add("unbatched convolutions" if not batched else "convolutions")
    return b.value(f"{function}({x}, {w}, {bias}, {settings})", rounds=True)


def _image(b: Builder, shape: list[int]) -> str:
    rank = len(shape) - 2
    layouts = [""]
    if rank == 2:
        layouts += [".to(memory_format=torch.channels_last)"]
    if rank == 3:
        layouts += [".to(memory_format=torch.channels_last_3d)"]
    return b.fresh(*shape, kind="x", layout=b.choice(layouts))


def _plain_convolution(b: Builder) -> None:
    y = _convolution(b)
    if b.chance(40):
        b.value(f"F.relu({y})", rounds=True)


def _normed_layer(b: Builder) -> None:
    """A batch norm over whichever dimension is the second one."""
    if b.chance(25):
        x = _real(b, b.choice([2, 2, 3]), 2)
        width = b.integer(2, 4)
        bias = b.fresh(width) if b.chance(50) else "None"
        y = b.value(f"F.linear({x}, {b.fresh(width, _last(b, x))}, {bias})", rounds=True)
    else:
        y = _convolution(b, batched=b.chance(50), squares=65)
    if b.chance(10):
        y = b.value(b.choice([f"{y} * 1", f"F.relu({y})", f"{y}.transpose(0, 1)"]), rounds=True)
    _batch_norm(b, y)


def _batch_norm(b: Builder, x: str) -> None:
    if b[x].dim() < 2:
        raise Unfit
    channels = b[x].shape[1]
    mean = b.fresh(channels, kind=b.choice(["b", "b", "x"]), trained=False)
    variance = b.fresh(channels, positive=True, kind=b.choice(["b", "b", "x"]), trained=False)
    weight = b.fresh(channels, positive=True) if b.chance(70) else "None"
    bias = b.fresh(channels) if b.chance(70) else "None"
    training = b.mode != "inference" and b.chance(20) and b[x].numel() > 2 * channels
    eps = b.choice(["", ", eps=0.1"])
    text = f"F.batch_norm({x}, {mean}, {variance}, {weight}, {bias}, training={training}{eps})"
    y = b.value(text, rounds=True)
    if training:
        b.features.add("writes")
        b.rounded |= {mean, variance}
    if b.chance(30):
        b.value(f"F.relu({y})", rounds=True)


def _norm_alone(b: Builder) -> None:
    _batch_norm(b, _any_real(b, 2))


def _pooled_convolution(b: Builder) -> None:
    rank = b.choice([1, 2, 2, 3])
    y = _convolution(b, rank=rank, taps=b.choice([1, 1, 2, 3]), batched=None if b.chance(30) else True)
    if b.chance(30):
        y = b.value(b.choice([f"{y} * 2", f"{y} / 3 + 1", f"F.dropout({y}, 0.5, training=False)"]), rounds=True)
    settings = b.choice(["2", "2, 1", "2, 2", "3, 2", "2, ceil_mode=True", "2, padding=1", "2, 2, 0"])
    pools = [f"F.avg_pool{rank}d({y}, {settings})"] * 4 + [f"F.adaptive_avg_pool{rank}d({y}, 1)"]
    b.value(b.choice(pools), rounds=True)


def _summed_convolution(b: Builder) -> None:
    y = _convolution(b, batched=None if b.chance(20) else True)
    rank = b[y].dim()
    dims = sorted({b.integer(0, rank - 1) for _ in range(b.integer(1, 3))})
    if b.chance(30):
        y = b.value(b.choice([f"{y} * 2", f"1 - {y}", f"{y} + 1"]), rounds=True)
    b.value(f"{y}.{b.choice(['sum', 'mean'])}({dims}, keepdim={b.chance(50)})", rounds=True)


# ---------------------------------------------------------------- products


def _linear(b: Builder) -> None:
    x = _any_real(b, 1)
    bias = b.fresh(3) if b.chance(50) else "None"
    b.value(f"F.linear({x}, {b.fresh(3, _last(b, x))}, {bias})", rounds=True)


def _product_chain(b: Builder) -> None:
    wide = b.integer(4, 5)
    batch = [2] if b.chance(25) else []
    one, two = b.fresh(*batch, wide, 1), b.fresh(*batch, 1, wide)
    three = b.fresh(wide, *([b.integer(1, 2)] if batch or b.chance(70) else []))
    forms = ["({0} @ {1}) @ {2}", "torch.matmul({0}, {1}).matmul({2})", "({2}.mT @ {0}) @ {1}", "{0} @ ({1} @ {2})"]
    if not batch:
        forms += ["{2}.mT @ ({0} @ {1})", "F.linear({2}.mT, {0} @ {1})"]
    b.value(b.choice(forms).format(one, two, three), rounds=True)


def _summed_product(b: Builder) -> None:
    rows, inner, columns = b.integer(2, 5), b.integer(2, 4), b.integer(2, 5)
    batch = [b.integer(1, 3)] if b.chance(40) else []
    x = b.fresh(*batch, rows, inner)
    bias = b.fresh(columns)
    forms = [
        f"F.linear({x}, {b.fresh(columns, inner)}, {bias})",
        f"{x} @ {b.fresh(inner, columns)} + {bias}",
        f"torch.matmul({x}, {b.fresh(*batch, inner, columns)})",
    ]
    y = b.value(b.choice(forms), rounds=True)
    if b.chance(40):
        between = [f"{y} * 2", f"{y} - {bias}", f"{bias} - {y}", f"{y} / 3", f"F.dropout({y}, 0.5, training=False)"]
        y = b.value(b.choice([*between, f"{y} * {bias}"]), rounds=True)
    dims = b.choice(["-1", "-2", "(-2, -1)", "0", "(0, -1)", "()"])
    b.value(f"{y}.{b.choice(['sum', 'mean'])}({dims}{b.choice(['', ', keepdim=True'])})", rounds=True)


def _diagonal(b: Builder) -> None:
    size, other = b.integer(1, 4), b.integer(1, 4)
    d, x = b.fresh(size), b.fresh(size, other)
    forms = [
        f"torch.diag({d}) @ {x}", f"{x}.mT @ torch.diag({d})", f"torch.matmul({d}.diag(), {x})",
        f"torch.diag_embed({d}) @ {x}", f"torch.diag({d}) @ torch.diag({d})", f"torch.diag({d}, 0) @ {x}",
    ]  # fmt: skip
    b.value(b.choice(forms), rounds=True)


def _triangle(b: Builder) -> None:
    size = b.integer(2, 5)
    batch = [2] if b.chance(30) else []
    x, y = b.fresh(*batch, size, size), b.fresh(*batch, size, size)
    cut, diagonal = b.choice(["tril", "triu"]), b.choice(["", ", 0", ", 1", ", -1"])
    forms = [
        f"torch.{cut}({x} @ {y}{diagonal})", f"torch.{cut}({x}{diagonal}) @ {y}", f"{x} @ torch.{cut}({y}{diagonal})",
        f"{x} @ {x}.mT", f"{x}.transpose(-1, -2) @ {x}", f"({x} @ {y}).{cut}()",
    ]  # fmt: skip
    b.value(b.choice(forms), rounds=True)


def _bilinear(b: Builder) -> None:
    batch, left, right, out = (b.integer(1, 4) for _ in range(4))
    x, z, w = b.fresh(batch, left), b.fresh(batch, right), b.fresh(out, left, right)
    b.value(f"F.bilinear({x}, {z}, {w}, {b.fresh(out) if b.chance(50) else 'None'})", rounds=True)


def _written_pattern(b: Builder) -> None:
    """And then a write to what the pattern returned, or to what it read: autograd may have kept either."""
    before = len(b.steps)
    pattern = b.choice([one for _, name, one in PATTERNS if name != "written patterns"])
    pattern(b)
    texts = " ".join(one.text for one in b.steps[before:])
    names = [one for one in dict.fromkeys(NAME.findall(texts)) if one in b.values]
    target = names[-1] if b.chance(40) else b.choice(names)
    b.do(f"{target}.{b.choice(['add_(1)', 'mul_(2)', 'copy_(' + target + ' * 0.5)'])}", target)


PATTERNS: list[tuple[int, str, Steps]] = [
    (3, "softmax", _softmax),
    (3, "rms_norm", _rms_norm),
    (3, "layer_norm", _layer_norm),
    (3, "gelu", _gelu),
    (2, "cross_entropy", _cross_entropy),
    (2, "rotary", _rotary),
    (4, "attention", _attention),
    (3, "convolutions", _plain_convolution),
    (6, "batch_norm", _normed_layer),
    (2, "batch_norm", _norm_alone),
    (4, "pooled convolutions", _pooled_convolution),
    (3, "summed convolutions", _summed_convolution),
    (3, "linear", _linear),
    (3, "product chains", _product_chain),
    (4, "summed products", _summed_product),
    (2, "diagonals", _diagonal),
    (3, "triangles", _triangle),
    (2, "bilinear", _bilinear),
    (5, "written patterns", _written_pattern),
]
