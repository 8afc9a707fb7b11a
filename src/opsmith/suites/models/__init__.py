"""Suite ``models``: whole models, in inference and in training.

A task is a model and what it is asked: ``gpt/infer``, ``gpt/train``. Its models are opsmith's own, models of
transformers and timm from their configurations with random weights, and the module problems that are whole models.
Nothing is downloaded.

The suite does not yield calls of ATen, so it is judged by :mod:`opsmith.whole_models.pipeline` instead of
:mod:`opsmith.pipeline`: what answers is no kernel but a column, a way to run the whole model.
"""

from __future__ import annotations

import importlib.util
import inspect
from functools import partial
from typing import Any

from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files
from opsmith.errors import MissingDependency
from opsmith.suites.models import own, published
from opsmith.suites.models.workload import INFER, TRAIN, Batch, Workload, mean_square, plain, without_dropout

#: The level of the module problems that are whole models.
_LEVEL = "L4/"
_OWN = (own.perceptron, own.conv_net, own.unet, own.gpt, own.text_lengths)


class Models:
    """The suite; see the module's docstring and :class:`opsmith.suites.AsksWholeModels`."""

    name = "models"

    def models(self) -> tuple[str, ...]:
        """The names of all models, those of packages that are not installed too."""
        problems = [name for name in problem_files(SHIPPED_PROBLEMS) if name.startswith(_LEVEL)]
        timm = [f"timm:{name}" for name in published.TIMM]
        return (*(function.__name__ for function in _OWN), *published.TRANSFORMERS, *timm, *problems)

    def missing(self, model: str) -> str | None:
        """What to do to have a model's package; None where it is there."""
        package = "timm" if model.startswith("timm:") else "transformers"
        if model in {function.__name__ for function in _OWN} or importlib.util.find_spec(package) is not None:
            return None
        return str(MissingDependency(package, extra="models"))

    def workload(self, model: str, *, small: bool) -> Workload:
        """Build a model, with weights and inputs drawn from torch's generator.

        Args:
            model: one of :meth:`models`.
            small: at a size for machines without a GPU.

        Raises:
            BrokenProblem: a problem's file does not do what its format says.
            MissingDependency: its package is not installed.
        """
        if model.startswith(_LEVEL):
            made = _problem(model, small=small)
        elif model.startswith("timm:"):
            made = published.timm(model.removeprefix("timm:"), small=small)
        else:
            builders: dict[str, Any] = {function.__name__: function for function in _OWN} | published.TRANSFORMERS
            made = builders[model](small=small)
        without_dropout(made.module)
        return made


def _problem(name: str, *, small: bool) -> Workload:
    import torch

    from opsmith.tasks.problem import ProblemFile

    file = ProblemFile(problem_files(SHIPPED_PROBLEMS)[name], small=small)
    # The generator that the caller has seeded says under which seeds the file draws.
    seeds = partial(torch.randint, 1 << 48, ())
    module = file.model(file.init_inputs(int(seeds())), int(seeds()))
    names = [*inspect.signature(module.forward).parameters]

    def draw() -> Batch:
        return dict(zip(names, file.inputs(int(seeds())), strict=False))

    return Workload(module, draw, plain, mean_square)


__all__ = ["INFER", "TRAIN", "Models"]
