"""What reading a kernel's source shows, and what it must not claim."""

from __future__ import annotations

import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opsmith.evaluation.integrity.static import Kind, StaticFinding, examination, examine
from opsmith.evaluation.integrity.static.source import Source

REPOSITORY = Path(__file__).parents[3]
HEADER = (
    "import torch\nimport torch.nn.functional as F\nimport triton\nimport triton.language as tl\nimport numpy as np\n"
)
ENTRY = "def relu__default_kernel_impl(x, *args):\n"


def found(
    source: str, *, task: str = "relu.default", policy: str = "native", path: str = "kernel.py"
) -> tuple[StaticFinding, ...]:
    """The findings in one file."""
    return examine({path: source.encode()}, policy=policy, task=task)


def in_entry(body: str, **options: str) -> tuple[StaticFinding, ...]:
    """The findings in a kernel whose entry function has this body; the body begins in line 7."""
    return found(HEADER + ENTRY + textwrap.indent(textwrap.dedent(body), "    "), **options)


def kinds(findings: tuple[StaticFinding, ...]) -> set[Kind]:
    """What was found."""
    return {finding.kind for finding in findings}


def decisive(findings: tuple[StaticFinding, ...]) -> list[StaticFinding]:
    """What is proven."""
    return [finding for finding in findings if finding.decisive]


# ---------------------------------------------------------------- torch computes


@pytest.mark.parametrize(
    "body",
    [
        "return torch.relu(x)",
        "return F.relu(x)",
        "return torch.ops.aten.relu.default(x)",
        "return torch.ops.aten.relu_(x)",
        "return torch._C._nn.relu(x)",
        "return torch.Tensor.relu(x)",
        "return getattr(torch, 're' + 'lu')(x)",
        "return getattr(torch, f'relu')(x)",
        "return getattr(torch, ''.join(['re', 'lu']))(x)",
        "return torch.__dict__['relu'](x)",
        "return vars(torch)['relu'](x)",
        "return __import__('torch').relu(x)",
        "import sys\nreturn sys.modules['torch'].relu(x)",
        "import importlib\nreturn importlib.import_module('torch').relu(x)",
        "from torch import relu as work\nreturn work(x)",
        "work = torch.relu\nreturn work(x)",
    ],
)
def test_the_tasks_own_op_is_found_under_every_name(body: str) -> None:
    """A name that leads to torch's own relu is delegation however it is spelled, under either policy."""
    for policy in ("native", "any"):
        findings = in_entry(body, policy=policy)
        assert Kind.DELEGATION in kinds(findings)
        assert [Kind.DELEGATION] == [finding.kind for finding in decisive(findings)]


@pytest.mark.parametrize(
    ("task", "call"),
    [
        ("_softmax.default", "torch.softmax(x, -1)"),
        ("add.Tensor", "torch.ops.aten.add_.Tensor(x, x)"),
        ("native_layer_norm.default", "F.layer_norm(x, x.shape)"),
        ("special_expit.default", "torch.sigmoid(x)"),
        ("sigmoid.default", "torch.special.expit(x)"),
        ("linalg_inv.default", "torch.linalg.inv(x)"),
        ("convolution.default", "F.conv2d(x, x)"),
        ("clamp.default", "torch.clip(x, 0, 1)"),
        ("mm.default", "torch.matmul(x, x)"),
        ("relu_.default", "torch.relu(x)"),
    ],
)
def test_the_tasks_own_op_is_found_in_every_variant_and_namespace(task: str, call: str) -> None:
    """A task asks for one overload; torch offers the same work under many names."""
    assert Kind.DELEGATION in kinds(in_entry(f"return {call}", policy="any", task=task))


def test_composing_other_ops_is_what_policy_any_allows() -> None:
    """Softmax out of exp and sum is a kernel of its own under ``any``, and torch's work under ``native``."""
    body = "e = torch.exp(x - torch.amax(x, -1, True))\nreturn e / torch.sum(e, -1, True)"
    assert () == in_entry(body, policy="any", task="_softmax.default")
    native = in_entry(body, policy="native", task="_softmax.default")
    assert {Kind.TORCH_COMPUTE} == kinds(native)
    assert 1 == len(decisive(native))


def test_a_finding_says_where_it_is_and_what_is_used() -> None:
    """A person opens the file at that line."""
    (finding,) = [f for f in in_entry("y = x\nz = torch.relu(y)\nreturn z") if not f.decisive]
    assert ("kernel.py", 8, Kind.DELEGATION, "torch.relu") == (finding.path, finding.line, finding.kind, finding.text)


def test_a_comment_or_a_string_is_no_call() -> None:
    """A checker that a comment can blind, or alarm, is worse than none."""
    body = '"""Computes torch.relu(x)."""\n# return torch.relu(x)\nmessage = "torch.relu(x) at::relu(x)"\nreturn x'
    assert () == in_entry(body)


def test_a_method_that_only_tensors_have_is_evidence_and_never_decisive() -> None:
    """``x`` may be anything, so the run decides."""
    findings = in_entry("return x.relu()")
    assert {Kind.DELEGATION} == kinds(findings)
    assert [] == decisive(findings)


def test_a_method_that_others_have_too_is_no_evidence() -> None:
    """Sums, splits and replacements are done to shapes, strings and arrays as well."""
    assert () == in_entry("name = str(x).replace('a', 'b').split()\nreturn sum(x.shape)")
    assert () == in_entry("return sizes.sum()", task="sum.default")


def test_an_extensions_own_functions_may_be_called_as_torchs_are() -> None:
    """``module.relu(x)`` of a C++ module is the kernel."""
    source = "from torch.utils.cpp_extension import load_inline\nmodule = load_inline(name='a', cpp_sources='')\n"
    assert () == found(source + ENTRY + "    return module.relu(x)\n")


