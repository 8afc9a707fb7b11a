"""A program that imports torch and answers calls with a kernel, in a fresh process each.

It is run as a script of another name, from another folder, and imports only Python's library and torch: a kernel that
looks around in it finds what it finds in any program that uses it. So it repeats in short what the judge's own
processes do with modules of opsmith's: putting the sandbox on, loading a kernel, making its arguments, describing what
it returned.

Socket 3 takes one JSON packet for each process to be forked, with two descriptors: a socket, on which the process says
that it is about to load the kernel, and where its output goes. Descriptor 4 holds, as JSON, which layers of the sandbox
there are. What a process is to do lies in a JSON file, which it reads before it is confined; its answer goes in another
one. When a kernel is loaded no descriptor is open but the standard streams.
"""

from __future__ import annotations

import array
import ctypes
import functools
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

#: For the import alone: packages of others that it would load, and the runtime that would count devices.
STARTING = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
os.environ.update(STARTING)

import torch  # noqa: E402

Request = dict[str, Any]

MAX_PACKET_BYTES = 1 << 16
MAX_FILE_BYTES = 4 << 30
MAX_MESSAGE_CHARS = 2_000
#: As modules are constructed everywhere.
CONSTRUCTION_SEED = 42
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1
SECCOMP_SET_MODE_FILTER, SECCOMP_ALL_THREADS = 1, 1


def main() -> None:
    """Fork on request until nobody asks any more."""
    control = socket.socket(fileno=3)
    with open(4, encoding="utf-8") as described:
        layers = json.load(described)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if layers["triton"]:
        prepare_triton()
    for name in STARTING:
        del os.environ[name]
    control.send(json.dumps({"type": "Ready", "facts": {"torch": torch.__version__}}).encode())
    started = serve(control, layers)
    if started is not None:
        started()
        os._exit(0)


def prepare_triton() -> None:
    """Import Triton, and hash it once: each process would do so otherwise, before it looks into its cache."""
    import triton.compiler.code_generator  # noqa: F401

    if os.environ.get("TRITON_INTERPRET") != "1":
        from triton.runtime.build import platform_key
        from triton.runtime.cache import triton_key

        triton_key()
        platform_key()
    else:
        mend_bfloat16()


def bfloat16_conversions() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """From a tensor of the interpreter to numbers that numpy computes with, and from numbers to what it holds."""
    from triton.runtime import interpreter

    np = interpreter.np

    def widened(tensor: Any) -> Any:
        if tensor.dtype.scalar != interpreter.tl.bfloat16:
            return tensor.data
        return (tensor.data.astype(np.uint32) << 16).view(np.float32)

    def narrowed(numbers: Any) -> Any:
        """The nearest of bfloat16, the even one of two as near."""
        numbers = numbers.astype(np.float32)
        bits = numbers.view(np.uint32)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(numbers), (bits >> 16) | 0x40, nearest).astype(np.uint16)

    return widened, narrowed


