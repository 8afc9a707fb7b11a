"""One call through torch's compiler: what it assumes, what it writes. The only module that touches its internals.

The overload is traced with sizes that are symbols. Whatever the tracer or the compiler decides by looking at a size
leaves a guard in the symbols' environment, so that the guards are exactly what the kernel relies on. Inductor then
writes its kernels and the Python code around them, and nothing of that is compiled or run here.

Written for torch 2.11 to 2.13. It runs in a process of its own: see :mod:`.process`.
"""

from __future__ import annotations

import ast
import contextlib
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._guards import TracingContext, tracing
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache
from torch._inductor.codegen.mps import DTYPE_TO_METAL
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.printers import PythonPrinter

from opsmith.core.case import ComplexValue, NamedValue, SequenceValue, TensorValue, Value, tensor_values
from opsmith.core.dtypes import TENSOR_DTYPES
from opsmith.core.syntax_tree import syntax_tree
from opsmith.generate.inductor import absent_gpu, numerics
from opsmith.generate.inductor.numerics import SPECIAL_NUMBERS
from opsmith.generate.inductor.rows import (
    BoundCall,
    ConstantPattern,
    NumberPattern,
    Pattern,
    SequencePattern,
    TensorPattern,
    size_name,
    stride_name,
)
from opsmith.generate.inductor.triton_text import TritonKernel, portable

_SETTINGS: dict[str, Any] = {
    # AVX2, which every x86 of the last ten years has, and not what this machine may have beyond it.
    "cpp.simdlen": 256,
    # The machine that runs the kernel says how many threads there are.
    "cpp.dynamic_threads": True,
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "size_asserts": False,
    "alignment_asserts": False,
    "compile_threads": 1,
    # Its reductions over both dimensions at once take constants that the tuner makes while it measures.
    "triton.mix_order_reduction": False,
    # Results have the strides that eager gives them, not those that suit the next kernel.
    "comprehensive_padding": False,
}


#: Elements from which on the tuner takes its largest blocks.
_LARGE = 1 << 17


class Declined(Exception):
    """The compiler has no kernel for this call; the message says why in one line."""


class Emission(NamedTuple):
    """What the compiler wrote for one call.

    Attributes:
        patterns: of the arguments that it serves, by parameter.
        conditions: on sizes and numbers.
        symbols: the compiler's name of a size or number -> that of the guard table.
        leaves: names of all tensors and numbers among the arguments, in order.
        inputs: those of them that the code takes, in order.
        returns: ``tensor``, ``tuple`` or ``list``.
        absent: places of results that are None for such calls; the code does not return these.
        nothing_to_write: every result is without elements.
        code: a Python module.
    """

    patterns: dict[str, Pattern]
    conditions: tuple[str, ...]
    symbols: dict[str, str]
    leaves: tuple[str, ...]
    inputs: tuple[str, ...]
    returns: str
    absent: tuple[int, ...]
    nothing_to_write: bool
    code: str


def emit(
    function: Callable[..., Any], call: BoundCall, keyword_only: Sequence[str], *, device: str, numbers: bool
) -> Emission:
    """Ask the compiler for one call.

    Args:
        function: the overload.
        call: its arguments.
        keyword_only: parameters that are passed by name.
        device: where tensors are that the call does not place on the CPU; all of them, if it places all there.
        numbers: make numbers arguments of the kernel, too, instead of writing them into it.

    Raises:
        Declined: the compiler refuses the call or answers without a kernel.
    """
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    special = SPECIAL_NUMBERS.get(str(function), {})
    symbols = _Symbols(device, moves=_is_on_cpu(call), numbers=numbers, special=special)
    try:
        with compiling(symbols.mode, device):
            arguments = {name: symbols.argument(name, value) for name, value in call.items()}
            traced = _Traced(
                function, arguments, frozenset(keyword_only), len(symbols.inputs), _wrapped(function, call)
            )
            inputs = [value for _, value in symbols.inputs]
            with symbols.mode:  # For decompositions that make tensors of nothing but sizes.
                graph = _graph(traced, inputs)
            if device == "mps":
                _check_metal_has_dtypes(graph)
            code = module_text(graph, inputs)
    except Declined:
        raise
    except Exception as exc:
        raise Declined(one_line(exc)) from exc
    return Emission(
        patterns={name: symbols.patterns[name] for name in call},
        conditions=symbols.conditions(),
        symbols=symbols.names,
        leaves=tuple(symbols.leaves),
        inputs=tuple(name for name, _ in symbols.inputs),
        returns=traced.returns,
        absent=traced.absent,
        nothing_to_write=traced.nothing_to_write,
        code=code,
    )


