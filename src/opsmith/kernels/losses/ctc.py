"""The connectionist temporal classification loss of sequences of labels, and its gradient.

With a blank around each of a target's L labels there are ``S = 2 L + 1`` states. A path begins in one of the first two,
at each step stays, goes on to the next state or, from a label to another one, leaves the blank between them out, and
ends in one of the last two; the loss is ``-log`` of the probability of all paths (A. Graves et al., "Connectionist
temporal classification", 2006). A program walks one sequence's T steps with all of its states in registers:
``T S`` probabilities are gathered, ``T S itemsize`` bytes of ``log_alpha`` written for the gradient.

The gradient of a step is ``exp(log_probs)`` less the probability of being in a state of that label. The first part is
written everywhere by one launch; then a program a sequence walks back and subtracts the second where the labels are.

Suffixes: ``_S`` states, ``_RC`` rows (steps of sequences) and classes of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, index_type, merge_dims
from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, loop_bound, pdl_prologue, require_served
from ..common.matrix import side

_SERVED = (torch.float32, torch.float64)
#: States that a program holds in registers.
MOST_STATES = 8192

# ---------------------------------------------------------------- in a kernel


@triton.jit
def state_labels(
    targets_ptr: tl.tensor, stride: tl.tensor, states: tl.tensor, blank: tl.tensor, s: tl.tensor
) -> tl.tuple:
    """The states' labels, and which states can be entered from two before: labels that differ from the one before."""
    is_label_S = (s % 2 == 1) & (s < states)
    label_S = tl.load(targets_ptr + (s // 2).to(tl.int64) * stride, mask=is_label_S, other=0).to(tl.int64)
    has_last_S = is_label_S & (s >= 3)
    last_S = tl.load(targets_ptr + (s // 2 - 1).to(tl.int64) * stride, mask=has_last_S, other=0).to(tl.int64)
    return tl.where(is_label_S, label_S, blank), has_last_S & (label_S != last_S)


@triton.jit
def moved(x_S: tl.tensor, s: tl.tensor, by: tl.constexpr, BLOCK_S: tl.constexpr) -> tl.tensor:
    """``x[s - by]``, ``-inf`` beyond the ends."""
    at = s - by
    inside = (at >= 0) & (at < BLOCK_S)
    return tl.where(inside, tl.gather(x_S, tl.where(inside, at, 0), 0), float("-inf"))


@triton.jit
def log_sum(a: tl.tensor, b: tl.tensor, c: tl.tensor) -> tl.tensor:
    """``log(e^a + e^b + e^c)``."""
    most = tl.maximum(tl.maximum(a, b), c)
    most = tl.where(most == float("-inf"), 0.0, most)
    return tl.log(tl.exp(a - most) + tl.exp(b - most) + tl.exp(c - most)) + most


@triton.jit
def ctc_kernel(
    loss_ptr: tl.tensor,
    alpha_ptr: tl.tensor,
    log_probs_ptr: tl.tensor,
    targets_ptr: tl.tensor,
    lengths_ptr: tl.tensor,
    strides: tl.tuple,
    target_stride: tl.tensor,
    blank: tl.tensor,
    batch: tl.tensor,
    T: tl.tensor,
    S: tl.tensor,
    INDEX: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """The loss of one sequence, and ``log_alpha[t, s]``: how likely a path is in state s after step t."""
    pdl_prologue()
    n = tl.program_id(0).to(tl.int64)
    length, states = tl.load(lengths_ptr + n), 2 * tl.load(lengths_ptr + batch + n) + 1
    s = tl.arange(0, BLOCK_S)
    first = tl.load(lengths_ptr + 2 * batch + n)
    label_S, skips_S = state_labels(targets_ptr + first, target_stride, states, blank, s)
    at_S = log_probs_ptr + n * strides[1] + label_S * strides[2]
    # Before the first step every path is in front of the first label.
    alpha_S = tl.where(s == 0, 0.0, float("-inf")).to(log_probs_ptr.dtype.element_ty)
    for t in range(T):
        emitted_S = tl.load(at_S + tl.cast(t, INDEX) * strides[0], mask=s < states, other=float("-inf"))
        skipped_S = tl.where(skips_S, moved(alpha_S, s, 2, BLOCK_S), float("-inf"))
        next_S = log_sum(alpha_S, moved(alpha_S, s, 1, BLOCK_S), skipped_S) + emitted_S
        alpha_S = tl.where(t < length, next_S, alpha_S)
        out_S = alpha_ptr + (n * T + t) * S + s
        tl.store(out_S, tl.where(t < length, alpha_S, float("-inf")), mask=s < S)
    ends_S = tl.where((s == states - 1) | (s == states - 2), alpha_S, float("-inf"))
    most = tl.max(ends_S, axis=0)
    most = tl.where(most == float("-inf"), 0.0, most)
    tl.store(loss_ptr + n, -(tl.log(tl.sum(tl.exp(ends_S - most), axis=0)) + most))


@triton.jit
def given_gradient(
    grad_ptr: tl.tensor,
    grad_stride: tl.tensor,
    loss_ptr: tl.tensor,
    n: tl.tensor,
    inside: tl.tensor,
    ZERO: tl.constexpr,
) -> tl.tensor:
    """The gradients of losses; of infinite ones NaN or, with ZERO, 0."""
    grad = tl.load(grad_ptr + n * grad_stride, mask=inside, other=0)
    is_infinite = tl.load(loss_ptr + n, mask=inside, other=0) == float("inf")
    return tl.where(is_infinite, 0.0 if ZERO else float("nan"), grad)


@triton.jit
def probability_kernel(
    out_ptr: tl.tensor,
    log_probs_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    loss_ptr: tl.tensor,
    lengths_ptr: tl.tensor,
    strides: tl.tuple,
    grad_stride: tl.tensor,
    batch: tl.tensor,
    rows: tl.tensor,
    classes: tl.tensor,
    ZERO: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """``out[t, n, c] = grad[n] exp(log_probs[t, n, c])`` for the steps of each sequence, else 0."""
    pdl_prologue()
    tiles_C = tl.cdiv(classes, BLOCK_C)
    row = (tl.program_id(0) // tiles_C).to(INDEX) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = (tl.program_id(0) % tiles_C).to(INDEX) * BLOCK_C + tl.arange(0, BLOCK_C)
    n, t = row % batch, row // batch
    inside = (row < rows)[:, None] & (c < classes)[None, :]
    counts_R = (row < rows) & (t < tl.load(lengths_ptr + n, mask=row < rows, other=0))
    grad_R = given_gradient(grad_ptr, grad_stride, loss_ptr, n, counts_R, ZERO)
    if ZERO:
        counts_R = counts_R & (grad_R != 0)
    at_RC = (t * strides[0] + n * strides[1])[:, None] + (c * strides[2])[None, :]
    x_RC = tl.load(log_probs_ptr + at_RC, mask=inside & counts_R[:, None], other=float("-inf"))
    result_RC = tl.where(counts_R[:, None], grad_R[:, None] * tl.exp(x_RC), 0.0)
    tl.store(out_ptr + row[:, None] * classes + c[None, :], result_RC, mask=inside)


@triton.jit
def ctc_gradient_kernel(
    out_ptr: tl.tensor,
    log_probs_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    loss_ptr: tl.tensor,
    alpha_ptr: tl.tensor,
    targets_ptr: tl.tensor,
    lengths_ptr: tl.tensor,
    strides: tl.tuple,
    alpha_strides: tl.tuple,
    grad_stride: tl.tensor,
    target_stride: tl.tensor,
    blank: tl.tensor,
    batch: tl.tensor,
    classes: tl.tensor,
    T: tl.tensor,
    ZERO: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """Subtract ``grad[n] P(state s at step t)`` at the states' labels, for one sequence's steps, the last first.

    What follows a step is kept relative to its greatest entry: the logarithms of long sequences are large numbers,
    whose difference is to be exact.
    """
    pdl_prologue()
    n = tl.program_id(0).to(tl.int64)
    length, states = tl.load(lengths_ptr + n), 2 * tl.load(lengths_ptr + batch + n) + 1
    s = tl.arange(0, BLOCK_S)
    first = tl.load(lengths_ptr + 2 * batch + n)
    label_S, skips_S = state_labels(targets_ptr + first, target_stride, states, blank, s)
    at_S = log_probs_ptr + n * strides[1] + label_S * strides[2]
    grad = given_gradient(grad_ptr, grad_stride, loss_ptr, n, n < batch, ZERO)
    scale = tl.load(loss_ptr + n).to(tl.float64)
    if ZERO:
        length = tl.where(grad == 0, 0, length)
    # After the last step every path is behind the last label. What follows it, without what a step emits:
    last_S = tl.where(s == states - 1, 0.0, float("-inf")).to(log_probs_ptr.dtype.element_ty)
    for step in range(T):
        t = T - 1 - step
        inside_S = (s < states) & (t < length)
        # A state is left by its skip where the one two behind it may be entered by one.
        skipped_S = moved(tl.where(skips_S, last_S, float("-inf")), s, -2, BLOCK_S)
        follows_S = log_sum(last_S, moved(last_S, s, -1, BLOCK_S), skipped_S)
        most = tl.max(tl.where(inside_S, follows_S, float("-inf")), axis=0)
        most = tl.where(most == float("-inf"), 0.0, most)
        follows_S -= most
        scale += most.to(tl.float64)
        emitted_S = tl.load(at_S + tl.cast(t, INDEX) * strides[0], mask=inside_S, other=0)
        before_S = alpha_ptr + n * alpha_strides[0] + t * alpha_strides[1] + s * alpha_strides[2]
        alpha_S = tl.load(before_S, mask=inside_S, other=float("-inf"))
        path_S = (alpha_S.to(tl.float64) + scale).to(alpha_S.dtype) + follows_S
        chance_S = tl.where(inside_S, -grad * tl.exp(path_S), 0.0)
        row = out_ptr + (tl.cast(t, INDEX) * batch + n) * classes
        tl.atomic_add(row + label_S, chance_S, mask=inside_S & (s % 2 == 1), sem="relaxed")
        blanks = tl.sum(tl.where(s % 2 == 0, chance_S, 0.0), axis=0)
        tl.atomic_add(row + blank, blanks, mask=t < length, sem="relaxed")
        last_S = tl.where(inside_S, follows_S + emitted_S, last_S)


# ---------------------------------------------------------------- the host side


class Sequences(NamedTuple):
    """What both directions know of the batch.

    Attributes:
        lengths: on the device, of the inputs, of the targets, and where each target begins: ``[3, N]``.
        target_stride: of a target's labels.
        longest: the labels of the longest target.
        index: the type of offsets.
    """

    lengths: torch.Tensor
    target_stride: int
    longest: int
    index: tl.dtype

    @classmethod
    def of(
        cls,
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: Sequence[int],
        target_lengths: Sequence[int],
        blank: int,
    ) -> Sequences:
        """Check what eager checks.

        Raises:
            TypeError: targets that are neither int64 nor int32.
            ValueError: lengths or shapes that do not fit each other, or a blank that is no class.
            NotImplementedError: targets of more labels than a program holds.
        """
        require_served(log_probs, dtypes=_SERVED)
        require_served(targets)
        if targets.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"the targets are int64 or int32, not {targets.dtype}")
        if log_probs.ndim != 3 or not 0 <= blank < log_probs.shape[2]:
            raise ValueError(f"log_probs of shape {list(log_probs.shape)} have no class {blank}")
        T, N, _ = log_probs.shape
        if len(input_lengths) != N or len(target_lengths) != N:
            raise ValueError(f"{len(input_lengths)} and {len(target_lengths)} lengths are not of {N} sequences")
        if any(not 0 <= length <= T for length in input_lengths) or any(length < 0 for length in target_lengths):
            raise ValueError(f"input lengths are between 0 and {T}, target lengths at least 0")
        longest = max(target_lengths, default=0)
        if targets.ndim == 1:
            firsts = list(accumulate(target_lengths, initial=0))
            if firsts[-1] > targets.shape[0]:
                raise ValueError(f"there are {targets.shape[0]} labels, not {firsts[-1]}")
            starts = [first * targets.stride(0) for first in firsts[:-1]]
        elif targets.ndim == 2 and targets.shape[0] == N and longest <= targets.shape[1]:
            starts = [n * targets.stride(0) for n in range(N)]
        else:
            raise ValueError(f"targets of shape {list(targets.shape)} are not of {N} sequences up to {longest} labels")
        if 2 * longest + 1 > MOST_STATES:
            raise NotImplementedError(f"targets of more than {MOST_STATES // 2 - 1} labels are not served")
        lengths = torch.tensor([list(input_lengths), list(target_lengths), starts], device=log_probs.device)
        span = merge_dims(tuple(log_probs.shape), [log_probs.stride()], (2, 1, 0))
        index = index_type(span, Geometry((log_probs.numel(),), ((1,),)))
        return cls(lengths, targets.stride(-1), longest, index)

    @property
    def block(self) -> int:
        """A power of two of states."""
        return int(triton.next_power_of_2(2 * self.longest + 1))

    @property
    def warps(self) -> int:
        """4 states a thread, up to 512 threads."""
        return min(max(self.block // 128, 1), 16)


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,  # noqa: ARG001 - Of the gradient.
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each sequence of ``log_probs[T, N, C]``, and ``log_alpha[N, T, S]`` for the gradient.

    Args:
        log_probs: logarithms of the classes' probabilities.
        targets: labels, ``[N, longest]`` or one target after another.
        input_lengths: steps of each sequence.
        target_lengths: labels of each sequence.
        blank: the class of no label.
        zero_infinity: whether infinite losses have no gradient.

    Raises:
        TypeError: targets that are neither int64 nor int32.
        ValueError: lengths or shapes that do not fit each other, or a blank that is no class.
    """
    given = Sequences.of(log_probs, targets, input_lengths, target_lengths, blank)
    T, N, _ = log_probs.shape
    S = 2 * given.longest + 1
    loss = torch.empty(N, dtype=log_probs.dtype, device=log_probs.device)
    log_alpha = torch.empty((N, T, S), dtype=log_probs.dtype, device=log_probs.device)
    if N:
        launch(
            ctc_kernel,
            (N,),
            log_probs.device,
            loss,
            log_alpha,
            log_probs,
            targets,
            given.lengths,
            log_probs.stride(),
            given.target_stride,
            blank,
            N,
            loop_bound(T),
            S,
            INDEX=given.index,
            BLOCK_S=given.block,
            num_warps=given.warps,
        )
    return loss, log_alpha


def ctc_loss_tensor(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As :func:`ctc_loss`, with lengths for which the host waits, as in eager."""
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return ctc_loss(log_probs, targets, *lengths, blank, zero_infinity)


def ctc_loss_backward(
    grad: torch.Tensor,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    neg_log_likelihood: torch.Tensor,
    log_alpha: torch.Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """The gradient of ``log_probs``, given those of the losses and what :func:`ctc_loss` returned."""
    given = Sequences.of(log_probs, targets, input_lengths, target_lengths, blank)
    require_served(grad, neg_log_likelihood, log_alpha, dtypes=_SERVED)
    T, N, C = log_probs.shape
    out = torch.empty(log_probs.shape, dtype=log_probs.dtype, device=log_probs.device)
    if not out.numel():
        return out
    block_c = side(C, INTERPRETED_TILE if INTERPRETED else 1024)
    block_r = side(T * N, (INTERPRETED_TILE if INTERPRETED else 2048) // block_c)
    launch(
        probability_kernel,
        (triton.cdiv(T * N, block_r) * triton.cdiv(C, block_c),),
        log_probs.device,
        out,
        log_probs,
        grad,
        neg_log_likelihood,
        given.lengths,
        log_probs.stride(),
        grad.stride(0),
        N,
        T * N,
        C,
        ZERO=zero_infinity,
        INDEX=given.index,
        BLOCK_R=block_r,
        BLOCK_C=block_c,
    )
    launch(
        ctc_gradient_kernel,
        (N,),
        log_probs.device,
        out,
        log_probs,
        grad,
        neg_log_likelihood,
        log_alpha,
        targets,
        given.lengths,
        log_probs.stride(),
        log_alpha.stride(),
        grad.stride(0),
        given.target_stride,
        blank,
        N,
        C,
        loop_bound(T),
        ZERO=zero_infinity,
        INDEX=given.index,
        BLOCK_S=given.block,
        num_warps=given.warps,
    )
    return out


def ctc_loss_tensor_backward(
    grad: torch.Tensor,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    neg_log_likelihood: torch.Tensor,
    log_alpha: torch.Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """As :func:`ctc_loss_backward`, with lengths for which the host waits, as in eager."""
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return ctc_loss_backward(grad, log_probs, targets, *lengths, neg_log_likelihood, log_alpha, blank, zero_infinity)
