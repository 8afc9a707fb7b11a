"""C++ and CUDA source, in files and in strings: read as tokens, so that no comment and no string is taken for code."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opsmith.evaluation.integrity.static.aten_names import (
    base_name,
    is_allowed,
    is_aten,
    is_delegation,
    method_computation,
)
from opsmith.evaluation.integrity.static.findings import Kind
from opsmith.evaluation.integrity.static.tables import names

SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".hip", ".inl")
#: A string of Python that holds one of these, and a statement or a block, is taken for C++.
_MARKS = ("#include", "__global__", "PYBIND11_MODULE", "TORCH_LIBRARY", "at::", "torch::", 'extern "C"')

#: One token of each alternative at a time; each is linear, none backtracks over another.
_TOKEN = re.compile(
    r"""
      (?P<comment> //(?:\\\r?\n|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<raw> (?:u8|[uUL])?R"(?P<fence>[^()\s\\]{0,16})\(.*?(?:\)(?P=fence)"|\Z) )
    | (?P<string> (?:u8|[uUL])?"(?:\\.|[^"\\\n])*(?:"|$|\Z) )
    | (?P<character> '(?:\\.|[^'\\\n])+' )
    | (?P<name> [A-Za-z_]\w* )
    | (?P<number> \.?\d(?:[\w.]|'(?=\w))* )
    | (?P<mark> ::|->|\S )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_STRINGS = ("raw", "string")
#: Where functions of C++ compute: those that call a kernel of a backend directly pass every dispatcher by.
_NAMESPACES = ("at", "torch", "at::_ops", "torch::nn::functional", "torch::special", "torch::linalg", "torch::fft")
_STATIC_NAMESPACES = (
    "at::native",
    "at::cpu",
    "at::cuda",
    "at::meta",
    "at::compositeexplicitautograd",
    "at::compositeimplicitautograd",
    "at::redispatch",
)
_SPECIAL = {"torch::special": "special_", "torch::linalg": "linalg_", "torch::fft": "fft_"}
_CALLS = {
    **dict.fromkeys(
        names(
            """
            _exit abort execl execv execve execvp exit fork kill popen posix_spawn prctl ptrace raise sigaction
            signal syscall system vfork
            """
        ),
        Kind.PROCESS_CONTROL,
    ),
    **dict.fromkeys(names("dlopen dlsym process_vm_readv process_vm_writev"), Kind.FOREIGN_LIBRARY),
    **dict.fromkeys(names("socket getaddrinfo gethostbyname"), Kind.NETWORK),
    **dict.fromkeys(
        names(
            """
            pthread_create cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority
            getStreamFromPool setCurrentCUDAStream
            """
        ),
        Kind.CONCURRENCY,
    ),
}
_PATHS = {
    "std::thread": Kind.CONCURRENCY,
    "std::jthread": Kind.CONCURRENCY,
    "std::async": Kind.CONCURRENCY,
    "c10::Dispatcher": Kind.DISPATCHER,
    "c10::impl::ExcludeDispatchKeyGuard": Kind.DISPATCHER,
    "at::AutoDispatchBelowADInplaceOrView": Kind.DISPATCHER,
    "at::AutoDispatchBelowAutograd": Kind.DISPATCHER,
}
_VENDOR = re.compile(r"(?:cublas|cudnn|cblas_|cusparse|cusolver|cufft|mkl_|vml|dnnl_|hipblas|miopen|rocblas)\w+\Z")
_VENDOR_SPACES = ("dnnl", "cutlass", "cub", "thrust", "nvinfer1")
_LOWER = names("half __half __half2 __nv_bfloat16 __nv_bfloat162 _Float16 kHalf kBFloat16 Half BFloat16")


class Token(NamedTuple):
    """A piece of C++ that is neither blank nor comment; ``kind`` names its group in the pattern."""

    kind: str
    text: str
    line: int


class CppFinding(NamedTuple):
    """What a line of C++ shows; ``function`` is the function that the line belongs to, if any."""

    line: int
    kind: Kind
    text: str
    function: str | None


def is_cpp(text: str) -> bool:
    """Whether a string of a Python file is C++ source."""
    return any(mark in text for mark in _MARKS) and (";" in text or "{" in text)


def tokens(text: str) -> list[Token]:
    """The tokens of a source; its lines are counted from 1."""
    found: list[Token] = []
    line, place = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", place, match.start())
        place = match.start()
        kind = match.lastgroup if match.lastgroup != "fence" else "raw"
        assert kind is not None
        if kind != "comment":
            found.append(Token(kind, match.group(), line))
    return found


def cpp_use(text: str, *, policy: str, own: str | None) -> Iterator[CppFinding]:
    """Calls of torch's computations, of processes, sockets, streams and vendors' libraries, and narrower types."""
    source = tokens(text)
    functions = _functions(source)
    for place, token in enumerate(source):
        for kind, said in _findings(source, place, token, policy=policy, own=own):
            yield CppFinding(token.line, kind, said, _owner(functions, place))


def _findings(
    source: Sequence[Token], place: int, token: Token, *, policy: str, own: str | None
) -> Iterator[tuple[Kind, str]]:
    if token.kind in _STRINGS:
        yield from _string(token.text, policy, own)
    if token.kind != "name" or (place > 0 and source[place - 1].text == "::"):
        return
    path = _path(source, place)
    after = place + 2 * path.count("::") + 1
    called = after < len(source) and source[after].text in ("(", "<")
    previous = source[place - 1].text if place else ""
    if "::" in path:
        yield from _qualified(path, called=called, policy=policy, own=own)
    elif previous in (".", "->") and called:
        op = method_computation(path)
        yield from _compute(op, f".{path}()", policy, own)
    elif called and path in _CALLS:
        yield _CALLS[path], path
    elif called and _VENDOR.match(path):
        yield Kind.VENDOR_LIBRARY, path
    if path.rpartition("::")[2] in _LOWER:
        yield Kind.LOWER_PRECISION, path


def _path(source: Sequence[Token], place: int) -> str:
    """The qualified name that begins at a token: ``at::native::relu``."""
    parts = [source[place].text]
    while place + 2 < len(source) and source[place + 1].text == "::" and source[place + 2].kind == "name":
        place += 2
        parts.append(source[place].text)
    return "::".join(parts)


def _qualified(path: str, *, called: bool, policy: str, own: str | None) -> Iterator[tuple[Kind, str]]:
    space, _, name = path.rpartition("::")
    if name == "call" and space.startswith("at::_ops::"):
        space, name = "at::_ops", space.rpartition("::")[2]
    for known, kind in _PATHS.items():
        if path == known or path.startswith(f"{known}::"):
            yield kind, path
    if path.partition("::")[0] in _VENDOR_SPACES:
        yield Kind.VENDOR_LIBRARY, path
    if space in _STATIC_NAMESPACES or space in _NAMESPACES:
        op = _SPECIAL.get(space, "") + name
        # Without a call it may still be taken as a pointer: `auto f = &at::relu`.
        is_op = (is_aten(op) or space == "torch::nn::functional") and name[:1].islower() and not is_allowed(name)
        if is_op or (called and space == "at::_ops" and not is_allowed(name)):
            yield from _compute(base_name(op), path, policy, own, static=space in _STATIC_NAMESPACES)


def _compute(
    op: str | None, text: str, policy: str, own: str | None, *, static: bool = False
) -> Iterator[tuple[Kind, str]]:
    if op is None:
        return
    delegated = is_delegation(op, own)
    if static and (policy == "native" or delegated):
        yield Kind.CPP_STATIC_KERNEL, text
    elif delegated:
        yield Kind.DELEGATION, text
    elif policy == "native":
        yield Kind.CPP_COMPUTE, text


def _string(text: str, policy: str, own: str | None) -> Iterator[tuple[Kind, str]]:
    if "/proc" in text:
        yield Kind.PROC_ACCESS, repr(text[:60])
    for name in re.findall(r"\baten::(\w+)", text):
        if not is_allowed(name):
            yield from _compute(base_name(name), f"aten::{name}, by its name", policy, own)


# ---------------------------------------------------------------- functions


class _Function(NamedTuple):
    name: str
    start: int
    end: int


def _functions(source: Sequence[Token]) -> list[_Function]:
    """The outermost blocks that follow ``name(...)``, in order."""
    found: list[_Function] = []
    opened: list[int] = []
    opening: dict[int, int] = {}
    depth, name, start = 0, "", 0
    for place, token in enumerate(source):
        if token.text == "(":
            opened.append(place)
        elif token.text == ")" and opened:
            opening[place] = opened.pop()
        elif token.text == "{":
            depth += 1
            if depth == 1:
                name, start = _function_before(source, place, opening), place
        elif token.text == "}" and depth:
            depth -= 1
            if depth == 0 and name:
                found.append(_Function(name, start, place))
    return found


def _function_before(source: Sequence[Token], place: int, opening: Mapping[int, int]) -> str:
    """The name of the function whose body opens at ``place``, or an empty text; a namespace has none.

    ``opening`` leads from each closing parenthesis to the one that it closes.
    """
    place -= 1
    while place > 0 and source[place].text in ("const", "noexcept", "override", "final"):
        place -= 1
    before = opening.get(place, 0) - 1
    return source[before].text if before >= 0 and source[before].kind == "name" else ""


def _owner(functions: Sequence[_Function], place: int) -> str | None:
    index = bisect.bisect_right(functions, place, key=lambda function: function.start) - 1
    return functions[index].name if index >= 0 and place <= functions[index].end else None


def exported(text: str) -> dict[str, str]:
    """What Python calls the functions of a source: ``m.def("name", &function)`` and their own names."""
    source = tokens(text)
    known = {function.name: function.name for function in _functions(source)}
    for place, token in enumerate(source[:-6]):
        if token.text in ("def", "impl") and source[place + 1].text == "(" and source[place + 2].kind == "string":
            rest = [part for part in source[place + 3 : place + 10] if part.kind == "name"]
            target = next((part.text for part in rest if part.text in known), None)
            if target is not None:
                known[source[place + 2].text.strip('"').partition("(")[0]] = target
    return known
