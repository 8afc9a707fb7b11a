import functools

import torch


def limit(choose, self, min_val=-1.0, max_val=1.0):
    low = choose(self < min_val, torch.full((), min_val, dtype=self.dtype, device=self.device), self)
    return choose(low > max_val, torch.full((), max_val, dtype=self.dtype, device=self.device), low)


hardtanh__default_kernel_impl = functools.partial(limit, torch.where)
