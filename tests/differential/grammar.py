"""Small programs of torch, as data: what is drawn, what is run, and what is printed where something is wrong.

A program is drawn step by step while it runs in eager mode, so that each step knows the shapes and dtypes of what is
there, and a step that eager refuses is not taken. What comes out is text: a function or a module that can be pasted.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import torch
from hypothesis import strategies as st
from torch import Tensor

T = TypeVar("T")

#: The size that is another one in the second call of a program that is compiled for any size.
SIZE, OTHER_SIZE = 6, 7
#: What is added to results between two calls: little, so that exponentials of it are still numbers.
WRITTEN = 2
#: Names of values in a program's text.
NAME = re.compile(r"\b(?:self\.[pb]\d+|[vx]\d+)\b")
#: Elements of a value, and its magnitude, that are not exceeded: what is larger is slow, or badly conditioned.
MOST_ELEMENTS, LARGEST = 4096, 1e3

PRELUDE = '''\
import torch
import torch.nn.functional as F


def tensor(seed, *shape, dtype=torch.float32, low=-2.0, high=2.0, special=False):
    """Random numbers; `special` puts infinities, NaN, -0.0 and denormals among them."""
    draw = torch.Generator().manual_seed(seed)
    drawn = torch.rand(shape, generator=draw) * (high - low) + low
    if dtype == torch.bool:
        return drawn > (low + high) / 2
    if not dtype.is_floating_point:
        return (drawn * 3).to(dtype)
    if special:
        strange = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1e-40, -1e-40, 3e38])
        chosen = torch.rand(shape, generator=draw) < 0.5
        drawn = torch.where(chosen, strange[torch.randint(8, shape, generator=draw)], drawn)
    return drawn.to(dtype)
'''


class Source(Protocol):
    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        ...


class Dice:
    """Numbers that follow from a seed and an index alone."""

    def __init__(self, seed: int, index: int) -> None:
        self._random = random.Random(f"{seed}:{index}")

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class Drawn:
    """Numbers that Hypothesis draws, and makes smaller where a program fails."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


# ---------------------------------------------------------------- data


@dataclass(frozen=True)
class Given:
    """An argument (``x0``), a parameter (``self.p0``) or a buffer (``self.b0``), and the text that makes it."""

    name: str
    text: str
    needs_grad: bool = False


@dataclass(frozen=True)
class Step:
    """A statement, and the context in which it stands: none, ``autocast`` or ``no_grad``."""

    text: str
    under: str = ""


@dataclass(frozen=True)
class Program:
    """What is compiled, how it is called, and how its results are put together.

    Attributes:
        given: in the order in which they are made.
        steps: in order.
        returned: names of values.
        form: ``single``, ``tuple``, ``list``, ``dict`` or ``nested``.
        mode: ``training``, ``plain``, ``no_grad`` or ``inference``.
        dynamic: of ``torch.compile``.
        resized: whether the second call has other sizes.
        autocast: whether it is called under autocast.
        special: whether inputs hold infinities and the like.
        rounds: whether a result depends on the order of a sum.
        features: what it has, for counting.
    """

    given: tuple[Given, ...]
    steps: tuple[Step, ...]
    returned: tuple[str, ...]
    form: str = "tuple"
    mode: str = "no_grad"
    dynamic: bool | None = False
    resized: bool = False
    autocast: bool = False
    special: bool = False
    features: frozenset[str] = field(default_factory=frozenset)

    @property
    def in_half_precision(self) -> bool:
        """Whether anything in it is rounded to few bits."""
        texts = (*(one.text for one in self.steps), *(one.text for one in self.given))
        return (
            self.autocast
            or any("autocast" in one.under for one in self.steps)
            or any(word in text for text in texts for word in ("half", "bfloat16", "float16"))
        )


def in_single_precision(program: Program) -> Program:
    """The same steps with float32 in place of dtypes of few bits, and without autocast."""

    def widened(text: str) -> str:
        return _HALF_METHOD.sub(".float()", _HALF_DTYPE.sub("torch.float32", text))

    return replace(
        program,
        given=tuple(replace(one, text=widened(one.text)) for one in program.given),
        steps=tuple(
            replace(one, text=widened(one.text), under="" if one.under == "autocast" else one.under)
            for one in program.steps
        ),
        autocast=False,
    )


# ---------------------------------------------------------------- text

