"""Compiling what calls of the shipped kernels would launch, without launching it.

Triton keeps what it compiles on disk, by source, types, constants and GPU: the process that launches the same kernel
later reads it from there. Host code runs on fake tensors (:mod:`.fake_calls`): inputs of any size take no memory.
Imported only where Triton compiles: it leaves the shipped kernels without a way to launch.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import triton
from torch._subclasses import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import MockTensor

from opsmith.core.case import CallRecord
from opsmith.core.compile_job import GPU
from opsmith.kernels.common import launch, tuning
from opsmith.prewarm.fake_calls import fake_arguments, traced_calls
from opsmith.prewarm.tasks import Warmed

#: What a block may have on a Hopper GPU.
SHARED_MEMORY_BYTES = 227 << 10
#: Taken for a GPU that is not there.
MULTIPROCESSORS, DEVICE_NAME = 132, "NVIDIA H200"


def absent_gpu(architecture: int) -> GPU:
    """One of which the compute capability times ten is known, and nothing else."""
    return GPU(architecture=architecture, multiprocessors=MULTIPROCESSORS, name=DEVICE_NAME)


class CannotLaunch(Exception):
    """A kernel that compiles, and that the GPU would refuse."""


class AbsentGPU:
    """What Triton asks a driver for before it compiles.

    Args:
        architecture: the compute capability times ten, 90 for Hopper.
    """

    def __init__(self, architecture: int) -> None:
        self._target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self) -> GPUTarget:
        """The GPU that is compiled for."""
        return self._target

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, _device: int) -> int:
        """The default one."""
        return 0


class Compiler:
    """Stands in for launching the shipped kernels in this process; made before a module of theirs is imported.

    Attributes:
        launches: what the kernels would have launched so far.
        compiled: how many kernels were compiled for that.
        cached: how many had been compiled before.

    Args:
        gpu: that nobody looks for, or its architecture; None for the one that is there.
    """

    def __init__(self, gpu: GPU | int | None) -> None:
        self.launches = self.compiled = self.cached = 0
        if gpu is not None:
            target = absent_gpu(gpu) if isinstance(gpu, int) else gpu
            triton.runtime.driver.set_active(AbsentGPU(target.architecture))
            launch.multiprocessors = lambda _device: target.multiprocessors  # type: ignore[assignment]
            tuning.device_name = lambda _device: target.name  # type: ignore[assignment]
        launch.launch = self._launch
        launch.address_of = _address  # A fake tensor lies nowhere.
        triton.knobs.compilation.listener = self._listen
        # A GPU that is not there has no generator.
        importlib.import_module("opsmith.kernels.random.philox").next_words = lambda *_: (0, 0)  # type: ignore[attr-defined]
        # Nothing is counted where nothing runs; one element broadcasts with whatever comes along in the call.
        launch.read_count = lambda _sums: 1  # type: ignore[assignment]

    def _listen(self, *, cache_hit: bool, **_: Any) -> None:
        if cache_hit:
            self.cached += 1
        else:
            self.compiled += 1

    def _launch(self, kernel: Any, grid: tuple[int, ...], device: torch.device, *args: Any, **meta: Any) -> Any:
        if not all(0 < size < limit for size, limit in zip(grid, (2**31, 2**16, 2**16), strict=False)):
            raise CannotLaunch(f"a grid of {grid} cannot be launched")
        mocked = map(_mocked, map(launch.settled, args))
        meta = {name: _mocked(value) for name, value in meta.items()} | launch.launch_options(device)
        binary = kernel.warmup(*mocked, grid=grid, **meta)
        if binary.metadata.shared > SHARED_MEMORY_BYTES:
            raise CannotLaunch(f"{kernel.__name__} takes {binary.metadata.shared} bytes of shared memory")
        self.launches += 1
        return binary

    def call(self, function: Callable[..., Any], record: CallRecord) -> None:
        """Compile what one call launches.

        Raises:
            NotImplementedError: the kernel does not serve it.
            Exception: whatever the kernel or the compiler raises.
        """
        with FakeTensorMode(allow_non_fake_inputs=True):
            args, kwargs = fake_arguments(record)
            function(*args, **kwargs)

    def warm(self, op: str, dtype: str, entry: str, inputs: int) -> Warmed:
        """Compile what traced calls of an op launch.

        Args:
            op: the overload.
            dtype: of the calls.
            entry: the kernel, as the manifest has it: ``file.py:function``.
            inputs: how many different calls at most.
        """
        start, calls, declined = time.perf_counter(), 0, 0
        compiled, cached = self.compiled, self.cached
        problem = None
        function = kernel_function(entry)
        for record in traced_calls(op, dtype, inputs):
            calls += 1
            try:
                self.call(function, record)
            except (NotImplementedError, TypeError, ValueError):
                declined += 1  # The latter are what eager refuses: half_to_float of what is no float16.
            except Exception as exc:  # noqa: BLE001 - A call that cannot be compiled is told of, and the others go on.
                problem = problem or " ".join(f"{type(exc).__name__}: {exc}".split())[:300]
        return Warmed(
            op=op,
            dtype=dtype,
            calls=calls,
            declined=declined,
            compiled=self.compiled - compiled,
            cached=self.cached - cached,
            seconds=time.perf_counter() - start,
            problem=problem,
        )


def kernel_function(entry: str) -> Callable[..., Any]:
    """The shipped kernel that a manifest's entry names."""
    file, _, name = entry.partition(":")
    function: Callable[..., Any] = getattr(kernel_module(file), name)
    return function


def kernel_module(file: str) -> ModuleType:
    """The module of a file of the shipped kernels, by its path in their folder."""
    return importlib.import_module(f"opsmith.kernels.{file.removesuffix('.py').replace('/', '.')}")


def _mocked(value: Any) -> Any:
    """Stand-ins for the tensors in an argument: Triton reads their dtype and their alignment."""
    if isinstance(value, torch.Tensor):
        return _pointer(value.dtype, _address(value) % 16)
    if not isinstance(value, tuple):
        return value
    return type(value)(*map(_mocked, value)) if hasattr(value, "_fields") else tuple(map(_mocked, value))


def _address(tensor: torch.Tensor) -> int:
    """Counted from where its memory would begin."""
    return int(tensor.storage_offset()) * tensor.element_size()


def _pointer(dtype: torch.dtype, address: int) -> MockTensor:
    mock = MockTensor(dtype)
    mock.data_ptr = lambda: address
    return mock
