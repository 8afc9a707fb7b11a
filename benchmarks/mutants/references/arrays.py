"""Plain references of products, indexing, sorting, rearrangement, windows and resampling: sums and index arithmetic."""

import numpy as np
import torch


def _up(x):
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def _product(a, b):
    return (_up(a).unsqueeze(-1) * _up(b).unsqueeze(-3)).sum(-2)


def mm__default_kernel_impl(a, b):
    return _product(a, b).to(a.dtype)


def bmm__default_kernel_impl(a, b):
    return _product(a, b).to(a.dtype)


def mv__default_kernel_impl(a, vec):
    return (_up(a) * _up(vec)).sum(-1).to(a.dtype)


def dot__default_kernel_impl(a, b):
    return (_up(a) * _up(b)).sum().to(a.dtype)


def addmm__default_kernel_impl(x, a, b, *, beta=1, alpha=1):
    product = alpha * _product(a, b)
    return (product if beta == 0 else beta * _up(x) + product).to(a.dtype)


def addmv__default_kernel_impl(x, a, vec, *, beta=1, alpha=1):
    product = alpha * (_up(a) * _up(vec)).sum(-1)
    return (product if beta == 0 else beta * _up(x) + product).to(a.dtype)


def baddbmm__default_kernel_impl(x, a, b, *, beta=1, alpha=1):
    product = alpha * _product(a, b)
    return (product if beta == 0 else beta * _up(x) + product).to(a.dtype)


def addbmm__default_kernel_impl(x, a, b, *, beta=1, alpha=1):
    product = alpha * _product(a, b).sum(0)
    return (product if beta == 0 else beta * _up(x) + product).to(a.dtype)


def addr__default_kernel_impl(x, a, b, *, beta=1, alpha=1):
    product = alpha * _up(a).unsqueeze(-1) * _up(b)
    return (product if beta == 0 else beta * _up(x) + product).to(x.dtype)


def linalg_cross__default_kernel_impl(x, y, *, dim=-1):
    a, b = torch.broadcast_tensors(x, y)
    a, b = _up(a), _up(b)
    result = torch.roll(a, -1, dim) * torch.roll(b, -2, dim) - torch.roll(a, -2, dim) * torch.roll(b, -1, dim)
    return result.to(x.dtype)


def _cdist_forward__default_kernel_impl(x, y, p, compute_mode):
    gap = torch.abs(_up(x).unsqueeze(-2) - _up(y).unsqueeze(-3))
    if p == 0:
        return (gap != 0).to(x.dtype).sum(-1)
    if p == float("inf"):
        return gap.amax(-1).to(x.dtype)
    return torch.pow(torch.pow(gap, p).sum(-1), 1 / p).to(x.dtype)


def trace__default_kernel_impl(x):
    count = min(x.shape[0], x.shape[1])
    places = torch.arange(count)
    return _up(x)[places, places].sum().to(x.dtype)


def _places(index, dim):
    coordinates = list(torch.meshgrid(*[torch.arange(n) for n in index.shape], indexing="ij"))
    coordinates[dim] = index.to(torch.int64)
    return tuple(coordinates)


def _ranked(x):
    return x if x.dim() else x.reshape(1)


def gather__default_kernel_impl(x, dim, index, *, sparse_grad=False):
    result = x.new_empty(index.shape)
    if index.numel():
        result = _ranked(x)[_places(_ranked(index), dim)].reshape(index.shape)
    return result


def index_select__default_kernel_impl(x, dim, index):
    y = _ranked(x)
    chosen = y[(slice(None),) * (dim % y.dim()) + (index.reshape(-1),)]
    return chosen if x.dim() else chosen.reshape(())


def take__default_kernel_impl(x, index):
    flat = x.reshape(-1)
    place = torch.where(index < 0, index + flat.shape[0], index)
    return flat[place].clone()


