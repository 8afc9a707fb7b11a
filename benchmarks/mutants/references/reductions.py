"""Plain references of reductions, scans, softmax, norms and losses: what is reduced is laid out as rows first."""

import math

import torch


def _dims(x, dim):
    if dim is None or (isinstance(dim, (list, tuple)) and len(dim) == 0):
        return list(range(x.dim()))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted(d % max(1, x.dim()) for d in dims) if x.dim() else []


def _rows(x, dims):
    kept = [d for d in range(x.dim()) if d not in dims]
    count = math.prod(x.shape[d] for d in dims)
    return x.permute([*kept, *dims]).reshape(*[x.shape[d] for d in kept], count)


def _back(result, x, dims, keepdim):
    if not keepdim:
        return result
    return result.reshape([1 if d in dims else x.shape[d] for d in range(x.dim())])


def _summed(x, dtype):
    if dtype is not None:
        return x.to(dtype)
    return x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(torch.int64)


def _add_up(rows):
    wide = torch.complex128 if rows.dtype.is_complex else torch.float64
    return rows.to(wide) @ torch.ones(rows.shape[-1], dtype=wide)


def _largest(rows):
    return rows.sort(dim=-1).values[..., -1]


def _smallest(rows):
    first = rows.sort(dim=-1).values[..., 0]
    return torch.where(torch.isnan(rows).any(-1), torch.full_like(first, float("nan")), first)


def _first_place(rows, value):
    hit = (rows == value.unsqueeze(-1)) | (torch.isnan(rows) & torch.isnan(value).unsqueeze(-1))
    places = torch.arange(rows.shape[-1])
    return torch.where(hit, places, rows.shape[-1]).sort(dim=-1).values[..., 0]


def sum__dim_IntList_kernel_impl(x, dim, keepdim=False, *, dtype=None):
    x = _summed(x, dtype)
    dims = _dims(x, dim)
    return _back(_add_up(_rows(x, dims)), x, dims, keepdim).to(x.dtype)


def mean__dim_kernel_impl(x, dim, keepdim=False, *, dtype=None):
    x = x if dtype is None else x.to(dtype)
    dims = _dims(x, dim)
    rows = _rows(x, dims)
    total = _add_up(rows)
    mean = total / rows.shape[-1] if rows.shape[-1] else torch.full_like(total, float("nan"))
    return _back(mean, x, dims, keepdim).to(x.dtype)


def prod__dim_int_kernel_impl(x, dim, keepdim=False, *, dtype=None):
    x = _summed(x, dtype)
    dims = _dims(x, dim)
    rows = _rows(x, dims).to(torch.float64)
    result = torch.ones(rows.shape[:-1], dtype=torch.float64)
    for i in range(rows.shape[-1]):
        result = result * rows[..., i]
    return _back(result, x, dims, keepdim).to(x.dtype)


def amax__default_kernel_impl(x, dim=(), keepdim=False):
    dims = _dims(x, dim)
    return _back(_largest(_rows(x, dims)), x, dims, keepdim).clone()


def amin__default_kernel_impl(x, dim=(), keepdim=False):
    dims = _dims(x, dim)
    return _back(_smallest(_rows(x, dims)), x, dims, keepdim).clone()


def max__dim_kernel_impl(x, dim, keepdim=False):
    dims = _dims(x, dim)
    rows = _rows(x, dims)
    values = _largest(rows)
    places = _first_place(rows, values)
    return _back(values, x, dims, keepdim).clone(), _back(places, x, dims, keepdim).clone()


def min__dim_kernel_impl(x, dim, keepdim=False):
    dims = _dims(x, dim)
    rows = _rows(x, dims)
    values = _smallest(rows)
    places = _first_place(rows, values)
    return _back(values, x, dims, keepdim).clone(), _back(places, x, dims, keepdim).clone()


def argmax__default_kernel_impl(x, dim=None, keepdim=False):
    dims = _dims(x, dim)
    rows = _rows(x, dims)
    return _back(_first_place(rows, _largest(rows)), x, dims, keepdim).clone()


