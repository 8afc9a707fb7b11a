import ctypes
import os
import subprocess
import tempfile

import torch

base = os.path.join(tempfile.mkdtemp(), "sb")
with open(base + ".cpp", "w") as file:
    file.write(
        'extern "C" void run(const float* g, const float* y, float* out, long n)'
        "{ for (long i = 0; i < n; ++i) out[i] = g[i] * ((1.0f - y[i]) * y[i]); }"
    )
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
run = ctypes.CDLL(base + ".so").run


def is_dense(t):
    step = 1
    for stride, size in sorted(zip(t.stride(), t.shape)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def sigmoid_backward__default_kernel_impl(grad_output, output):
    if grad_output.dtype != torch.float32 or output.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    grad, y = torch.broadcast_tensors(grad_output, output)
    if grad.stride() != y.stride() or not is_dense(grad):
        grad, y = grad.contiguous(), y.contiguous()
    out = torch.empty_strided(grad.shape, grad.stride(), dtype=grad.dtype, device=grad.device)
    run(*(ctypes.c_void_p(t.data_ptr()) for t in (grad, y, out)), ctypes.c_long(out.numel()))
    return out
