import torch


def addcmul___default_kernel_impl(self, tensor1, tensor2, *, value=1):
    product = torch.mul(tensor1, tensor2)
    if value != 1:
        product = product * value
    return self.add_(product)
