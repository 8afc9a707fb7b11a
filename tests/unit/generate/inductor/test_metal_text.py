"""Emitted Metal in a file of its own: names, headers and numbers."""

from __future__ import annotations

import pytest

from opsmith.generate.inductor.host_code import read_module

KERNEL = """
    kernel void {name}(
        device float* out_ptr0,
        constant float* in_ptr0,
        constant long& xnumel,
        device c10::metal::ErrorMessages* error_buf,
        uint xindex [[thread_position_in_grid]]
    ) {{
        out_ptr0[xindex] = in_ptr0[xindex] * zf1;
    }}
"""
HOST = """
def call(args):
    arg0_1, zf1 = args
    arg0_1_size = arg0_1.size()
    s0 = arg0_1_size[0]
    with torch._ops.contextlib.nullcontext():
        pass  # MPS set device
        buf0 = empty_strided((s0, ), (1, ), device='mps', dtype=torch.float32)
        {call}(buf0, arg0_1, s0, threads=[s0], error_buf_idx=3)
    return (buf0, )
"""
#: How torch 2.13 writes a module, and how 2.11 does.
MODULES = {
    "kernel_0": f"""
kernel_0 = async_compile.metal('kernel_0', '''{KERNEL.format(name="kernel_0")}''', ['utils', 'error'])
{HOST.format(call="kernel_0")}""",
    "mps_lib_0": f"""
mps_lib_0 = compile_mps_shader('''
    #include <c10/metal/utils.h>
    #include <c10/metal/error.h>
{KERNEL.format(name="generated_kernel")}''')
{HOST.format(call="mps_lib_0.generated_kernel")}""",
}


@pytest.mark.parametrize("name", MODULES)
def test_a_number_becomes_an_argument_before_the_buffer_for_errors(name: str) -> None:
    """The kernel mentions it without declaring it; the buffer's place moves."""
    host = read_module(MODULES[name], inputs=("self", "other"), symbols={"s0": "self_0", "zf1": "other"})
    [kernel] = host.kernels
    lines = kernel.source.splitlines()
    assert (f"kernel void {name}(", "    constant float& zf1,") == (lines[0], lines[4])
    assert lines[5].startswith("    device c10::metal::ErrorMessages*")
    assert ("#include <c10/metal/error.h>", "#include <c10/metal/utils.h>") == kernel.helpers
    assert "buf0 = _empty((self_0,), (1,), torch.float32, device)" in host.statements
    assert f"{name}(buf0, self, self_0, other, threads=[self_0], error_buf_idx=4)" in host.statements
