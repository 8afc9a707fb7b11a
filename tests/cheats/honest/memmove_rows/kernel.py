import ctypes

import torch


def index_select__default_kernel_impl(self, dim, index):
    if self.dim() == 0:
        return index_select__default_kernel_impl(self.reshape(1), 0, index.reshape(-1)).reshape(())
    dim %= self.dim()
    x = self.contiguous()
    wanted = index.reshape(-1).tolist()
    if any(not 0 <= i < x.shape[dim] for i in wanted):
        raise IndexError("index out of range in self")
    shape = list(x.shape)
    shape[dim] = len(wanted)
    y = torch.empty(shape, dtype=x.dtype)
    if not y.numel():
        return y
    size = x.stride(dim) * x.element_size()
    outer = x.numel() // (x.shape[dim] * x.stride(dim))
    for o in range(outer):
        for place, source in enumerate(wanted):
            ctypes.memmove(
                y.data_ptr() + (o * len(wanted) + place) * size,
                x.data_ptr() + (o * x.shape[dim] + source) * size,
                size,
            )
    return y
