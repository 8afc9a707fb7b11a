import torch


def uniform___default_kernel_impl(self, low=0, high=1, *, generator=None):
    if low > high:
        raise RuntimeError("uniform_ needs low <= high")
    numbers = torch.randint(1 << 24, self.shape, generator=generator).double() / (1 << 24)
    return self.copy_(low + (high - low) * numbers)
