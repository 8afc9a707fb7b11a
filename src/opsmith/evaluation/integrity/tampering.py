"""Has a kernel changed the process that it runs in?

A worker is a stranger's process: nothing that is computed there decides a verdict, and a patched clock
or a patched ``allclose`` cheats nobody. To patch them is dishonest all the same, and shows here.

What counts is the replacement or deletion of a function, a class or a property that was there before,
new code under an old function, and a change of a setting. What is merely new never counts: a lazily
imported submodule, a registered op, a cached attribute.

It reports what is done by Python's ordinary means. Code that writes to the memory of its own process can
hide from anything in that process, which is why workers are isolated in the first place.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import operator
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple, Self, TypeGuard

import torch

from opsmith.evaluation.integrity.imported import is_as_installed, is_written

#: The modules whose functions and classes are watched, where they are loaded; all of opsmith's are as well.
_MODULES = (
    "builtins",
    "gc",
    "hashlib",
    "inspect",
    "json",
    "json.decoder",
    "json.encoder",
    "math",
    "msgspec",
    "msgspec.json",
    "msgspec.msgpack",
    "numpy",
    "numpy.linalg",
    "numpy.random",
    "os",
    "random",
    "socket",
    "struct",
    "sys",
    "threading",
    "time",
    "torch",
    "torch._C",
    "torch._C._fft",
    "torch._C._linalg",
    "torch._C._nn",
    "torch._C._special",
    "torch._compile",
    "torch._ops",
    "torch._tensor",
    "torch.autograd",
    "torch.autograd.grad_mode",
    "torch.cuda",
    "torch.cuda.graphs",
    "torch.cuda.memory",
    "torch.cuda.random",
    "torch.cuda.streams",
    "torch.fft",
    "torch.functional",
    "torch.library",
    "torch.linalg",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.modules.module",
    "torch.overrides",
    "torch.profiler",
    "torch.random",
    "torch.special",
    "torch.storage",
    "torch.testing",
    "torch.testing._comparison",
    "torch.utils._python_dispatch",
    "torch.utils._pytree",
    "torch.utils.benchmark",
    "torch.utils.benchmark.utils.timer",
    "triton",
    "triton.compiler.compiler",
    "triton.runtime",
    "triton.runtime.autotuner",
    "triton.runtime.driver",
    "triton.runtime.interpreter",
    "triton.runtime.jit",
    "triton.testing",
)
#: Classes that a module above shows but does not define, or whose inherited methods a patch could hide.
_CLASSES: tuple[type, ...] = (
    torch.Tensor,
    torch.nn.Module,
    torch.Generator,
    torch.UntypedStorage,
    torch.TypedStorage,
    torch.cuda.Event,
    torch.cuda.Stream,
    torch.cuda.CUDAGraph,
)
#: What torch's compiler replaces while it is imported and first used, each with the function that does so.
_BY_COMPILER = {
    "torch.manual_seed": ("torch._compile", "_disable_dynamo"),
    "torch.nn.modules.module.Module.__init__": ("torch._dynamo.mutation_guard", "install_generation_tagging_init"),
    "torch.nn.modules.module.Module.__setstate__": ("torch._dynamo.mutation_guard", "install_generation_tagging_init"),
}
#: What a module of torch's or of a language's replaces while it is imported, with the function that it puts there.
_BY_IMPORT = {
    "torch.ScriptMethod.__call__": ("torch.testing._internal.common_utils", "prof_meth_call"),
    "inspect.getfile": ("tvm.script.parser.core.diagnostics", "_patched_inspect_getfile"),
}
#: What a module of JAX's adds to ``gc.callbacks`` while it is imported: XLA's arrays are collected too.
_COLLECTOR = ("jax._src.lib", "_xla_gc_callback")
#: Hooks that are there to be set, by loggers and debuggers.
_FREE = frozenset({"sys.excepthook", "sys.unraisablehook", "sys.breakpointhook", "threading.excepthook"})
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)
_WRAPPERS = frozenset({FunctionType, MethodType, staticmethod, classmethod, property})
_PRECISIONS = (
    ("generic", "all"),
    ("cuda", "matmul"),
    ("cuda", "conv"),
    ("cuda", "rnn"),
    ("mkldnn", "matmul"),
    ("mkldnn", "conv"),
    ("mkldnn", "rnn"),
)
_SIGNALS = (signal.SIGALRM, signal.SIGTERM)
#: What Python says of a type whose attributes cannot be assigned: ``Py_TPFLAGS_IMMUTABLETYPE``.
_IMMUTABLE_TYPE = 1 << 8
_PLAIN = (bool, int, float, str, tuple, type(None), torch.dtype)

_is = operator.is_


class Snapshot:
    """What the process looked like before a stranger's code came into it.

    It keeps every object that it compares with alive, and compares by identity: no method of a stranger's
    object runs here. Taking it costs 25 ms, a comparison of its 23,000 names and 4,000 functions 2 ms.
    """

    def __init__(self) -> None:
        spaces = list(_namespaces())
        self._names = [_Names(spaces, dict), _Names(spaces, MappingProxyType)]
        functions = _functions(spaces)
        self._parts = _Parts(functions)
        self._cells = _cells(functions)
        self._settings = _settings()

    @classmethod
    def take(cls) -> Self:
        """Look at the process as it is now, before the first line of a kernel runs in it."""
        return cls()

    def retaken(self) -> Self:
        """The same names, with the settings as they are now: those of a process that was forked since."""
        again = copy.copy(self)
        again._settings = _settings()
        return again

    def changes(self, *, seed: int | None = None) -> tuple[str, ...]:
        """What has been replaced, deleted or set since, one line each; empty for an honest kernel.

        Args:
            seed: what the worker itself last seeded torch's default generator with, or None to leave
                the generator alone.
        """
        found = [line for names in self._names for line in names.changes()]
        found += self._parts.changes()
        for label, cell, was in self._cells:
            if _contents(cell) is not was:
                found.append(f"{label}: a function inside it was replaced by {_shown(_contents(cell))}")
        for (name, was), now in zip(self._settings.items(), _settings().values(), strict=True):
            if not _same(was, now):
                found.append(f"{name}: {_shown(was)} became {_shown(now)}")
        if seed is not None and torch.default_generator.initial_seed() != seed % (1 << 64):
            found.append("torch.default_generator was seeded anew")
        return tuple(found)


class _Namespace(NamedTuple):
    """The attributes of a module, a class or an op, and those of them that are watched."""

    label: str
    attributes: Mapping[str, Any]
    watched: Mapping[str, Any]


class _Names:
    """The watched names of all namespaces of one type, compared without leaving C."""

    def __init__(self, spaces: Iterable[_Namespace], kind: type) -> None:
        entries = [
            (space.attributes, name, value, space.label)
            for space in spaces
            if type(space.attributes) is kind
            for name, value in space.watched.items()
        ]
        self._attributes, self._names, values, self._labels = zip(*entries, strict=True)
        self._values = list(values)
        self._get: Callable[[Any, str], Any] = vars(kind)["get"]

    def _now(self) -> Iterator[Any]:
        return map(self._get, self._attributes, self._names)

    def changes(self) -> Iterator[str]:
        if all(map(_is, self._now(), self._values)):
            return
        for place, (was, now) in enumerate(zip(self._values, tuple(self._now()), strict=True)):
            if now is was:
                continue
            name = f"{self._labels[place]}.{self._names[place]}"
            if _is_compilers_work(name, was, now) or _is_imports_work(name, was, now):
                self._values[place] = now
            else:
                yield f"{name} was " + ("deleted" if now is None else f"replaced by {_shown(now)}")


class _Parts:
    """The code and the defaults of every watched function, compared by the words that a function object holds.

    To ask a function for them is an audit event. Whoever listens to those is called 12,000 times a comparison, which
    took 9 of its 14 ms.
    """

    _NAMES = ("__code__", "__defaults__", "__kwdefaults__")

    def __init__(self, functions: Mapping[FunctionType, str]) -> None:
        self._functions, self._labels = tuple(functions), tuple(functions.values())
        self._values = [self._read(function) for function in self._functions]
        size, offset = len(self._NAMES) * ctypes.sizeof(ctypes.c_void_p), _offset_of_code()
        self._words = [(ctypes.c_char * size).from_address(id(function) + offset) for function in self._functions]
        self._was = b"".join(self._words)

    def _read(self, function: FunctionType) -> tuple[object, ...]:
        return tuple([getattr(function, name) for name in self._NAMES])

    def changes(self) -> Iterator[str]:
        if b"".join(self._words) == self._was:
            return
        for function, label, values in zip(self._functions, self._labels, self._values, strict=True):
            for name, was, now in zip(self._NAMES, values, self._read(function), strict=True):
                if now is not was:
                    yield f"{label}: its {name} became {_shown(now)}"


def _offset_of_code() -> int:
    """Where in a function object the address of its code is; those of its defaults follow."""

    def known(first: object = (), *, second: object = ()) -> None: ...

    word = ctypes.sizeof(ctypes.c_void_p)
    words = (ctypes.c_void_p * (sys.getsizeof(known) // word)).from_address(id(known))
    place = list(words).index(id(known.__code__))
    assert list(words[place : place + 3]) == [id(known.__code__), id(known.__defaults__), id(known.__kwdefaults__)]
    return place * word


# ---------------------------------------------------------------- what is watched


def _namespaces() -> Iterator[_Namespace]:
    own = [name for name in sys.modules if name.partition(".")[0] == "opsmith"]
    modules = {name: module for name in (*_MODULES, *own) if isinstance(module := sys.modules.get(name), ModuleType)}
    # A worker hides those of opsmith by itself.
    yield _Namespace("sys.modules", sys.modules, {name: modules[name] for name in modules.keys() - own})
    for name, module in modules.items():
        yield _Namespace(name, vars(module), _watched(name, vars(module)))
    classes = dict.fromkeys(_CLASSES)
    for name, module in modules.items():
        classes |= dict.fromkeys(value for value in vars(module).values() if _is_defined_in(value, name))
    for kind in classes:
        label = f"{kind.__module__}.{kind.__qualname__}"
        inherited = _inherited(kind) if kind in _CLASSES else {}
        yield _Namespace(label, vars(kind), inherited | _watched(label, vars(kind)))
    yield from _op_namespaces()


def _watched(label: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Functions, classes and descriptors; submodules come and go with imports."""
    return {
        name: value
        for name, value in attributes.items()
        if (callable(value) or hasattr(type(value), "__get__")) and f"{label}.{name}" not in _FREE
    }


