"""How long the Model of a problem takes under each baseline: what ``opsmith baseline`` asks and finds."""

from __future__ import annotations

import msgspec

#: Baseline -> its file, in the layout that KernelBench keeps its times in.
FILES = {
    "eager": "baseline_time_torch.json",
    "compile": "baseline_time_torch_compile_inductor_default.json",
    "max-autotune": "baseline_time_torch_compile_inductor_max-autotune-no-cudagraphs.json",
    "cudagraphs": "baseline_time_torch_cudagraphs.json",
    "channels_last": "baseline_time_torch_channels_last.json",
}

#: Those that torch's compiler compiles.
COMPILED = ("compile", "max-autotune")


class BaselineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One problem under one baseline.

    Attributes:
        task: the problem's name.
        file: its path.
        baseline: a key of :data:`FILES`.
        device: torch device string.
        small: at the sizes that its ``SMALL`` names.
        dtype: ``f32`` leaves the problem as it is, ``f16`` and ``bf16`` convert its floats.
        tf32: ``on`` and ``off`` for products and convolutions of float32; ``default`` is what torch does by itself.
        trials: calls that are timed, of each quantity.
    """

    task: str
    file: str
    baseline: str
    device: str
    small: bool = False
    dtype: str = "f32"
    tf32: str = "default"
    trials: int = 100


class TrialTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds over all trials, under the names of the public files; ``std`` is theirs, not that of the mean."""

    mean: float
    std: float
    min: float
    max: float
    num_trials: int


class BaselineTime(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        task: the problem's name.
        baseline: which.
        times: quantity (``K``, ``E``) -> its times; empty where there is a problem. There is no K on a CPU, nor of
            a call that waits for its device.
        tf32_matmul: whether products of float32 might use tf32; None off CUDA.
        tf32_cudnn: whether convolutions might.
        problem: why there is no time, in one line.
    """

    task: str
    baseline: str
    times: dict[str, TrialTimes] = {}
    tf32_matmul: bool | None = None
    tf32_cudnn: bool | None = None
    problem: str | None = None

    @property
    def quantity(self) -> str:
        """What the public fields are of: K where there is one."""
        return "K" if "K" in self.times else "E"

    @property
    def mean_ms(self) -> float | None:
        """The mean of that quantity; None without times."""
        return self.times[self.quantity].mean if self.times else None
