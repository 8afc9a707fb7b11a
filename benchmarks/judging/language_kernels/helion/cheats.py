"""Two dishonest kernels in Helion: a product of torch's outside of the tiles, and answers of the call before."""

import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[1, 32, 32], num_warps=4), static_shapes=False)
def products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.bmm(a, b)
    for tile_b, tile_m, tile_n in hl.tile([out.size(0), out.size(1), out.size(2)]):
        out[tile_b, tile_m, tile_n] = out[tile_b, tile_m, tile_n] * 1.0
    return out


@helion.kernel(config=helion.Config(block_sizes=[1024], num_warps=4), static_shapes=False)
def relu_kernel(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        values = x[tile]
        out[tile] = torch.where(values < 0.0, 0.0, values)
    return out


def bmm__default_kernel_impl(self, mat2):
    """torch computes before the first loop; the tiles multiply its result by one."""
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    if not (self.numel() and mat2.numel()):
        return torch.zeros((self.shape[0], self.shape[1], mat2.shape[2]), dtype=torch.float32, device=self.device)
    return products(self.contiguous(), mat2.contiguous())


answers = {}


def relu__default_kernel_impl(self):
    """Computes once for each address and size, and hands out that answer ever after."""
    key = (self.data_ptr(), self.shape, self.stride())
    if key not in answers:
        x = self.contiguous().view(-1)
        answers[key] = relu_kernel(x).view(self.shape) if x.numel() else torch.empty_like(self)
    return answers[key]
