"""Which kernels run on a kind of device, and under which key."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from opsmith.core.kernel import SHIPPED_KERNELS, Kernel, Loader
from opsmith.devices.cuda import Rocm
from opsmith.dispatch.choice.trial import _on_device
from opsmith.dispatch.install import _readiness
from opsmith.dispatch.kernel_set import runs_on
from opsmith.dispatch.selection import choose
from opsmith.errors import BadInput
from opsmith.evaluation.integrity.supervision import Supervision


def _kernel(dsl: str, root: Path) -> Kernel:
    return Kernel(task="relu.default", backend="b", loader=Loader.FILE, entry="relu.py:relu", dsl=dsl, root=str(root))


@pytest.mark.parametrize(
    ("dsl", "runs"),
    [
        ("torch", {"cpu", "cuda", "mps", "xpu"}),
        ("triton", {"cuda", "xpu"}),
        ("cuda", {"cuda"}),
        ("tilelang", {"cuda"}),
        ("metal", {"cpu", "cuda", "mps"}),
    ],
)
def test_a_language_runs_where_it_has_a_launcher(dsl: str, runs: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Metal declines by itself where there is no Apple GPU, as before there were kinds."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert runs == {name for name in ("cpu", "cuda", "mps", "xpu") if runs_on(_kernel(dsl, Path("mine")), name)}


def test_cudas_own_languages_do_not_run_on_rocm(rocm: Rocm) -> None:
    """Triton does."""
    assert [True, False] == [runs_on(_kernel(dsl, Path("mine")), "cuda") for dsl in ("triton", "cutedsl")]


def test_shipped_kernels_are_for_cuda() -> None:
    """They decline other tensors, each time."""
    assert ["cuda"] == [name for name in ("cuda", "mps", "xpu") if runs_on(_kernel("triton", SHIPPED_KERNELS), name)]


def test_whoever_enables_shipped_kernels_elsewhere_is_told() -> None:
    """In one line."""
    with pytest.raises(BadInput, match="opsmith's own kernels are for cuda, not for xpu; give a backend with kernels"):
        choose("opsmith", ops="relu", exclude=(), device="xpu", which=None)


@pytest.mark.parametrize(("device", "key"), [("xpu", "XPU"), ("mps", "MPS"), ("cuda", "CUDA")])
def test_what_is_forbidden_is_so_under_the_key_of_the_device(device: str, key: str) -> None:
    """Under that key kernels are registered, torch's and those that take their place."""
    assert ("CPU", key) == Supervision(torch.device(device), lambda _line, _offence: None)._devices


@pytest.mark.parametrize(("device", "waits"), [("xpu", True), ("mps", True), ("cuda", True), ("cpu", False)])
def test_a_trial_waits_for_any_device(device: str, *, waits: bool) -> None:
    """Else the time of a launch would be that of a call."""
    assert waits is _on_device(SimpleNamespace(device=torch.device(device)))  # type: ignore[arg-type]


def test_kernels_are_compiled_elsewhere_for_nvidias_gpus_alone(rocm: Rocm) -> None:
    """The processes that compile ahead write for NVIDIA's."""
    serving: Any = SimpleNamespace(device_type="cuda", record=_kernel("triton", SHIPPED_KERNELS))
    assert _readiness(serving, wait=False)("key", (), {})
