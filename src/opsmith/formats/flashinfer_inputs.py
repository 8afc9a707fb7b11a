"""Inputs of flashinfer-trace and SOL-ExecBench tasks, as the two projects draw them. Runs in referees.

Floats are normal, integers lie in the range of the dtype or between -1024 and 1024. Where a name says that not every
value means something (a variance, the sine of an angle, probabilities), values are drawn that do, as SOL-ExecBench
does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from opsmith.errors import MissingDependency

_POSITIVE = ("rstd", "std", "var", "variance")
_ANGLES = {"cos": torch.cos, "sin": torch.sin}
_INTEGERS = {torch.int8: 128, torch.int16: 1024, torch.int32: 1024, torch.int64: 1024}

#: (shape, or None for a number; dtype)
Spec = tuple[Sequence[str | int] | None, str]


def drawn(
    specs: Mapping[str, Spec],
    axes: Mapping[str, int],
    given: Mapping[str, Mapping[str, Any]],
    *,
    sampling: bool = False,
    custom: Callable[[dict[str, Any], torch.device], Mapping[str, Any]] | None = None,
) -> list[Any]:
    """The inputs of one workload, in the order of the definition.

    Args:
        specs: name -> shape and dtype of each.
        axes: the extent of every axis.
        given: what a workload says of those that are not drawn.
        sampling: the task draws from ``probs``, which are then probabilities.
        custom: the reference's own function, where it makes the inputs.

    Raises:
        MissingDependency: values stand in a safetensors file, and the package is not installed.
        ValueError: a dtype that nothing can be drawn in, or a stored tensor of another shape or dtype.
    """
    scalars = {name: spec["value"] for name, spec in given.items() if spec["type"] == "scalar"}
    made = custom({**axes, **scalars}, torch.device("cpu")) if custom is not None else {}
    return [
        _input(name, spec, axes, given.get(name), made, sampling=sampling and name == "probs")
        for name, spec in specs.items()
    ]


def _input(
    name: str,
    spec: Spec,
    axes: Mapping[str, int],
    given: Mapping[str, Any] | None,
    made: Mapping[str, Any],
    *,
    sampling: bool,
) -> Any:
    extents = spec[0]
    dtype: torch.dtype | None = getattr(torch, spec[1], None)
    if dtype is None:
        raise ValueError(f"{name}: torch has no dtype {spec[1]}")
    shape = None if extents is None else [axis if isinstance(axis, int) else axes[axis] for axis in extents]
    if given is not None and given["type"] == "scalar":
        return given["value"]
    if given is not None and given["type"] == "custom":
        return made[name]
    if given is not None and given["type"] == "safetensors":
        return _stored(name, given["path"], given["tensor_key"], shape, dtype)
    if shape is None:
        return _drawn(name, (), dtype).item()
    values = _drawn(name, shape, dtype)
    return torch.softmax(values, dim=-1) if sampling else values


def _drawn(name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.randint(2, shape).bool()
    if dtype in _INTEGERS:
        return torch.randint(-_INTEGERS[dtype], _INTEGERS[dtype], shape, dtype=dtype)
    if not dtype.is_floating_point or dtype.itemsize < 1 or "float4" in str(dtype):
        raise ValueError(f"{name}: nothing draws values of {dtype}")
    base = name.rstrip("0123456789")
    last = base.rpartition("_")[2]
    if last in _ANGLES or base in ("cos_cached", "sin_cached"):
        return _ANGLES[last if last in _ANGLES else base[:3]](torch.rand(shape) * 2 * math.pi).to(dtype)
    values = torch.randn(shape)
    if last in _POSITIVE:
        values = values.abs() + 0.1
    elif len(shape) == 1 and base.endswith(("norm_weight", "layernorm_weight")):
        values = 1 + 0.1 * values
    elif len(shape) > 1 and base.endswith(("weight", "proj", "weights")):
        values = values / math.sqrt(max(shape[-1], 1))
    return values.clamp(-2, 2).to(dtype) if dtype.itemsize == 1 else values.to(dtype)


def _stored(name: str, path: str, key: str, shape: Sequence[int] | None, dtype: torch.dtype) -> torch.Tensor:
    try:
        from safetensors import safe_open
    except ImportError as exc:
        raise MissingDependency("safetensors", extra="formats") from exc

    with safe_open(path, framework="pt") as file:
        if key not in file.keys():  # noqa: SIM118 - it is no dict
            raise ValueError(f"{name}: {path} holds no tensor {key!r}")
        tensor: torch.Tensor = file.get_tensor(key)
    if list(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"{name}: {path} holds {tensor.dtype} {list(tensor.shape)}, not {dtype} {shape}")
    return tensor
