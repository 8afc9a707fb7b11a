"""One step of an LSTM or a GRU after its matrix products: gates, states, and what the backward pass will need.

A program owns a tile of the state, batch by hidden, and reads its gates, which lie ``H`` apart. All is computed in
float32 for half types and rounded once. The workspaces are laid out as ATen's CUDA kernels lay theirs out, so that
either backward pass reads what either forward pass left: for an LSTM the gates ``i f g o``, for a GRU ``r z n h`` and
the hidden part of ``n`` before it meets ``r``.

Traffic for ``B H`` elements of state, in units of ``B H itemsize``: LSTM 9 read and 6 written, backward 8 and 5; GRU 7
and 6, backward 6 and 7.

Suffix ``_BH``: the strides of a tensor along batch and hidden.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Geometry, converted, index_type
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_type,
    launch,
    layout_of,
    pdl_prologue,
    require_served,
)
from ..pointwise.basic import clamp_of
from ..pointwise.exponentials import sigmoid_of
from ..pointwise.signs import with_sign_of
from ..pointwise.trigonometry import tanh_of
from ..reductions.reductions import sum_dim

#: Elements of a tile: one for each thread, so that small states occupy more multiprocessors; of states above
#: ``_LARGE`` elements as many as are moved 16 bytes at a time.
_TILE, _LARGE_TILE, _LARGE = 128, 512, 1 << 19


@triton.jit
def state_place(
    H: tl.tensor, B: tl.tensor, INDEX: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """Batch and hidden number of this program's tile, and which of its elements exist."""
    tiles_H = tl.cdiv(H, BLOCK_H)
    b = (tl.program_id(0) // tiles_H).to(INDEX) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    h = (tl.program_id(0) % tiles_H).to(INDEX) * BLOCK_H + tl.arange(0, BLOCK_H)[None, :]
    return b, h, (b < B) & (h < H)


@triton.jit
def short_sigmoid_of(x: tl.tensor) -> tl.tensor:
    """``1 / (1 + e^-x)`` to about 2 ulp, shorter than :func:`sigmoid_of`.

    ``e^-x = 2^p 2^rest``: ``p`` is the rounded product of ``-x`` and ``log2 e``, and ``2^rest`` is ``1 + rest ln 2``.
    Beyond 100 float32 has 0 or 1.
    """
    if x.dtype == tl.float64:
        result = sigmoid_of(x)
    else:
        minus_x = clamp_of(-x, -100.0, 100.0)
        p = minus_x * 1.4426950216293335
        rest = tl.fma(minus_x, tl.full(x.shape, 1.4426950216293335, x.dtype), -p) + minus_x * 1.925963033500011e-08
        result = 1.0 / (1.0 + tl.exp2(p) * (1.0 + rest * 0.6931471805599453))
    return result


@triton.jit
def short_tanh_of(x: tl.tensor) -> tl.tensor:
    """``1 - 2 / (1 + e^2|x|)`` with the sign of x, to about 2 ulp, shorter than :func:`tanh_of`.

    Below 0.5625, where that cancels, a minimax polynomial of x^2 with an error of 5e-8.
    """
    if x.dtype == tl.float64:
        result = tanh_of(x)
    else:
        u = tl.abs(x)
        z = u * u
        q = 0.13319079256020774 + z * (-0.052565120636108444 + z * 0.016232920300726105)
        near = u + u * (z * (-0.33332876375190873 + z * q))
        far = 1.0 - 2.0 / (1.0 + tl.exp2(u * 2.8853900817779268))
        result = with_sign_of(tl.where(u < 0.5625, near, far), x)
    return result


@triton.jit
def read(
    ptr: tl.tensor, b: tl.tensor, h: tl.tensor, strides_BH: tl.tuple, mask: tl.tensor, COMPUTE: tl.constexpr
) -> tl.tensor:
    """The elements at these places; 0 for a tensor that is absent."""
    if ptr is None:
        x = tl.zeros(mask.shape, COMPUTE)
    else:
        x = tl.load(ptr + b * strides_BH[0] + h * strides_BH[1], mask=mask, other=0).to(COMPUTE)
    return x


@triton.jit
def write(ptr: tl.tensor, x: tl.tensor, b: tl.tensor, h: tl.tensor, strides_BH: tl.tuple, mask: tl.tensor) -> None:
    """Store ``x``, rounded to the tensor's type."""
    tl.store(ptr + b * strides_BH[0] + h * strides_BH[1], converted(x, ptr.dtype.element_ty), mask=mask)


@triton.jit
def gate_of(
    tensors: tl.tuple,
    strides: tl.tuple,
    b: tl.tensor,
    h: tl.tensor,
    mask: tl.tensor,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """The sum of a gate's parts; the batch of a bias has the stride 0."""
    total = tl.zeros(mask.shape, COMPUTE)
    for n in tl.static_range(len(tensors)):
        total += read(tensors[n], b, h, strides[n], mask, COMPUTE)
    return total


@triton.jit
def lstm_kernel(
    outs: tl.tuple,
    gates: tl.tuple,
    states: tl.tuple,
    out_strides: tl.tuple,
    gate_strides: tl.tuple,
    state_strides: tl.tuple,
    B: tl.tensor,
    H: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_H: tl.constexpr,
) -> None:
    """``cy = f cx + i g`` and ``hy = o tanh(cy)``; cx is the one of ``states``.

    ``i, f, o`` are the sigmoids of their gates, ``g`` is the tanh of its own.
    """
    pdl_prologue()
    b, h, mask = state_place(H, B, INDEX, BLOCK_B, BLOCK_H)
    # All is asked for before the first result is needed.
    i_gate = gate_of(gates, gate_strides, b, h, mask, COMPUTE)
    f_gate = gate_of(gates, gate_strides, b, h + H, mask, COMPUTE)
    g_gate = gate_of(gates, gate_strides, b, h + 2 * H, mask, COMPUTE)
    o_gate = gate_of(gates, gate_strides, b, h + 3 * H, mask, COMPUTE)
    cx = read(states[0], b, h, state_strides[0], mask, COMPUTE)
    i, f, o = short_sigmoid_of(i_gate), short_sigmoid_of(f_gate), short_sigmoid_of(o_gate)
    g = short_tanh_of(g_gate)
    cy = f * cx + i * g
    write(outs[0], o * short_tanh_of(cy), b, h, out_strides[0], mask)
    write(outs[1], cy, b, h, out_strides[1], mask)
    kept = (i, f, g, o)
    for n in tl.static_range(4):
        write(outs[2], kept[n], b, h + n * H, out_strides[2], mask)


@triton.jit
def lstm_backward_kernel(
    outs: tl.tuple,
    reads: tl.tuple,
    out_strides: tl.tuple,
    read_strides: tl.tuple,
    B: tl.tensor,
    H: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_H: tl.constexpr,
) -> None:
    """Gradients of the four gates before their activation, and of cx.

    ``reads`` are the gradients of hy and cy, either of which may be absent, cx, cy and the workspace.
    """
    pdl_prologue()
    b, h, mask = state_place(H, B, INDEX, BLOCK_B, BLOCK_H)
    grad_hy = read(reads[0], b, h, read_strides[0], mask, COMPUTE)
    grad_cy = read(reads[1], b, h, read_strides[1], mask, COMPUTE)
    cx = read(reads[2], b, h, read_strides[2], mask, COMPUTE)
    t = short_tanh_of(read(reads[3], b, h, read_strides[3], mask, COMPUTE))
    i = read(reads[4], b, h, read_strides[4], mask, COMPUTE)
    f = read(reads[4], b, h + H, read_strides[4], mask, COMPUTE)
    g = read(reads[4], b, h + 2 * H, read_strides[4], mask, COMPUTE)
    o = read(reads[4], b, h + 3 * H, read_strides[4], mask, COMPUTE)
    grad_c = grad_hy * o * (1.0 - t * t) + grad_cy
    grad_gates = (
        grad_c * g * (1.0 - i) * i,
        grad_c * cx * (1.0 - f) * f,
        grad_c * i * (1.0 - g * g),
        grad_hy * t * (1.0 - o) * o,
    )
    for n in tl.static_range(4):
        write(outs[0], grad_gates[n], b, h + n * H, out_strides[0], mask)
    write(outs[1], grad_c * f, b, h, out_strides[1], mask)


@triton.jit
def gru_kernel(
    outs: tl.tuple,
    input_gates: tl.tuple,
    hidden_gates: tl.tuple,
    states: tl.tuple,
    out_strides: tl.tuple,
    input_strides: tl.tuple,
    hidden_strides: tl.tuple,
    state_strides: tl.tuple,
    B: tl.tensor,
    H: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_H: tl.constexpr,
) -> None:
    """``hy = n + z (hx - n)``; hx is the one of ``states``.

    ``r, z`` are the sigmoids of their gates, ``n`` is the tanh of its input part plus r times its hidden part.
    """
    pdl_prologue()
    b, h, mask = state_place(H, B, INDEX, BLOCK_B, BLOCK_H)
    r_input = gate_of(input_gates, input_strides, b, h, mask, COMPUTE)
    z_input = gate_of(input_gates, input_strides, b, h + H, mask, COMPUTE)
    n_input = gate_of(input_gates, input_strides, b, h + 2 * H, mask, COMPUTE)
    r_hidden = gate_of(hidden_gates, hidden_strides, b, h, mask, COMPUTE)
    z_hidden = gate_of(hidden_gates, hidden_strides, b, h + H, mask, COMPUTE)
    n_hidden = gate_of(hidden_gates, hidden_strides, b, h + 2 * H, mask, COMPUTE)
    hx = read(states[0], b, h, state_strides[0], mask, COMPUTE)
    r, z = short_sigmoid_of(r_input + r_hidden), short_sigmoid_of(z_input + z_hidden)
    n = short_tanh_of(n_input + r * n_hidden)
    write(outs[0], n + z * (hx - n), b, h, out_strides[0], mask)
    kept = (r, z, n, hx, n_hidden)
    for k in tl.static_range(5):
        write(outs[1], kept[k], b, h + k * H, out_strides[1], mask)


@triton.jit
def gru_backward_kernel(
    outs: tl.tuple,
    reads: tl.tuple,
    out_strides: tl.tuple,
    read_strides: tl.tuple,
    B: tl.tensor,
    H: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_H: tl.constexpr,
) -> None:
    """Gradients of the input's and the hidden gates before their activation, and of hx.

    ``reads`` are the gradient of hy and the workspace.
    """
    pdl_prologue()
    b, h, mask = state_place(H, B, INDEX, BLOCK_B, BLOCK_H)
    grad = read(reads[0], b, h, read_strides[0], mask, COMPUTE)
    r = read(reads[1], b, h, read_strides[1], mask, COMPUTE)
    z = read(reads[1], b, h + H, read_strides[1], mask, COMPUTE)
    n = read(reads[1], b, h + 2 * H, read_strides[1], mask, COMPUTE)
    hx = read(reads[1], b, h + 3 * H, read_strides[1], mask, COMPUTE)
    n_hidden = read(reads[1], b, h + 4 * H, read_strides[1], mask, COMPUTE)
    grad_n = grad * (1.0 - z) * (1.0 - n * n)
    grad_r = grad_n * n_hidden * (1.0 - r) * r
    grad_z = grad * (hx - n) * (1.0 - z) * z
    grad_inputs, grad_hiddens = (grad_r, grad_z, grad_n), (grad_r, grad_z, grad_n * r)
    for k in tl.static_range(3):
        write(outs[0], grad_inputs[k], b, h + k * H, out_strides[0], mask)
        write(outs[1], grad_hiddens[k], b, h + k * H, out_strides[1], mask)
    write(outs[2], grad * z, b, h, out_strides[2], mask)


Tensors = tuple[torch.Tensor | None, ...]
Strides = tuple[tuple[int, ...], ...]


def _strides(tensors: Tensors) -> Strides:
    """Strides along batch and hidden: a bias repeats along the batch."""
    return tuple(
        (0, 0) if tensor is None else (0, tensor.stride(0)) if tensor.ndim == 1 else tensor.stride()
        for tensor in tensors
    )


def _run(kernel: object, state: torch.Tensor, *groups: Tensors) -> None:
    """Launch over the elements of ``state``: the groups of tensors, then their strides."""
    B, H = state.shape
    if state.numel() == 0:
        return
    tile = INTERPRETED_TILE if INTERPRETED else _LARGE_TILE if B * H > _LARGE else _TILE
    block_h = min(triton.next_power_of_2(H), tile)
    block_b = min(triton.next_power_of_2(B), tile // block_h) if INTERPRETED else tile // block_h
    present = [tensor for group in groups for tensor in group if tensor is not None]
    reach = [Geometry(shape, (strides,)) for shape, strides in map(layout_of, present)]
    launch(
        kernel,
        (triton.cdiv(B, block_b) * triton.cdiv(H, block_h),),
        state.device,
        *groups,
        *map(_strides, groups),
        B,
        H,
        COMPUTE=compute_type(state.dtype),
        INDEX=max((index_type(part) for part in reach), key=lambda index: index.primitive_bitwidth),
        BLOCK_B=block_b,
        BLOCK_H=block_h,
    )


def _require_gates(
    gates: int, state: torch.Tensor, *of_gates: torch.Tensor, biases: tuple[torch.Tensor | None, ...]
) -> None:
    """Refuse what does not fit a state of shape (B, H): gates of (B, gates * H) and biases of (gates * H).

    Raises:
        ValueError: shapes that do not fit, or one bias without the other.
        NotImplementedError: tensors that are not served, or of several types.
    """
    require_served(state, *of_gates, *biases, dtypes=FLOATS)
    if state.ndim != 2 or any(tensor.shape != (state.shape[0], gates * state.shape[1]) for tensor in of_gates):
        raise ValueError(f"a cell's gates are {gates} times as wide as its state")
    given = [bias for bias in biases if bias is not None]
    if any(bias.shape != (gates * state.shape[1],) for bias in given) or len(given) == 1:
        raise ValueError(f"a cell has no bias or two, {gates} times as wide as its state")
    if any(tensor.dtype != state.dtype for tensor in (*of_gates, *given)):
        raise NotImplementedError("a cell of several types is not served")


def _new(B: int, H: int, model: torch.Tensor) -> torch.Tensor:
    return torch.empty((B, H), dtype=model.dtype, device=model.device)


def lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One step of an LSTM.

    Args:
        input_gates: of shape (B, 4 H), in the order input, forget, cell, output.
        hidden_gates: as ``input_gates``.
        cx: the state of the cell, of shape (B, H).
        input_bias: of shape (4 H), or None.
        hidden_bias: as ``input_bias``.

    Returns:
        The next hidden state, the next state of the cell, and the workspace of shape (B, 4 H).

    Raises:
        ValueError: shapes that do not fit.
    """
    _require_gates(4, cx, input_gates, hidden_gates, biases=(input_bias, hidden_bias))
    B, H = cx.shape
    hy, cy, workspace = _new(B, H, cx), _new(B, H, cx), _new(B, 4 * H, cx)
    gates = tuple(part for part in (input_gates, hidden_gates, input_bias, hidden_bias) if part is not None)
    _run(lstm_kernel, cx, (hy, cy, workspace), gates, (cx,))
    return hy, cy, workspace


def lstm_cell_backward(
    grad_hy: torch.Tensor | None,
    grad_cy: torch.Tensor | None,
    cx: torch.Tensor,
    cy: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """The gradients of :func:`lstm_cell`.

    Returns:
        Those of the gates, (B, 4 H), of ``cx``, and of a bias, (4 H) or None; None three times without a gradient.

    Raises:
        ValueError: shapes that do not fit.
    """
    if grad_hy is None and grad_cy is None:
        return None, None, None
    _require_gates(4, cx, workspace, biases=())
    _require_states(cx, cy, grad_hy, grad_cy)
    B, H = cx.shape
    grad_gates, grad_cx = _new(B, 4 * H, cx), _new(B, H, cx)
    _run(lstm_backward_kernel, cx, (grad_gates, grad_cx), (grad_hy, grad_cy, cx, cy, workspace))
    return grad_gates, grad_cx, sum_dim(grad_gates, [0]) if has_bias else None


def gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of a GRU.

    Args:
        input_gates: of shape (B, 3 H), in the order reset, update, new.
        hidden_gates: as ``input_gates``.
        hx: the hidden state, of shape (B, H).
        input_bias: of shape (3 H), or None.
        hidden_bias: as ``input_bias``.

    Returns:
        The next hidden state, and the workspace of shape (B, 5 H).

    Raises:
        ValueError: shapes that do not fit.
    """
    _require_gates(3, hx, input_gates, hidden_gates, biases=(input_bias, hidden_bias))
    B, H = hx.shape
    hy, workspace = _new(B, H, hx), _new(B, 5 * H, hx)
    inputs = tuple(part for part in (input_gates, input_bias) if part is not None)
    hiddens = tuple(part for part in (hidden_gates, hidden_bias) if part is not None)
    _run(gru_kernel, hx, (hy, workspace), inputs, hiddens, (hx,))
    return hy, workspace


def gru_cell_backward(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """The gradients of :func:`gru_cell`.

    Returns:
        Those of both gates, (B, 3 H), of ``hx``, and of both biases, (3 H) or None.

    Raises:
        ValueError: shapes that do not fit.
    """
    _require_gates(5, grad_hy, workspace, biases=())
    B, H = grad_hy.shape
    grad_inputs, grad_hiddens, grad_hx = _new(B, 3 * H, grad_hy), _new(B, 3 * H, grad_hy), _new(B, H, grad_hy)
    _run(gru_backward_kernel, grad_hy, (grad_inputs, grad_hiddens, grad_hx), (grad_hy, workspace))
    biases = (sum_dim(grad_inputs, [0]), sum_dim(grad_hiddens, [0])) if has_bias else (None, None)
    return grad_inputs, grad_hiddens, grad_hx, *biases


def _require_states(state: torch.Tensor, *others: torch.Tensor | None) -> None:
    require_served(*others, dtypes=FLOATS)
    for other in others:
        if other is not None and (other.shape != state.shape or other.dtype != state.dtype):
            raise ValueError("the states of a cell and their gradients have one shape and one dtype")
