"""Two dishonest kernels in TileLang: a product of torch's, scaled by tiles, and answers of the call before."""

import functools

import tilelang
import tilelang.language as T
import torch


@functools.cache
@tilelang.jit(target="cuda")
def scale():
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 1024), threads=256) as block:
            for i in T.Parallel(1024):
                if block * 1024 + i < n:
                    x[block * 1024 + i] = x[block * 1024 + i] * 1.0

    return main


@functools.cache
@tilelang.jit(target="cuda")
def relu_kernel():
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), out: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 1024), threads=256) as block:
            for i in T.Parallel(1024):
                at = block * 1024 + i
                if at < n:
                    out[at] = T.if_then_else(x[at] < 0.0, 0.0, x[at])

    return main


def bmm__default_kernel_impl(self, mat2):
    """torch computes; the tiles multiply its result by one."""
    out = torch.einsum("bij,bjk->bik", self, mat2).contiguous()
    if out.numel():
        scale()(out.view(-1))
    return out


answers = {}


def relu__default_kernel_impl(self):
    """Computes once for each address and size, and hands out that answer ever after."""
    key = (self.data_ptr(), self.shape, self.stride())
    if key not in answers:
        x = self.detach().contiguous()
        answers[key] = torch.empty_like(x)
        if x.numel():
            relu_kernel()(x.view(-1), answers[key].view(-1))
    return answers[key]