def mend_bfloat16() -> None:
    """As :func:`opsmith.runner.child.interpreted_bfloat16.mend_bfloat16`."""
    from triton.runtime import interpreter

    widened, narrowed = bfloat16_conversions()
    builder, handle, bf16 = interpreter.InterpreterBuilder, interpreter.TensorHandle, interpreter.tl.bfloat16
    cast, convert, binary, dot = builder.cast_impl, builder.create_fp_to_fp, builder.binary_op, builder.create_dot
    add = interpreter.ReduceOps.sum
    if hasattr(cast, "__wrapped__"):
        return

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if bf16 not in (src.dtype.scalar, dst_type.scalar):
            return cast(self, src, dst_type)
        numbers = widened(src)
        data = narrowed(numbers) if dst_type.scalar == bf16 else numbers.astype(interpreter._get_np_dtype(dst_type))
        return handle(data, dst_type.scalar)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        pair = (src.dtype.scalar, dst_type.scalar)
        nearest = rounding_mode in (None, interpreter._ir.ROUNDING_MODE.RTNE)
        if bf16 in pair and nearest and all(each.primitive_bitwidth > 8 for each in pair):
            return cast_impl(self, src, dst_type)
        return convert(self, src, dst_type, rounding_mode)

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Callable[..., Any]) -> Any:
        if lhs.dtype.scalar != bf16:
            return binary(self, lhs, rhs, op)
        output = op(widened(lhs), widened(rhs))
        return handle(output, interpreter.tl.int1) if output.dtype == bool else handle(narrowed(output), bf16)

    def create_dot(self: Any, a: Any, b: Any, *arguments: Any) -> Any:
        # A product of two numbers of bfloat16 is one of float32, exactly.
        wide = [handle(widened(each), interpreter.tl.float32) if each.dtype == bf16 else each for each in (a, b)]
        return dot(self, *wide, *arguments)

    def add_up(self: Any, terms: Any) -> Any:
        if terms.dtype.scalar != bf16:
            return add(self, terms)
        total = widened(terms.handle).sum(axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(narrowed(total), terms.dtype)

    interpreter.ReduceOps.sum = functools.wraps(add)(add_up)
    for mended, original in ((cast_impl, cast), (create_fp_to_fp, convert), (binary_op, binary), (create_dot, dot)):
        setattr(builder, original.__name__, functools.wraps(original)(mended))


def serve(control: socket.socket, layers: Request) -> Callable[[], None] | None:
    """In a forked process what it is to do, in the first one None at the end."""
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    forked: set[int] = set()
    while True:
        ready = {descriptor for descriptor, _ in poller.poll()}
        if wake_read in ready:
            os.read(wake_read, 4096)
            reap(control, forked)
        if control.fileno() not in ready:
            continue
        packet, descriptors, _, _ = socket.recv_fds(control, MAX_PACKET_BYTES, 2)
        if not packet:
            break
        try:
            pid = os.fork()
        except OSError as exc:
            control.send(json.dumps({"type": "NotForked", "reason": os.strerror(exc.errno or 0)}).encode())
            pid = -1
        if pid == 0:
            place = json.loads(packet)["config"]["request"]
            return lambda: become(place, descriptors, layers)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid > 0:
            forked.add(pid)
            control.send(json.dumps({"type": "Forked", "pid": pid}).encode())
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    return None


def reap(control: socket.socket, forked: set[int]) -> None:
    """Reap what has ended, kill what it left behind, and say which of those that were asked for it was."""
    ended: dict[int, int] = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
    except ChildProcessError:
        pass
    asked = forked & ended.keys()
    forked -= asked
    for pid in children() - forked:
        os.kill(pid, signal.SIGKILL)
    for pid in asked:
        status = os.waitstatus_to_exitcode(ended[pid])
        control.send(json.dumps({"type": "Exited", "pid": pid, "status": status}).encode())


def children() -> set[int]:
    """The processes below this one."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def become(place: str, descriptors: list[int], layers: Request) -> None:
    """Be a process of its own, confined, that carries out the request in the file ``place``."""
    os.setpgid(0, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (descriptors[1], 1), (descriptors[1], 2)):
        os.dup2(source, target)
    os.dup2(descriptors[0], 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    request: Request = json.loads(Path(place).read_text(encoding="utf-8"))
    calls = [(asked, Path(asked["values"]).read_bytes()) for asked in request["calls"]]
    if request["module"] is not None:
        request["module_values"] = Path(request["module"]["values"]).read_bytes()
    settle(request)
    confine(request, layers)
    device = torch.device(request["device"])
    if device.type != "cpu":
        torch.zeros(1, device=device)  # The driver makes a socket, which nobody may from here on.
    if layers["filters"]:
        refuse(layers["seccomp"], layers["filters"][1])
    prctl(PR_SET_DUMPABLE, 1)
    os.write(3, b"!")  # What goes wrong from here on is the kernel's.
    os.close(3)
    try:
        function = load(request, device)
    except BaseException as exc:  # noqa: BLE001 - strangers' code raises anything
        answers: Any = raised(exc)
    else:
        outcomes = Outcomes(Path(request["scratch"]))
        answers = [answer(function, asked, values, device, outcomes) for asked, values in calls]
    Path(request["scratch"], request["answer"]).write_text(json.dumps(answers), encoding="utf-8")
    sys.stdout.flush()


def settle(request: Request) -> None:
    """Move to a folder below the private one, which is the home, with the environment that was asked for."""
    scratch = request["scratch"]
    places = {name: Path(scratch, name) for name in ("work", "tmp")}
    for place in places.values():
        place.mkdir()
    os.chdir(places["work"])
    os.environ.update({**request["environment"], "HOME": scratch, "TMPDIR": str(places["tmp"])})
    tempfile.tempdir = None  # Looked up anew.
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))


# ---------------------------------------------------------------- confinement


def prctl(option: int, *arguments: int) -> None:
    """``prctl``; the kernel insists on zeros where an option takes no argument."""
    check(LIBC.prctl(option, *(ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4])))


def call(number: int, *arguments: Any) -> int:
    """A system call by its number."""
    return check(
        LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    )


def check(result: int) -> int:
    """The result of a system call.

    Raises:
        OSError: it is an error.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def confine(request: Request, layers: Request) -> None:
    """Allow itself no files but those that the request and the layers name, and no system calls that are refused."""
    if layers["landlock"]:
        restrict(layers["landlock"], [*layers["readable"], *request["rules"], [f"/proc/{os.getpid()}", layers["own"]]])
    if layers["filters"]:
        refuse(layers["seccomp"], layers["filters"][0])


def restrict(landlock: Request, rules: list[list[Any]]) -> None:
    """Forbid every access to files but those of ``rules``."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    words = array.array("Q", landlock["attributes"])
    ruleset = call(LANDLOCK_CREATE_RULESET, ctypes.c_void_p(words.buffer_info()[0]), 8 * len(words), 0)
    for path, rights in rules:
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = rights & words[0] & (words[0] if Path(path).is_dir() else landlock["of_files"])
        beneath = ctypes.create_string_buffer(allowed.to_bytes(8, "little") + parent.to_bytes(4, "little"), 12)
        call(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, beneath, 0)
        os.close(parent)
    call(LANDLOCK_RESTRICT_SELF, ruleset, landlock["flags"])
    os.close(ruleset)


def refuse(number: int, listing: str) -> None:
    """Install a filter of system calls, given as its program's bytes."""
    program = ctypes.create_string_buffer(bytes.fromhex(listing), len(listing) // 2)
    described = (ctypes.c_uint64 * 2)(len(program) // 8, ctypes.addressof(program))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    call(number, SECCOMP_SET_MODE_FILTER, SECCOMP_ALL_THREADS, described)


# ---------------------------------------------------------------- the kernel


def load(request: Request, device: torch.device) -> Callable[..., Any]:
    """What answers the calls."""
    kernel = imported(request)
    if request["module"] is not None:
        arguments = Arguments(request["module"], request["module_values"], torch.device("cpu"))
        torch.manual_seed(CONSTRUCTION_SEED)
        return Module(kernel(*arguments.args).to(device))
    if request["derived_from"] is not None:
        return Derived(kernel, overload(request["op"]), overload(request["derived_from"]))
    function: Callable[..., Any] = kernel
    return function


def imported(request: Request) -> Any:
    """The function or class that the kernel's entry names."""
    if request["target"] is not None:
        sys.path.extend(path for path in request["search"] if path not in sys.path)
        module_name, _, attributes = request["target"].partition(":")
        found: Any = importlib.import_module(module_name)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
        if hasattr(found, "get") and hasattr(found, "keys"):
            return found.get(request["asked"])
        found = found() if isinstance(found, type) else found
        return getattr(found, "kernel_for", found)(request["asked"])
    root, (relative, _, name) = Path(request["root"]), request["entry"].rpartition(":")
    return getattr(import_file(root / relative, root, request["package"]), name)


def import_file(path: Path, root: Path, package: str) -> ModuleType:
    """Import a file as a module of a package that stands for its folder, so that relative imports work."""
    parents = path.relative_to(root).parent.parts
    for depth in range(len(parents) + 1):
        folder, name = root.joinpath(*parents[:depth]), ".".join((package, *parents[:depth]))
        if (folder / "__init__.py").is_file():
            execute(name, folder / "__init__.py", [str(folder)])
        else:
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = [str(folder)]
    return execute(".".join((package, *parents, path.stem.replace(".", "_"))), path)


def execute(name: str, path: Path, search: list[str] | None = None) -> ModuleType:
    """Import one file under a name."""
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Derived:
    """An in-place or ``out=`` overload answered by the functional kernel and a copy."""

    def __init__(self, kernel: Callable[..., Any], variant: Any, functional: Any) -> None:
        arguments, returns = variant._schema.arguments, variant._schema.returns
        written = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
        by_alias = {frozenset(a.alias_info.before_set): a.name for a in written}
        self.kernel = kernel
        self.names = [argument.name for argument in arguments]
        self.out = [argument.name for argument in arguments if argument.is_out]
        self.returned = [
            None if r.alias_info is None else by_alias.get(frozenset(r.alias_info.before_set)) for r in returns
        ]
        in_order = [a.name for a in sorted(written, key=lambda a: (a.name != "self", not a.is_out))]
        self.written = self.returned + [name for name in in_order if name not in self.returned]
        # What the functional overload of a factory is told and the ``out=`` overload reads from its argument.
        self.factory = {"dtype", "device"} & {a.name for a in functional._schema.arguments} - {*self.names}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = {**dict(zip(self.names, args, strict=False)), **kwargs}
        passed = {name: value for name, value in kwargs.items() if name not in self.out}
        if self.out:
            passed |= {name: getattr(bound[self.out[0]], name) for name in self.factory}
        result = self.kernel(*args, **passed)
        results = (result,) if len(self.written) == 1 else tuple(result)
        for one, name in zip(results, self.written, strict=True):
            if name is not None:
                store(one, bound[name])
        returned = [one if name is None else bound[name] for one, name in zip(results, self.returned, strict=False)]
        return returned[0] if len(returned) == 1 else tuple(returned) or None


def overload(name: str) -> Any:
    """The overload ``packet.name`` of ATen's."""
    packet, _, own = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), own)


def store(result: Any, destination: Any) -> None:
    """Write a result where it goes."""
    if isinstance(destination, (list, tuple)):
        for one, place in zip(result, destination, strict=True):
            store(one, place)
        return
    if destination.shape != result.shape:
        destination.resize_(result.shape)
        destination.as_strided_(result.shape, torch.empty_like(result, device="meta").stride())
    destination.copy_(result)


class Module:
    """A module under a state that is written into it before a call, and out of it after that."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, *inputs: Any, state: dict[str, torch.Tensor] | None = None) -> Any:
        held = [] if state is None else self.take(state)
        result = in_order(self.module(*inputs))
        own = dict(self.tensors())
        for name in held:
            assert state is not None
            if name in own and own[name] is not state[name] and own[name].shape == state[name].shape:
                state[name].copy_(own[name])
        return result

    def take(self, state: dict[str, torch.Tensor]) -> list[str]:
        """Copy the state into the module; names of what it holds then."""
        take_by_itself = getattr(self.module, "load_reference_state", None)
        if take_by_itself is not None:
            take_by_itself(state)
            own = dict(self.tensors())
            return [name for name, value in state.items() if name in own and same(own[name], value)]
        own = dict(self.tensors())
        for name, value in state.items():
            tensor = own[name]
            if tensor.dtype != value.dtype or tensor.device != value.device:
                tensor.data = tensor.data.to(value.device, value.dtype)
            tensor.copy_(value)
        return list(state)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """All tensors of the module by their names: plain attributes, buffers, parameters."""
        for prefix, child in self.module.named_modules(remove_duplicate=False):
            for name, value in (*vars(child).items(), *child._buffers.items()):
                if isinstance(value, torch.Tensor):
                    yield f"{prefix}.{name}" if prefix else name, value
        yield from self.module.named_parameters(remove_duplicate=False)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same device, dtype, shape and values."""
    if one.dtype != other.dtype or one.device != other.device:
        return False
    if one.is_floating_point() and one.element_size() == 1:  # Torch compares no numbers of 8 bits.
        one, other = one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)
    return torch.equal(one, other)


