"""Suite ``smoke``: a handful of well-known calls, to see in seconds that everything is wired up."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from opsmith.calls.recording import CallRecorder
from opsmith.core.case import CaseAddress
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.seeds import derive_seed
from opsmith.suites import Skipped, SuiteCall

Maker = Callable[..., torch.Tensor]


def _relu(t: Maker) -> Any:
    F.relu(t(7))
    F.relu(t(64, 65))
    F.relu(t(33, 40).t())


def _gelu(t: Maker) -> Any:
    F.gelu(t(64, 65))
    F.gelu(t(129), approximate="tanh")


def _exp(t: Maker) -> Any:
    torch.exp(t(31, 17))


def _add(t: Maker) -> Any:
    torch.add(t(8, 1, 5), t(3, 5), alpha=2)
    torch.add(t(1000), t(1000))


def _mul(t: Maker) -> Any:
    torch.mul(t(8, 1, 5), t(3, 5))


def _where(t: Maker) -> Any:
    torch.where(t(9, 9) > 0, t(9, 9), t(1, 9))


def _clamp(t: Maker) -> Any:
    torch.clamp(t(50), -0.5, 0.25)
    torch.clamp(t(50), max=0.1)


def _sum(t: Maker) -> Any:
    torch.sum(t(12, 33), dim=1)
    torch.sum(t(4, 5, 6), dim=(0, 2), keepdim=True)


def _softmax(t: Maker) -> Any:
    torch.softmax(t(17, 100), dim=-1)
    torch.softmax(t(5, 6, 7), dim=1)


def _layer_norm(t: Maker) -> Any:
    F.layer_norm(t(13, 48), (48,), t(48), t(48))


def _mm(t: Maker) -> Any:
    torch.mm(t(33, 64), t(64, 17))


def _cat(t: Maker) -> Any:
    torch.cat([t(3, 4), t(5, 4)], dim=0)
    torch.cat([t(3, 4), t(3, 2)], dim=1)


_ENTRIES: dict[str, Callable[[Maker], Any]] = {
    "relu": _relu,
    "gelu": _gelu,
    "exp": _exp,
    "add": _add,
    "mul": _mul,
    "where": _where,
    "clamp": _clamp,
    "sum": _sum,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "mm": _mm,
    "cat": _cat,
}

# Calls that only prepare an entry's inputs (the comparison in `where`) are not what is asked.
_ASKED = {
    "relu.default",
    "gelu.default",
    "exp.default",
    "add.Tensor",
    "mul.Tensor",
    "where.self",
    "clamp.default",
    "sum.dim_IntList",
    "_softmax.default",
    "native_layer_norm.default",
    "mm.default",
    "cat.default",
}


class Smoke:
    """The suite; see the module's docstring."""

    name = "smoke"

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:  # noqa: ARG002 - every device has them
        return tuple(_ENTRIES) if getattr(torch, TORCH_NAMES[dtype]).is_floating_point else ()

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall | Skipped]:
        torch.manual_seed(derive_seed(seed, self.name, entry, dtype))
        make = functools.partial(torch.randn, dtype=getattr(torch, TORCH_NAMES[dtype]), device=device)
        recorder = CallRecorder(lambda op, signature: op in _ASKED and wanted(op, signature), device=device)
        with recorder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _ENTRIES[entry](make)
        for number, call in enumerate(recorder.calls):
            if call.op in _ASKED:
                address = CaseAddress(self.name, entry, dtype, "sample", 0, number)
                yield SuiteCall(address=address, op=call.op, signature=call.signature, record=call.record)
