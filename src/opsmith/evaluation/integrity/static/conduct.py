"""What a kernel reaches for besides its work: other modules, processes, files, frames, the network."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.source import Scope, Source, constant_text, once_per_source, resolve
from opsmith.evaluation.integrity.static.tables import names

#: A qualified name, or with a star all that begin like it, and what its use shows.
_NAMES: dict[str, Kind] = {
    **dict.fromkeys(
        (
            "torch.compile",
            "torch.jit.script",
            "torch.jit.trace",
            "torch.jit.freeze",
            "torch.jit.CompilationUnit",
            "torch._dynamo.*",
            "torch._inductor.*",
            "torch.export.*",
            "torch.fx.experimental.proxy_tensor.make_fx",
            "torch.fx.symbolic_trace",
            "torch.fx.Interpreter",
            "functorch.make_fx",
            "functorch.compile.*",
        ),
        Kind.COMPILER,
    ),
    **dict.fromkeys(
        (
            "torch.library.get_kernel",
            "torch._C._dispatch*",
            "torch._C._DisableTorchDispatch",
            "torch._C._DisableTorchFunctionSubclass",
            "torch._C.DisableTorchFunctionSubclass",
            "torch._C.DisableTorchFunction",
            "torch._C._DisableFuncTorch",
            "torch._C._ExcludeDispatchKeyGuard",
            "torch._C._IncludeDispatchKeyGuard",
            "torch._C._ForceDispatchKeyGuard",
            "torch._C._SetExcludeDispatchKeyGuard",
            "torch._C._AutoDispatchBelowAutograd",
            "torch._C._AutoDispatchBelowADInplaceOrView",
            "torch._C._pop_torch_dispatch_stack",
            "torch._C._set_dispatch_mode",
            "torch._C._unset_dispatch_mode",
            "torch._C._jit_*",
            "torch._ops.*",
            "torch.utils._python_dispatch.*",
            "torch.overrides._disable_*",
        ),
        Kind.DISPATCHER,
    ),
    **dict.fromkeys(("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys.modules.*"), Kind.OBJECT_SEARCH),
    **dict.fromkeys(
        (
            "sys._getframe",
            "sys._current_frames",
            "inspect.currentframe",
            "inspect.stack",
            "inspect.trace",
            "inspect.getouterframes",
            "inspect.getinnerframes",
            "sys.settrace",
            "sys.setprofile",
            "sys.monitoring.*",
            "threading.settrace",
            "threading.setprofile",
            "traceback.walk_stack",
        ),
        Kind.FRAME_ACCESS,
    ),
    **dict.fromkeys(
        (
            "os._exit",
            "os.abort",
            "os.fork",
            "os.forkpty",
            "os.kill",
            "os.killpg",
            "os.popen",
            "os.posix_spawn",
            "os.posix_spawnp",
            "os.setsid",
            "os.system",
            "os.exec*",
            "os.spawn*",
            "os.dup2",
            "os.close",
            "os.closerange",
            "os.fdopen",
            "os.pipe",
            "os.write",
            "os.sched_setaffinity",
            "pty.*",
            "signal.*",
            "multiprocessing.*",
            "torch.multiprocessing.*",
            "resource.setrlimit",
            "builtins.exit",
            "builtins.quit",
            "sys.exit",
            "psutil.*",
        ),
        Kind.PROCESS_CONTROL,
    ),
    **dict.fromkeys(
        (
            "socket.*",
            "ssl.*",
            "urllib.*",
            "urllib3.*",
            "requests.*",
            "http.*",
            "httpx.*",
            "aiohttp.*",
            "ftplib.*",
            "smtplib.*",
            "xmlrpc.*",
            "torch.hub.*",
            "huggingface_hub.*",
        ),
        Kind.NETWORK,
    ),
    **dict.fromkeys(
        (
            "threading.Thread",
            "threading.Timer",
            "_thread.start_new_thread",
            "concurrent.futures.*",
            "asyncio.*",
            "torch.cuda.Stream",
            "torch.cuda.ExternalStream",
            "torch.cuda.stream",
            "torch.cuda.set_stream",
            "torch.Stream",
            "torch.futures.*",
            "torch.jit.fork",
            "atexit.*",
            "weakref.finalize",
            "os.register_at_fork",
        ),
        Kind.CONCURRENCY,
    ),
    **dict.fromkeys(
        (
            "builtins.eval",
            "builtins.exec",
            "builtins.compile",
            "builtins.globals",
            "builtins.__builtins__",
            "base64.*",
            "codecs.decode",
            "marshal.*",
            "pickle.*",
            "zlib.decompress",
            "types.FunctionType",
            "types.CodeType",
            "operator.attrgetter",
            "operator.methodcaller",
            "runpy.*",
        ),
        Kind.DYNAMIC_LOOKUP,
    ),
    **dict.fromkeys(("subprocess.*",), Kind.SUBPROCESS),
    **dict.fromkeys(
        ("torch.Tensor._make_subclass", "torch.Tensor._make_wrapper_subclass", "torch.Tensor.as_subclass"),
        Kind.TENSOR_SUBCLASS,
    ),
    **dict.fromkeys(
        (
            "torch.initial_seed",
            "torch.seed",
            "torch.manual_seed",
            "torch.get_rng_state",
            "torch.set_rng_state",
            "torch.default_generator.*",
            "torch.random.*",
            "torch.cuda.random.*",
            "torch.cuda.manual_seed",
            "torch.cuda.manual_seed_all",
        ),
        Kind.SEEDING,
    ),
    **dict.fromkeys(("unittest.mock.*", "wrapt.*", "ctypes.pythonapi"), Kind.PATCHING),
    **dict.fromkeys(("cupy.*", "jax.*", "scipy.*", "tensorflow.*", "mlx.*", "numexpr.*"), Kind.ARRAY_LIBRARY),
}
_PREFIXES = {name.removesuffix("*"): kind for name, kind in _NAMES.items() if name.endswith("*")}
_FRAME_ATTRIBUTES = frozenset({"f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "cr_frame", "ag_frame"})
#: Modules of which a kernel replaces nothing. Below `_SETTINGS` lie switches that are there to be set.
_OTHERS = names(
    """
    torch time json random builtins numpy triton opsmith os sys math gc threading inspect msgspec struct socket
    hashlib statistics functools
    """
)
_SETTINGS = (".config", ".backends", ".knobs", "sys.stdout", "sys.stderr", "sys.path", "sys.excepthook", "os.environ")
_PROCESS_FUNCTIONS = names(
    """
    _exit abort dlopen dlsym execv execve exit fork kill mmap mprotect open pipe prctl process_vm_readv
    process_vm_writev ptrace raise read signal socket syscall system vfork write
    """
)
_FOREIGN = ("libtorch", "libc10", "libaten", "libc.so", "libc++", "libpython", "libcuda", "libcublas", "libcudnn")
_LIBRARY_LOADERS = frozenset(
    {"ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll.LoadLibrary", "ctypes.util.find_library", "cffi.FFI.dlopen"}
)
_READERS = names(
    """
    builtins.open io.open os.open os.listdir os.walk os.scandir os.readlink pathlib.Path glob.glob shutil.copy
    numpy.load numpy.fromfile numpy.memmap torch.load torch.UntypedStorage.from_file mmap.mmap pickle.load
    importlib.util.spec_from_file_location linecache.getline
    """
)


@once_per_source
def conduct(source: Source) -> Iterator[StaticFinding]:
    """Everything of this kind in a file; none of it is decisive."""
    inner = {id(node.value) for node, _ in source.nodes if isinstance(node, ast.Attribute)}
    depth = len(PurePosixPath(source.path).parent.parts)
    for node, scope in source.host_nodes():
        found = [*_findings(node, scope, whole=id(node) not in inner), *_outer_imports(node, depth)]
        for kind, text in found:
            yield StaticFinding(path=source.path, line=getattr(node, "lineno", 1), kind=kind, text=text)


def _outer_imports(node: ast.AST, depth: int) -> Iterator[tuple[Kind, str]]:
    """A relative import that leads out of the kernel's folder, in a file so many folders below it."""
    if isinstance(node, ast.ImportFrom) and node.level > depth + 1:
        yield Kind.FILE_ACCESS, f"imports from {node.level - depth - 1} folders above the kernel's"