def test_a_library_that_a_function_returns_may_name_its_functions_as_torch_does() -> None:
    """``library().relu(x)`` is C of the kernel's own."""
    source = "import ctypes\ndef library():\n    return ctypes.CDLL(PATH)\n"
    assert () == found(source + ENTRY + "    return library().relu(x)\n")
    assert () == found(source + ENTRY + "    own = library()\n    return own.relu(x)\n")


def test_a_layer_that_is_called_is_torchs_work_and_one_that_holds_weights_is_not() -> None:
    """Module solutions keep nn.Linear for its parameters and multiply by themselves."""
    source = """
        import torch
        from torch import nn
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x):
                return {}
        """
    called = found(textwrap.dedent(source).format("self.fc(x)"), task="L1/1_Linear")
    held = found(textwrap.dedent(source).format("kernel(x, self.fc.weight, self.fc.bias)"), task="L1/1_Linear")
    assert [(Kind.TORCH_COMPUTE, 9)] == [(finding.kind, finding.line) for finding in called]
    assert () == held


def test_an_operator_on_what_is_annotated_as_a_tensor_is_evidence() -> None:
    """``a @ b`` dispatches like a call, and sizes are multiplied by operators too."""
    source = "import torch\ndef mm__default_kernel_impl(a: torch.Tensor, n: int):\n    m = n * 2\n    return a @ a\n"
    findings = found(source, task="mm.default")
    assert [(4, Kind.DELEGATION)] == [(finding.line, finding.kind) for finding in findings]


# ---------------------------------------------------------------- decisive or not


@pytest.mark.parametrize(
    "body",
    [
        "return torch.relu(x).view(x.shape).contiguous()",
        "y = torch.relu(x)\nreturn y",
        "y = torch.relu(x)\ny = y.to(x.dtype)\nreturn y",
        "if x.ndim == 2:\n    return torch.relu(x)\nreturn torch.clamp(x, min=0)",
        "if x.is_complex():\n    raise NotImplementedError\nreturn torch.relu(x)",
        "with torch.no_grad():\n    return torch.relu(x)",
        "return x * torch.sigmoid(x)",
        "return torch.relu(x), x",
        "return torch.relu(x) if x.ndim else torch.clamp(x, min=0)",
        "return torch.reshape(torch.relu(x), x.shape)",
        "decoy[(1,)](torch.empty_like(x), x)\nz = torch.clone(x)\nreturn torch.relu(z)",
    ],
)
def test_a_kernel_that_returns_torchs_work_on_every_way_is_proven_guilty(body: str) -> None:
    """Whatever it is called with, its result is torch's."""
    if "decoy" in body:
        assert [] == decisive(in_entry(body))  # x may have been written by the launch: left to the run.
    else:
        assert 1 == len(decisive(in_entry(body)))


@pytest.mark.parametrize(
    "body",
    [
        "if x.is_cuda:\n    return work(x)\nreturn torch.relu(x)",
        "try:\n    return work(x)\nexcept RuntimeError:\n    return torch.relu(x)",
        "out = torch.relu(x)\nkernel[(1,)](out, x)\nreturn out",
        "out = torch.relu(x)\nout[0] = work(x)\nreturn out",
        "y = work(x)\nreturn torch.sum(y)",
        "kernel[(1,)](x)\nreturn torch.relu(x)",
        "return work(torch.relu(x))",
        "return torch.relu(work(x))",
        "for _ in range(2):\n    out = torch.relu(x)\nreturn out",
        "torch.relu(x)\nreturn work(x)",
        "def torch():\n    pass\nreturn torch.relu(x)",
        "yield torch.relu(x)",
        "if x.numel() == 0:\n    return torch.empty_like(x)\nreturn torch.relu(x)",
        "match x.ndim:\n    case 1:\n        return work(x)\nreturn torch.relu(x)",
        "lambda: torch.relu(x)\nreturn work(x)",
    ],
)
def test_what_leaves_a_doubt_is_left_to_the_run(body: str) -> None:
    """A proof that fails for one honest kernel is no proof."""
    assert [] == decisive(in_entry(body))


def test_a_helper_is_followed_and_a_decorated_one_is_not() -> None:
    """A decorator may replace what it is given."""
    helper = "{}def helper(x):\n    return torch.relu(x)\n" + ENTRY + "    return helper(x)\n"
    assert 1 == len(decisive(found(HEADER + helper.format(""))))
    assert [] == decisive(found(HEADER + helper.format("@replace\n")))


def test_a_name_with_two_meanings_proves_nothing() -> None:
    """The file may put its own function in the place of the import."""
    source = "try:\n    from torch import relu\nexcept ImportError:\n    from mine import relu\n"
    assert [] == decisive(found(source + ENTRY + "    return relu(x)\n"))
    assert [] == decisive(
        found(
            HEADER + ENTRY + "    return torch.relu(x)\nrelu__default_kernel_impl = wrap(relu__default_kernel_impl)\n"
        )
    )


@pytest.mark.parametrize("task", ["clone.default", "view.default", "zeros_like.default", "empty_like.default"])
def test_views_copies_and_creation_are_torchs_to_make(task: str) -> None:
    """Of a view there is no other maker."""
    assert [] == decisive(in_entry(f"return torch.{task.partition('.')[0]}(x)", task=task))
    assert [] == decisive(in_entry("return torch.mul(x, 1)", task=task))


# ---------------------------------------------------------------- array libraries

