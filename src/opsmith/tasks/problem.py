"""One problem file: ``Model``, ``get_inputs()`` and ``get_init_inputs()``. Loaded in referees only.

The file is the user's own and is trusted; all the same, no two problems share a module namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch

from opsmith.calls.recording import PendingRecord, signature
from opsmith.calls.transfer import HostBytes
from opsmith.core.case import CallRecord
from opsmith.core.seeds import derive_seed
from opsmith.tasks.module_call import CONSTRUCTION_SEED, ReferenceCall
from opsmith.tasks.module_state import State, declared_state, equal, hidden_state, perturbed
from opsmith.tasks.problem_module import import_problem, seed_everything
from opsmith.tasks.small_sizes import shrunk

#: A problem's dict of other values for constants of its file, with which it is small enough for any machine.
SMALL = "SMALL"


class BrokenProblem(Exception):
    """A problem file that does not do what its format says, in one line."""


class ProblemFile:
    """The three parts of a problem file.

    Args:
        file: its path.
        small: take the sizes that its ``SMALL`` names, or smaller ones that are found
            (:mod:`opsmith.tasks.small_sizes`).

    Raises:
        BrokenProblem: it does not load, or a part is missing.
    """

    def __init__(self, file: Path, *, small: bool = False) -> None:
        self._file = file
        module = self.trying("does not load", lambda: import_problem(file))
        if small and SMALL in vars(module):
            self._make_small(module)
        elif small:
            module = self.trying("cannot be made smaller", lambda: shrunk(file)) or module
        self._make_model = self._part(module, "Model")
        self._make_inputs = self._part(module, "get_inputs")
        self._make_init = vars(module).get("get_init_inputs", list)

    def init_inputs(self, seed: int) -> list[Any]:
        """The arguments of ``Model`` and ``ModelNew``.

        Raises:
            BrokenProblem: ``get_init_inputs`` raised.
        """
        seed_everything(seed)
        return list(self.trying("get_init_inputs() failed", self._make_init))

    def model(self, init: list[Any], seed: int) -> torch.nn.Module:
        """Construct ``Model``.

        Raises:
            BrokenProblem: it raised, or is no module.
        """
        seed_everything(seed)
        model = self.trying("Model(*get_init_inputs()) failed", lambda: self._make_model(*init))
        if not isinstance(model, torch.nn.Module):
            raise BrokenProblem(f"{self._file.name}: Model is no torch.nn.Module")
        return model

    def inputs(self, seed: int) -> list[Any]:
        """The arguments of one call, drawn under ``seed``.

        Raises:
            BrokenProblem: ``get_inputs`` raised or returned no list.
        """
        seed_everything(seed)
        inputs = self.trying("get_inputs() failed", self._make_inputs)
        if not isinstance(inputs, (list, tuple)):
            raise BrokenProblem(f"{self._file.name}: get_inputs() returned a {type(inputs).__name__}, not a list")
        return list(inputs)

    def _make_small(self, module: ModuleType) -> None:
        self._set_constants(module, vars(module).get(SMALL, {}), SMALL)

    def _set_constants(self, module: ModuleType, constants: Mapping[str, Any], said_by: str) -> None:
        for name, value in constants.items():
            if name not in vars(module):
                raise BrokenProblem(f"{self._file.name}: {said_by} names {name}, which the file does not define")
            setattr(module, name, value)

    def _part(self, module: ModuleType, name: str) -> Callable[..., Any]:
        part = vars(module).get(name)
        if not callable(part):
            raise BrokenProblem(f"{self._file.name}: it defines no {name}; see docs/reference/module-problems.md")
        found: Callable[..., Any] = part
        return found

    def trying(self, what: str, step: Callable[[], Any]) -> Any:
        """Take a step that the file's author is responsible for.

        Raises:
            BrokenProblem: it raised; the message begins with ``what``.
        """
        try:
            return step()
        except torch.AcceleratorError:
            raise  # The device context is lost.
        except (Exception, SystemExit) as exc:
            line = " ".join(str(exc).split())
            raise BrokenProblem(f"{self._file.name}: {what}: {type(exc).__name__}: {line}"[:400]) from exc


class Problem:
    """A problem with its Model on a device.

    Attributes:
        init: the serialized arguments of ``Model`` and ``ModelNew``.
        drawn: names of tensors that are neither parameters nor persistent buffers and that
            ``Model`` draws at random: they belong to its state.
        initial: the state that Model was constructed with.

    Args:
        task: its name.
        file: its path.
        device: where its Model runs.
        small: take the sizes that its ``SMALL`` names, or smaller ones that are found
            (:mod:`opsmith.tasks.small_sizes`).

    Raises:
        BrokenProblem: it does not load, or a part of it is missing or does not run.
    """

    def __init__(self, task: str, file: Path, device: torch.device, *, small: bool = False) -> None:
        self._parts = ProblemFile(file, small=small)
        # What it is constructed with is no secret: the solution is constructed with the same.
        self._init = self._parts.init_inputs(derive_seed(task, "init"))
        self.init = msgspec.msgpack.encode(
            self._parts.trying("get_init_inputs() cannot be serialized", lambda: record_call(task, self._init, {}))
        )
        self.model = self._parts.model(self._init, CONSTRUCTION_SEED)
        self.call = ReferenceCall(self.model)
        self.drawn = self._drawn_tensors()
        self.model.to(device)
        self.initial = {name: tensor.detach().clone() for name, tensor in self.state().items()}

    def state(self) -> State:
        """The model's live state by name."""
        hidden = hidden_state(self.model)
        return declared_state(self.model) | {name: hidden[name] for name in self.drawn}

    def other_state(self, generator: torch.Generator) -> State:
        """Other values of the state (:func:`opsmith.tasks.module_state.perturbed`); tied tensors stay tied."""
        others: dict[int, torch.Tensor] = {}
        live = self.state()
        for name, tensor in self.initial.items():
            if id(live[name]) not in others:
                others[id(live[name])] = perturbed(tensor, generator)
        return {name: others[id(tensor)] for name, tensor in live.items()}

    def inputs(self, seed: int) -> list[Any]:
        """The arguments of one call, drawn under ``seed``.

        Raises:
            BrokenProblem: ``get_inputs`` raised or returned no list.
        """
        return self._parts.inputs(seed)

    def _drawn_tensors(self) -> tuple[str, ...]:
        """Of the hidden tensors those that come out otherwise in another model."""
        hidden = hidden_state(self.model)
        if not hidden:
            return ()
        other = hidden_state(self._parts.model(self._init, CONSTRUCTION_SEED + 1))
        return tuple(name for name in hidden if name in other and not equal(hidden[name], other[name]))


def record_call(task: str, args: list[Any], kwargs: dict[str, Any]) -> CallRecord:
    """Serialize a call; every storage is copied.

    Raises:
        CannotRecord: an argument has no serialized form.
    """
    signature(task, args, kwargs)  # Refuses tensors that have no plain storage.
    memory = HostBytes()
    return PendingRecord(task, args, kwargs, memory).resolve(memory.collect())