_HALF_METHOD = re.compile(r"\.(?:half|bfloat16)\(\)")
_HALF_DTYPE = re.compile(r"torch\.(?:half|bfloat16|float16)\b")
_CONTEXTS = {"autocast": 'with torch.autocast("cpu", dtype=torch.bfloat16):', "no_grad": "with torch.no_grad():"}


def source_of(program: Program) -> str:
    """The text of a program: ``program()`` makes what is called, and ``arguments(n)`` what it is called with."""
    return f"{PRELUDE}\n\n{_callable(program)}\n\n{_arguments(program)}"


def repro_of(program: Program) -> str:
    """The same with lines that show what eager mode and opsmith make of it."""
    around = {"training": "torch.enable_grad()", "plain": "torch.enable_grad()", "no_grad": "torch.no_grad()"}
    contexts = [around.get(program.mode, "torch.inference_mode()")]
    contexts += ['torch.autocast("cpu", dtype=torch.bfloat16)'] * program.autocast
    lines = [
        "def show(compiled):",
        "    run = program()",
        f'    called = torch.compile(run, backend="opsmith", dynamic={program.dynamic}) if compiled else run',
        f"    for size in {(SIZE, OTHER_SIZE if program.resized else SIZE)}:",
        "        given = arguments(size)",
        f"        with {', '.join(contexts)}:",
        "            results = called(*given)",
        "            leaves = [one for one in torch.utils._pytree.tree_leaves(results) if torch.is_tensor(one)]",
        "        print(results, given)",
    ]
    if program.mode == "training":
        lines += [
            "        sum(one.double().sin().sum() for one in leaves if one.requires_grad).backward()",
            "        print([one.grad for one in given], [one.grad for one in getattr(run, 'parameters', list)()])",
        ]
    context = "torch.inference_mode()" if program.mode == "inference" else "torch.no_grad()"
    lines += [
        f"        with {context}:",
        "            for one in leaves:",
        f"                one.logical_not_() if one.dtype == torch.bool else one.add_({WRITTEN})",
        "        print(results, given, list(getattr(run, 'buffers', list)()))",
        "",
        "",
        'if __name__ == "__main__":',
        "    show(compiled=False)",
        "    show(compiled=True)",
    ]
    return source_of(program) + "\n\n" + "\n".join(lines) + "\n"


def _callable(program: Program) -> str:
    held = [one for one in program.given if one.name.startswith("self.")]
    names = [one.name for one in program.given if not one.name.startswith("self.")]
    body = [*_statements(program.steps), f"return {_returned(program)}"]
    if not held:
        inner = "\n".join(f"        {line}" for line in body)
        return f"def program():\n    def run({', '.join(names)}):\n{inner}\n\n    return run\n"
    made = []
    for one in held:
        name = one.name.removeprefix("self.")
        is_parameter = name.startswith("p")
        made.append(
            f"{one.name} = torch.nn.Parameter({one.text})"
            if is_parameter
            else f'self.register_buffer("{name}", {one.text})'
        )
    setting = "\n".join(f"        {line}" for line in made)
    inner = "\n".join(f"        {line}" for line in body)
    return (
        "class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"{setting}\n\n    def forward({', '.join(['self', *names])}):\n{inner}\n\n\nprogram = Model\n"
    )


def _statements(steps: Sequence[Step]) -> Iterator[str]:
    before = ""
    for one in steps:
        if one.under and one.under != before:
            yield _CONTEXTS[one.under]
        yield f"    {one.text}" if one.under else one.text
        before = one.under


def _returned(program: Program) -> str:
    first, *rest = program.returned
    others = ", ".join(rest)
    match program.form:
        case "single" if not rest:
            return first
        case "list":
            return f"[{', '.join(program.returned)}]"
        case "dict":
            return "{" + ", ".join(f'"{place}": {name}' for place, name in enumerate(program.returned)) + "}"
        case "nested":
            return f'({first}, {{"rest": [{others}]}})'
    return f"({first}, {others})"


def _arguments(program: Program) -> str:
    own = [one for one in program.given if not one.name.startswith("self.")]
    lines = [f"    {one.name} = {one.text}{'.requires_grad_()' if one.needs_grad else ''}" for one in own]
    return "\n".join([f"def arguments(n={SIZE}):", *lines, f"    return [{', '.join(one.name for one in own)}]", ""])


@functools.cache
def prelude() -> dict[str, Any]:
    """What a program's text may name besides its values."""
    scope: dict[str, Any] = {}
    exec(PRELUDE, scope)
    return scope


# ---------------------------------------------------------------- drawing


class Unfit(Exception):
    """A step that cannot be taken here; another one is."""


