"""Launches of the shipped kernels as Triton compiles them for an H100, without one: what plans make of them.

``python -m tests.offline_launches`` lets the kernels' host code run on CPU tensors. Triton compiles for real; a driver
of our own stands in for the device's and launches nothing. Prints one JSON document with a list of launches and what
recording gives for each shipped op.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

os.environ["TRITON_INTERPRET"] = "0"  # Read when Triton is imported.

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget

from opsmith.aten.arguments import tensors_in, written_by
from opsmith.aten.schemas import overload
from opsmith.dispatch.plans.plan import Refusal
from opsmith.dispatch.plans.recorder import LaunchRecorder
from opsmith.dispatch.plans.triton_launches import counted_launches, repeatable, watched_launches
from opsmith.kernels.attention import attention
from opsmith.kernels.copies import concatenation, filling, rearrangements, sequences
from opsmith.kernels.indexing import gathering, masking, scattering
from opsmith.kernels.lists import foreach
from opsmith.kernels.low_precision import grouped_products, scaled_products
from opsmith.kernels.matmul import matmul
from opsmith.kernels.norms import layer_norm
from opsmith.kernels.pointwise import arithmetic, basic, signs
from opsmith.kernels.random import distributions, dropout, multinomial, philox, random_creation
from opsmith.kernels.reductions import reductions
from opsmith.kernels.softmax import softmax

FUNCTION = 0xF00D


class Launcher:
    """Takes what Triton's own launcher takes, and keeps the arguments."""

    arguments: tuple[Any, ...] = ()

    def __init__(self, src: Any, metadata: Any) -> None:
        pass

    def __call__(self, *args: Any) -> None:
        hook = args[7]
        if hook is not None:
            hook(args[6])
        Launcher.arguments = args[9:]


class Driver:
    """A device that compiles and does nothing."""

    launcher_cls = Launcher
    utils = SimpleNamespace(
        get_device_properties=lambda _: {"max_shared_mem": 232448, "multiprocessor_count": 132},
        load_binary=lambda *_: (1, FUNCTION, 32, 0, 1024),
    )

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def flat(kind: Any, value: Any) -> list[Any]:
    """Arguments as the device gets them, from Triton's own description of them; floats as their bits."""
    if isinstance(kind, tuple):
        return [one for pair in zip(kind, value, strict=True) for one in flat(*pair)]
    if kind == "fp32":
        return [struct.unpack("<I", struct.pack("<f", value))[0]]
    return [] if kind == "constexpr" else [value]


