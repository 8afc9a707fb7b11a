"""Tracing a named model: build it on the fake device, then run inference and a training step."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
import torch

from opsmith.core.dtypes import TORCH_NAMES
from opsmith.errors import BadInput, OpsmithError
from opsmith.traces.capture import Capture
from opsmith.traces.fake_device import FakeDevice
from opsmith.traces.models import find_model
from opsmith.traces.subject import Sizes, Source, Subject
from opsmith.traces.transformers_models import eager_paths

Mode: TypeAlias = Literal["infer", "train"]
Optimizer: TypeAlias = Literal["adamw", "sgd", "none"]


class TracePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is traced: a model, how large, and what it does.

    Attributes:
        model: what :func:`~opsmith.traces.models.find_model` finds.
        config: arguments of the model by name.
        modes: ``infer`` is a forward pass without gradients and, for a language model, one more
            token with its cache; ``train`` is forward, backward and a step of the optimizer.
        dtype: short name of the dtype of weights and inputs, or of autocast.
        autocast: keep weights and inputs in f32 and compute in ``dtype`` where that is safe.
        optimizer: steps of which are traced, in the many-tensor form that is the default on CUDA.
        sizes: of the inputs.
    """

    model: str
    config: dict[str, Any] = {}
    modes: tuple[Mode, ...] = ("infer", "train")
    dtype: str = "bf16"
    autocast: bool = False
    optimizer: Optimizer = "adamw"
    sizes: Sizes = Sizes()


class Progress(Protocol):
    """Told what goes on; see :class:`opsmith.cli.progress.StageProgress`."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins; 0 where nobody knows."""
        ...

    def advance(self, done: int) -> None:
        """So many steps of the stage are done."""
        ...


class ModelTrace(NamedTuple):
    """What a model called.

    Attributes:
        capture: the calls.
        guesses: op -> number of times that the model read a value which its trace had to guess.
    """

    capture: Capture
    guesses: Counter[str]


def trace_model(plan: TracePlan, *, progress: Progress) -> ModelTrace:
    """Trace a model without its weights: nothing is downloaded and no memory is needed for them.

    Raises:
        MissingDependency: the model's library is not installed.
        UnknownName: there is no such model.
        BadInput: the model cannot be built or run as asked, or this machine has no C++ compiler.
    """
    source = find_model(plan.model)
    try:
        return _run(source, plan, progress)
    except OpsmithError:
        raise
    except Exception as exc:  # the model is not ours and may raise anything
        message = " ".join(f"{type(exc).__name__}: {exc}".split())
        raise BadInput(f"{plan.model} cannot be run as asked: {message}") from exc


def _run(source: Source, plan: TracePlan, progress: Progress) -> ModelTrace:
    computed_in: torch.dtype = getattr(torch, TORCH_NAMES[plan.dtype])
    stored_in = torch.float32 if plan.autocast else computed_in
    progress.stage("build", 0)
    with FakeDevice() as device, eager_paths():
        with torch.device("cuda"):
            subject = source.build(plan.config, plan.sizes, stored_in)
            # Some constructors ignore the default device.
            subject.module.to("cuda")
            args, kwargs, training_kwargs = subject.inputs_in(stored_in)
        # What initialisation read of the weights has no effect on what the model calls.
        device.guesses.clear()
        capture = Capture(device="cuda", progress=progress.advance)
        for mode in plan.modes:
            progress.stage(mode, 0)
            with capture, _autocast(computed_in) if plan.autocast else contextlib.nullcontext():
                if mode == "infer":
                    _infer(subject, args, kwargs)
                else:
                    loss = _forward(subject, args, {**kwargs, **training_kwargs})
            if mode == "train":
                with capture:
                    _update(subject, loss, plan.optimizer)
        return ModelTrace(capture, device.guesses)


def _infer(subject: Subject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with torch.no_grad():
        output = subject.module.eval()(*args, **kwargs)
        if subject.follow_up is not None:
            subject.follow_up(output)


def _forward(subject: Subject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    return subject.loss(subject.module.train()(*args, **kwargs))


def _update(subject: Subject, loss: torch.Tensor, optimizer: Optimizer) -> None:
    loss.backward()
    parameters = [parameter for parameter in subject.module.parameters() if parameter.grad is not None]
    # On CUDA this form is the default, which torch does not choose for fake tensors.
    if optimizer == "adamw":
        torch.optim.AdamW(parameters, foreach=True).step()
    elif optimizer == "sgd":
        torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True).step()


@contextlib.contextmanager
def _autocast(dtype: torch.dtype) -> Iterator[None]:
    """``torch.autocast("cuda")``, which refuses where there is no GPU."""
    was_enabled, was_dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", was_enabled)
        torch.set_autocast_dtype("cuda", was_dtype)