def in_order(result: Any) -> Any:
    """A result with its dicts sorted by key."""
    if isinstance(result, dict):
        return {key: in_order(value) for key, value in sorted(result.items(), key=lambda item: ascii(item[0]))}
    return tuple(map(in_order, result)) if isinstance(result, (list, tuple)) else result


# ---------------------------------------------------------------- calls


class Arguments:
    """The arguments of a call, on storages of their own."""

    def __init__(self, call: Request, values: bytes, device: torch.device) -> None:
        self.device = device
        on_host = set(call["on_host"])
        self.before: list[bytes] = []
        self.storages: list[torch.UntypedStorage] = []
        end = 0
        for number, size in enumerate(call["sizes"]):
            content = values[end : end + size]
            end += size
            flat = torch.empty(size, dtype=torch.uint8)
            if size:
                ctypes.memmove(flat.data_ptr(), content, size)
            self.before.append(content)
            self.storages.append((flat if number in on_host else flat.to(device)).untyped_storage())
        self.args = tuple([self.decode(value) for value in call["args"]])
        self.kwargs = {name: self.decode(value) for name, value in call["kwargs"].items()}

    def decode(self, value: Any) -> Any:
        """An argument from the tree in which it was sent."""
        if not isinstance(value, list):
            return value
        kind, *fields = value
        if kind == "tensor":
            return self.tensor(*fields)
        if kind == "sequence":
            items = [self.decode(item) for item in fields[0]]
            return tuple(items) if fields[1] else items
        if kind == "mapping":
            return {name: self.decode(item) for name, item in fields[0].items()}
        if kind == "complex":
            return complex(*fields)
        if fields[0] == "device":
            return torch.device("cpu") if fields[1] == "cpu" else self.device
        return getattr(torch, fields[1])

    def tensor(
        self,
        storage: int,
        dtype: str,
        shape: list[int],
        strides: list[int],
        offset: int,
        is_conj: bool = False,  # noqa: FBT001, FBT002 - in the order in which they are sent
        is_neg: bool = False,  # noqa: FBT001, FBT002
    ) -> torch.Tensor:
        """A tensor that looks at one of the storages."""
        memory = self.storages[storage]
        made = torch.empty(0, dtype=getattr(torch, dtype), device=memory.device)
        made.set_(memory, offset, shape, strides)
        made = torch._conj(made) if is_conj else made
        return torch._neg_view(made) if is_neg else made