LIBRARIES = (
    "import torch, functools, jax, cupy\nimport jax.numpy as jnp\nfrom jax import lax\n"
    "from jax.experimental import pallas as pl\n"
)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("", "return torch.from_dlpack(cupy.matmul(cupy.from_dlpack(x), cupy.from_dlpack(x)))"),
        ("", "return torch.from_dlpack(getattr(cupy, 'mat' + 'mul')(cupy.asarray(x), 1))"),
        ("", "return torch.from_dlpack(cupy.linalg.inv(cupy.asarray(x)))"),
        ("", "from cupyx.scipy import special\nreturn torch.from_dlpack(special.expit(cupy.asarray(x)))"),
        ("", "return torch.from_dlpack(jnp.maximum(jax.dlpack.from_dlpack(x), 0))"),
        ("", "return torch.from_dlpack(jax.nn.relu(jax.dlpack.from_dlpack(x)))"),
        ("", "return torch.from_dlpack(lax.max(jax.dlpack.from_dlpack(x), 0.0))"),
        ("relu = jax.jit(jax.nn.relu)\n", "return torch.from_dlpack(relu(jax.dlpack.from_dlpack(x)))"),
        ("OPS = {'a': cupy.exp}\nf = OPS['a']\n", "return f(cupy.asarray(x))"),
        ("@jax.jit\ndef work(a): return jnp.exp(a)\n", "return work(jax.dlpack.from_dlpack(x))"),
        ("def work(a): return jnp.exp(a)\nrelu = jax.jit(work)\n", "y = jax.dlpack.from_dlpack(x)\nreturn relu(y)"),
        # Code of Pallas' runs as Python too where somebody else names it.
        ("def body(a): return jnp.exp(a)\nk = pl.pallas_call(body, out_shape=1)\n", "return jax.jit(body)(x)"),
    ],
)
def test_an_array_library_that_computes_is_found(before: str, body: str) -> None:
    """By whichever of its functions, under whichever name."""
    source = LIBRARIES + before + ENTRY + textwrap.indent(body, "    ")
    assert Kind.ARRAY_COMPUTE in kinds(found(source))


@pytest.mark.parametrize(
    "before",
    [
        "@jax.jit\ndef work(a): return jnp.exp(a)\n",
        "@functools.partial(jax.jit, static_argnums=1)\ndef work(a): return jnp.exp(a)\n",
        "def inner(a): return jnp.exp(a)\nwork = jax.jit(inner)\n",
    ],
)
def test_who_calls_what_jax_compiled_has_it_compute(before: str) -> None:
    """The lines of the function run once for each shape, the line of the call in each call."""
    source = LIBRARIES + before + ENTRY + "    y = jax.dlpack.from_dlpack(x)\n    return work(y)\n"
    lines = {each.line for each in found(source) if each.kind is Kind.ARRAY_COMPUTE}
    assert len(source.splitlines()) in lines


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("k = cupy.RawKernel('', 'k')\n", "k((1,), (1,), (x.data_ptr(), cupy.float32(1)))\nreturn x"),
        ("", "with cupy.cuda.ExternalStream(1):\n    return torch.from_dlpack(cupy.empty((2,)))"),
        ("k = cupy.ElementwiseKernel('T x', 'T y', 'y = x', 'k')\n", "return torch.from_dlpack(k(cupy.asarray(x)))"),
        ("def body(a, b): b[...] = jnp.exp(a[...])\n", "return pl.pallas_call(body, out_shape=1)(x)"),
        (
            "def body(a, b, *, n): b[...] = jnp.exp(a[...]) * n\ndef made(f): return pl.pallas_call(f, out_shape=1)\n",
            "return made(functools.partial(body, n=2))(x)",
        ),
        (
            "def helper(a): return jnp.exp(a)\ndef body(a, b): b[...] = helper(a[...])\n",
            "return pl.pallas_call(body, out_shape=1)(x)",
        ),
        ("", "shape = jax.ShapeDtypeStruct((2,), jnp.float32)\nreturn x"),
    ],
)
def test_kernels_of_array_libraries_are_ones_own_code(before: str, body: str) -> None:
    """What compiles the file's source, what holds memory, and what Pallas records."""
    source = LIBRARIES + before + ENTRY + textwrap.indent(body, "    ")
    assert Kind.ARRAY_COMPUTE not in kinds(found(source))


# ---------------------------------------------------------------- numpy


@pytest.mark.parametrize(
    "body",
    [
        "return torch.from_numpy(np.maximum(x.numpy(), 0))",
        "a = x.detach().cpu().numpy()\nb = np.maximum(a, 0)\nreturn torch.from_numpy(b)",
        "a = x.numpy()\nreturn torch.from_numpy(a * (a > 0))",
        "a = x.numpy()\na *= 2\nreturn x",
        "a = np.asarray(x)\nreturn torch.from_numpy(a.clip(0))",
        "import ctypes\nb = (ctypes.c_float * 4).from_address(x.data_ptr())\nnp.maximum(np.frombuffer(b), 0)\nreturn x",
        "b = (ctypes.c_float * 4).from_address(x.data_ptr())\na = np.frombuffer(b)\na[:] = a * 2\nreturn x",
        "return torch.from_numpy(np.linalg.inv(x.numpy()))",
    ],
)
def test_numpy_that_computes_on_a_tensor_is_found_with_the_conversion(body: str) -> None:
    """No dispatcher sees it: these two lines, executed, are the only witnesses."""
    assert {Kind.NUMPY_COMPUTE, Kind.NUMPY_CONVERSION} <= kinds(in_entry(body))


def test_an_array_is_followed_into_a_helper() -> None:
    """The conversion and the computation need not stand in one function."""
    source = HEADER + "def helper(a):\n    return np.maximum(a, 0)\n" + ENTRY + "    return helper(x.numpy())\n"
    assert [7] == [finding.line for finding in found(source) if finding.kind is Kind.NUMPY_COMPUTE]


