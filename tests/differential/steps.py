"""Steps of generated programs that any code has: views, writes, what changes nothing, casts, arithmetic, sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tests.differential.grammar import NAME, SIZE, Builder
from torch import Tensor

Steps = Callable[[Builder], None]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)


def first_arguments(b: Builder) -> None:
    """One to three, of any layout; sometimes the same one twice, or two views of one memory."""
    for place in range(b.integer(1, 3)):
        if place and not b[b.given[-1].name].requires_grad and b.chance(12):
            _alias_argument(b)
            continue
        shape = [b.choice([1, 2, 3, 4, 5]) for _ in range(b.choice([1, 2, 2, 3, 3, 4]))]
        if b.dynamic is not False and (place == 0 or b.chance(50)):
            shape[b.integer(0, len(shape) - 1)] = SIZE
        dtype = torch.float32
        if place and b.chance(15):
            dtype = b.choice(INTEGERS)
        elif b.chance(10):
            dtype = b.choice(FLOATS)
        layouts = ["", "", "", ""]
        if len(shape) >= 2:
            layouts += [".transpose(0, -1)"]
        if len(shape) == 4:
            layouts += [".to(memory_format=torch.channels_last)"]
        layouts += ["[1:]", "[..., ::2]"] if min(shape) > 1 and b.dynamic is False else []
        b.fresh(*shape, dtype=dtype, kind="x" if place == 0 else None, layout=b.choice(layouts))


def _alias_argument(b: Builder) -> None:
    name = b.given[-1].name
    if not name.startswith("x"):
        return
    options = [name, name, f"{name}.detach()"]
    if b[name].dim():
        options += [f"{name}[..., 0]", f"{name}.transpose(0, -1)"]
    if b[name].dim() and len(b[name]) > 1:
        options += [f"{name}[1:]", f"{name}[:-1]"]
    b.give("x", b.choice(options))
    b.features.add("aliasing arguments")


def last_values(b: Builder) -> tuple[Sequence[str], str]:
    """What is returned: most values that nothing else reads, and any others, arguments and one twice among them."""
    names = list(b.values)
    own = [name for name in names if name.startswith("v")] or names
    read = {name for step in b.steps for name in NAME.findall(step.text.partition(" = ")[2])}
    returned = [own[-1], *(name for name in own[:-1] if name not in read and b.chance(75))]
    returned += [b.choice(own if b.chance(70) else names) for _ in range(b.choice([0, 0, 0, 1, 1, 2]))]
    forms = ["tuple", "list", "dict", "nested", "single"]
    form = "single" if len(returned) == 1 and b.chance(60) else b.choice(forms[:4])
    if len(set(returned)) < len(returned):
        b.features.add("returned twice")
    return returned, form


# ---------------------------------------------------------------- views


def _view(b: Builder) -> None:
    b.value(b.choice(_views(b, b.pick())))


def _views_in_a_row(b: Builder) -> None:
    name = b.pick()
    for _ in range(b.integer(2, 3)):
        name = b.value(b.choice(_views(b, name)))


def _views(b: Builder, x: str) -> list[str]:
    """Texts of views of a value, in all the ways that fit its shape."""
    value = b[x]
    rank, shape = value.dim(), list(value.shape)
    options = [
        f"{x}.reshape(-1)", f"{x}.view(-1)", f"{x}.flatten()", f"{x}.unsqueeze(0)", f"{x}.unsqueeze(-1)",
        f"{x}.squeeze()", f"{x}.detach()", f"torch.ops.aten.alias({x})", f"{x}[...]", f"{x}.view({b.sizes(shape)})",
        f"{x}.reshape({b.sizes(shape)})", f"{x}.expand({b.sizes([2, *shape])})", f"{x}.view_as({x})", f"{x}[None]",
        f"{x}.expand_as({x})", f"{x}.unsqueeze(0).squeeze(0)", f"{x}.unsqueeze(1).squeeze(1)",
    ]  # fmt: skip
    if not rank:
        return options
    dim = b.integer(0, rank - 1)
    size = shape[dim]
    options += [
        f"{x}.expand({b.sizes(shape)})", f"{x}.select({dim}, 0)", f"{x}.select({dim}, -1)", f"{x}[0]", f"{x}[..., -1]",
        f"{x}.squeeze({dim})", f"{x}.narrow({dim}, 0, 1)", f"{x}.flip({dim})", f"{x}[::2]", f"{x}[..., 1::2]",
        f"{x}.split(2, {dim})[0]", f"{x}.chunk(2, {dim})[-1]", f"{x}.unbind({dim})[0]", f"{x}[1:]", f"{x}[:, :-1]",
        f"{x}.movedim({dim}, 0)", f"{x}.transpose({dim}, 0)", f"{x}.transpose(0, -1).transpose(0, -1)",
        f"{x}[0:{b.size(shape[0])}]", f"{x}[:]", f"{x}.unfold({dim}, 1, 1)", f"{x}.unfold({dim}, 2, 1)",
        f"{x}.permute({', '.join(map(str, _order(b, rank)))})", f"{x}.as_strided({x}.shape, {x}.stride())",
    ]  # fmt: skip
    if rank >= 2:
        options += [
            f"{x}.diagonal()", f"{x}.mT", f"{x}.flatten(0, 1)", f"{x}.flatten(-2)", f"{x}.transpose(-1, -2)",
            f"{x}.view(-1, {b.size(shape[-1])})", f"{x}.reshape({b.size(shape[0])}, -1)",
            f"{x}.view({b.size(shape[0] * shape[1])}, {b.sizes(shape[2:]) or 1})",
        ]  # fmt: skip
    if size % 2 == 0 and size != SIZE:
        options += [f"{x}.unflatten({dim}, (2, -1))", f"{x}.view({b.sizes(shape[:-1])}{', ' * (rank > 1)}-1, 1)"]
    return options


def _order(b: Builder, rank: int) -> list[int]:
    left, order = list(range(rank)), []
    while left:
        order.append(left.pop(b.integer(0, len(left) - 1)))
    return order


# ---------------------------------------------------------------- writes


def _write(b: Builder) -> None:
    target = b.pick()
    b.do(_writing(b, target), target)


def _write_to_a_view(b: Builder) -> None:
    """And read what it is a view of."""
    base = b.pick()
    view = b.value(b.choice(_views(b, base)))
    b.do(_writing(b, view), view)
    if b.chance(50):
        b.value(f"{base} + 1")


def _writing(b: Builder, x: str) -> str:
    value = b[x]
    other = _fitting(b, x)
    if value.dtype == torch.bool:
        return b.choice([f"{x}.logical_not_()", f"{x}.fill_(True)", f"{x}.zero_()", f"{x}.logical_or_({x})"])
    options = [
        f"{x}.add_(1)", f"{x}.add_(1)", f"{x}.mul_(2)", f"{x}.zero_()", f"{x}.fill_(3)", f"{x}.neg_()", f"{x} += 1",
        f"{x}.copy_({other})", f"{x}.add_({other})", f"{x}.copy_({other})", f"{x}.clamp_(-1, 1)", f"{x}[...] = 1",
        f"torch.add({other}, 1, out={x})", f"{x} *= 2", f"{x}.sub_({other}, alpha=2)", f"torch.neg({x}, out={x})",
        f"{x}.unsqueeze_(0)", f"{x}.squeeze_()",
    ]  # fmt: skip
    if value.dim():
        options += [
            f"{x}[0] = 1", f"{x}[..., 0] = 2", f"{x}[1:] = {x}[:-1].clone()", f"{x}[0] += 1", f"{x}[..., -1] *= 2",
            f"{x}.index_put_((torch.tensor([0]),), {x}[:1] + 1)", f"{x}.transpose_(0, -1)", f"{x}[::2].add_(1)",
            f"{x}.index_fill_(0, torch.tensor([0]), 1)", f"{x}.view(-1).mul_(2)",
        ]  # fmt: skip
    if value.is_floating_point():
        options += [f"{x}.relu_()", f"F.relu({x}, inplace=True)", f"{x}.mul_(0.5)", f"{x}.sin_()", f"{x}.div_(1)"]
    return b.choice(options)


def _fitting(b: Builder, x: str) -> str:
    """A value that can be written to another one."""
    like = b[x]

    def fits(one: Tensor) -> bool:
        try:
            return torch.broadcast_shapes(one.shape, like.shape) == like.shape and (
                one.dtype == like.dtype or (like.is_floating_point() and not one.is_complex())
            )
        except RuntimeError:
            return False

    return b.pick(fits)


# ---------------------------------------------------------------- what changes nothing


def _neutral(b: Builder) -> None:
    b.value(b.choice(_neutrals(b, b.pick())))


def _neutral_then_write(b: Builder) -> None:
    """The result is read, or returned, after a write to what it was made of."""
    base = b.pick()
    source = b.value(b.choice(_views(b, base))) if b.chance(25) else base
    kept = b.value(b.choice(_neutrals(b, source)))
    target = b.choice([base, source])
    b.do(_writing(b, target), target)
    if b.chance(50):
        b.value(f"{kept} + 1" if b[kept].dtype != torch.bool else f"~{kept}")


def _write_to_a_neutral(b: Builder) -> None:
    """What it was made of stays as it is."""
    base = b.pick()
    copy = b.value(b.choice(_neutrals(b, base)))
    b.do(_writing(b, copy), copy)
    if b.chance(50):
        b.value(f"{base} + 1" if b[base].dtype != torch.bool else f"~{base}")


def _neutral_twice(b: Builder) -> None:
    source = b.pick()
    text = b.choice(_neutrals(b, source))
    b.value(text)
    b.value(text)


def _neutrals(b: Builder, x: str) -> list[str]:
    value = b[x]
    always = [
        f"{x}.clone()", f"{x}.contiguous()", f"{x}.to({value.dtype})", f"{x}.reshape({x}.shape)", f"+{x}",
        f"torch.where({x} == {x}, {x}, {x})", f"torch.cat([{x}])", f"{x}.to({value.dtype}, copy=True)",
    ]  # fmt: skip
    if value.dtype == torch.bool:
        return [*always, f"{x} | False", f"{x} ^ False", f"~(~{x})", f"{x}.logical_not().logical_not()", f"{x}.bool()"]
    options = [
        *always, f"{x} * 1", f"{x} - 0", f"{x} + 0", f"1 * {x}", f"0 + {x}", f"-(-{x})", f"{x} ** 1", f"{x} // 1",
        f"torch.mul({x}, 1)", f"torch.sub({x}, 0)", f"{x}.neg().neg()", f"{x}.pow(1)", f"{x}.sub(0, alpha=2)",
    ]  # fmt: skip
    if not value.is_floating_point():
        if not value.is_complex():
            options += [f"{x} | 0", f"{x} ^ 0", f"~(~{x})", f"{x}.long().to({value.dtype})", f"{x} << 0", f"{x} & -1"]
        return options
    wider = {torch.float16: "float", torch.bfloat16: "float"}.get(value.dtype, "double")
    back = str(value.dtype)
    options += [
        f"{x} * 1.0", f"{x} / 1", f"{x} / 1.0", f"{x} - 0.0", f"{x} ** 1.0", f"torch.div({x}, 1)", f"{x} + 0.0",
        f"{x}.{wider}().to({back})", f"{x}.to(torch.float64).to({back})", f"F.dropout({x}, 0.5, training=False)",
        f"F.dropout({x}, 0.0)", f"{x}.double().to({back})", f"torch.nn.functional.pad({x}, (0, 0))", f"{x}.pow(1.0)",
        f"({x} * 1) - 0", f"({x} / 1) * 1.0", f"{x}.type_as({x})", f"{x}.nan_to_num()" if not b.special else f"+{x}",
    ]  # fmt: skip
    if value.dim() == 4:
        options.append(f"{x}.to(memory_format=torch.channels_last)")
    return options


# ---------------------------------------------------------------- casts and arithmetic


def _cast(b: Builder) -> None:
    if b.chance(25):
        name = b.pick(exact=True)
        b.value(f"{name}.{b.choice(['int', 'long', 'bool', 'float', 'double'])}()")
        return
    name = b.floating()
    wanted = ["float", "double", "float", "double", "half", "bfloat16"]
    text = f"{name}.{b.choice(wanted)}()"
    if b.chance(50):
        text += f".to({b.choice(FLOATS)})"
    b.value(text)


def _unary(b: Builder) -> None:
    name = b.floating()
    formulas = [
        "{0}.sin()", "{0}.tanh()", "{0}.sigmoid()", "{0}.clamp(max=4).exp()", "{0}.abs()", "-{0}", "{0} ** 2",
        "{0} * {0}", "{0}.square()", "{0}.abs().add(0.5).sqrt()", "{0}.abs().add(0.5).log()", "1 / ({0}.abs() + 1)",
        "F.relu({0})", "F.silu({0})", "F.gelu({0})", "{0} + 1", "{0} * 0.5", "{0} / 3", "torch.pow({0}, 2)",
        "{0}.sin() * {0}.sin()", "{0} ** 2 + {0} ** 2", "{0} ** 3", "{0}.abs().add(1).rsqrt()", "{0} * 0",
    ]  # fmt: skip
    b.value(b.choice(formulas).format(name), rounds=False)


def _binary(b: Builder) -> None:
    name = b.pick(lambda one: one.dtype != torch.bool)
    shape = b[name].shape

    def fits(one: Tensor) -> bool:
        try:
            torch.broadcast_shapes(one.shape, shape)
        except RuntimeError:
            return False
        return one.dtype != torch.bool

    other = b.pick(fits)
    formulas = [
        "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / ({1}.abs() + 1)", "torch.maximum({0}, {1})",
        "torch.add({0}, {1}, alpha=2)",
        "({0} + {1}) * ({0} + {1})", "({0} + {1}) - ({1} + {0})",
        "torch.lerp({0}, {1}, 0.5)", "torch.sub({0}, {1}, alpha=0.5)",
    ]  # fmt: skip
    b.value(b.choice(formulas).format(name, other))


def _comparison(b: Builder) -> None:
    name = b.pick(exact=True)
    mask = b.value(f"{name} {b.choice(['>', '<=', '==', '!='])} {b.choice([0, 1])}")
    if b.chance(60):
        b.value(b.choice(["torch.where({0}, {1}, 0.5)", "{1}.masked_fill({0}, 2)", "{0} * {1}"]).format(mask, name))


def _constant(b: Builder) -> None:
    name = b.floating()
    shape, dtype = b.sizes(b[name].shape), b[name].dtype
    formulas = [
        f"torch.ones({shape or '()'}) * 3 + 1", f"torch.full(({shape}{',' * bool(shape)}), 2.5)",
        f"torch.ones({shape or '()'}, dtype={dtype}) * {{0}}", f"torch.zeros({shape or '()'}) + {{0}}",
        "torch.full_like({0}, 2) - 1", "torch.zeros_like({0}) * 2", "torch.ones_like({0}).neg().neg()",
        f"torch.zeros({shape or '()'}) == 0", "{0} * torch.ones(())", "{0} - torch.zeros(())", "torch.arange(4) * 1",
        f"torch.ones({shape or '()'}, dtype=torch.int32).float()", "torch.arange(3.0) + 1", "{0} * torch.tensor(1.0)",
        f"(torch.ones({shape or '()'}) > 0).logical_not()",
    ]  # fmt: skip
    b.value(b.choice(formulas).format(name))


def _twice(b: Builder) -> None:
    """The same computation two times: two memories in eager mode."""
    name = b.pick(lambda one: one.dtype != torch.bool)
    text = b.choice(["{0} + 1", "{0} * 2", "{0}.clone()", "{0} * {0}", "torch.zeros_like({0})", "-{0}", "{0} * 1"])
    one, other = b.value(text.format(name)), b.value(text.format(name))
    if b.chance(40):
        b.do(_writing(b, one), one)
    if b.chance(30):
        b.value(f"{one} + {other}")


def _reduction(b: Builder) -> None:
    name = b.floating(lambda one: one.numel() > 0)
    rank = b[name].dim()
    dim = b.integer(-1, rank - 1) if rank else 0
    formulas = [
        "{0}.sum()", "{0}.mean()", "{0}.sum({1})", "{0}.mean({1}, keepdim=True)", "{0}.amax({1})",
        "{0}.sum({1}, keepdim=True)",
        "{0}.var({1}, unbiased=False)", "{0}.cumsum({1})", "{0}.logsumexp({1})", "{0}.softmax({1})",
        "{0}.log_softmax({1})",
        "F.softmax({0}, dim={1})", "{0}.max({1}, keepdim=True)[0]", "{0}.prod({1})", "{0}.mean({1}) * 1",
    ]  # fmt: skip
    if b.special:
        formulas = [one for one in formulas if "max" in one]
    b.value(b.choice(formulas).format(name, dim), rounds=True)


def _joined(b: Builder) -> None:
    name = b.pick()
    like = b[name]
    other = b.pick(lambda one: one.shape == like.shape and one.dtype == like.dtype)
    texts = [
        "torch.cat([{0}, {1}])",
        "torch.stack([{0}, {1}])",
        "torch.cat([{0}, {1}], -1)",
        "torch.stack([{0}, {0}], -1)",
    ]
    b.value(b.choice(texts).format(name, other))


def _buffer_update(b: Builder) -> None:
    """Statistics that a module keeps."""
    name = b.floating()
    kept = b.fresh(*b[name].shape[-1:], kind="b")
    b.do(b.choice([f"{kept}.add_(1)", f"{kept}.mul_(0.5)", f"{kept}.copy_({kept} * 1 + 1)"]), kept)
    b.value(f"{name} + {kept}")
    if b.chance(50):
        b.do(f"{kept}.add_(1)", kept)


STEPS: list[tuple[int, str, Steps]] = [
    (14, "views", _view),
    (7, "views", _views_in_a_row),
    (8, "in-place", _write),
    (6, "in-place", _write_to_a_view),
    (12, "neutral", _neutral),
    (6, "neutral", _neutral_then_write),
    (4, "neutral", _write_to_a_neutral),
    (3, "neutral", _neutral_twice),
    (7, "casts", _cast),
    (8, "elementwise", _unary),
    (8, "elementwise", _binary),
    (3, "comparisons", _comparison),
    (6, "constants", _constant),
    (5, "same twice", _twice),
    (5, "reductions", _reduction),
    (3, "joined", _joined),
    (3, "buffer updates", _buffer_update),
]
