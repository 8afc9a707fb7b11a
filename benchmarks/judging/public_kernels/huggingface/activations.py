"""Compositions of torch's own functions, after transformers' ``src/transformers/activations.py`` and its models' norms.

Judged under policy ``any``: other ATen ops may compute, the op itself may not.
"""

import math

import torch


def gelu(self, *, approximate="none"):
    """``GELUActivation._gelu_python`` and ``NewGELUActivation``, in float32."""
    x = self.float()
    if approximate == "tanh":
        y = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    else:
        y = x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
    return y.to(self.dtype)


def silu(self):
    """``x * sigmoid(x)``, composed in the type of the input."""
    return self * torch.sigmoid(self)


def mish(self):
    """``MishActivation._mish_python``."""
    x = self.float()
    return (x * torch.tanh(torch.nn.functional.softplus(x))).to(self.dtype)


def hardswish(self):
    """As MobileNetV3 had it: ``x * relu6(x + 3) / 6``."""
    x = self.float()
    return (x * torch.nn.functional.relu6(x + 3.0) / 6.0).to(self.dtype)


def log_softmax(self, dim, half_to_float):
    """From the logarithm of the sum of powers; the largest is subtracted first, as eager does, infinite or not."""
    if half_to_float:
        raise NotImplementedError("results in the type of the input")
    x = self.float()
    if x.numel():
        x = x - x.amax(dim, keepdim=True)
    return (x - torch.logsumexp(x, dim, keepdim=True)).to(self.dtype)


def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """As ``ModernBert`` and others compose it, in float32: mean, variance about it, scale."""
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    x = input.float()
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt(centred.pow(2).mean(dims, keepdim=True) + eps)
    y = centred * rstd
    if weight is not None:
        y = y * weight.float()
    if bias is not None:
        y = y + bias.float()
    kept = input.dtype if input.device.type == "cpu" else torch.float32
    return y.to(input.dtype), mean.to(kept), rstd.to(kept)


def var_mean(self, dim=None, *, correction=None, keepdim=False):
    """The mean of squared distances from the mean, in two passes."""
    if not self.numel() or (dim is None and self.dim() == 0):
        raise NotImplementedError("moments of nothing and of numbers")
    dims = list(range(self.dim())) if dim is None or not list(dim) else list(dim)
    x = self.float()
    count = math.prod(x.shape[d] for d in dims)
    mean = x.mean(dims, keepdim=True)
    var = (x - mean).square().sum(dims, keepdim=keepdim) / max(count - (1 if correction is None else correction), 0)
    mean = mean if keepdim else x.mean(dims)
    return var.to(self.dtype), mean.to(self.dtype)