class Builder:
    """A program while it is drawn.

    Args:
        source: of every choice.
        mode: of the program.
        dynamic: ditto.
        special: ditto.
    """

    def __init__(self, source: Source, *, mode: str, dynamic: bool | None, special: bool) -> None:
        self.source, self.mode, self.dynamic, self.special = source, mode, dynamic, special
        self.given: list[Given] = []
        self.steps: list[Step] = []
        self.values: dict[str, Tensor] = {}
        self.rounded: set[str] = set()
        self.features: set[str] = set()
        self.under = ""
        self._scope = {**prelude(), "self": types.SimpleNamespace(), "n": SIZE}

    # Choices.

    def integer(self, low: int, high: int) -> int:
        """As :class:`Source`."""
        return self.source.integer(low, high)

    def choice(self, options: Sequence[T]) -> T:
        """One of at least one."""
        if not options:
            raise Unfit
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        """True that often."""
        return self.integer(0, 99) >= 100 - percent

    def pick(self, test: Callable[[Tensor], bool] = lambda _: True, *, exact: bool = False) -> str:
        """A value that passes a test, the later ones more often; ``exact`` ones depend on no order of a sum."""
        names = [
            name
            for name, value in self.values.items()
            if test(value) and not (exact and (name in self.rounded or value.dtype in _HALF))
        ]
        if not names:
            raise Unfit
        recent = names[-3:]
        return self.choice(recent if self.chance(60) else names)

    def floating(self, test: Callable[[Tensor], bool] = lambda _: True) -> str:
        """A value of real numbers that passes a test."""
        return self.pick(lambda one: one.is_floating_point() and test(one))

    def __getitem__(self, name: str) -> Tensor:
        return self.values[name]

    def size(self, size: int) -> str:
        """A size as it stands in the text: where it may be another one, it is read off an argument."""
        if self.dynamic is not False and size and size % SIZE == 0:
            for name, value in self.values.items():
                if name.startswith("x") and SIZE in value.shape:
                    read = f"{name}.shape[{list(value.shape).index(SIZE)}]"
                    return read if size == SIZE else f"{size // SIZE} * {read}"
        return str(size)

    def sizes(self, shape: Sequence[int]) -> str:
        """Several."""
        return ", ".join(map(self.size, shape))

    # Statements.

    def fresh(
        self,
        *shape: int,
        dtype: torch.dtype = torch.float32,
        positive: bool = False,
        kind: str | None = None,
        layout: str = "",
        trained: bool | None = None,
    ) -> str:
        """A new argument, parameter or buffer."""
        kind = kind or self.choice(["x", "x", "x", "p", "b"])
        if kind == "p" and not dtype.is_floating_point:
            kind = "b"
        sizes = [str(one) if self.dynamic is False or one != SIZE or kind != "x" else "n" for one in shape]
        settings = [*([] if dtype == torch.float32 else [f"dtype={dtype}"]), *(["low=0.5"] if positive else [])]
        if self.special and dtype.is_floating_point and not positive:
            settings.append("special=True")
        text = f"tensor({', '.join([str(len(self.given)), *sizes, *settings])}){layout}"
        needs = self.mode == "training" and dtype.is_floating_point and kind == "x"
        needs = needs and (self.chance(70) if trained is None else trained)
        if needs and layout:
            text += ".detach()"
        return self.give(kind, text, needs_grad=needs)

    def give(self, kind: str, text: str, *, needs_grad: bool = False) -> str:
        """An argument, parameter or buffer with this text."""
        number = sum(kind == one.name.removeprefix("self.")[0] for one in self.given)
        name = f"{kind}{number}" if kind == "x" else f"self.{kind}{number}"
        value = eval(text, self._scope)
        if kind == "p":
            value = torch.nn.Parameter(value)
        elif needs_grad:
            value.requires_grad_()
        if kind == "x":
            self._scope[name] = value
        else:
            setattr(self._scope["self"], name.removeprefix("self."), value)
            self.features.add("parameters" if kind == "p" else "buffers")
        self.given.append(Given(name, text, needs_grad))
        self.values[name] = value
        return name

    def value(self, text: str, *, rounds: bool = False) -> str:
        """A new value.

        Raises:
            Unfit: eager mode refuses it, it is no tensor, or too large.
        """
        name = f"v{sum(one.startswith('v') for one in self.values)}"
        with self._context():
            try:
                found = eval(text, self._scope)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AttributeError) as exc:
                raise Unfit from exc
        if not isinstance(found, Tensor) or found.numel() > MOST_ELEMENTS or found.dim() > 6 or self._is_wild(found):
            raise Unfit
        self.steps.append(Step(f"{name} = {text}", self.under))
        self.values[name] = self._scope[name] = found
        if rounds or self.under == "autocast" or any(one in self.rounded for one in NAME.findall(text)):
            self.rounded.add(name)
        return name

    def do(self, text: str, target: str) -> None:
        """A statement that writes to a value.

        Raises:
            Unfit: eager mode refuses it.
        """
        with self._context():
            try:
                exec(text, self._scope)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as exc:
                raise Unfit from exc
        self.steps.append(Step(text, self.under))
        self.features.add("writes")
        if self.under == "autocast" or any(one in self.rounded for one in NAME.findall(text)):
            where = self.values[target].untyped_storage().data_ptr()
            self.rounded |= {name for name, one in self.values.items() if one.untyped_storage().data_ptr() == where}

    def _is_wild(self, found: Tensor) -> bool:
        if self.special or not (found.is_floating_point() or found.is_complex()) or not found.numel():
            return False
        return not bool((found.detach().abs() <= LARGEST).all())

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(grad_mode(self.mode))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            if self.under == "autocast":
                stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            elif self.under == "no_grad":
                stack.enter_context(torch.no_grad())
            yield


