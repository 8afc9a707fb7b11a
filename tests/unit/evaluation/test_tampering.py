"""What a kernel may do to its process without a word, and what is reported."""

from __future__ import annotations

import builtins
import functools
import gc
import importlib
import importlib.util
import inspect
import json
import logging
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from opsmith.calls.observer import Observer
from opsmith.core import case
from opsmith.evaluation.integrity import imported
from opsmith.evaluation.integrity.tampering import Snapshot

pytestmark = pytest.mark.slow


def fake(*args: Any, **kwargs: Any) -> Any:
    """Stands in for whatever it replaces."""
    return None


def changes_after(patch: Callable[[pytest.MonkeyPatch], object]) -> tuple[str, ...]:
    """What a snapshot says after a patch, which is undone; the rest of the process must be as it was."""
    snapshot = Snapshot.take()
    with pytest.MonkeyPatch.context() as monkeypatch:
        patch(monkeypatch)
        found = snapshot.changes()
    assert () == snapshot.changes()
    return found


@pytest.mark.parametrize(
    ("target", "name", "label"),
    [
        (time, "perf_counter", "time.perf_counter"),
        (json, "dumps", "json.dumps"),
        (random, "random", "random.random"),
        (builtins, "open", "builtins.open"),
        (os, "fork", "os.fork"),
        (sys, "displayhook", "sys.displayhook"),
        (torch, "relu", "torch.relu"),
        (torch, "allclose", "torch.allclose"),
        (torch.testing, "assert_close", "torch.testing.assert_close"),
        (functional, "softmax", "torch.nn.functional.softmax"),
        (torch.cuda, "synchronize", "torch.cuda.synchronize"),
        (torch.Tensor, "__repr__", "torch.Tensor.__repr__"),
        (torch.nn.Module, "__call__", "torch.nn.modules.module.Module.__call__"),
        (torch.cuda.Event, "elapsed_time", "torch.cuda.streams.Event.elapsed_time"),
        (torch._C._nn, "gelu", "torch._C._nn.gelu"),
        (torch.ops.aten.relu, "default", "torch.ops.aten.relu.default"),
        (torch.ops.aten.relu.default, "_op", "torch.ops.aten.relu.default._op"),
        (case, "digest", "opsmith.core.case.digest"),
        (Observer, "describe", "opsmith.calls.observer.Observer.describe"),
        (threading.Thread, "start", "threading.Thread.start"),
    ],
)
def test_a_replaced_function_is_named(target: Any, name: str, label: str) -> None:
    """The message holds the full name and where the replacement was written, so that a person can look it up."""
    (found,) = changes_after(lambda monkeypatch: monkeypatch.setattr(target, name, fake))
    assert found.startswith(f"{label} was replaced by fake of {__file__}:")


def test_a_method_that_hides_an_inherited_one_is_named() -> None:
    """``Tensor.relu`` lives in a C type that nobody can patch; an attribute of Tensor comes before it."""
    (found,) = changes_after(lambda monkeypatch: monkeypatch.setattr(torch.Tensor, "relu", fake, raising=False))
    assert found.startswith("torch.Tensor.relu was replaced by fake")


def test_a_deleted_function_is_named() -> None:
    """A deleted function breaks what comes after the kernel."""
    assert ("json.loads was deleted",) == changes_after(lambda monkeypatch: monkeypatch.delattr(json, "loads"))


def test_a_module_that_is_replaced_as_a_whole_is_named() -> None:
    """The next ``import time`` would get the stand-in."""
    (found,) = changes_after(lambda monkeypatch: monkeypatch.setitem(sys.modules, "time", json))
    assert found.startswith("sys.modules.time was replaced by")


@pytest.mark.parametrize(
    ("part", "value"),
    [("__code__", fake.__code__), ("__defaults__", (1, 2)), ("__kwdefaults__", {"weight": 1})],
)
def test_new_insides_of_an_old_function_are_named(part: str, value: object) -> None:
    """The object stays the same, so to compare names is not enough."""
    (found,) = changes_after(lambda monkeypatch: monkeypatch.setattr(functional.layer_norm, part, value))
    assert found.startswith(f"torch.nn.functional.layer_norm: its {part} became")


def test_a_new_function_in_a_decorators_closure_is_named() -> None:
    """``functools.wraps`` keeps the real function in a cell that can be written."""

    def outer(wrapped: Callable[[], int]) -> Callable[[], int]:
        def inner() -> int:
            return wrapped()

        return inner

    with pytest.MonkeyPatch.context() as monkeypatch:
        decorated = outer(lambda: 1)
        monkeypatch.setattr(case, "digest", decorated)
        assert decorated.__closure__ is not None
        cell = decorated.__closure__[0]
        (found,) = changes_after(lambda inner: inner.setattr(cell, "cell_contents", fake))
    assert found.startswith("opsmith.core.case.digest: a function inside it was replaced by fake")


