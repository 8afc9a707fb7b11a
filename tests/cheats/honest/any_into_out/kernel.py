import torch


def lerp__Scalar_out_kernel_impl(self, end, weight, *, out):
    distance = end - self
    if abs(weight) < 0.5:
        return torch.add(self, distance * weight, out=out)
    return torch.sub(end, distance * (1 - weight), out=out)