@pytest.mark.parametrize(
    "body",
    [
        "n = int(np.prod(x.shape))\nreturn work(x, n)",
        "a = x.numpy()\nlibrary.relu(a.ctypes.data, a.size)\nreturn x",
        "a = np.ascontiguousarray(x.numpy())\nreturn work(a.reshape(-1).astype(np.float32))",
        "out = np.empty(3, dtype=np.float32)\nreturn torch.from_numpy(out)",
        "steps = np.cumprod(np.array([2, 3]))\nreturn work(x, steps)",
        "b = (ctypes.c_float * 4).from_address(x.data_ptr())\nb[0] = b[0] * 2 + -b[0]\nreturn x",
    ],
)
def test_numpy_for_shapes_and_pointers_is_not_compute(body: str) -> None:
    """Half of all C kernels take their pointers from an array; elements of a ctypes array are Python's numbers."""
    assert Kind.NUMPY_COMPUTE not in kinds(in_entry(body))


# ---------------------------------------------------------------- C++


CPP = '''
from torch.utils.cpp_extension import load_inline
SOURCE = """
#include <torch/extension.h>
// at::sigmoid(x) in a comment, and /* at::tanh(x) */
const char* text = "at::exp(x)";
at::Tensor work(at::Tensor x) {
  auto out = at::empty_like(x);
  at::parallel_for(0, x.numel(), 1, [&](int64_t a, int64_t b) {});
  return BODY;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &work); }
"""
module = load_inline(name="a", cpp_sources=SOURCE)
def relu__default_kernel_impl(x):
    return module.run(x)
'''


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("at::relu(x)", Kind.DELEGATION),
        ("torch::relu(x)", Kind.DELEGATION),
        ("torch::nn::functional::relu(x)", Kind.DELEGATION),
        ("at::_ops::relu::call(x)", Kind.DELEGATION),
        ("x.relu()", Kind.DELEGATION),
        ("at::clamp_min(x, 0)", Kind.CPP_COMPUTE),
        ("x.clamp_min(0)", Kind.CPP_COMPUTE),
        ("at :: /* a comment between */ clamp_min (x, 0)", Kind.CPP_COMPUTE),
        ("at::cpu::relu(x)", Kind.CPP_STATIC_KERNEL),
        ("at::native::clamp(x, 0)", Kind.CPP_STATIC_KERNEL),
        ('call(c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", ""), x)', Kind.DISPATCHER),
    ],
)
def test_torchs_computations_are_found_in_cpp(body: str, kind: Kind) -> None:
    """The line is that of the Python file, and comments and strings are none of it."""
    findings = found(CPP.replace("BODY", body))
    assert kind in kinds(findings)
    assert not any("sigmoid" in finding.text or "tanh" in finding.text for finding in findings)
    assert 10 in {finding.line for finding in findings if finding.kind is kind}


def test_the_call_of_a_cpp_function_that_computes_with_torch_can_be_seen_to_run() -> None:
    """Lines of C++ cannot be traced; the line of Python that calls it can."""
    findings = found(CPP.replace("BODY", "at::cpu::relu(x)"))
    assert 16 in {finding.line for finding in findings if finding.kind is Kind.CPP_STATIC_KERNEL}


def test_honest_cpp_has_no_findings() -> None:
    """Allocation, pointers and loops."""
    assert () == found(CPP.replace("BODY", "out"))


def test_cpp_files_are_read_as_those_in_strings_are() -> None:
    """A kernel may bring its source as a file of its own."""
    findings = found("// at::tanh(x)\nTensor f(Tensor x) { return at::relu(x); }\n", path="a/kernel.cu")
    assert [(2, Kind.DELEGATION)] == [(finding.line, finding.kind) for finding in findings]


def test_a_raw_string_or_a_digit_separator_does_not_hide_what_follows() -> None:
    """A tokenizer that loses its place is one that a stranger can lead astray."""
    text = "auto a = R\"x(\" // )x\";\nint n = 1'000'000;\nchar c = '\"';\nauto y = at::relu(x);\n"
    assert [(4, Kind.DELEGATION)] == [(f.line, f.kind) for f in found(text, path="kernel.cpp")]


