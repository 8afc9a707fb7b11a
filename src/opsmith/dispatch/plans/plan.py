"""Launch plans: what a kernel's host code did for one signature, done again without running it.

The host code of a kernel is dozens of Python steps that end in few acts: memory is allocated, compiled kernels are
launched, tensors are returned. Where these follow from the *signature* of a call, a plan holds them. A signature is

- of each tensor the dtype, shape, strides, device, and address modulo 16; of a call without any, the device;
- which tensors are the same one;
- every other argument by type and value;
- torch's default dtype and whether it is to be deterministic.

A kernel whose host code depends on nothing else says so in its manifest. Only torch's settings ``fp32_precision`` may
be read besides: a plan holds those that were, and is used while they have the values that they had.
:mod:`opsmith.dispatch.plans.recorder` makes plans, :mod:`opsmith.dispatch.plans.replay` and ``launcher.cpp`` carry
them out.

Tensors have numbers in a plan: first those of the call, then what is allocated, both in order.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, TypeAlias

import torch


class Refusal(enum.StrEnum):
    """Why there is no plan for a signature."""

    FALLBACK = "fallback"
    OPERATION = "operation"
    LAUNCH = "launch"
    ARGUMENT = "argument"
    RESULT = "result"
    LAYOUT = "layout"
    RANDOM = "random"


class Memory(NamedTuple):
    """What is allocated."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class Pointer(NamedTuple):
    """A parameter that differs from call to call: an address in tensor ``number``.

    A negative number counts from the end of :data:`opsmith.dispatch.plans.rng_state.COUNTER`, of which the parameter is
    one.
    """

    slot: int
    number: int
    offset_bytes: int


class Launch(NamedTuple):
    """One launch of a compiled kernel.

    Attributes:
        function: the driver's handle.
        grid: the numbers of programs.
        warps: of one program.
        shared_bytes: shared memory of one program.
        overlaps: whether it may be launched while the kernel before it ends, for whose results it waits by itself
            (programmatic dependent launch).
        slots: the parameters, each as a 64-bit number whose first bytes are the parameter's; 0 for pointers.
        pointers: what goes into slots at each call.
        kernel: owns the function.
    """

    function: int
    grid: tuple[int, int, int]
    warps: int
    shared_bytes: int
    overlaps: bool
    slots: tuple[int, ...]
    pointers: tuple[Pointer, ...]
    kernel: Any


class Copy(NamedTuple):
    """Tensor ``source`` is copied into tensor ``to``."""

    to: int
    source: int


class Reach(NamedTuple):
    """The bytes of argument ``number``, which must not overlap another one's if either is written to.

    A signature does not say where arguments lie.
    """

    number: int
    size_bytes: int
    written: bool


class Precision(NamedTuple):
    """What host code read: torch's setting ``fp32_precision`` for a backend and an op, by torch's names."""

    backend: str
    op: str
    value: str


class Number(NamedTuple):
    """A number that is returned among tensors, such as a size."""

    value: int


class HostScalar(NamedTuple):
    """A tensor without dimensions that is returned on the host, and that nobody has written."""

    dtype: torch.dtype


#: The number of a tensor, None for none, or what is made anew.
Result: TypeAlias = int | Number | HostScalar | None


class Form(enum.Enum):
    """In what a call returns its results."""

    TENSOR = enum.auto()
    TUPLE = enum.auto()
    LIST = enum.auto()
    NOTHING = enum.auto()


class LaunchPlan(NamedTuple):
    """What is done for one signature.

    Attributes:
        tensors: how many a call has.
        device: the index of the device on whose stream it is done, which a signature says.
        allocations: what is allocated first.
        steps: what is done then.
        results: the numbers of the tensors that are returned, None for no tensor, or what is made anew.
        form: what they are returned in.
        reaches: of distinct arguments that have elements, none if none is written to; calls in which one that is
            written to overlaps another one are not the plan's.
        precisions: nor are calls while one of these settings has another value.
        draws: words of random numbers that are taken from the device's generator; such a plan is not carried out in
            the capture of a CUDA graph, whose replays would all draw the same, nor in C++: no such op is installed.
    """

    tensors: int
    device: int
    allocations: tuple[Memory, ...]
    steps: tuple[Launch | Copy, ...]
    results: tuple[Result, ...]
    form: Form
    reaches: tuple[Reach, ...]
    precisions: tuple[Precision, ...]
    draws: int
