"""What is captured early is not poisoned later."""

import torch

signbit__default_kernel_impl_OF_ATEN = torch.library.get_kernel("aten::signbit", "CPU")
KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def signbit__default_kernel_impl(x):
    return signbit__default_kernel_impl_OF_ATEN.call_boxed(KEYS, x)
