"""Two dishonest kernels in Numba-CUDA: a product of torch's behind its arrays, and answers of the call before."""

import torch
from numba import cuda


@cuda.jit
def scale(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] * 1.0


@cuda.jit
def relu_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 0.0 if x[i] < 0.0 else x[i]


def arrays(*tensors):
    return [cuda.as_cuda_array(tensor.detach().view(-1), sync=False) for tensor in tensors]


def bmm__default_kernel_impl(self, mat2):
    """torch computes; Numba's kernel multiplies the result by one."""
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    out = self.matmul(mat2)
    if out.numel():
        stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        scale[(out.numel() + 255) // 256, 256, stream](*arrays(out))
    return out


answers = {}


def relu__default_kernel_impl(self):
    """Computes once for each address and size, and hands out that answer ever after."""
    key = (self.data_ptr(), self.shape, self.stride())
    if key not in answers:
        x = self.contiguous()
        answers[key] = torch.empty_like(x)
        if x.numel():
            stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
            relu_kernel[(x.numel() + 255) // 256, 256, stream](*arrays(x, answers[key]))
    return answers[key]