class _Input(NamedTuple):
    """Stands in an argument tree for run-time argument number ``number``."""

    number: int


class _Symbols:
    """Arguments whose sizes, and whose numbers if wanted, are symbols."""

    def __init__(self, device: str, *, moves: bool, numbers: bool, special: Mapping[str, tuple[float, ...]]) -> None:
        self._device = device
        self._moves = moves
        self._special = special
        self._numbers = numbers
        # No sizes are taken to be equal, and none to be other than 0 and 1, unless somebody looked.
        self._environment = ShapeEnv(duck_shape=False, specialize_zero_one=False)
        self.mode = FakeTensorMode(shape_env=self._environment)
        self.names: dict[str, str] = {}
        self.leaves: list[str] = []
        self.inputs: list[tuple[str, Any]] = []
        self.patterns: dict[str, Pattern] = {}
        self._pinned: list[str] = []

    def argument(self, name: str, value: Value) -> Any:
        """What is traced with in the place of an argument; notes its pattern."""
        traced, self.patterns[name] = self._argument(name, value)
        return traced

    def _argument(self, name: str, value: Value) -> tuple[Any, Pattern]:
        if isinstance(value, TensorValue):
            pattern = TensorPattern.of(value)
            return self._tensor(name, value, pattern), pattern
        if isinstance(value, SequenceValue):
            items = [self._argument(f"{name}_{position}", item) for position, item in enumerate(value.items)]
            return [item for item, _ in items], SequencePattern(tuple(pattern for _, pattern in items))
        if type(value) in (int, float):
            assert isinstance(value, (int, float))
            return self._number(name, value), NumberPattern(type(value).__name__)
        return _constant(value, self._device, moves=self._moves), ConstantPattern(value)

    def _tensor(self, name: str, value: TensorValue, pattern: TensorPattern) -> _Input:
        if value.is_conj or value.is_neg:
            raise Declined("a tensor is a conjugate or negative view")
        sizes = [0 if size == 0 else self._symbol(size_name(name, dim), size) for dim, size in enumerate(value.shape)]
        options = {
            "dtype": getattr(torch, TENSOR_DTYPES[value.dtype]),
            "device": "cpu" if value.device == "cpu" and not self._moves else self._device,
        }
        with self.mode:
            if pattern.strides is None:
                return self._input(name, torch.empty(sizes, **options))
            strides = [
                self._symbol(stride_name(name, dim), hint) if known is None else known
                for dim, (known, hint) in enumerate(zip(pattern.strides, value.strides, strict=True))
            ]
            return self._input(name, torch.empty_strided(sizes, strides, **options))

    def _symbol(self, name: str, hint: int) -> Any:
        """A size or stride that is at least 1."""
        source = ConstantSource(name)
        symbol = self._environment.create_symbol(
            hint, source=source, dynamic_dim=DimDynamic.DYNAMIC, do_not_specialize_zero_one=True
        )
        self.names[str(symbol)] = name
        number = self._environment.create_symintnode(symbol, hint=hint, source=source)
        torch._check(number >= 1)
        return number

    def _number(self, name: str, value: float) -> Any:
        apart = self._special.get(name, ())
        if not self._numbers or value in apart:
            self.leaves.append(name)
            self._pinned.append(_pin(name, value))
            return value
        self._pinned += [f"{name} != {other!r}" for other in apart]
        source = ConstantSource(name)
        symbol = self._environment.create_unspecified_symbol(value, source=source, dynamic_dim=DimDynamic.DYNAMIC)
        self.names[str(symbol)] = name
        make = self._environment.create_symintnode if type(value) is int else self._environment.create_symfloatnode
        return self._input(name, make(symbol, hint=value, source=source))

    def _input(self, name: str, value: Any) -> _Input:
        self.leaves.append(name)
        self.inputs.append((name, value))
        return _Input(len(self.inputs) - 1)

    def conditions(self) -> tuple[str, ...]:
        """Everything that was assumed, in the guard table's names.

        Raises:
            Declined: something is assumed that no guard can ask before the kernel runs.
        """
        if self._environment.deferred_runtime_asserts:
            raise Declined("the result's size depends on values")
        texts = [_Printer(self.names).doprint(guard.expr) for guard in self._environment.guards]
        return tuple(dict.fromkeys([*self._pinned, *texts]))


