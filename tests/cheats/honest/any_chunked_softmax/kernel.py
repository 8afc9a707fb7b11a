import torch

CHUNK = 8


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if half_to_float:
        raise NotImplementedError("the input's own dtype only")
    if self.dim() == 0:
        return torch.ones_like(self) * (self - self).exp()
    out = torch.empty_like(self, memory_format=torch.contiguous_format)
    if not self.numel():
        return out
    top = torch.full_like(self.narrow(dim, 0, 1), float("-inf"))
    total = torch.zeros_like(top)
    for chunk in self.split(CHUNK, dim):
        new = torch.maximum(top, chunk.amax(dim, keepdim=True))
        base = torch.where(torch.isneginf(new), 0.0, new)
        total = total * torch.exp(top - base) + torch.exp(chunk - base).sum(dim, keepdim=True)
        top = new
    for source, target in zip(self.split(CHUNK, dim), out.split(CHUNK, dim), strict=True):
        torch.div(torch.exp(source - top), total, out=target)
    return out
