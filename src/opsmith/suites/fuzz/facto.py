"""FACTO's examples, where FACTO is installed.

FACTO (https://github.com/pytorch-labs/FACTO) holds handwritten specifications of the arguments of the core
ATen ops and generates calls that satisfy them. They come after the suite's own examples, from the source
``facto``. It is installed from its repository: the package of that name on PyPI is another one.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.schemas import overload
from opsmith.calls.recording import CallRecorder
from opsmith.core.case import CallRecord
from opsmith.core.dtypes import TORCH_NAMES

#: Examples of an op in one dtype, and how many are looked at for them.
MOST_EXAMPLES = 20
MOST_LOOKS = 400


def is_installed() -> bool:
    """Whether FACTO, and not a namesake, can be imported."""
    try:
        return importlib.util.find_spec("facto.specdb") is not None
    except ModuleNotFoundError:
        return False


def examples(op: str, dtype: str, device: str, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """FACTO's calls of an op whose first tensor has the dtype, with their signatures.

    Args:
        op: an overload; one that FACTO has no specification for gets no examples.
        dtype: in short form.
        device: device type that the tensors are brought to.
        seed: of FACTO's generators.
    """
    specification = importlib.import_module("facto.specdb.db").SpecDictDB.get(op)
    if specification is None:
        return
    importlib.import_module("facto.inputgen.utils.random_manager").random_manager.seed(seed)
    generator = importlib.import_module("facto.inputgen.argtuple.gen").ArgumentTupleGenerator(specification)
    wanted = getattr(torch, TORCH_NAMES[dtype])
    fitting = (
        (args, {**kwargs, **outs})
        for args, kwargs, outs in itertools.islice(generator.gen(), MOST_LOOKS)
        if _first_dtype((args, kwargs)) is wanted
    )
    for args, kwargs in itertools.islice(fitting, MOST_EXAMPLES):
        call = _recorded(op, args, kwargs, device)
        if call is not None:
            yield call


def _first_dtype(values: Any) -> torch.dtype | None:
    return next((leaf.dtype for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)), None)


def _recorded(op: str, args: Any, kwargs: dict[str, Any], device: str) -> tuple[str, CallRecord] | None:
    """The call as eager answers it; None if it does not."""
    placed = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, (list(args), kwargs))
    recorder = CallRecorder(lambda *_: True, device=device)
    try:
        with recorder, torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            overload(op)(*placed[0], **placed[1])
    except Exception:  # noqa: BLE001 - eager refuses in any way it likes
        return None
    calls = [call for call in recorder.calls if call.op == op and call.record is not None]
    return (calls[0].signature, calls[0].record) if calls and calls[0].record is not None else None