def _pin(name: str, value: float) -> str:
    """The condition that a number has one value; the sign of a zero counts."""
    if value != value:  # noqa: PLR0124 - a NaN
        return f"{name} != {name}"
    if type(value) is float and value == 0:
        return f"{name} == 0.0 and math.copysign(1.0, {name}) == {math.copysign(1.0, value)}"
    return f"{name} == {repr(value).replace('inf', 'math.inf')}"


class _Printer(PythonPrinter):
    """Prints expressions with other names for symbols."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self._names = names

    def _print_Symbol(self, expr: Any) -> str:  # noqa: N802 - sympy calls it by the name of the class
        return self._names[expr.name]

    def _print_ToFloat(self, expr: Any) -> str:  # noqa: N802 - as above
        return f"float({self._print(expr.args[0])})"


class _Traced:
    """A function of nothing but run-time arguments; returns a flat tuple of tensors."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: dict[str, Any],
        keyword_only: frozenset[str],
        inputs: int,
        wrapped: frozenset[str],
    ) -> None:
        self._function = function
        self._wrapped = wrapped
        self._arguments = arguments
        self._keyword_only = keyword_only
        self._inputs = inputs
        self.returns = "tensor"
        self.absent: tuple[int, ...] = ()
        self.nothing_to_write = False

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        assert len(values) == self._inputs
        filled = {name: self._fill(value, values) for name, value in self._arguments.items()}
        filled |= {name: _as_tensor(filled[name]) for name in self._wrapped}
        positional = [value for name, value in filled.items() if name not in self._keyword_only]
        result = self._function(*positional, **{name: filled[name] for name in filled if name in self._keyword_only})
        results = (result,) if isinstance(result, torch.Tensor) else result
        if not isinstance(results, (tuple, list)) or not all(
            item is None or isinstance(item, torch.Tensor) for item in results
        ):
            raise Declined(f"the result is a {type(result).__name__} and not made of tensors")
        self.returns = "tensor" if results is not result else type(results).__name__
        self.absent = tuple(place for place, item in enumerate(results) if item is None)
        results = [item for item in results if item is not None]
        # A size that is a symbol is at least 1.
        self.nothing_to_write = all(any(type(size) is int and size == 0 for size in item.shape) for item in results)
        return tuple(results)

    def _fill(self, argument: Any, values: Sequence[Any]) -> Any:
        if isinstance(argument, list):
            return [self._fill(item, values) for item in argument]
        return values[argument.number] if isinstance(argument, _Input) else argument


def _is_on_cpu(call: BoundCall) -> bool:
    """Whether a call has no tensor anywhere else; then it stands for the same call on a device."""
    return all(tensor.device == "cpu" for tensor in tensor_values(tuple(call.values())))


def _wrapped(function: Callable[..., Any], call: BoundCall) -> frozenset[str]:
    """The numbers that stand where a tensor is expected, if no tensor is there to take its dtype from."""
    if tensor_values(tuple(call.values())) or not isinstance(function, torch._ops.OpOverload):
        return frozenset()
    tensors = {argument.name for argument in function._schema.arguments if str(argument.type) == "Tensor"}
    return frozenset(name for name, value in call.items() if name in tensors and type(value) in (int, float))


def _as_tensor(number: Any) -> torch.Tensor:
    whole = isinstance(number, (int, torch.SymInt))
    return torch.full([], number, dtype=torch.int64 if whole else torch.get_default_dtype())