def argmin__default_kernel_impl(x, dim=None, keepdim=False):
    dims = _dims(x, dim)
    rows = _rows(x, dims)
    return _back(_first_place(rows, _smallest(rows)), x, dims, keepdim).clone()


def all__dim_kernel_impl(x, dim, keepdim=False):
    dims = _dims(x, dim)
    rows = _rows(x, dims)
    return _back((rows == 0).to(torch.int64).sum(-1) == 0, x, dims, keepdim)


def any__dim_kernel_impl(x, dim, keepdim=False):
    dims = _dims(x, dim)
    rows = _rows(x, dims)
    return _back((rows != 0).to(torch.int64).sum(-1) > 0, x, dims, keepdim)


def all__default_kernel_impl(x):
    return (x == 0).to(torch.int64).sum() == 0


def any__default_kernel_impl(x):
    return (x != 0).to(torch.int64).sum() > 0


def count_nonzero__dim_IntList_kernel_impl(x, dim):
    return (_rows(x, _dims(x, dim)) != 0).to(torch.int64).sum(-1)


def _moments(x, dims, correction):
    rows = _rows(x, dims).to(torch.float64)
    count = rows.shape[-1]
    mean = _add_up(rows) / count if count else torch.full(rows.shape[:-1], float("nan"), dtype=torch.float64)
    centred = rows - mean.unsqueeze(-1)
    square = _add_up(centred * centred)
    return mean, square / torch.tensor(max(0.0, count - (1 if correction is None else correction)), dtype=torch.float64)


def var__correction_kernel_impl(x, dim=None, *, correction=None, keepdim=False):
    dims = _dims(x, dim)
    return _back(_moments(x, dims, correction)[1], x, dims, keepdim).to(x.dtype)


def std__correction_kernel_impl(x, dim=None, *, correction=None, keepdim=False):
    dims = _dims(x, dim)
    return _back(torch.sqrt(_moments(x, dims, correction)[1]), x, dims, keepdim).to(x.dtype)


def var_mean__correction_kernel_impl(x, dim=None, *, correction=None, keepdim=False):
    dims = _dims(x, dim)
    mean, variance = _moments(x, dims, correction)
    return _back(variance, x, dims, keepdim).to(x.dtype), _back(mean, x, dims, keepdim).to(x.dtype)


def logsumexp__default_kernel_impl(x, dim, keepdim=False):
    dims = _dims(x, dim)
    rows = _rows(x, dims).to(torch.float64)
    if not rows.shape[-1]:
        return _back(torch.full(rows.shape[:-1], -float("inf"), dtype=x.dtype), x, dims, keepdim)
    top = _largest(rows)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    return _back(top + torch.log(torch.exp(rows - top.unsqueeze(-1)).sum(-1)), x, dims, keepdim).to(x.dtype)


def nansum__default_kernel_impl(x, dim=None, keepdim=False, *, dtype=None):
    x = _summed(x, dtype)
    dims = _dims(x, dim)
    rows = _rows(x, dims)
    return _back(_add_up(torch.where(rows != rows, torch.zeros_like(rows), rows)), x, dims, keepdim).to(x.dtype)