def _is_defined_in(value: object, module: str) -> TypeGuard[type]:
    return isinstance(value, type) and value.__module__ == module and not value.__flags__ & _IMMUTABLE_TYPE


def _inherited(kind: type) -> dict[str, Any]:
    """What the class inherits from types that nobody can patch: an attribute of its own would hide it."""
    fixed = [base for base in kind.__mro__[1:] if base.__flags__ & _IMMUTABLE_TYPE]
    return {name: None for base in fixed for name in vars(base) if name not in vars(kind)}


def _op_namespaces() -> Iterator[_Namespace]:
    """The ops that somebody has asked for: ``torch.ops`` makes them then, and keeps them."""
    aten = vars(torch.ops.aten)
    packets = {name: value for name, value in aten.items() if type(value) is torch._ops.OpOverloadPacket}
    yield _Namespace("torch.ops.aten", aten, packets)
    for name, packet in packets.items():
        attributes = vars(packet)
        overloads = {key: value for key, value in attributes.items() if type(value) is torch._ops.OpOverload}
        yield _Namespace(f"torch.ops.aten.{name}", attributes, {"_op": packet._op, **overloads})
        for key, overload in overloads.items():
            yield _Namespace(f"torch.ops.aten.{name}.{key}", vars(overload), {"_op": overload._op})