def answer(function: Callable[..., Any], call: Request, values: bytes, device: torch.device, outcomes: Outcomes) -> Any:
    """What a kernel returned and changed, as often as it is asked for, or what it raised."""
    try:
        described = []
        for number in range(call["repeats"]):
            arguments = Arguments(call, values, device)
            # The last one begins as the first did, as under the judge.
            is_last = number == call["repeats"] - 1
            torch.manual_seed(call["seed"] if is_last else call["seed"] + number)
            with torch.no_grad():
                result = function(*arguments.args, **arguments.kwargs)
            described.append(outcomes.describe(result, arguments))
    except BaseException as exc:  # noqa: BLE001 - strangers' code raises anything
        return raised(exc)
    return described


def raised(exc: BaseException) -> Request:
    """What is told of an exception."""
    try:
        message = f"{type(exc).__name__}: {exc}"
    except BaseException:  # noqa: BLE001 - it may raise where it should describe itself
        message = "an exception that cannot be turned into text"
    return {"message": message.encode("utf-8", "replace").decode()[:MAX_MESSAGE_CHARS]}


class Outcomes:
    """Writes what calls returned and changed into files of a folder, and says how to read them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def describe(self, result: Any, arguments: Arguments) -> Request:
        """One outcome."""
        leaves: list[Any] = []
        structure = flattened(result, leaves)
        inputs = [span(storage) for storage in arguments.storages]
        outputs: list[Request] = []
        contents: list[bytes] = []
        spans: list[tuple[int, int]] = []
        for leaf in leaves:
            if type(leaf) is torch.Tensor or type(leaf) is torch.nn.Parameter:
                place = span(leaf.untyped_storage()) if leaf.layout is torch.strided else (0, 0)
                outputs.append(described_tensor(leaf, overlapping(place, inputs), overlapping(place, spans)))
                contents.append(elements(leaf))
            else:
                place = (0, 0)
                outputs.append(described_other(leaf))
                contents.append(b"")
            spans.append(place)
        changed = {}
        for number, (storage, before) in enumerate(zip(arguments.storages, arguments.before, strict=True)):
            now = storage_bytes(storage)
            if now != before:
                changed[str(number)] = now
        name = f"outcome-{self.count}"
        self.count += 1
        (self.folder / name).write_bytes(b"".join((*contents, *changed.values())))
        return {
            "type": "stored",
            "name": name,
            "form": {"type": "outcome", "structure": structure, "outputs": outputs, "changed": {}},
            "elements_bytes": list(map(len, contents)),
            "changed_bytes": {number: len(content) for number, content in changed.items()},
        }


def flattened(result: Any, leaves: list[Any]) -> str:
    """The nesting of a result, with a star for each leaf."""
    if isinstance(result, (list, tuple)):
        return "(" + ",".join([flattened(item, leaves) for item in result]) + ")"
    if isinstance(result, dict):
        items = sorted(result.items(), key=lambda item: ascii(item[0]))
        return "{" + ",".join([f"{key!a}:{flattened(value, leaves)}" for key, value in items]) + "}"
    leaves.append(result)
    return "*"


def described_tensor(tensor: torch.Tensor, input_storage: int | None, output: int | None) -> Request:
    """A tensor without its elements."""
    strided = tensor.layout is torch.strided
    return {
        "type": "tensor",
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()) if strided else [],
        "offset": int(tensor.storage_offset()) if strided else 0,
        "device": tensor.device.type,
        "layout": str(tensor.layout).removeprefix("torch."),
        "input_storage": input_storage,
        "output": output,
        "data": "",
    }


def described_other(leaf: Any) -> Request:
    """A result that is no tensor."""
    value = leaf if type(leaf) in (bool, int, float, str) else None
    if isinstance(leaf, complex):
        value = ["complex", leaf.real, leaf.imag]
    return {"type": "other", "kind": type(leaf).__name__, "value": value}


def elements(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor in row-major order."""
    if tensor.numel() == 0 or tensor.layout is not torch.strided or tensor.device.type == "meta":
        return b""
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return ctypes.string_at(dense.data_ptr(), dense.numel() * dense.element_size())


def storage_bytes(storage: torch.UntypedStorage) -> bytes:
    """The content of a storage."""
    on_host = storage if storage.device.type == "cpu" else storage.cpu()
    return ctypes.string_at(on_host.data_ptr(), on_host.nbytes()) if on_host.nbytes() else b""


def span(storage: torch.UntypedStorage) -> tuple[int, int]:
    """Where a storage begins and ends."""
    start = storage.data_ptr()
    return start, start + storage.nbytes()


def overlapping(place: tuple[int, int], others: list[tuple[int, int]]) -> int | None:
    """The first of the other places that shares memory with this one."""
    for number, other in enumerate(others):
        if max(place[0], other[0]) < min(place[1], other[1]):
            return number
    return None


if __name__ == "__main__":
    main()
