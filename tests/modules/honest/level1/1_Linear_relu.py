"""A linear layer and a ReLU in one loop, in C++."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

SOURCE = """
extern "C" void linear_relu(const float* x, const float* weight, const float* bias, float* y, long m, long n, long k) {
    for (long row = 0; row < m; ++row)
        for (long column = 0; column < n; ++column) {
            double sum = bias[column];
            for (long i = 0; i < k; ++i) sum += double(x[row * k + i]) * weight[column * k + i];
            y[row * n + column] = sum > 0 ? float(sum) : 0.0f;
        }
}
"""


def compiled():
    folder = Path(tempfile.mkdtemp())
    (folder / "linear_relu.cpp").write_text(SOURCE)
    library = folder / "linear_relu.so"
    subprocess.run(["c++", "-O2", "-shared", "-fPIC", str(folder / "linear_relu.cpp"), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).linear_relu
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3
    return function


linear_relu = compiled()


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        y = torch.empty(x.shape[0], weight.shape[0])
        linear_relu(x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr(), *y.shape, x.shape[1])
        return y
