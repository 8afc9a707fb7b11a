"""What both benchmarks of compiled models run: opsmith's own problems, other folders of problems, and the zoo."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from benchmarks.models import zoo
from benchmarks.models.measurement import allowed_error
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files
from opsmith.tasks.problem import ProblemFile
from opsmith.tasks.problem_module import seed_everything

_ZOO = "zoo/"


class Subject(NamedTuple):
    """A model and one call of it.

    Attributes:
        module: on the CPU, in float32, as it was constructed.
        args: positional inputs.
        kwargs: inputs by name.
    """

    module: nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def names(problems: Path = SHIPPED_PROBLEMS) -> list[str]:
    """All subjects: the problems of a folder, and with opsmith's own the models of the zoo."""
    models = [f"{_ZOO}{name}" for name in zoo.MODELS] if problems == SHIPPED_PROBLEMS else []
    return [*problem_files(problems), *models]


def load(name: str, *, small: bool, problems: Path = SHIPPED_PROBLEMS, seed: int = 0) -> Subject:
    """Build a subject, with the same weights and inputs for the same seed.

    Raises:
        BrokenProblem: a problem's file does not do what its format says.
        MissingDependency: a problem needs a package that is not installed.
    """
    if name.startswith(_ZOO):
        workload = zoo.build(name.removeprefix(_ZOO), "small" if small else "full")
        return Subject(workload.module, (), workload.inputs)
    file = ProblemFile(problem_files(problems)[name], small=small)
    module = file.model(file.init_inputs(seed), seed)
    return Subject(module, file.inputs(seed + 1), {})


def moved(value: Any, device: str, dtype: torch.dtype | None = None) -> Any:
    """A copy of inputs on a device, floating-point ones in ``dtype`` where one is given."""

    def move(tensor: Tensor) -> Tensor:
        floating = dtype is not None and tensor.is_floating_point()
        return tensor.detach().to(device, dtype if floating else tensor.dtype).clone()

    return tree_map_only(Tensor, move, value)


def floating_outputs(output: Any) -> list[Tensor]:
    """The floating-point tensors that a model returned."""
    leaves = tree_leaves(dict(output) if isinstance(output, Mapping) else output)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())]


def all_outputs(output: Any) -> list[Tensor]:
    """All tensors that a model returned, but caches that it keeps for itself."""
    leaves = tree_leaves(dict(output) if isinstance(output, Mapping) else output)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def loss_of(output: Any) -> Tensor:
    """A scalar that depends on every element of every output that has a gradient."""
    leaves = [torch.view_as_real(leaf) if leaf.is_complex() else leaf for leaf in floating_outputs(output)]
    parts = [leaf.float().sin().mean() for leaf in leaves if leaf.requires_grad]
    return functools.reduce(torch.add, parts)


Run = Callable[[nn.Module], list[Tensor]]


def inference(subject: Subject, device: str, dtype: torch.dtype | None = None) -> Run:
    """Runs a module in evaluation mode without gradients; returns its outputs."""
    args, kwargs = moved((list(subject.args), dict(subject.kwargs)), device, dtype)

    def run(module: nn.Module) -> list[Tensor]:
        seed_everything(0)
        with torch.no_grad():
            return all_outputs(module(*moved(args, device), **moved(kwargs, device)))

    return run


def training(subject: Subject, device: str, dtype: torch.dtype | None = None) -> Run:
    """Runs a module forward and backward in training mode; returns outputs and the gradients of its parameters."""
    args, kwargs = moved((list(subject.args), dict(subject.kwargs)), device, dtype)

    def run(module: nn.Module) -> list[Tensor]:
        seed_everything(0)
        module.zero_grad(set_to_none=True)
        inputs = moved((args, kwargs), device)
        leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        parameters = list(module.parameters())
        for leaf in leaves if not parameters else ():
            leaf.requires_grad_()
        output = module(*inputs[0], **inputs[1])
        loss_of(output).backward()
        gradients = [tensor.grad for tensor in (parameters or leaves) if tensor.grad is not None]
        return [*(leaf.detach() for leaf in all_outputs(output)), *gradients]

    return run


class Float64:
    """What a subject's call gives in float64: made when it is first asked for, and kept off the device.

    Args:
        mode: :func:`inference` or :func:`training`.
        subject: whose call it is.
        module: as it was before it ran.
        device: where it runs.
    """

    def __init__(self, mode: Callable[..., Run], subject: Subject, module: nn.Module, device: str) -> None:
        self._mode, self._subject, self._module, self._device = mode, subject, module, device

    @functools.cached_property
    def _results(self) -> list[Tensor] | None:
        """None of a model that only runs in float32."""
        try:
            run: Run = self._mode(self._subject, self._device, torch.float64)
            return [one.cpu() for one in run(copy.deepcopy(self._module).double())]
        except Exception:  # noqa: BLE001 - the model's own code
            return None

    def is_as_near(self, found: list[Tensor], eager: list[Tensor]) -> bool:
        """Whether results are not further from it than three times what eager's are."""
        exact = self._results
        if exact is None or not len(exact) == len(eager) == len(found):
            return False
        return all(
            one.shape == other.shape and _near(one, other, right)
            for one, other, right in zip(eager, found, exact, strict=True)
        )


def _near(eager: Tensor, found: Tensor, exact: Tensor) -> bool:
    if not (eager.is_floating_point() or eager.is_complex()):
        return torch.equal(eager, found)
    size = exact.abs().max().item() or 1.0
    errors = [((one.to(exact) - exact).abs().max() / size).item() for one in (eager, found)]
    return errors[1] <= allowed_error(errors[0], torch.finfo(eager.dtype).eps)


def timed(subject: Subject, mode: str, device: str) -> Callable[[nn.Module], object]:
    """Runs a module with nothing around it that takes time: inputs are on the device, and gradients of outputs too."""
    args, kwargs = moved((list(subject.args), dict(subject.kwargs)), device)
    if not list(subject.module.parameters()) and mode == "training":
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                leaf.requires_grad_()
    given: list[Tensor] = []

    def infer(module: nn.Module) -> object:
        with torch.no_grad():
            return module(*args, **kwargs)

    def train(module: nn.Module) -> object:
        module.zero_grad(set_to_none=True)
        outputs = [leaf for leaf in floating_outputs(module(*args, **kwargs)) if leaf.requires_grad]
        if not given:
            given.extend(map(torch.ones_like, outputs))
        torch.autograd.backward(outputs, given)
        return outputs

    return train if mode == "training" else infer