def _functions(spaces: Iterable[_Namespace]) -> dict[FunctionType, str]:
    """Every Python function behind the watched names, each with the name that it is known by."""
    found: dict[FunctionType, str] = {}
    for space in spaces:
        for name, value in space.watched.items():
            if type(value) in _WRAPPERS:
                _collect(value, f"{space.label}.{name}", found)
    return found


def _collect(value: object, label: str, found: dict[FunctionType, str]) -> None:
    """Add the functions in a function, method or property, and those that a decorator's closure holds."""
    if isinstance(value, FunctionType):
        if value not in found:
            found[value] = label
            for cell in value.__closure__ or ():
                _collect(_contents(cell), label, found)
    elif isinstance(value, (staticmethod, classmethod, MethodType)):
        _collect(value.__func__, label, found)
    elif isinstance(value, property):
        for accessor in (value.fget, value.fset, value.fdel):
            _collect(accessor, label, found)


def _cells(functions: Mapping[FunctionType, str]) -> list[tuple[str, CellType, object]]:
    """The closure cells that hold functions: a decorator's hold on what it decorates. Others are state."""
    pairs = ((label, cell) for function, label in functions.items() for cell in function.__closure__ or ())
    return [(label, cell, held) for label, cell in pairs if isinstance(held := _contents(cell), _FUNCTIONS)]


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # It is empty.