def described(compiled: Any, grid: tuple[int, ...], args: tuple[Any, ...], meta: dict[str, Any]) -> dict[str, Any]:
    """What a plan makes of a launch beside what the device's code takes and what Triton passed to it."""
    known: list[Tensor] = []

    def place_of(tensor: Tensor) -> tuple[int, int]:
        known.append(tensor)
        return len(known) - 1, 0

    launch = repeatable(compiled, grid, args, meta, place_of=place_of)
    kinds = [*compiled.src.signature.values()]
    passed = [one for pair in zip(kinds, Launcher.arguments, strict=True) for one in flat(*pair)]
    entry = compiled.asm["ptx"].split(".entry")[1].split(")")[0]
    return {
        "kernel": compiled.name,
        "function": launch.function == FUNCTION,
        "warps": (launch.warps, int(re.findall(r"\.reqntid (\d+)", compiled.asm["ptx"])[0]) // 32),
        "shared": (launch.shared_bytes, compiled.metadata.shared),
        "overlaps": (
            launch.overlaps,
            re.findall(r"griddepcontrol\.wait|[a-z]+\.(?:global|async)", compiled.asm["ptx"])[0],
        ),
        "slots": launch.slots,
        "pointers": {pointer.slot: known[pointer.number].data_ptr() for pointer in launch.pointers},
        "parameters": re.findall(r"\.param \.[uf](\d+)( \.ptr)?", entry),
        "passed": [one.data_ptr() if isinstance(one, Tensor) else one for one in passed],
    }


X, Y = torch.ones(64, 48), torch.ones(64, 48)
Q = torch.ones(2, 3, 64, 16, dtype=torch.float16)
Z = torch.complex(X, Y)
N = X.to(torch.float8_e4m3fn)
INDEX = torch.arange(16)
CPU = torch.device("cpu")
#: A call of one shipped kernel of each family.
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "relu.default": (basic.relu, (X,)),
    "gelu.default": (basic.gelu, (X.half(),)),
    "exp.default": (basic.exp, (X.long().t(),)),
    "add.Tensor": (arithmetic.add, (X, Y)),
    "mul.Tensor": (arithmetic.mul, (2.5, Y.half().t())),
    "where.self": (basic.where, (X.bool(), X, Y)),
    "clamp.default": (basic.clamp, (X, 0.0, 1.0)),
    "clamp.Tensor": (basic.clamp_tensor, (X, Y, None)),
    "sum.dim_IntList": (reductions.sum_dim, (X, [1])),
    "sum.default": (reductions.sum_default, (X.repeat(200, 1),)),
    "_softmax.default": (softmax.softmax, (X, 1, False)),
    "native_layer_norm.default": (layer_norm.layer_norm, (X, [48], Y[0], None, 1e-5)),
    "mm.default": (matmul.mm, (X, Y.t())),
    # Named tuples of sizes, strides, numbers and constants.
    "_scaled_dot_product_flash_attention_for_cpu.default": (
        attention.scaled_dot_product_flash_attention_for_cpu,
        (Q, Q, Q),
    ),
    "cat.default": (concatenation.cat, ([X, Y.half()], 1)),
    "clone.default": (rearrangements.clone, (X.t(),)),
    "copy_.default": (rearrangements.copy_, (X.half(), Y)),
    "embedding.default": (gathering.embedding, (X, INDEX.view(2, 8), 0)),
    "index_select.default": (gathering.index_select, (X, 1, INDEX)),
    "gather.default": (gathering.gather, (X, 1, INDEX.expand(64, 16))),
    "index.Tensor": (gathering.index, (X, [None, INDEX])),
    "index_put.default": (scattering.index_put, (X, [INDEX, INDEX], Y[0, :16])),
    "_index_put_impl_.default": (scattering.index_put_impl_, (X.clone(), [INDEX], Y[:16], True, True)),
    "index_add_.default": (scattering.index_add_, (X.half(), 0, INDEX, Y[:16].half())),
    "scatter_add.default": (scattering.scatter_add, (X.half(), 0, INDEX[:2].expand(2, 2).t(), Y.half())),
    "index_fill_.int_Scalar": (scattering.index_fill_, (X.clone(), 0, INDEX, 2.0)),
    "_foreach_add_.Scalar": (foreach.add_scalar_, ([X.clone() for _ in range(80)], 1.0)),
    "_foreach_lerp.Scalar": (foreach.lerp_scalar, ([X] * 2, [Y] * 2, 0.5)),
    "full.default": (filling.full, ([64, 48], 2.5)),
    "arange.start_step": (sequences.arange_start_step, (0, 100, 3)),
    "bernoulli_.float": (distributions.bernoulli_, (X.clone(), 0.5)),
    "native_dropout.default": (dropout.native_dropout, (X, 0.5, True)),
    "rand.default": (random_creation.rand, ([64, 48],)),
    "randint.low": (random_creation.randint_low, (3, 9, [64, 48])),
    "normal.float_float": (random_creation.normal, (1.0, 2.0, [64, 48])),
    "multinomial.default": (multinomial.multinomial, (X, 9, True)),
    "masked_scatter.default": (masking.masked_scatter, (X, X.bool(), Y)),
    # Complex tensors: the parts are views, of temporary tensors too.
    "sub.Tensor": (arithmetic.sub, (Z, X)),
    "abs.default": (signs.absolute, (Z.t(),)),
    "mean.dim": (reductions.mean_dim, (Z, [0])),
    "bmm.default": (matmul.bmm, (Z.mT[None], Z[None])),
    # Pointers to 8 bits.
    "_scaled_mm.default": (scaled_products.scaled_mm, (N, N.t(), X[0, 0], Y[0, 0])),
    "_scaled_grouped_mm.default": (
        grouped_products.scaled_grouped_mm,
        (N, N[None].mT, X[:, 0].contiguous(), Y[None, :, 0].contiguous(), torch.tensor([64], dtype=torch.int32)),
    ),
}


class Generator:
    """As one of a device; its numbers are small, for signed and unsigned ones to be the same."""

    def __init__(self) -> None:
        self.offset = 40

    def initial_seed(self) -> int:
        return (9 << 32) + 8

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        self.offset = offset


_next_counter = philox.next_counter


def drawn_on_device(generator: Any, _: torch.device) -> tuple[int, int, int, int]:
    """What a kernel on a device draws."""
    with mock.patch.object(torch.cuda, "is_current_stream_capturing", return_value=False):
        return _next_counter(generator, torch.device("cuda", 0))


def on_this_device() -> contextlib.ExitStack:
    """The kernels serve CPU tensors, as those of an H100."""
    stack = contextlib.ExitStack()
    for name, module in sorted(sys.modules.items()):
        if name.startswith("opsmith.kernels.") and hasattr(module, "require_served"):
            stack.enter_context(mock.patch.object(module, "require_served"))
        if name.startswith("opsmith.kernels.") and hasattr(module, "multiprocessors"):
            stack.enter_context(mock.patch.object(module, "multiprocessors", return_value=132))
    stack.enter_context(mock.patch.object(torch.cuda, "default_generators", (Generator(),)))
    for module in (philox, multinomial):
        stack.enter_context(mock.patch.object(module, "next_counter", drawn_on_device))
    return stack


def main() -> None:
    """Launch some shipped kernels, then record them."""
    triton.runtime.driver.set_active(Driver())
    launches: list[dict[str, Any]] = []
    plans: dict[str, Any] = {}
    drawn: dict[str, int] = {}
    with on_this_device():
        with watched_launches(lambda *launch: launches.append(described(*launch))), counted_launches() as counted:
            for kernel, args in CALLS.values():
                kernel(*args)
        for op, (kernel, args) in CALLS.items():
            written = written_by(overload(op))(args, {})
            recorder = LaunchRecorder(tensors_in(args), written, elementwise=False, device=CPU)
            plan = recorder.plan(recorder.watching(kernel)(*args))
            plans[op] = plan if isinstance(plan, Refusal) else len(plan.steps)
            drawn[op] = 0 if isinstance(plan, Refusal) else plan.draws
    document = {"launches": launches, "counted": len(counted), "plans": plans, "drawn": drawn}
    print(json.dumps(document))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