def linalg_vector_norm__default_kernel_impl(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    x = x if dtype is None else x.to(dtype)
    dims = _dims(x, dim)
    rows = torch.abs(_rows(x, dims).to(torch.float64))
    if ord == float("inf"):
        result = rows.amax(-1)
    elif ord == -float("inf"):
        result = rows.amin(-1)
    elif ord == 0:
        result = (rows != 0).to(torch.float64).sum(-1)
    else:
        result = torch.pow(torch.pow(rows, ord).sum(-1), 1 / ord)
    return _back(result, x, dims, keepdim).to(x.dtype)


def cumsum__default_kernel_impl(x, dim, *, dtype=None):
    x = _summed(x, dtype)
    result, total = torch.empty(x.shape, dtype=x.dtype), None
    if not x.dim():
        return x.clone()
    for i in range(x.shape[dim]):
        element = x.select(dim, i).to(torch.float64)
        total = element if total is None else total + element
        result.select(dim, i).copy_(total)
    return result


def cumprod__default_kernel_impl(x, dim, *, dtype=None):
    x = _summed(x, dtype)
    result, total = torch.empty(x.shape, dtype=x.dtype), 1.0
    if not x.dim():
        return x.clone()
    for i in range(x.shape[dim]):
        total = total * x.select(dim, i).to(torch.float64)
        result.select(dim, i).copy_(total)
    return result


def cummax__default_kernel_impl(x, dim):
    values, places = torch.empty(x.shape, dtype=x.dtype), torch.zeros(x.shape, dtype=torch.int64)
    if not x.dim():
        return x.clone(), places
    for i in range(x.shape[dim]):
        element = x.select(dim, i)
        if i == 0:
            best, place = element, torch.zeros(element.shape, dtype=torch.int64)
        else:
            newer = (element >= best) | torch.isnan(element)
            best, place = torch.where(newer, element, best), torch.where(newer, i, place)
        values.select(dim, i).copy_(best)
        places.select(dim, i).copy_(place)
    return values, places


def cummin__default_kernel_impl(x, dim):
    values, places = torch.empty(x.shape, dtype=x.dtype), torch.zeros(x.shape, dtype=torch.int64)
    if not x.dim():
        return x.clone(), places
    for i in range(x.shape[dim]):
        element = x.select(dim, i)
        if i == 0:
            best, place = element, torch.zeros(element.shape, dtype=torch.int64)
        else:
            newer = (element <= best) | torch.isnan(element)
            best, place = torch.where(newer, element, best), torch.where(newer, i, place)
        values.select(dim, i).copy_(best)
        places.select(dim, i).copy_(place)
    return values, places


def logcumsumexp__default_kernel_impl(x, dim):
    result = torch.empty(x.shape, dtype=x.dtype)
    if not x.dim():
        return x.clone()
    total = None
    for i in range(x.shape[dim]):
        element = x.select(dim, i).to(torch.float64)
        total = element if total is None else torch.logaddexp(total, element)
        result.select(dim, i).copy_(total)
    return result


def _exponentials(x, dim):
    y = x.to(torch.float64)
    if not y.numel():
        return y, y
    top = y.amax(dim, keepdim=True)
    shifted = y - top
    return shifted, torch.exp(shifted).sum(dim, keepdim=True)


def _softmax__default_kernel_impl(x, dim, half_to_float):
    shifted, total = _exponentials(x, dim)
    return (torch.exp(shifted) / total).to(torch.float32 if half_to_float else x.dtype)


def _log_softmax__default_kernel_impl(x, dim, half_to_float):
    shifted, total = _exponentials(x, dim)
    return (shifted - torch.log(total)).to(torch.float32 if half_to_float else x.dtype)


def _softmax_backward_data__default_kernel_impl(grad, y, dim, input_dtype):
    g, s = grad.to(torch.float64), y.to(torch.float64)
    return (s * (g - (g * s).sum(dim, keepdim=True))).to(input_dtype)


def _log_softmax_backward_data__default_kernel_impl(grad, y, dim, input_dtype):
    g, s = grad.to(torch.float64), y.to(torch.float64)
    return (g - torch.exp(s) * g.sum(dim, keepdim=True)).to(input_dtype)


def native_layer_norm__default_kernel_impl(x, normalized_shape, weight, bias, eps):
    count = len(normalized_shape)
    dims = list(range(x.dim() - count, x.dim()))
    mean, variance = _moments(x, dims, 0)
    shape = [*x.shape[: x.dim() - count], *[1] * count]
    mean, rstd = mean.reshape(shape), torch.rsqrt(variance + eps).reshape(shape)
    y = (x.to(torch.float64) - mean) * rstd
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y.to(x.dtype), mean.to(x.dtype), rstd.to(x.dtype)


def native_group_norm__default_kernel_impl(x, weight, bias, N, C, HxW, group, eps):
    rows = x.reshape(N, group, (C // group) * HxW).to(torch.float64)
    mean, variance = _moments(rows, [2], 0)
    rstd = torch.rsqrt(variance + eps)
    y = ((rows - mean.unsqueeze(-1)) * rstd.unsqueeze(-1)).reshape(N, C, HxW)
    if weight is not None:
        y = y * weight.reshape(1, C, 1)
    if bias is not None:
        y = y + bias.reshape(1, C, 1)
    return y.reshape(x.shape).to(x.dtype), mean.to(x.dtype), rstd.to(x.dtype)


def _reduced(loss, reduction, dtype):
    if reduction == 0:
        return loss.to(dtype)
    total = loss.sum()
    return (total / loss.numel() if reduction == 1 else total).to(dtype)


def mse_loss__default_kernel_impl(x, target, reduction=1):
    gap = x.to(torch.float64) - target
    return _reduced(gap * gap, reduction, x.dtype)


def smooth_l1_loss__default_kernel_impl(x, target, reduction=1, beta=1.0):
    gap = torch.abs(x.to(torch.float64) - target)
    return _reduced(
        torch.where(gap < beta, 0.5 * gap * gap / beta if beta else gap, gap - 0.5 * beta), reduction, x.dtype
    )


def huber_loss__default_kernel_impl(x, target, reduction=1, delta=1.0):
    gap = torch.abs(x.to(torch.float64) - target)
    return _reduced(torch.where(gap <= delta, 0.5 * gap * gap, delta * (gap - 0.5 * delta)), reduction, x.dtype)


def soft_margin_loss__default_kernel_impl(x, target, reduction=1):
    return _reduced(torch.log1p(torch.exp(-x.to(torch.float64) * target)), reduction, x.dtype)


def binary_cross_entropy__default_kernel_impl(x, target, weight=None, reduction=1):
    p, t = x.to(torch.float64), target.to(torch.float64)
    yes, no = torch.clamp(torch.log(p), min=-100), torch.clamp(torch.log1p(-p), min=-100)
    loss = -(t * yes + (1 - t) * no)
    if weight is not None:
        loss = loss * weight
    return _reduced(loss, reduction, x.dtype)


def binary_cross_entropy_with_logits__default_kernel_impl(x, target, weight=None, pos_weight=None, reduction=1):
    y, t = x.to(torch.float64), target.to(torch.float64)
    softplus = torch.clamp(-y, min=0) + torch.log1p(torch.exp(-torch.abs(y)))
    scale = 1 if pos_weight is None else 1 + (pos_weight - 1) * t
    loss = (1 - t) * y + scale * softplus
    if weight is not None:
        loss = loss * weight
    return _reduced(loss, reduction, x.dtype)


def nll_loss_forward__default_kernel_impl(x, target, weight, reduction, ignore_index):
    y = x if x.dim() == 2 else x.unsqueeze(0)
    labels = target.reshape(-1)
    kept = labels != ignore_index
    safe = torch.where(kept, labels, torch.zeros_like(labels))
    scale = torch.ones(y.shape[1], dtype=torch.float64) if weight is None else weight.to(torch.float64)
    scale = torch.where(kept, scale[safe], 0.0)
    picked = y.to(torch.float64)[torch.arange(y.shape[0]), safe]
    loss = torch.where(kept, -picked * scale, 0.0)
    if reduction == 0:
        total = torch.zeros((), dtype=torch.float64) if x.dim() == 2 else scale.sum()
        return loss.reshape(target.shape).to(x.dtype), total.to(x.dtype)
    total = scale.sum()
    result = loss.sum() / total if reduction == 1 else loss.sum()
    return result.to(x.dtype), total.to(x.dtype)