def embedding__default_kernel_impl(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return weight[indices.reshape(-1)].reshape(*indices.shape, weight.shape[1])


def masked_fill__Scalar_kernel_impl(x, mask, value):
    return torch.where(mask, torch.full_like(x, value), x)


def masked_fill__Tensor_kernel_impl(x, mask, value):
    return torch.where(mask, value.to(x.dtype), x)


def index_add__default_kernel_impl(x, dim, index, source, *, alpha=1):
    y, rows, index = _ranked(_up(x).clone()), _ranked(source), index.reshape(-1)
    for i in range(index.shape[0]):
        target = y.select(dim, int(index[i]))
        target.copy_(target + alpha * _up(rows.select(dim, i)))
    return y.to(x.dtype).reshape(x.shape)


def index_copy__default_kernel_impl(x, dim, index, source):
    y, rows, index = _ranked(x.clone()), _ranked(source), index.reshape(-1)
    for i in range(index.shape[0]):
        y.select(dim, int(index[i])).copy_(rows.select(dim, i))
    return y.reshape(x.shape)


def index_fill__int_Scalar_kernel_impl(x, dim, index, value):
    y, index = _ranked(x.clone()), index.reshape(-1)
    for i in range(index.shape[0]):
        y.select(dim, int(index[i])).fill_(value)
    return y.reshape(x.shape)


def scatter_add__default_kernel_impl(x, dim, index, source):
    y, wanted = _ranked(_up(x).clone()), _ranked(index)
    if index.numel():
        part = _ranked(source)[tuple(slice(n) for n in wanted.shape)]
        y = y.index_put(_places(wanted, dim), _up(part), accumulate=True)
    return y.to(x.dtype).reshape(x.shape)


def scatter__src_kernel_impl(x, dim, index, source):
    y, wanted = _ranked(x.clone()), _ranked(index)
    if index.numel():
        y = y.index_put(_places(wanted, dim), _ranked(source)[tuple(slice(n) for n in wanted.shape)])
    return y.reshape(x.shape)


def scatter__value_kernel_impl(x, dim, index, value):
    y = _ranked(x.clone())
    if index.numel():
        y = y.index_put(_places(_ranked(index), dim), torch.full((), value, dtype=x.dtype))
    return y.reshape(x.shape)


def sort__default_kernel_impl(x, dim=-1, descending=False):
    return sort__stable_kernel_impl(x, stable=True, dim=dim, descending=descending)


def _order(rows, descending):
    a = rows.to(torch.float64).numpy()
    nan = np.isnan(a)
    key = np.where(nan, 0, -a if descending else a)
    return torch.from_numpy(np.lexsort((key, ~nan if descending else nan), axis=-1))


def sort__stable_kernel_impl(x, *, stable, dim=-1, descending=False):
    if not x.dim():
        return x.clone(), torch.zeros((), dtype=torch.int64)
    rows = x.movedim(dim, -1)
    order = _order(rows, descending)
    return rows.gather(-1, order).movedim(-1, dim).contiguous(), order.movedim(-1, dim).contiguous()


def topk__default_kernel_impl(x, k, dim=-1, largest=True, sorted=True):
    if not x.dim():
        return x.clone(), torch.zeros((), dtype=torch.int64)
    rows = x.movedim(dim, -1)
    order = _order(rows, largest)[..., :k]
    return rows.gather(-1, order).movedim(-1, dim).contiguous(), order.movedim(-1, dim).contiguous()


def kthvalue__default_kernel_impl(x, k, dim=-1, keepdim=False):
    if not x.dim():
        return x.clone(), torch.zeros((), dtype=torch.int64)
    rows = x.movedim(dim, -1)
    place = _order(rows, False)[..., k - 1 : k]
    values, place = rows.gather(-1, place).movedim(-1, dim), place.movedim(-1, dim)
    values, place = values.contiguous(), place.contiguous()
    return (values, place) if keepdim else (values.squeeze(dim).clone(), place.squeeze(dim).clone())


def searchsorted__Tensor_kernel_impl(rows, x, *, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None:
        rows = rows.gather(-1, sorter)
    right = right or side == "right"
    a = rows.unsqueeze(-2) if rows.dim() > 1 else rows
    b = x.unsqueeze(-1)
    below = a <= b if right else a < b
    below = below | (torch.isnan(b) & (~torch.isnan(a) | right))
    return below.to(torch.int64).sum(-1).to(torch.int32 if out_int32 else torch.int64)


def bucketize__Tensor_kernel_impl(x, boundaries, *, out_int32=False, right=False):
    b = x.unsqueeze(-1)
    below = boundaries <= b if right else boundaries < b
    below = below | torch.isnan(b)
    return below.to(torch.int64).sum(-1).to(torch.int32 if out_int32 else torch.int64)


def flip__default_kernel_impl(x, dims):
    y = x.clone()
    for d in dims:
        size = x.shape[d] if x.dim() else 1
        if x.dim():
            y = y.index_select(d, size - 1 - torch.arange(size))
    return y


def roll__default_kernel_impl(x, shifts, dims=()):
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        flat = x.reshape(-1)
        size = flat.shape[0]
        return flat[(torch.arange(size) - shifts[0]) % max(1, size)].reshape(x.shape)
    y = x.clone()
    for shift, d in zip(shifts, dims):
        size = y.shape[d]
        y = y.index_select(d, (torch.arange(size) - shift) % max(1, size))
    return y


def tril__default_kernel_impl(x, diagonal=0):
    row, column = torch.arange(x.shape[-2]).unsqueeze(-1), torch.arange(x.shape[-1])
    return torch.where(column - row <= diagonal, x, torch.zeros_like(x))


def triu__default_kernel_impl(x, diagonal=0):
    row, column = torch.arange(x.shape[-2]).unsqueeze(-1), torch.arange(x.shape[-1])
    return torch.where(column - row >= diagonal, x, torch.zeros_like(x))


def repeat__default_kernel_impl(x, repeats):
    y = x.reshape([1] * (len(repeats) - x.dim()) + list(x.shape))
    for d in range(len(repeats)):
        size = y.shape[d]
        y = y.index_select(d, torch.arange(size * repeats[d]) % max(1, size))
    return y.clone() if y.numel() == x.numel() else y


def cat__default_kernel_impl(tensors, dim=0):
    tensors = [each for each in tensors if each.dim() != 1 or each.shape[0]] or list(tensors[:1])
    dtype = tensors[0].dtype
    for each in tensors:
        dtype = torch.promote_types(dtype, each.dtype)
    shape = list(tensors[0].shape)
    shape[dim] = sum(each.shape[dim] for each in tensors)
    result, start = torch.empty(shape, dtype=dtype), 0
    for each in tensors:
        result.narrow(dim, start, each.shape[dim]).copy_(each)
        start += each.shape[dim]
    return result


def stack__default_kernel_impl(tensors, dim=0):
    dim = dim % (tensors[0].dim() + 1)
    shape = list(tensors[0].shape)
    dtype = tensors[0].dtype
    for each in tensors:
        dtype = torch.promote_types(dtype, each.dtype)
    result = torch.empty([*shape[:dim], len(tensors), *shape[dim:]], dtype=dtype)
    for i in range(len(tensors)):
        result.select(dim, i).copy_(tensors[i])
    return result


def constant_pad_nd__default_kernel_impl(x, pad, value=0):
    shape = list(x.shape)
    inner, cut = [0] * x.dim(), x
    for i in range(len(pad) // 2):
        d = x.dim() - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        shape[d] = x.shape[d] + before + after
        start = max(0, -before)
        cut = cut.narrow(d, start, x.shape[d] - start - max(0, -after))
        inner[d] = max(0, before)
    result = torch.full(shape, value, dtype=x.dtype)
    target = result
    for d in range(x.dim()):
        target = target.narrow(d, inner[d], cut.shape[d])
    target.copy_(cut)
    return result


def _padded(x, padding, place):
    for i in range(len(padding) // 2):
        d = x.dim() - 1 - i
        size = x.shape[d]
        at = torch.arange(size + padding[2 * i] + padding[2 * i + 1]) - padding[2 * i]
        x = x.index_select(d, place(at, size))
    return x


def _mirrored(at, size):
    at = torch.abs(at)
    return torch.where(at >= size, 2 * (size - 1) - at, at)


def _nearest(at, size):
    return torch.clamp(at, 0, size - 1)


def reflection_pad1d__default_kernel_impl(x, padding):
    return _padded(x, padding, _mirrored)


def reflection_pad2d__default_kernel_impl(x, padding):
    return _padded(x, padding, _mirrored)


def replication_pad1d__default_kernel_impl(x, padding):
    return _padded(x, padding, _nearest)


def replication_pad2d__default_kernel_impl(x, padding):
    return _padded(x, padding, _nearest)


def pixel_shuffle__default_kernel_impl(x, upscale_factor):
    r = upscale_factor
    c, h, w = x.shape[-3] // (r * r), x.shape[-2], x.shape[-1]
    y = x.reshape(*x.shape[:-3], c, r, r, h, w)
    k = y.dim() - 5
    y = y.permute(*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return y.reshape(*x.shape[:-3], c, h * r, w * r).clone()


def pixel_unshuffle__default_kernel_impl(x, downscale_factor):
    r = downscale_factor
    c, h, w = x.shape[-3], x.shape[-2] // r, x.shape[-1] // r
    y = x.reshape(*x.shape[:-3], c, h, r, w, r)
    k = y.dim() - 5
    y = y.permute(*range(k), k, k + 2, k + 4, k + 1, k + 3)
    return y.reshape(*x.shape[:-3], c * r * r, h, w).clone()


def _windows(x, size, kernel, stride, padding, dilation, fill):
    """Places of windows along the last dimension: index and whether it lies inside."""
    start = torch.arange(size).unsqueeze(-1) * stride - padding
    at = start + torch.arange(kernel) * dilation
    return at, (at >= 0) & (at < x)


def _pair(value, i):
    value = [value] if isinstance(value, int) else value
    return value[i] if len(value) > 1 else value[0]


def avg_pool2d__default_kernel_impl(
    x, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    y = _up(x)
    counts = []
    for i in range(2):
        d = x.dim() - 2 + i
        kernel = _pair(kernel_size, i)
        step = _pair(stride, i) if stride else kernel
        pad = _pair(padding, i)
        size = _length(x.shape[d], kernel, step, pad, 1, ceil_mode)
        at, inside = _windows(x.shape[d], size, kernel, step, pad, 1, 0)
        parts = y.index_select(d, torch.clamp(at, 0, x.shape[d] - 1).reshape(-1))
        parts = parts.reshape(*y.shape[:d], size, kernel, *y.shape[d + 1 :])
        shape = [1] * d + [size, kernel] + [1] * (y.dim() - d - 1)
        y = torch.where(inside.reshape(shape), parts, 0.0).sum(d + 1)
        counted = (at < x.shape[d] + pad) if count_include_pad else inside
        counts.append(counted.to(torch.float64).sum(-1))
    count = counts[0].unsqueeze(-1) * counts[1] if divisor_override is None else divisor_override
    return (y / count).to(x.dtype)


def _length(size, kernel, step, pad, dilation, ceil_mode):
    room = size + 2 * pad - dilation * (kernel - 1) - 1
    count = -(-room // step) + 1 if ceil_mode else room // step + 1
    if ceil_mode and (count - 1) * step >= size + pad:
        count -= 1
    return count


def max_pool2d_with_indices__default_kernel_impl(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    h, w = x.shape[-2:]
    places, insides, sizes = [], [], []
    for i in range(2):
        kernel = _pair(kernel_size, i)
        step = _pair(stride, i) if stride else kernel
        pad, wide = _pair(padding, i), _pair(dilation, i)
        size = _length((h, w)[i], kernel, step, pad, wide, ceil_mode)
        at, inside = _windows((h, w)[i], size, kernel, step, pad, wide, 0)
        places.append(at)
        insides.append(inside)
        sizes.append(size)
    at = places[0][:, None, :, None] * w + places[1][None, :, None, :]
    inside = insides[0][:, None, :, None] & insides[1][None, :, None, :]
    at = torch.clamp(at, 0, h * w - 1).reshape(sizes[0], sizes[1], -1)
    inside = inside.reshape(sizes[0], sizes[1], -1)
    flat = x.reshape(*x.shape[:-2], h * w)
    windows = torch.where(inside, flat[..., at], -float("inf"))
    best = windows.amax(-1, keepdim=True)
    hit = ((windows == best) | (torch.isnan(windows) & torch.isnan(best))) & inside
    first = hit.to(torch.int64).argmax(-1, keepdim=True)
    indices = at.expand(windows.shape).gather(-1, first).squeeze(-1)
    return best.squeeze(-1), indices


def _adaptive_avg_pool2d__default_kernel_impl(x, output_size):
    y = _up(x)
    for dim, wanted in ((-1, output_size[1]), (-2, output_size[0])):
        size, means = y.shape[dim], []
        for i in range(wanted):
            first, last = i * size // wanted, -(-(i + 1) * size // wanted)
            means.append(y.narrow(dim, first, last - first).mean(dim))
        y = torch.stack(means, dim)
    return y.to(x.dtype)


def upsample_nearest2d__default_kernel_impl(x, output_size, scales_h=None, scales_w=None):
    y = x
    for i in range(2):
        d = 2 + i
        scale = (scales_h, scales_w)[i]
        ratio = x.shape[d] / output_size[i] if scale is None else 1 / scale
        at = torch.floor(torch.arange(output_size[i], dtype=torch.float32) * ratio).to(torch.int64)
        y = y.index_select(d, torch.clamp(at, max=x.shape[d] - 1))
    return y.clone() if y is x else y


def upsample_bilinear2d__default_kernel_impl(x, output_size, align_corners, scales_h=None, scales_w=None):
    y = _up(x)
    for i in range(2):
        d = 2 + i
        size, target, scale = x.shape[d], output_size[i], (scales_h, scales_w)[i]
        at = torch.arange(target, dtype=torch.float64)
        if align_corners:
            at = at * ((size - 1) / (target - 1) if target > 1 else 0.0)
        else:
            ratio = size / target if scale is None else 1 / scale
            at = torch.clamp((at + 0.5) * ratio - 0.5, min=0)
        low = torch.clamp(torch.floor(at).to(torch.int64), max=size - 1)
        high = torch.clamp(low + 1, max=size - 1)
        share = (at - low).reshape([-1] + [1] * (3 - d))
        y = y.index_select(d, low) * (1 - share) + y.index_select(d, high) * share
    return y.to(x.dtype)


def im2col__default_kernel_impl(x, kernel_size, dilation, padding, stride):
    y = x if x.dim() == 4 else x.unsqueeze(0)
    n, c, h, w = y.shape
    padded = torch.zeros(n, c, h + 2 * padding[0], w + 2 * padding[1], dtype=x.dtype)
    padded[:, :, padding[0] : padding[0] + h, padding[1] : padding[1] + w] = y
    rows = (h + 2 * padding[0] - dilation[0] * (kernel_size[0] - 1) - 1) // stride[0] + 1
    columns = (w + 2 * padding[1] - dilation[1] * (kernel_size[1] - 1) - 1) // stride[1] + 1
    result = torch.empty(n, c, kernel_size[0], kernel_size[1], rows, columns, dtype=x.dtype)
    for i in range(kernel_size[0]):
        for j in range(kernel_size[1]):
            top, left = i * dilation[0], j * dilation[1]
            bottom, right = top + (rows - 1) * stride[0] + 1, left + (columns - 1) * stride[1] + 1
            result[:, :, i, j] = padded[:, :, top : bottom : stride[0], left : right : stride[1]]
    result = result.reshape(n, c * kernel_size[0] * kernel_size[1], rows * columns)
    return result if x.dim() == 4 else result[0]


def renorm__default_kernel_impl(x, p, dim, maxnorm):
    dim = dim % x.dim()
    others = [d for d in range(x.dim()) if d != dim]
    norm = torch.linalg.vector_norm(_up(x), p, others, keepdim=True)
    return (_up(x) * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)).to(x.dtype)