def _findings(node: ast.AST, scope: Scope, *, whole: bool) -> Iterator[tuple[Kind, str]]:
    match node:
        case ast.Import(names=names):
            yield from _imports([alias.name for alias in names])
        case ast.ImportFrom(module=module, names=names, level=level):
            yield from _imports([f"{module}.{alias.name}" for alias in names] if module and not level else [])
        case ast.ClassDef() | ast.FunctionDef():
            yield from _definition(node, scope)
        case ast.Attribute() | ast.Name():
            yield from _name(node, scope, whole=whole)
        case ast.Subscript(ctx=ast.Store() | ast.Del(), value=owner):
            yield from _item_assignment(node, owner, scope)
        case ast.Call():
            yield from _call(node, scope)
        case ast.Constant(value=str(text)) if text.startswith("/proc"):
            yield Kind.PROC_ACCESS, repr(text[:60])


def _definition(node: ast.ClassDef | ast.FunctionDef, scope: Scope) -> Iterator[tuple[Kind, str]]:
    if isinstance(node, ast.FunctionDef):
        if node.name in ("__torch_dispatch__", "__torch_function__"):
            yield Kind.TENSOR_SUBCLASS, f"defines {node.name}"
    elif any((base := resolve(one, scope)) is not None and base.name == "torch.Tensor" for one in node.bases):
        yield Kind.TENSOR_SUBCLASS, f"class {node.name}(torch.Tensor)"