def _constant(value: Value, device: str, *, moves: bool) -> Any:
    if isinstance(value, NamedValue):
        if value.kind == "device":
            return torch.device("cpu" if value.name == "cpu" and not moves else device)
        return getattr(torch, value.name)
    return complex(value.real, value.imag) if isinstance(value, ComplexValue) else value


@contextlib.contextmanager
def compiling(mode: FakeTensorMode, device: str) -> Iterator[None]:
    """What tracing and compiling need around them; ``device`` need not be there."""
    with contextlib.ExitStack() as around:
        if device.startswith("cuda"):
            around.enter_context(absent_gpu.gpu())
        elif device == "mps":
            around.enter_context(absent_gpu.mps())
        around.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        around.enter_context(config.patch(_SETTINGS))
        around.enter_context(numerics.exact_functions())
        around.enter_context(torch.no_grad())
        around.enter_context(tracing(TracingContext(mode)))
        around.enter_context(enable_python_dispatcher())
        yield


def _graph(traced: _Traced, inputs: Sequence[Any]) -> torch.fx.GraphModule:
    """The call as a graph of simpler ops that write to nothing."""
    functional = torch.func.functionalize(traced, remove="mutations_and_views")
    graph = make_fx(functional, decomposition_table=numerics.decompositions())(*inputs)
    results = graph.graph.output_node().all_input_nodes
    if any(node.op == "placeholder" for node in results):
        raise Declined("the result is an input")
    return graph


def _check_metal_has_dtypes(graph: torch.fx.GraphModule) -> None:
    values = [node.meta.get("val") for node in graph.graph.nodes]
    for value in values:
        if isinstance(value, torch.Tensor) and value.dtype not in DTYPE_TO_METAL:
            raise Declined(f"Metal has no {str(value.dtype).removeprefix('torch.')}")


def module_text(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> str:
    """The module that Inductor writes for a graph.

    Raises:
        Declined: there is nothing in it to compute.
    """
    written: list[str] = []

    class _Module:
        """Stands for what would have been compiled."""

        def call(self, *_: Any) -> None: ...

    def write(lowering: GraphLowering) -> _Module:
        wrapper, _ = lowering.codegen()
        written.append(wrapper.value)
        return _Module()

    with mock.patch.object(GraphLowering, "compile_to_module", write):
        compile_fx_inner(graph, list(inputs))
    if not written:
        raise Declined("the compiler has nothing to compute")
    return written[0]


def triton_kernels(code: str, *, any_size: bool) -> dict[str, TritonKernel]:
    """The kernels in Triton of a module that Inductor wrote, by name.

    Args:
        code: the module.
        any_size: choose blocks for large tensors, whatever the sizes were that the module was written with.

    Raises:
        NotPortable: one of them cannot leave the compiler.
    """
    kernels = {}
    with absent_gpu.gpu():
        for node in syntax_tree(code).body:
            match node:
                case ast.Assign(
                    value=ast.Call(func=ast.Attribute(attr="triton"), args=[ast.Constant(name), ast.Constant(text), *_])
                ) if isinstance(name, str) and isinstance(text, str):
                    kernels[name] = portable(name, text, _tuner(name, text, any_size=any_size))
    return kernels


def _tuner(name: str, text: str, *, any_size: bool) -> Any:
    """What chooses the sizes of blocks; importing a kernel's module makes it."""
    text = text.replace("triton_helpers.set_driver_to_gpu()", "")
    if any_size and "@triton_heuristics.persistent" not in text:
        hint = re.search(r"size_hints=(\{.*?\})", text)
        assert hint is not None, "every kernel has them"
        sizes = {axis: max(size, _LARGE) for axis, size in ast.literal_eval(hint[1]).items()}
        text = text.replace(hint[1], repr(sizes), 1)
    return getattr(PyCodeCache.load(text), name)


def vector_flags() -> tuple[str, ...]:
    """What a C++ compiler has to be told about the vectors that the emitted C++ uses; empty without vectors."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    with config.patch(_SETTINGS):
        isa = pick_vec_isa()
    macros = [f"-D{macro}" for macro in isa.build_macro()]
    return (*macros, *isa.build_arch_flags().split())


def one_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
