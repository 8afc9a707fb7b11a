"""Kernels that run for show: what they write nobody reads."""

from __future__ import annotations

import pytest

from opsmith.evaluation.integrity.static import Kind, examine

TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    out = y_ptr + i
    tl.store(out, x)

@triton.jit
def opaque(x_ptr, y_ptr):
    helper(y_ptr)

def relu__default_kernel_impl(x):
"""
CPP = """
import ctypes
import torch

def build():
    return ctypes.CDLL("own.so")

library = build()
direct = ctypes.CDLL("own.so")

def pointer(t):
    return ctypes.c_void_p(t.data_ptr())

def relu__default_kernel_impl(x):
"""


def idle(head: str, *body: str) -> bool:
    """Whether a source with this body is found to run a kernel for show."""
    source = head + "".join(f"    {line}\n" for line in body)
    found = examine({"k.py": source.encode()}, policy="native", task="relu.default")
    return any(finding.kind is Kind.IDLE_KERNEL for finding in found)


@pytest.mark.parametrize(
    "body",
    [
        ("kernel[(1,)](x, torch.empty_like(x), 1, BLOCK=16)", "return torch.relu(x)"),
        ("mine = torch.empty(64)", "kernel[(1,)](x, mine, 1, BLOCK=16)", "return torch.relu(x)"),
        ("mine = x.new_empty(64)", "kernel[(mine.numel(),)](x, y_ptr=mine, n=1, BLOCK=16)", "return torch.relu(x)"),
    ],
)
def test_a_launch_into_memory_that_nobody_reads_is_for_show(body: tuple[str, ...]) -> None:
    """A profiler would see it."""
    assert idle(TRITON, *body)


@pytest.mark.parametrize(
    "body",
    [
        # The result, a part of it, or what is computed from it.
        ("out = torch.empty_like(x)", "kernel[(1,)](x, out, 1, BLOCK=16)", "return out"),
        ("out = torch.empty_like(x)", "kernel[(1,)](x, out, 1, BLOCK=16)", "return torch.relu(out)"),
        ("out = torch.empty_like(x)", "view = out.view(-1)", "kernel[(1,)](x, out, 1, BLOCK=16)", "return view"),
        ("out = torch.empty_like(x)", "kernel[(1,)](x, out.view(-1), 1, BLOCK=16)", "return out"),
        # In place, through an alias, into what came from elsewhere.
        ("kernel[(1,)](x, x, 1, BLOCK=16)", "return torch.relu(x)"),
        ("out = empty()", "kernel[(1,)](x, out, 1, BLOCK=16)", "return torch.relu(x)"),
        ("out = self.buffer = torch.empty(3)", "kernel[(1,)](x, out, 1, BLOCK=16)", "return self.buffer"),
        # What it writes cannot be told.
        ("opaque[(1,)](x, torch.empty_like(x))", "return torch.relu(x)"),
        ("kernel[(1,)](*args)", "return torch.relu(x)"),
        # Another launch does something.
        (
            "kernel[(1,)](x, torch.empty_like(x), 1, BLOCK=16)",
            "out = torch.empty_like(x)",
            "kernel[(1,)](x, out, 1, BLOCK=16)",
            "return out",
        ),
        ("return torch.relu(x)",),
    ],
)
def test_a_launch_that_may_matter_is_left_alone(body: tuple[str, ...]) -> None:
    """Nothing is said in doubt."""
    assert not idle(TRITON, *body)


@pytest.mark.parametrize("library", ["library", "direct"])
def test_a_call_of_a_library_on_nothing_is_for_show(library: str) -> None:
    """Its arguments stand nowhere else; one that gets the input may matter."""
    scratch = "scratch, out = torch.empty(1), torch.empty(1)"
    call = f"{library}.run(pointer(scratch), pointer(out), ctypes.c_long(1))"
    assert idle(CPP, scratch, call, "return torch.relu(x)")
    assert not idle(CPP, scratch, call, "return torch.relu(out)")
    assert not idle(CPP, scratch, f"{library}.run(pointer(x), pointer(out))", "return torch.relu(x)")
    assert not idle(CPP, scratch, f"n = {library}.run(pointer(scratch), pointer(out))", "return torch.relu(x)")
    assert not idle(CPP, scratch, call, f"{library}.run(pointer(x), pointer(x))", "return x")