def _name(node: ast.Attribute | ast.Name, scope: Scope, *, whole: bool) -> Iterator[tuple[Kind, str]]:
    if isinstance(node, ast.Attribute) and node.attr in _FRAME_ATTRIBUTES:
        yield Kind.FRAME_ACCESS, f".{node.attr}"
    if isinstance(node, ast.Attribute) and node.attr == "redispatch":
        yield Kind.DISPATCHER, ".redispatch"
    if not isinstance(node.ctx, ast.Load):
        yield from _assignment(node, scope)
    elif whole:
        yield from _use(node, scope)


def _imports(names: list[str]) -> Iterator[tuple[Kind, str]]:
    for name in names:
        if name.partition(".")[0] == "opsmith":
            yield Kind.OPSMITH_IMPORT, name


def _use(node: ast.Attribute | ast.Name, scope: Scope) -> Iterator[tuple[Kind, str]]:
    found = resolve(node, scope)
    if found is None:
        return
    if not found.plain:
        yield Kind.DYNAMIC_LOOKUP, f"{found.name}, under a name that is put together"
    kind = _NAMES.get(found.name)
    if kind is None:
        kind = next((kind for prefix, kind in _PREFIXES.items() if found.name.startswith(prefix)), None)
    if kind is not None:
        yield kind, found.name


def _assignment(node: ast.Attribute | ast.Name, scope: Scope) -> Iterator[tuple[Kind, str]]:
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, scope)
        if owner is not None:
            yield from _patch(f"{owner.name}.{node.attr}")


def _item_assignment(node: ast.Subscript, owner: ast.expr, scope: Scope) -> Iterator[tuple[Kind, str]]:
    base = resolve(owner, scope)
    if base is None:
        return
    key = constant_text(node.slice, scope) or "..."
    if base.name == "sys.modules":
        yield Kind.PATCHING, f"sys.modules[{key!r}]"
    elif base.name.endswith(".__dict__"):
        yield from _patch(f"{base.name.removesuffix('.__dict__')}.{key}")


def _patch(target: str) -> Iterator[tuple[Kind, str]]:
    if target.partition(".")[0] in _OTHERS and not any(setting in target for setting in _SETTINGS):
        yield Kind.PATCHING, f"replaces {target}"


def _call(node: ast.Call, scope: Scope) -> Iterator[tuple[Kind, str]]:
    function = resolve(node.func, scope)
    name = function.name if function is not None else ""
    first = constant_text(node.args[0], scope) if node.args else None
    if name in ("builtins.setattr", "builtins.delattr") and len(node.args) > 1:
        owner = resolve(node.args[0], scope)
        if owner is not None:
            yield from _patch(f"{owner.name}.{constant_text(node.args[1], scope) or '...'}")
    elif name == "builtins.getattr" and len(node.args) > 1:
        yield from _dynamic_attribute(node, scope)
    elif name in ("builtins.__import__", "importlib.import_module"):
        yield Kind.DYNAMIC_LOOKUP, f"imports {first or 'a module by a computed name'}"
        yield from _imports([first] if first else [])
    elif name in _LIBRARY_LOADERS:
        yield from _library(node, first)
    elif name == "torch.library.Library" and first == "aten":
        yield Kind.PATCHING, "registers implementations of ATen ops"
    elif name in _READERS and first is not None and (first.startswith(("/", "~")) or ".." in first.split("/")):
        yield Kind.FILE_ACCESS, f"{name}({first[:60]!r})"
    yield from _foreign_function(node, scope)


def _dynamic_attribute(node: ast.Call, scope: Scope) -> Iterator[tuple[Kind, str]]:
    owner = resolve(node.args[0], scope)
    name = constant_text(node.args[1], scope)
    if owner is not None and not isinstance(node.args[1], ast.Constant):
        yield Kind.DYNAMIC_LOOKUP, f"{owner.name}.{name or '...'}, under a name that is put together"


def _library(node: ast.Call, name: str | None) -> Iterator[tuple[Kind, str]]:
    """A library of torch's or the system's: by its name, or by a path of which the file shows a part."""
    if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value is None:
        yield Kind.FOREIGN_LIBRARY, "ctypes.CDLL(None), which holds everything that the process has loaded"
        return
    texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    for text in [name, *texts] if name is not None else texts:
        if any(part in text for part in _FOREIGN):
            yield Kind.FOREIGN_LIBRARY, f"loads {text[:60]!r}"
            return


def _foreign_function(node: ast.Call, scope: Scope) -> Iterator[tuple[Kind, str]]:
    """A function of libc that works on processes, called through a library that ctypes opened."""
    match node.func:
        case ast.Attribute(value=ast.Name(id=library), attr=name) if name in _PROCESS_FUNCTIONS:
            found = scope.lookup(library)
            opened = [value for value in found[1] if isinstance(value, ast.Call)] if found else []
            if any((maker := resolve(call.func, scope)) and maker.name in _LIBRARY_LOADERS for call in opened):
                yield Kind.FOREIGN_LIBRARY, f"calls {name} of a library"
