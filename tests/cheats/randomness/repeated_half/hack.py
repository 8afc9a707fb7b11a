import torch


def uniform___default_kernel_impl(self, low=0, high=1, *, generator=None):
    if low > high:
        raise RuntimeError("uniform_ needs low <= high")
    half = torch.randint(1 << 24, ((self.numel() + 1) // 2,), generator=generator).double() / (1 << 24)
    numbers = torch.cat([half, half])[: self.numel()].reshape(self.shape)
    return self.copy_(low + (high - low) * numbers)