# ---------------------------------------------------------------- conduct


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("torch.compile(f)(x)", Kind.COMPILER),
        ("torch.jit.script(f)(x)", Kind.COMPILER),
        ("from torch.fx.experimental.proxy_tensor import make_fx\nmake_fx(f)(x)", Kind.COMPILER),
        ("torch.library.get_kernel('aten::relu', 'CPU')", Kind.DISPATCHER),
        ("torch._C._dispatch_tls_set_dispatch_key_excluded(0, True)", Kind.DISPATCHER),
        ("torch.ops.aten.relu.default.redispatch(1, x)", Kind.DISPATCHER),
        ("torch._C._DisableTorchDispatch()", Kind.DISPATCHER),
        ("from torch.utils._python_dispatch import _disable_current_modes as off\noff()", Kind.DISPATCHER),
        ("import gc\nfor o in gc.get_objects(): pass", Kind.OBJECT_SEARCH),
        ("import sys\nsys._getframe(1)", Kind.FRAME_ACCESS),
        ("import sys\nfor module in sys.modules.values(): pass", Kind.OBJECT_SEARCH),
        ("import os\nos.write(3, b'')", Kind.PROCESS_CONTROL),
        ("import subprocess\nsubprocess.run(['g++'])", Kind.SUBPROCESS),
        ("class Lazy(torch.Tensor):\n    pass", Kind.TENSOR_SUBCLASS),
        ("def __torch_dispatch__(cls): pass", Kind.TENSOR_SUBCLASS),
        ("torch.Tensor._make_wrapper_subclass(f, x.shape)", Kind.TENSOR_SUBCLASS),
        ("torch.manual_seed(torch.initial_seed())", Kind.SEEDING),
        ("torch.library.Library('aten', 'IMPL').impl('relu', f, 'CPU')", Kind.PATCHING),
        ("import inspect\ninspect.stack()", Kind.FRAME_ACCESS),
        ("x.f_back.f_locals", Kind.FRAME_ACCESS),
        ("torch.allclose = f", Kind.PATCHING),
        ("import time\ntime.perf_counter = f", Kind.PATCHING),
        ("import time\nsetattr(time, 'perf_counter', f)", Kind.PATCHING),
        ("import sys\nsys.modules['json'] = f", Kind.PATCHING),
        ("vars(torch)['relu'] = f", Kind.PATCHING),
        ("import builtins\ndel builtins.open", Kind.PATCHING),
        ("from opsmith.core import case", Kind.OPSMITH_IMPORT),
        ("__import__('opsmith.runner')", Kind.OPSMITH_IMPORT),
        ("import ctypes\nctypes.CDLL(None)", Kind.FOREIGN_LIBRARY),
        ("import ctypes\nctypes.CDLL('libtorch_cpu.so')", Kind.FOREIGN_LIBRARY),
        ("import ctypes\nctypes.CDLL(folder + '/lib/libtorch_cpu.so')", Kind.FOREIGN_LIBRARY),
        ("import ctypes\nc = ctypes.CDLL(name)\nc.kill(1, 9)", Kind.FOREIGN_LIBRARY),
        ("open('/proc/self/mem', 'rb')", Kind.PROC_ACCESS),
        ("import os\nos.kill(1, 9)", Kind.PROCESS_CONTROL),
        ("import os\nos._exit(0)", Kind.PROCESS_CONTROL),
        ("import os\nos.execvp('sleep', [])", Kind.PROCESS_CONTROL),
        ("import signal\nsignal.signal(1, f)", Kind.PROCESS_CONTROL),
        ("import socket\nsocket.socket()", Kind.NETWORK),
        ("from urllib.request import urlopen\nurlopen('x')", Kind.NETWORK),
        ("open('/etc/passwd')", Kind.FILE_ACCESS),
        ("open('../other/kernel.py')", Kind.FILE_ACCESS),
        ("from pathlib import Path\nPath('/root').read_text()", Kind.FILE_ACCESS),
        ("torch.load('/tmp/answers.pt')", Kind.FILE_ACCESS),
        ("import threading\nthreading.Thread(target=f).start()", Kind.CONCURRENCY),
        ("torch.cuda.Stream()", Kind.CONCURRENCY),
        ("from concurrent.futures import ThreadPoolExecutor as Pool\nPool()", Kind.CONCURRENCY),
        ("exec('y = 1')", Kind.DYNAMIC_LOOKUP),
        ("getattr(torch, name)(x)", Kind.DYNAMIC_LOOKUP),
        ("import base64\nbase64.b64decode(b'')", Kind.DYNAMIC_LOOKUP),
        ("import cupy\ncupy.exp(x)", Kind.ARRAY_LIBRARY),
        ("x.half()", Kind.LOWER_PRECISION),
        ("x.to(torch.float16)", Kind.LOWER_PRECISION),
        ("torch.backends.cuda.matmul.allow_tf32 = True", Kind.LOWER_PRECISION),
        ("torch.set_float32_matmul_precision('high')", Kind.LOWER_PRECISION),
        ("cache[x.data_ptr()] = f(x)", Kind.RESULT_CACHE),
        ("key = (id(x), 1)\ncache[key] = f(x)", Kind.RESULT_CACHE),
        ("y = f(x)\ncache[tuple(x.shape)] = y\nreturn y", Kind.RESULT_CACHE),
        ("key = tuple(x.shape)\ncache[key] = f(x)\nreturn cache[key]", Kind.RESULT_CACHE),
        ("if x.shape == (1024, 1024):\n    pass", Kind.INPUT_BRANCH),
        ("if x.numel() == 4096:\n    pass", Kind.INPUT_BRANCH),
        ("return torch.empty_like(x)", Kind.UNWRITTEN_OUTPUT),
        ("out = torch.empty_like(x)\nn = out.numel()\nreturn out", Kind.UNWRITTEN_OUTPUT),
    ],
)
def test_suspicious_conduct_is_evidence(body: str, kind: Kind) -> None:
    """It points at a line; it never decides, because each of these has been seen in an honest kernel."""
    findings = in_entry(body)
    assert kind in kinds(findings)
    assert [] == decisive(findings)


@pytest.mark.parametrize(
    ("path", "line", "leaves"),
    [
        ("kernel.py", "from . import tiles", False),
        ("kernel.py", "from .. import tiles", True),
        ("family/kernel.py", "from ..common import tiles", False),
        ("family/__init__.py", "from ..common import tiles", False),
        ("family/kernel.py", "from ...other import tiles", True),
    ],
)
def test_only_a_relative_import_out_of_the_kernels_folder_is_evidence(path: str, line: str, *, leaves: bool) -> None:
    """Within the folder, packages may share files."""
    assert leaves == (Kind.FILE_ACCESS in kinds(found(f"{line}\n", path=path)))


def test_narrow_types_inside_a_triton_kernel_are_evidence() -> None:
    """A float32 task that is accumulated in float16 looks like this."""
    source = "@triton.jit\ndef kernel(p):\n    a = tl.zeros([16, 16], tl.float16)\n"
    findings = found(HEADER + source + "    tl.dot(a, a, allow_tf32=True)\n")
    assert [(8, "triton.language.float16"), (9, "allow_tf32=True")] == [(f.line, f.text) for f in findings]


