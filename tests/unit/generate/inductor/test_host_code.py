"""Reading the module that Inductor writes around its kernels."""

from __future__ import annotations

import pytest

from opsmith.generate.inductor.host_code import HostCode, Unsupported, read_module
from opsmith.generate.inductor.triton_text import TritonKernel

MODULE = """
import torch
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*', 'const int64_t'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0, const int64_t ks0)
{{
}}
''')

class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        s9 = arg1_1
        arg0_1_size = arg0_1.size()
        s0 = arg0_1_size[0]
        assert_size_stride(arg0_1, (s0, ), (1, ), 'input')
        {body}

runner = Runner(partitions=[])
"""


def read(body: str) -> HostCode:
    """A module whose function ends with ``body``."""
    return read_module(MODULE.format(body=body), inputs=("self", "alpha"), symbols={"s0": "self_0", "s9": "alpha"})


def test_buffers_and_kernel_calls_stay_in_the_guard_tables_names() -> None:
    """What is left is a function of the arguments, without checks and without the compiler's numbering."""
    body = "buf0 = empty_strided_cpu((s0, ), (1, ), torch.float32); cpp_fused_add_0(arg0_1, buf0, s0); return (buf0, )"
    found = read(body)
    expected = (
        "self_size = self.size()",
        "self_0 = self_size[0]",
        "buf0 = _empty((self_0,), (1,), torch.float32)",
        "_run(cpp_fused_add_0, self, buf0, self_0)",
        "return (buf0,)",
    )
    assert expected == found.statements
    assert ["cpp_fused_add_0"] == [kernel.name for kernel in found.kernels]
    assert not found.shares_memory


@pytest.mark.parametrize(
    ("body", "culprit"),
    [
        ("extern_kernels.mm(arg0_1, arg0_1, out=arg0_1)", "extern_kernels.mm"),
        ("buf0 = torch.ops.aten.sort.stable(arg0_1)", "torch.ops.aten.sort.stable"),
        ("buf0 = arg0_1.exp()", "arg0_1.exp"),
        ("for i in range(s0): pass", "for"),
    ],
)
def test_anything_but_its_own_kernels_is_refused_by_name(body: str, culprit: str) -> None:
    """A kernel file that calls ATen is no kernel; who wrote the op down wants to know which call it was."""
    with pytest.raises(Unsupported, match=f"^{culprit}$"):
        read(body)


@pytest.mark.parametrize(
    "body",
    [
        "return (arg0_1, )",
        "return (reinterpret_tensor(arg0_1, (s0, 1), (1, 1), 0), )",
        "buf0 = reinterpret_tensor(arg0_1, (s0, ), (1, ), 0); return (buf0, )",
        "buf0 = arg0_1; del arg0_1; return (buf0, )",
    ],
)
def test_results_that_look_at_an_input_are_seen(body: str) -> None:
    """An op that returns new memory must not return its caller's."""
    assert read(body).shares_memory


def test_a_view_of_a_new_buffer_is_a_result_like_any_other() -> None:
    """Inductor returns one buffer in another shape."""
    made = "buf0 = empty_strided_cpu((s0, ), (1, ), torch.float32)"
    body = f"{made}; return (reinterpret_tensor(buf0, (s0, 1), (1, 1), 0), )"
    assert not read(body).shares_memory


TRITON_BODY = (
    "with torch.cuda._DeviceGuard(0): torch.cuda.set_device(0); arg0_1 = copy_if_misaligned(arg0_1); "
    "buf0 = empty_strided_cuda((s0, ), (1, ), torch.float32); raw_stream0 = get_raw_stream(0); "
    "triton_poi_fused_0.run(arg0_1, buf0, s0, stream=raw_stream0)\n        {more}return (buf0, )"
)


def read_triton(more: str = "", *, library: bool = False) -> HostCode:
    """A module with a kernel in Triton."""
    kernel = TritonKernel(
        name="triton_poi_fused_0",
        source="",
        helpers=("helper",),
        parameters=("in_ptr0", "out_ptr0", "xnumel"),
        numbers=("zf9",),
        grid=("triton.cdiv(xnumel, 64)",),
        meta={"XBLOCK": 64},
    )
    code = MODULE.format(body=TRITON_BODY.format(more=more))
    symbols = {"s0": "self_0", "s9": "alpha", "zf9": "beta"}
    inputs = ("self", "alpha")
    return read_module(code, inputs=inputs, symbols=symbols, triton={kernel.name: kernel}, library=library)


def test_a_kernel_in_triton_is_launched() -> None:
    """On the stream that Triton takes by itself, with buffers on the device of the call."""
    found = read_triton()
    assert "buf0 = _empty((self_0,), (1,), torch.float32, device)" in found.statements
    launched = "triton_poi_fused_0[triton.cdiv(self_0, 64),](self, buf0, self_0, beta, XBLOCK=64)"
    assert launched == found.statements[-2]
    assert ("helper",) == found.kernels[0].helpers
    assert not [text for text in found.statements if "stream" in text or "misaligned" in text or "set_device" in text]


def test_modules_may_call_libraries() -> None:
    """Ops may not: their kernels are their own."""
    more = "extern_kernels.mm(arg0_1, arg0_1, out=buf0); buf1 = torch.ops.aten.sort.stable(buf0); "
    assert {"torch.mm(self, self, out=buf0)", "buf1 = torch.ops.aten.sort.stable(buf0)"} <= set(
        read_triton(more, library=True).statements
    )
    with pytest.raises(Unsupported, match="extern_kernels.mm"):
        read_triton(more)