def test_new_insides_of_a_function_behind_a_decorator_are_named() -> None:
    """The name leads to a wrapper; what it wraps does the work."""

    def inner() -> int:
        return 1

    def wrapper() -> int:
        return inner()

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(case, "digest", wrapper)
        (found,) = changes_after(lambda again: again.setattr(inner, "__code__", (lambda: 2).__code__))
    assert found.startswith("opsmith.core.case.digest: its __code__ became")


@pytest.mark.parametrize(
    ("set_it", "undo", "name"),
    [
        (
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
            "default_dtype",
        ),
        (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None), "default_device"),
        (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True), "set_grad_enabled"),
        (gc.disable, gc.enable, "gc.disable"),
        (lambda: gc.callbacks.append(fake), lambda: gc.callbacks.remove(fake), "gc.callbacks"),
        (lambda: sys.setprofile(fake), lambda: sys.setprofile(None), "sys.setprofile"),
        (lambda: sys.setswitchinterval(1.0), lambda: sys.setswitchinterval(0.005), "sys.setswitchinterval"),
        (
            lambda: torch.use_deterministic_algorithms(True),
            lambda: torch.use_deterministic_algorithms(False),
            "torch.use_deterministic_algorithms",
        ),
    ],
)
def test_a_changed_setting_is_named(set_it: Callable[[], object], undo: Callable[[], object], name: str) -> None:
    """A setting speeds up or slows down every kernel that comes after, so it belongs to none of them."""
    snapshot = Snapshot.take()
    try:
        set_it()
        found = snapshot.changes()
    finally:
        undo()
    assert [name] == [name for line in found if name in line]
    assert () == snapshot.changes()


def test_threads_and_their_number_are_watched() -> None:
    """More threads than asked for is a faster kernel that nobody else may use."""
    before = torch.get_num_threads()
    snapshot = Snapshot.take()
    try:
        torch.set_num_threads(before + 1)
        found = snapshot.changes()
    finally:
        torch.set_num_threads(before)
    assert (f"torch.set_num_threads: {before} became {before + 1}",) == found


def test_tf32_is_named_however_it_was_allowed() -> None:
    """There are two interfaces for it, each of which complains when the other was used."""
    matmul = torch.backends.cuda.matmul
    for name, value in (("allow_tf32", True), ("fp32_precision", "tf32")):
        before = matmul.fp32_precision
        snapshot = Snapshot.take()
        try:
            setattr(matmul, name, value)
            found = snapshot.changes()
        finally:
            matmul.allow_tf32 = False
            matmul.fp32_precision = before
        assert (f"fp32_precision of cuda matmul: {before!r} became 'tf32'",) == found


def test_a_signal_handler_is_named() -> None:
    """The judge ends a worker with a signal; one that handles it wants to stay."""
    snapshot = Snapshot.take()
    before = signal.signal(signal.SIGTERM, fake)
    try:
        (found,) = snapshot.changes()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert found.startswith("signal.SIGTERM: ")


def test_a_generator_that_was_seeded_anew_is_named_where_the_seed_is_known() -> None:
    """Random numbers that are no longer the judge's can be known in advance."""
    state = torch.get_rng_state()
    try:
        torch.manual_seed(1)
        snapshot = Snapshot.take()
        torch.rand(1)
        assert () == snapshot.changes(seed=1)
        torch.manual_seed(2)
        assert ("torch.default_generator was seeded anew",) == snapshot.changes(seed=1)
        assert () == snapshot.changes()
    finally:
        torch.set_rng_state(state)


def test_a_stand_in_that_claims_to_equal_the_original_is_named() -> None:
    """Everything is compared by identity: no method of a stranger's object runs, let alone is believed."""

    class Liar:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("nobody should ask")

        __hash__ = None  # type: ignore[assignment]

        def __repr__(self) -> str:
            raise AssertionError("nobody should ask")

    (found,) = changes_after(lambda monkeypatch: monkeypatch.setattr(time, "time", Liar()))
    assert "time.time was replaced by an object of type Liar" == found


def test_the_settings_of_a_forked_process_are_its_own_and_its_names_are_not() -> None:
    """The zygote looks once; a worker sets its number of threads, and then only the settings are looked at again."""
    before = torch.get_num_threads()
    snapshot = Snapshot.take()
    try:
        torch.set_num_threads(before + 1)
        retaken = snapshot.retaken()
        assert () == retaken.changes()
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(time, "time", fake)
            assert 1 == len(retaken.changes())
    finally:
        torch.set_num_threads(before)