_HALF = (torch.float16, torch.bfloat16)


def grad_mode(mode: str) -> contextlib.AbstractContextManager[Any]:
    """The context in which a program of this mode is called."""
    if mode == "inference":
        return torch.inference_mode()
    return torch.no_grad() if mode == "no_grad" else torch.enable_grad()


def draw_program(source: Source, *, special: bool = False) -> Program:
    """A program, from a source of choices."""
    from tests.differential.patterns import PATTERNS
    from tests.differential.steps import STEPS, first_arguments, last_values

    mode = _weighted(source, [(40, "no_grad"), (15, "inference"), (10, "plain"), (35, "training")])
    if special and mode == "training":
        mode = "no_grad"
    dynamic: bool | None = _weighted(source, [(75, False), (15, True), (10, None)])
    builder = Builder(source, mode=mode, dynamic=dynamic, special=special)
    first_arguments(builder)
    offered = STEPS if special else [*STEPS, *PATTERNS]
    wanted, tried = source.integer(1, 7), 0
    while wanted > 0 and tried < 20:
        tried += 1
        name, step = _weighted(source, offered)
        before = len(builder.steps)
        builder.under = _region(builder)
        try:
            step(builder)
        except Unfit:
            wanted -= len(builder.steps) > before
            continue
        wanted -= 1
        builder.features.add(name)
    builder.under = ""
    returned, form = last_values(builder)
    return _finished(builder, returned, form)


def _region(builder: Builder) -> str:
    """The context of the next step; an open one often goes on."""
    if builder.special:
        return ""
    if builder.under and builder.chance(60):
        return builder.under
    return str(_weighted(builder.source, [(93, ""), (4, "autocast"), (3, "no_grad")]))


def _finished(builder: Builder, returned: Sequence[str], form: str) -> Program:
    features = set(builder.features)
    around = not builder.special and builder.chance(4)
    regions = {one.under for one in builder.steps} - {""}
    features |= {builder.mode, *regions, *({"autocast"} if around else ())}
    features |= {"dynamic"} if builder.dynamic is not False else set()
    return Program(
        given=tuple(builder.given),
        steps=tuple(builder.steps),
        returned=tuple(returned),
        form=form,
        mode=builder.mode,
        dynamic=builder.dynamic,
        resized=builder.dynamic is not False,
        autocast=around,
        special=builder.special,
        features=frozenset(features),
    )


def _weighted(source: Source, options: Sequence[tuple[int, Any]] | Sequence[tuple[int, str, Any]]) -> Any:
    """One of several, by their weights."""
    place = source.integer(0, sum(one[0] for one in options) - 1)
    for weight, *rest in options:
        place -= weight
        if place < 0:
            return rest[0] if len(rest) == 1 else tuple(rest)
    raise AssertionError


@st.composite
def programs(draw: st.DrawFn, *, special: bool = False) -> Program:
    """Programs, for Hypothesis: those that it shrinks to have few steps."""
    return draw_program(Drawn(draw), special=special)


def program_at(seed: int, index: int) -> Program:
    """The program of that index of a campaign."""
    source = Dice(seed, index)
    return draw_program(source, special=source.integer(0, 99) < 15)