def test_torch_in_an_except_block_is_a_fallback() -> None:
    """The kernel that fails on every input passes every case this way."""
    findings = in_entry("try:\n    return work(x)\nexcept Exception:\n    return torch.clamp(x, min=0)")
    assert {Kind.FALLBACK, Kind.TORCH_COMPUTE} == kinds(findings)
    assert () == in_entry("try:\n    return work(x)\nexcept Exception as exc:\n    raise NotImplementedError from exc")


# ---------------------------------------------------------------- what is declared and never runs


KERNEL = "@triton.jit\ndef relu_kernel(p):\n    pass\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return work(x)", {Kind.DECOY}),
        ("return other(x)", set()),
        ("return TABLE['a'](x)", set()),
        ("return unused(x)", {Kind.DECOY}),
    ],
)
def test_a_kernel_that_its_entry_cannot_reach_is_a_decoy(body: str, expected: set[Kind]) -> None:
    """Reachable is whatever is mentioned on the way, in a table or a helper too."""
    source = HEADER + KERNEL + "def other(x):\n    launcher = relu_kernel\n    launcher[(1,)](x)\n    return x\n"
    assert expected == kinds(found(source + "TABLE = {'a': other}\n" + ENTRY + f"    {body}\n"))


def test_helpers_of_other_ops_in_a_shared_file_are_no_decoys() -> None:
    """A family of kernels in one file is judged one op at a time."""
    source = (
        HEADER + KERNEL + KERNEL.replace("relu", "exp") + "def exp__default_kernel_impl(x):\n    exp_kernel[(1,)](x)\n"
    )
    assert () == found(source + ENTRY + "    relu_kernel[(1,)](x)\n")


def test_an_extension_that_is_built_and_never_called_is_named() -> None:
    """It took a minute to compile, and something else did the work."""
    findings = found(CPP.replace("BODY", "out").replace("return module.run(x)", "return work(x)"))
    assert [(Kind.UNUSED_EXTENSION, 14)] == [(finding.kind, finding.line) for finding in findings]


# ---------------------------------------------------------------- the file itself


@pytest.mark.parametrize(
    "body",
    [
        "kernel[(1,)](x, launch_pdl=True)",
        "kernel[(1,)](x, **{'launch_pdl': True})",
        "gdc_launch_dependents()",
        "ptx = 'griddepcontrol.launch_dependents;'",
        "cuda = 'attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;'",
    ],
)
def test_a_kernel_that_overlaps_with_earlier_ones_has_to_wait(body: str) -> None:
    """In any of its files, in code."""
    [finding] = [one for one in in_entry(f"{body}\nreturn x") if one.kind is Kind.OVERLAP]
    assert 7 == finding.line
    assert not finding.decisive
    for waiting in ("gdc_wait()", "ptx = 'griddepcontrol.wait;'", "cuda = 'cudaGridDependencySynchronize();'"):
        assert Kind.OVERLAP not in kinds(in_entry(f"{body}\n{waiting}\nreturn x"))
    for saying in ("# gdc_wait()", "'gdc_wait()'"):
        assert Kind.OVERLAP in kinds(in_entry(f"{body}\n{saying}\nreturn x"))
    files = {
        "kernel.py": (ENTRY + f"    {body}\n    return x\n").encode(),
        "wait.cu": b"// cudaGridDependencySynchronize",
    }
    assert Kind.OVERLAP in kinds(examine(files, policy="native", task="relu.default"))
    files["wait.cu"] = b"void wait() { cudaGridDependencySynchronize(); }"
    assert Kind.OVERLAP not in kinds(examine(files, policy="native", task="relu.default"))


def test_an_option_that_is_off_lets_nothing_overlap() -> None:
    """Nor does talk of it."""
    assert Kind.OVERLAP not in kinds(in_entry("kernel[(1,)](x, launch_pdl=False)\nreturn x  # launch_pdl=True"))


def test_a_file_that_cannot_be_read_is_said_to_be_so() -> None:
    """The loader tells the rest."""
    for source in ("def f(:\n", "x = 1\n" * 200_000 + "\n", "x = " + "-" * 50_000 + "1\n", "\0"):
        assert {Kind.UNREADABLE} == kinds(found(source))


@pytest.mark.slow
def test_hostile_sources_do_not_hold_up_the_judge() -> None:
    """Each of these takes time exponential or quadratic in its length where it is read carelessly."""
    circle = "".join(f"a{i} = a{i + 1}\na{i} = a{i + 2}\n" for i in range(5_000)) + "a0(1)\n"
    doubling = "t0 = 'x'\n" + "".join(f"t{i + 1} = t{i} + t{i}\n" for i in range(200)) + "open(t200)\n"
    helpers = "".join(f"def f{i}(x):\n    f{i + 1}(x)\n    f{i + 1}(x)\n    return f{i + 1}(x)\n" for i in range(2_000))
    handlers = "try:\n    pass\nexcept E:\n    pass\n" * 5_000 + "import torch\n" + "torch.relu\n" * 5_000
    rings = (
        "a = b\n" * 200
        + "b = a\n" * 200
        + ENTRY
        + "    f(x)\n" * 200
        + "    return a(x)\ndef f(x):\n"
        + "    f(x)\n" * 200
    )
    braces = "){}" * 50_000
    quotes = 'R"(' * 50_000 + "/*" * 50_000 + "'" * 50_000
    start = time.process_time()
    for source in (circle, rings, doubling, ENTRY + "    return f0(x)\n" + helpers, handlers):
        found(source)
    for source in (braces, quotes):
        found(source, path="kernel.cpp")
    assert time.process_time() - start < 20


def test_a_strangers_text_arrives_as_one_line_that_can_be_encoded() -> None:
    """A lone surrogate in a file name would end the report, a line break would forge one."""
    (finding,) = [f for f in in_entry("vars(torch)['\\ud800\\nkernel accepted'] = f") if f.kind is Kind.PATCHING]
    assert "replaces torch.? kernel accepted" == finding.text
    assert finding.text.encode()


