"""Metal read by clang, where no Mac is: grammar, names, types and address spaces.

Apple's compiler runs on a Mac only, and nothing else reads Metal. Metal is C++ with address spaces, and so is OpenCL
C++, which clang reads anywhere: ``device``, ``threadgroup`` and ``thread`` are its spaces under other names. What
kernels use of Metal's library is declared here; which functions ``c10::metal`` has is taken from torch's own headers.
Of functions the names are checked, not their arguments: each takes any, and returns what its first is. ``bfloat`` is
read as ``half``, for OpenCL has none.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from opsmith.core.syntax_tree import syntax_tree
from opsmith.errors import MissingDependency

_ARGUMENTS = ("-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "-ferror-limit=0", "-Wno-everything")
_EXTENSIONS = ("-Xclang", "-cl-ext=+cl_khr_fp16,+cl_khr_fp64")
_FILE = "kernel.clcpp"
_INCLUDE = re.compile(r"^\s*#include.*$", re.MULTILINE)
_NAMESPACE = re.compile(r"^\s*using namespace metal;", re.MULTILINE)
#: A function's definition in a header, and a struct's such as ``MaxOp``.
_FUNCTION = re.compile(
    r"^(?:inline |static |constexpr )*[A-Za-z_][\w:<>,&\* \n]*?[\s&\*]([a-z_]\w*)"
    r"\([^;{}()]*(?:\([^()]*\)[^;{}()]*)*\)\s*\{",
    re.MULTILINE,
)
_REDUCTION = re.compile(r"^struct (\w+Op)\b", re.MULTILINE)
_NO_FUNCTIONS = frozenset({"for", "if", "switch", "while"})

_METAL_FUNCTIONS = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "clamp", "clz", "copysign", "cos"),
    *("cosh", "cospi", "ctz", "exp", "exp10", "exp2", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "fract"),
    *("ldexp", "log", "log10", "log2", "max", "min", "mix", "mulhi", "popcount", "pow", "powr", "rint", "round"),
    *("rsqrt", "saturate", "select", "sign", "sin", "sinh", "sinpi", "smoothstep", "sqrt", "step", "tan", "tanh"),
    *("tanpi", "trunc", "simd_broadcast", "simd_max", "simd_min", "simd_prefix_inclusive_sum", "simd_product"),
    *("simd_shuffle", "simd_shuffle_down", "simd_shuffle_up", "simd_shuffle_xor", "simd_sum"),
)
_METAL_TESTS = ("all", "any", "isfinite", "isinf", "isnan", "isnormal", "signbit")

_TYPES = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define device __global
#define threadgroup __local
#define thread __private
#define TORCH_REPORT_ERROR(...) c10::metal::report_error(__VA_ARGS__)
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef half bfloat;
template <class T, class V> T as_type(V);
enum mem_flags { mem_none, mem_device, mem_threadgroup };
"""
#: Metal makes a vector by calling its type, which OpenCL does not have; what a grid's position is stays OpenCL's.
_VECTOR = """
struct {type}{n} {{
    {type} {members};
    {type}{n}() = default;
    template <class A> {type}{n}(A);
    template <class A, class B, class... C> {type}{n}(A, B, C...);
    {type} operator[](uint) const;
    template <class A> {type}{n} operator+(A) const;
    template <class A> {type}{n} operator-(A) const;
    template <class A> {type}{n} operator*(A) const;
    template <class A> {type}{n} operator/(A) const;
    {type}{n} operator-() const;
}};
"""
_FUNCTIONS = "template <class T, class... A> T {name}(T, A...);\n"
_OF_POINTERS = "template <class T, class... A> T {name}(__local T*, A...);\n"
_TESTS = "template <class T> bool {name}(T);\n"
_REDUCTIONS = """
template <class T> struct {name} {{
    static T identity();
    template <class A, class B> static bool replace(A, B);
    template <class... A> static T combine(A...);
    template <class... A> static T apply(A...);
}};
"""


def errors(source: str) -> tuple[str, ...]:
    """What clang finds wrong with the Metal of a kernel file, such as ``line 12: use of undeclared identifier 'x'``.

    Args:
        source: of the Python file; its strings that define kernels are read, and lines counted in them.

    Raises:
        MissingDependency: clang's library is not installed.
        ValueError: no string of the file defines a kernel.
    """
    try:
        from clang import cindex
    except ImportError as exc:
        raise MissingDependency("clang", extra="metal") from exc
    found: list[str] = []
    for text in _shaders(source):
        prelude = _prelude()
        first = prelude.count("\n")
        unit = cindex.Index.create().parse(
            _FILE,
            args=[*_ARGUMENTS, *_EXTENSIONS],
            unsaved_files=[(_FILE, prelude + _NAMESPACE.sub("", _INCLUDE.sub("", text)))],
        )
        serious = [each for each in unit.diagnostics if each.severity >= cindex.Diagnostic.Error]
        found += [f"line {each.location.line - first}: {_in_metal(each.spelling)}" for each in serious]
    return tuple(found)


def verdict(source: str) -> str | None:
    """One phrase about the Metal of a kernel file; None where clang's library is not installed."""
    try:
        found = errors(source)
    except MissingDependency:
        return None
    except ValueError as exc:
        return str(exc)
    return f"clang finds {len(found)} errors, the first: {found[0]}" if found else "clang finds no error in its text"


def _in_metal(message: str) -> str:
    """A message with Metal's names of the address spaces."""
    for theirs, ours in (("__global", "device"), ("__local", "threadgroup"), ("__private", "thread")):
        message = message.replace(theirs, ours)
    return message


def _shaders(source: str) -> list[str]:
    strings = [each.value for each in ast.walk(syntax_tree(source)) if isinstance(each, ast.Constant)]
    found = [text for text in strings if isinstance(text, str) and re.search(r"\bkernel\s+void\b", text)]
    if not found:
        raise ValueError("no string of the file defines a kernel")
    return found


def _prelude() -> str:
    vectors = [
        _VECTOR.format(type=kind, n=n, members=", ".join("xyzw"[:n])) for kind in ("float", "half") for n in (2, 3, 4)
    ]
    whole = [
        f"typedef {kind} {kind}{n} __attribute__((ext_vector_type({n})));\n"
        for kind in ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong")
        for n in (2, 3, 4)
    ]
    functions, reductions = _of_torch()
    library = "".join(_library())
    return "".join(
        [
            *(_TYPES, *whole, *vectors),
            f"namespace metal {{\n{library}namespace precise {{\n{library}}}\nnamespace fast {{\n{library}}}\n}}\n",
            "namespace c10 { namespace metal {\nstruct ErrorMessages { int count; };\n",
            "template <class... A> void report_error(A...);\n",
            *(part.format(name=name) for name in functions for part in (_FUNCTIONS, _OF_POINTERS)),
            *(_REDUCTIONS.format(name=name) for name in reductions),
            "}}\nusing namespace metal;\n",
        ]
    )


def _library() -> Iterator[str]:
    yield from (_FUNCTIONS.format(name=name) for name in _METAL_FUNCTIONS)
    yield from (_TESTS.format(name=name) for name in _METAL_TESTS)


def _of_torch() -> tuple[list[str], list[str]]:
    """Names of the functions and reductions in torch's headers for Metal, without importing torch."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    texts = [file.read_text() for file in (Path(spec.origin).parent / "include" / "c10" / "metal").glob("*.h")]
    functions = {name for text in texts for name in _FUNCTION.findall(text)} - _NO_FUNCTIONS - {"report_error"}
    return sorted(functions), sorted({name for text in texts for name in _REDUCTION.findall(text)})
