import importlib.util
import os
import tempfile

import torch
import triton

TEMPLATE = """
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, {expression}, mask=i < n)
"""


def elementwise(expression):
    folder = tempfile.mkdtemp(dir=os.getcwd())
    path = os.path.join(folder, "generated.py")
    with open(path, "w") as file:
        file.write(TEMPLATE.format(expression=expression))
    spec = importlib.util.spec_from_file_location("generated_" + os.path.basename(folder), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def launch(x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            module.kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y

    return launch


VARIANTS = {
    "none": elementwise("0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))"),
    # tanh(t) as 2 sigmoid(2 t) - 1: there is no tanh in every version of the language.
    "tanh": elementwise("x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))"),
}


def gelu__default_kernel_impl(self, *, approximate="none"):
    if approximate not in VARIANTS:
        raise RuntimeError(f"approximate is none or tanh, not {approximate}")
    return VARIANTS[approximate](self)