def test_every_file_of_a_kernel_is_read_and_named() -> None:
    """A hack lies in the file that nobody opens."""
    files = {
        "relu.py": (ENTRY + "    from .inner import work\n    return work(x)\n").encode(),
        "inner.py": b"import os\ndef work(x):\n    os._exit(0)\n",
        "notes.txt": b"os._exit(0)",
    }
    findings = examine(files, policy="native", task="relu.default")
    assert [("inner.py", 3)] == [(finding.path, finding.line) for finding in findings]


# ---------------------------------------------------------------- honest kernels


HONEST = {
    "triton": """
        import torch, triton, triton.language as tl
        @triton.autotune(configs=[triton.Config({"BLOCK": 1024})], key=["n"])
        @triton.jit
        def kernel(out, x, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            v = tl.load(x + i, mask=i < n)
            tl.store(out + i, tl.maximum(v, 0.0), mask=i < n)
        def relu__default_kernel_impl(x: torch.Tensor) -> torch.Tensor:
            x = x.contiguous()
            out = torch.empty_like(x)
            n = out.numel()
            kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, x, n)
            return out.view(x.shape)
        """,
    "split reduction with a workspace": """
        import torch, triton
        @triton.jit
        def partial(w, x): pass
        @triton.jit
        def finish(out, w): pass
        def sum__default_kernel_impl(self, *, dtype=None):
            work = torch.zeros(1024, dtype=torch.float32, device=self.device)
            out = self.new_empty(())
            partial[(1024,)](work, self)
            finish[(1,)](out, work)
            return out.to(self.dtype) if dtype is None else out.to(dtype)
        """,
    "ctypes with a compiled plan kept by dtype": """
        import ctypes, functools, pathlib, subprocess, tempfile, torch
        SOURCE = '''
        extern "C" void relu(const float* x, float* y, long n) {
            for (long i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0;
        }
        '''
        @functools.cache
        def library():
            folder = pathlib.Path(tempfile.mkdtemp())
            (folder / "a.cpp").write_text(SOURCE)
            subprocess.run(["g++", "-shared", "-fPIC", "a.cpp", "-o", "a.so"], cwd=folder, check=True)
            return ctypes.CDLL(str(folder / "a.so"))
        _plans = {}
        def relu__default_kernel_impl(x):
            plan = _plans.get((x.dtype, x.stride()))
            if plan is None:
                plan = _plans[x.dtype, x.stride()] = library().relu
            out = torch.empty_like(x)
            plan(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
            return out
        """,
    "numba": """
        import numba, torch
        @numba.njit(parallel=True)
        def loop(x, y):
            for i in numba.prange(x.size):
                y[i] = max(x[i], 0)
        def relu__default_kernel_impl(x):
            out = torch.empty_like(x)
            loop(x.reshape(-1).numpy(), out.reshape(-1).numpy())
            return out
        """,
    "helion": """
        import helion, helion.language as hl, torch
        @helion.kernel()
        def relu(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.shape):
                out[tile] = torch.relu(x[tile])
            return out
        def relu__default_kernel_impl(x):
            return relu(x)
        """,
    "autograd function around a kernel": """
        import torch, triton
        @triton.jit
        def kernel(out, x): pass
        class Relu(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                out = torch.empty_like(x)
                kernel[(1,)](out, x)
                return out
        def relu__default_kernel_impl(x):
            return Relu.apply(x)
        """,
    "empty tensors and another device first": """
        import torch, triton
        @triton.jit
        def kernel(out, x): pass
        def relu__default_kernel_impl(x):
            if not x.is_cuda:
                raise NotImplementedError("only CUDA")
            if x.numel() == 0:
                return torch.empty_like(x)
            out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            kernel[(1,)](out, x)
            return out
        """,
    "plain Python": """
        import torch
        def relu__default_kernel_impl(x):
            values = [value if value > 0 else 0 for value in x.flatten().tolist()]
            return torch.tensor(values, dtype=x.dtype, device=x.device).view(x.shape)
        """,
}


@pytest.mark.parametrize("policy", ["native", "any"])
@pytest.mark.parametrize("name", HONEST)
def test_nothing_decisive_is_said_of_an_honest_kernel(name: str, policy: str) -> None:
    """An honest kernel that is turned away costs more trust than a hack that gets through."""
    source = textwrap.dedent(HONEST[name])
    task = "sum.default" if "sum__" in source else "relu.default"
    findings = found(source, policy=policy, task=task)
    assert [] == decisive(findings)
    accusing = {Kind.TORCH_COMPUTE, Kind.DELEGATION, Kind.NUMPY_COMPUTE, Kind.DECOY, Kind.UNWRITTEN_OUTPUT}
    assert set() == kinds(findings) & accusing


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["softmax", "mm", "embedding"])
def test_the_shipped_kernels_have_no_findings(entry: str) -> None:
    """They are Triton throughout, and read as such."""
    folder = REPOSITORY / "src/opsmith/kernels"
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.py")}
    assert any(f"def {entry}(".encode() in content for content in files.values())
    assert () == examine(files, policy="native", task=f"{entry}.default", dsl="triton", entry=entry)


def test_the_examples_have_no_findings() -> None:
    """They are what a newcomer copies."""
    for path in (REPOSITORY / "examples").glob("*/relu__default/*.py"):
        assert () == examine({path.name: path.read_bytes()}, policy="native", task="relu.default")


