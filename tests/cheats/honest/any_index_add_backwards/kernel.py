import torch


def index_add__default_kernel_impl(self, dim, index, source, *, alpha=1):
    index = index.reshape(-1)
    total = self.clone().reshape(1) if self.dim() == 0 else self.clone()
    slices = source.reshape(1) if source.dim() == 0 else source
    if source.dtype != self.dtype or index.is_floating_point() or slices.size(dim) != len(index):
        raise RuntimeError("index_add: one slice of self's dtype for each index")
    for number, place in reversed(list(enumerate(index.tolist()))):
        row = total.select(dim, place)
        row.copy_(torch.add(row, slices.select(dim, number), alpha=alpha))
    return total.reshape(self.shape)