def test_what_is_merely_new_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels register ops, set up logging, silence warnings and edit their paths; nobody is worse off."""
    snapshot = Snapshot.take()
    monkeypatch.setenv("OPSMITH_TEST", "1")
    monkeypatch.syspath_prepend("/nonexistent")
    monkeypatch.setattr(torch, "my_own_relu", fake, raising=False)
    monkeypatch.setattr(torch.Tensor, "my_own_relu", fake, raising=False)
    monkeypatch.setattr(sys, "excepthook", fake)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore")
        logging.getLogger("a.kernel").addHandler(logging.NullHandler())
        library = torch.library.Library("opsmith_tampering_test", "DEF")
        library.define("relu(Tensor x) -> Tensor")
        library.impl("relu", lambda x: x.clamp(min=0), "CPU")
        torch.ops.opsmith_tampering_test.relu(torch.ones(3))
        torch.ops.aten.special_bessel_j0(torch.ones(3))

        @torch.library.custom_op("opsmith_tampering_test::same", mutates_args=())
        def same(x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        same(torch.ones(3))
        found = snapshot.changes()
        library._destroy()
    assert () == found


def test_torchs_compiler_may_wrap_what_it_always_wraps_and_nobody_else_may() -> None:
    """Its import wraps ``manual_seed``; a wrapper of the same name with other code is a patch."""

    def _disable_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return inner

    torchs_own: Any = torch._compile._disable_dynamo
    wrapped = torchs_own(torch.manual_seed)
    for forged in (_disable_dynamo(torch.manual_seed), torchs_own(fake)):
        (line,) = changes_after(
            functools.partial(pytest.MonkeyPatch.setattr, target=torch, name="manual_seed", value=forged)
        )
        assert line.startswith("torch.manual_seed was replaced by inner")
    snapshot = Snapshot.take()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(torch, "manual_seed", wrapped)
        assert () == snapshot.changes()


def test_who_forges_what_torchs_compiler_wraps_with_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel can put a wrapper of its own where the compiler keeps the one that makes wrappers."""

    def install_generation_tagging_init(function: Callable[..., Any]) -> Callable[..., Any]:
        def patched(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return patched

    guard = importlib.import_module("torch._dynamo.mutation_guard")
    monkeypatch.setattr(guard, install_generation_tagging_init.__name__, install_generation_tagging_init)
    forged = install_generation_tagging_init(torch.nn.Module.__init__)
    (line,) = changes_after(lambda patch: patch.setattr(torch.nn.Module, "__init__", forged))
    assert line.startswith("torch.nn.modules.module.Module.__init__ was replaced by patched")


#: What a module of a language's does while it is imported, as TileLang's parser and JAX do.
INSTALLED = """
import gc
import inspect
import sys

_getfile = inspect.getfile


def named(obj):
    return getattr(obj, "__module__", None)


def _patched_inspect_getfile(obj):
    if not inspect.isclass(obj):
        return _getfile(obj)
    return sys.modules[named(obj)].__file__


def _xla_gc_callback(*args):
    gc.get_count()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], types.ModuleType]:
    """Lay a module where packages are installed, and import it."""
    monkeypatch.setattr(imported, "installed_folders", lambda: (f"{tmp_path.resolve()}/site-packages/",))

    def import_(name: str) -> types.ModuleType:
        path = tmp_path / "site-packages" / Path(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True)
        path.write_text(INSTALLED)
        return load(name, path, monkeypatch)

    return import_


def load(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Import a file as a module of some name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


PARSER = "tvm.script.parser.core.diagnostics"
Install = Callable[[str], types.ModuleType]


def test_what_tilelang_replaces_on_import_may_be_replaced_by_it_alone(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parser has `inspect` find the files of classes."""
    snapshot = Snapshot.take()
    module = install(PARSER)
    monkeypatch.setattr(inspect, "getfile", module._patched_inspect_getfile)
    assert () == snapshot.changes()
    (line,) = changes_after(lambda patch: patch.setattr(inspect, "getfile", fake))
    assert line.startswith("inspect.getfile was replaced by fake")


def from_another_file(module: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same text, in a file of the kernel's."""
    path = tmp_path / "kernel" / Path(*PARSER.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    path.write_text(INSTALLED)
    return load(PARSER, path, monkeypatch)._patched_inspect_getfile


def under_its_name(module: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function of the kernel's in a module of that name, which nobody installed."""
    forged = types.ModuleType(PARSER)
    vars(forged)["_patched_inspect_getfile"] = fake
    monkeypatch.setitem(sys.modules, PARSER, forged)
    return fake


def from_its_file_by_claim(module: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Code that says that it comes from the installed file, in the module itself."""
    source = "def _patched_inspect_getfile(obj):\n    return 'elsewhere'\n"
    exec(compile(source, str(module.__file__), "exec"), vars(module))
    return module._patched_inspect_getfile


def with_other_globals(module: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The installed code, which calls the kernel's function in place of the original."""
    forged = types.FunctionType(module._patched_inspect_getfile.__code__, vars(module) | {"_getfile": fake})
    vars(module)["_patched_inspect_getfile"] = forged
    return forged


def with_another_original(module: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The installed function, whose module holds the kernel's function in place of the original."""
    vars(module)["_getfile"] = fake
    return module._patched_inspect_getfile


def with_another_helper(module: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The installed function, which calls the kernel's function by the name of the file's."""
    vars(module)["named"] = fake
    return module._patched_inspect_getfile


@pytest.mark.parametrize(
    "forge",
    [
        from_another_file,
        under_its_name,
        from_its_file_by_claim,
        with_other_globals,
        with_another_original,
        with_another_helper,
    ],
)
def test_who_forges_what_an_import_replaces_is_found_out(
    forge: Callable[..., Any], install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a module and the path in code are whatever a kernel writes there."""
    snapshot = Snapshot.take()
    monkeypatch.setattr(inspect, "getfile", forge(install(PARSER), tmp_path, monkeypatch))
    (line,) = snapshot.changes()
    assert line.startswith("inspect.getfile was replaced by")


def test_the_collector_that_jax_adds_on_import_may_be_there(install: Install) -> None:
    """Importing JAX is how a kernel in Pallas begins; a forged one is a change."""
    snapshot = Snapshot.take()
    module = install("jax._src.lib")
    gc.callbacks.append(module._xla_gc_callback)
    try:
        assert () == snapshot.changes()
        vars(module)["gc"] = types.SimpleNamespace(get_count=fake)
        (line,) = snapshot.changes()
        assert line.startswith("gc.callbacks: (")  # Property tests have one of their own there.
    finally:
        gc.callbacks.remove(module._xla_gc_callback)


def test_what_a_module_of_torchs_replaces_on_import_may_be_replaced_by_it_alone() -> None:
    """torch.testing._internal.common_utils wraps the call of scripted methods."""
    (line,) = changes_after(
        functools.partial(pytest.MonkeyPatch.setattr, target=torch.ScriptMethod, name="__call__", value=fake)
    )
    assert line.startswith("torch.ScriptMethod.__call__ was replaced by fake")


HONEST = """
import sys, json
import torch
import opsmith.runner.worker.server, opsmith.runner.referee.server
from opsmith.evaluation.integrity.tampering import Snapshot

snapshot = Snapshot.take()
said = {}

import numpy, numpy.random
torch.from_numpy(numpy.ones(3))
said["numpy"] = snapshot.changes()
import triton, triton.language as tl, triton.testing, torch.utils.benchmark
triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
said["triton"] = snapshot.changes()
sys.path.insert(0, sys.argv[1])
import honest_triton
x = torch.randn(1000)
assert torch.equal(honest_triton.relu(x), x.clamp(min=0))
said["interpreter"] = snapshot.changes()
from torch.utils.cpp_extension import load_inline
module = load_inline(name="opsmith_tampering", cpp_sources=honest_triton.SOURCE, no_implicit_headers=True,
                     build_directory=sys.argv[1])
assert module.twice(2) == 4
said["load_inline"] = snapshot.changes()
compiled = torch.compile(lambda x: x.sin() + 1, backend="inductor")
compiled(x)
said["compile"] = snapshot.changes()
x.requires_grad_().sin().sum().backward()
torch.nn.Linear(3, 3)(torch.ones(3))
said["autograd"] = snapshot.changes()
import torch.fx, torch.profiler
torch.fx.symbolic_trace(torch.nn.ReLU())
with torch.profiler.profile():
    torch.ones(3)
said["fx"] = snapshot.changes()
import torch.testing._internal.common_utils
said["testing"] = snapshot.changes()
print(json.dumps(said))
"""

HONEST_TRITON = '''
import torch, triton, triton.language as tl

@triton.jit
def kernel(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.where(v < 0, tl.zeros_like(v), v), mask=i < n)

def relu(x):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 256),)](out, x, x.numel(), BLOCK=256)
    return out

SOURCE = """
#include <pybind11/pybind11.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", [](int x) { return 2 * x; }); }
"""
'''


@pytest.mark.slow
def test_honest_tools_change_nothing(tmp_path: Any) -> None:
    """Triton, a C++ build, torch.compile, autograd and the profiler are what honest kernels are made of."""
    (tmp_path / "honest_triton.py").write_text(HONEST_TRITON)
    environment = os.environ | {
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HONEST), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert {tool: [] for tool in said} == said