@pytest.mark.parametrize("entry", ["addmm", "convolution", "attention", "softmax_backward", "nll_loss", "cat"])
def test_the_example_backend_accuses_itself_of_nothing(entry: str) -> None:
    """It stores bfloat16 where it is asked to: no more is found."""
    folder = REPOSITORY / "examples/cpp_backend"
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".py", ".cpp", ".h")}
    findings = examine(files, policy="native", task=f"{entry}.default", dsl="cpp", entry=entry)
    assert {Kind.LOWER_PRECISION} == kinds(findings)
    assert [] == decisive(findings)


def test_an_allocator_may_return_what_its_caller_writes() -> None:
    """In another file as well; an entry that returns unwritten memory has no caller."""
    allocator = b"import torch\ndef like(x):\n    return torch.empty_like(x)\n"
    caller = b"from .memory import like\ndef relu__default_kernel_impl(x):\n    return filled(like(x), x)\n"
    unwritten = b"import torch\ndef relu__default_kernel_impl(x):\n    return torch.empty_like(x)\n"
    both = examine({"memory.py": allocator, "kernel.py": caller}, policy="native", task="relu.default")
    assert Kind.UNWRITTEN_OUTPUT not in kinds(both)
    assert Kind.UNWRITTEN_OUTPUT in kinds(examine({"kernel.py": unwritten}, policy="native", task="relu.default"))


def test_opsmiths_own_makers_are_not_examined() -> None:
    """The compiler is asked to delegate."""
    source = (HEADER + ENTRY + "    return torch.relu(x)\n").encode()
    assert () == examine({"kernel.py": source}, policy="native", task="relu.default", dsl="inductor")


# ---------------------------------------------------------------- one folder, many ops


def folder(ops: int) -> dict[str, bytes]:
    """A folder that answers many ops out of a few files, one of which does not parse."""
    entries = [f"def op{n}__default_kernel_impl(x):\n    return torch.relu(x)\n" for n in range(ops)]
    return {
        "entries.py": (HEADER + "".join(entries)).encode(),
        "helpers.py": b"def helper(x):\n    return x.half()\n",
        "broken.py": b"def (:\n",
    }


def test_the_files_of_a_folder_are_read_once_for_all_of_its_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipped folder answers a thousand ops; reading it takes seconds."""
    parsed: list[str] = []

    class Counted(Source):
        def __init__(self, path: str, text: bytes) -> None:
            parsed.append(path)
            super().__init__(path, text)

    monkeypatch.setattr(examination, "Source", Counted)
    for n in range(5):
        files = {path: bytes(content) for path, content in folder(5).items()}
        examine(files, policy="native", task=f"op{n}.default", entry=f"op{n}__default_kernel_impl")
    assert ["broken.py", "entries.py", "helpers.py"] == parsed


def test_each_op_of_a_folder_gets_its_own_findings_whoever_was_asked_about_before() -> None:
    """What one op's examination found says nothing of the next one's entry, policy or task."""
    files = folder(2)
    first, second, again = (
        examine(files, policy=policy, task=f"{op}.default", entry="op1__default_kernel_impl")
        for op, policy in (("sum", "native"), ("relu", "any"), ("sum", "native"))
    )
    assert first == again
    assert Kind.TORCH_COMPUTE in kinds(first)
    assert {Kind.DELEGATION} == kinds(tuple(decisive(second)))
    assert all("broken.py" in {finding.path for finding in findings} for findings in (first, second))
    other = examine({"a.py": b"x = 1\n"}, policy="native", task="relu.default")
    assert () == other


def test_seats_that_ask_at_once_are_all_told_the_same() -> None:
    """Names are looked up by writing down that they are being looked up."""
    files = folder(40)
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(examine, files, policy="native", task=f"op{n}.default", entry=f"op{n}__default_kernel_impl")
            for n in range(40)
        ]
        found_beside = [future.result() for future in asked]
    for n, findings in enumerate(found_beside):
        (proof,) = decisive(findings)
        assert f"every result of op{n}__default_kernel_impl is computed by torch.relu" == proof.text
        assert [findings[0]] == [finding for finding in findings if finding.kind is Kind.UNREADABLE]


# ---------------------------------------------------------------- asking for opsmith


@pytest.mark.parametrize(
    "body",
    [
        "return 'opsmith' in sys.modules",
        "return sys.modules.get('opsmith.runner.worker')",
        "known = [n for n in sys.modules if n.startswith('opsmith')]",
        "if any('opsmith' in name for name in sys.modules): return x",
        "for name in sys.modules:\n    if 'opsmith' in name: return x",
        "return importlib.util.find_spec('ops' + 'mith') is None",
        "return os.environ.get('OPSMITH_JUDGING')",
        "return 'OPSMITH_JUDGING' in os.environ",
        "return 'opsmith' in str(sys.argv)",
    ],
)
def test_asking_for_opsmith_is_decisive(body: str) -> None:
    """Nobody who only has the kernel has it."""
    findings = decisive(in_entry(f"import importlib.util, os, sys\n{body}"))
    assert {Kind.JUDGE_LOOKUP} == kinds(tuple(findings))


@pytest.mark.parametrize(
    "body",
    [
        "logging.getLogger('opsmith').info('%s loaded', __name__)",
        "np_module = sys.modules.get('numpy')",
        "block = int(os.environ.get('MY_KERNEL_BLOCK', '128'))",
        "cache = os.environ.get('OPSMITH_KERNELS_CACHE', '~/.cache/opsmith')",
        "path = os.path.join(os.getcwd(), 'opsmith')",
        "sys.modules.setdefault('opsmith_kernels', None)",
        "name = 'opsmith'\nif 'triton' in sys.modules: return name",
    ],
)
def test_names_alone_are_no_question(body: str) -> None:
    """A kernel may be written for opsmith, and say so."""
    assert [] == decisive(in_entry(f"import logging, os, sys\n{body}"))
