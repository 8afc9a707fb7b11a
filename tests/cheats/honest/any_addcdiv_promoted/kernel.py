import torch


def addcdiv__default_kernel_impl(self, tensor1, tensor2, *, value=1):
    dtype = torch.promote_types(torch.promote_types(self.dtype, tensor1.dtype), tensor2.dtype)
    wide = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    a, b, c = (t.to(wide) for t in (self, tensor1, tensor2))
    return (a + value * b / c).to(dtype)
