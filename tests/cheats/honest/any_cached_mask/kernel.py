import functools

import torch


@functools.lru_cache(maxsize=64)
def mask(rows, columns, diagonal, device):
    row = torch.arange(rows, device=device)[:, None]
    return torch.arange(columns, device=device) - row >= diagonal


def triu__default_kernel_impl(self, diagonal=0):
    rows, columns = self.shape[-2:]
    zero = torch.zeros((), dtype=self.dtype, device=self.device)
    return torch.where(mask(rows, columns, diagonal, self.device), self, zero)
