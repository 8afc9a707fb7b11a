"""What is told of an allocation that failed, in torch's own words of several versions."""

from __future__ import annotations

import pytest
import torch

from opsmith.runner.judge.verdicts import end_of
from opsmith.runner.protocol.out_of_memory import is_oom, shortened
from opsmith.runner.worker.execution import raised

OTHERS = "".join(f"Process {number} has 414.00 MiB memory in use. " for number in range(700, 830))
SAID = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.19 GiB is "
    "free. {others}Including non-PyTorch memory, this process has 2.41 GiB memory in use. Of the allocated memory "
    "1.50 GiB is allocated by PyTorch, and 12.50 MiB is reserved by PyTorch but unallocated."
)
ADVICE = (
    " If reserved but unallocated memory is large try setting {variable}=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


@pytest.mark.parametrize("variable", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_other_processes_are_not_told(variable: str) -> None:
    """What was tried, what there is, what is free and what the process has say what to do; 130 strangers do not."""
    told = raised(torch.OutOfMemoryError(SAID.format(others=OTHERS) + ADVICE.format(variable=variable)), "cuda")
    expected = f"OutOfMemoryError: {SAID.format(others='')}"
    assert ("memory", expected) == (told.kind, told.message)
    assert expected == end_of(told.traceback)[-1].removeprefix("torch.")


def test_other_messages_stay_as_they_are() -> None:
    """A kernel may talk of processes."""
    assert OTHERS == shortened(OTHERS)


def test_a_long_message_is_cut() -> None:
    """Nobody searches a gigabyte that a kernel has made up."""
    assert 1 << 16 >= len(shortened("x" * (1 << 20) + " out of memory"))


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("AcceleratorError: CUDA error: out of memory", True),
        ("RuntimeError: Triton Error [CUDA]: out of memory", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried",
            True,
        ),
        ("OutOfResources: out of resource: shared memory, Required: 262144, Hardware limit: 232448", False),
        ("AcceleratorError: CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_lack_of_memory_is_told_from_other_errors(text: str, *, lacks: bool) -> None:
    """Of every library that allocates on a device; what a kernel asks of shared memory is its own affair."""
    assert lacks is is_oom(text)