def _settings() -> dict[str, object]:
    """What decides how torch and Python behave for everybody in this process, under the name that changes it."""
    precision = torch._C._get_fp32_precision_getter
    return {
        "torch.set_num_threads": torch.get_num_threads(),
        "torch.set_num_interop_threads": torch.get_num_interop_threads(),
        "torch.set_default_dtype": torch.get_default_dtype(),
        "torch function modes (set_default_device)": torch._C._len_torch_function_stack(),
        "torch dispatch modes": torch._C._len_torch_dispatch_stack(),
        "torch function overrides": torch._C._is_torch_function_enabled(),
        "dispatch keys left out in this thread": torch._C._dispatch_tls_local_exclude_set().raw_repr(),
        "dispatch keys added in this thread": torch._C._dispatch_tls_local_include_set().raw_repr(),
        "torch.set_grad_enabled": torch.is_grad_enabled(),
        "torch.inference_mode": torch.is_inference_mode_enabled(),
        "torch.set_autocast_enabled": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "torch.use_deterministic_algorithms": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        **{f"fp32_precision of {backend} {op}": precision(backend, op) for backend, op in _PRECISIONS},
        "reduced precision of cuBLAS": (
            torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
            torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
            torch._C._get_cublas_allow_fp16_accumulation(),
        ),
        "torch.backends.cudnn": (
            torch._C._get_cudnn_enabled(),
            torch._C._get_cudnn_benchmark(),
            torch._C._get_cudnn_deterministic(),
        ),
        "torch.backends.mkldnn": torch._C._get_mkldnn_enabled(),
        "torch.cuda.set_device, set_stream": _device_and_stream(),
        "sys.settrace": sys.gettrace(),
        "sys.setprofile": sys.getprofile(),
        "threading.settrace": threading.gettrace(),
        "threading.setprofile": threading.getprofile(),
        "sys.setswitchinterval": sys.getswitchinterval(),
        "gc.disable": gc.isenabled(),
        # By address: a stranger's callback is not to be asked whether it equals another one.
        "gc.callbacks": tuple(id(callback) for callback in gc.callbacks if not is_as_installed(callback, *_COLLECTOR)),
        **{f"signal.{number.name}": signal.getsignal(number) for number in _SIGNALS},
    }


def _device_and_stream() -> tuple[int, int]:
    if not torch.cuda.is_initialized():
        return (0, 0)  # What they are as soon as it is.
    return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream


# ---------------------------------------------------------------- comparing and showing


def _is_compilers_work(name: str, was: object, now: object) -> bool:
    """Whether torch's compiler put a wrapper around the original here."""
    if name not in _BY_COMPILER or not isinstance(now, FunctionType):
        return False
    module, maker = _BY_COMPILER[name]
    code = getattr(getattr(sys.modules.get(module), maker, None), "__code__", None)
    if not isinstance(code, CodeType) or not is_written(code, module):
        return False
    holds_original = any(_contents(cell) is was for cell in now.__closure__ or ())
    return holds_original and any(const is now.__code__ for const in code.co_consts)


def _is_imports_work(name: str, was: object, now: object) -> bool:
    """Whether a module put its function here when it was imported."""
    return name in _BY_IMPORT and is_as_installed(now, *_BY_IMPORT[name], was=was)


def _same(was: object, now: object) -> bool:
    """Whether a setting is what it was; hooks by identity, everything else by value."""
    return was is now or (type(was) is type(now) and type(was) in _PLAIN and was == now)


def _shown(value: object) -> str:
    """A value in a few words, without running any code of its own."""
    if isinstance(value, FunctionType):
        value = value.__code__
    if isinstance(value, CodeType):
        return f"{value.co_name} of {value.co_filename}:{value.co_firstlineno}"
    return (
        repr(value) if type(value) in _PLAIN else f"an object of type {type.__dict__['__name__'].__get__(type(value))}"
    )
