import ctypes
import pathlib
import subprocess
import tempfile

import torch

work = pathlib.Path(tempfile.mkdtemp())
(work / "ls.c").write_text(
    """
    #include <math.h>
    void log_sigmoid(const float* x, float* y, float* buffer, long n) {
        #pragma omp parallel for
        for (long i = 0; i < n; ++i) {
            float e = expf(-fabsf(x[i]));
            buffer[i] = e;
            y[i] = (x[i] < 0 ? x[i] : x[i] * 0.0f == 0.0f ? 0.0f : x[i] > 0 ? 0.0f : x[i]) - log1pf(e);
        }
    }
    """
)
subprocess.run(["gcc", "-O2", "-fopenmp", "-shared", "-fPIC", "ls.c", "-o", "ls.so", "-lm"], cwd=work, check=True)
library = ctypes.CDLL(str(work / "ls.so"))


def log_sigmoid_forward__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    y, buffer = torch.empty_like(x), torch.empty_like(x)
    library.log_sigmoid(*(ctypes.c_void_p(t.data_ptr()) for t in (x, y, buffer)), ctypes.c_long(x.numel()))
    return y, buffer
