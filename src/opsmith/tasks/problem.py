"""One problem file: ``Model``, ``get_inputs()`` and ``get_init_inputs()``. Loaded in referees only.

The file is the user's own and is trusted; all the same, no two problems share a module namespace.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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

#: A problem's dict of source -> list of keyword arguments of its ``get_inputs``, one for each case that it asks.
CASES = "CASES"
#: What some files define instead of ``get_inputs``: a list with the arguments of several calls.
GROUPS = "get_input_groups"
#: A problem's positions in its first argument, a tuple, of tensors whose values mean nothing: memory for results.
SCRATCH = "SCRATCH"
#: A problem's name for the device of the run, set when its file is loaded.
DEVICE = "OPSMITH_DEVICE"
#: What a problem may check of a result besides opsmith's comparison: ``check_implementation(*inputs, result)``.
OWN_CHECK = "check_implementation"

#: What torch says where a process that judges on the CPU is asked for a GPU.
_NO_CUDA = (
    *("Cannot re-initialize CUDA in forked subprocess", "Torch not compiled with CUDA enabled"),
    *("Found no NVIDIA driver", "No CUDA GPUs are available", "Cannot access accelerator device"),
    "Cannot get CUDA generator",
)


class BrokenProblem(Exception):
    """A problem file that does not do what its format says, in one line."""


class NamedCase(NamedTuple):
    """A case that a problem names in its ``CASES``.

    Attributes:
        source: of the case's address, as ``workload``.
        sample: its number among those of the source.
        arguments: what ``get_inputs`` is called with.
    """

    source: str
    sample: int
    arguments: dict[str, Any]


class ProblemFile:
    """The parts of a problem file.

    Attributes:
        cases: those that it names; none where ``get_inputs`` takes no arguments.
        scratch: positions in the first argument, a tuple, of what any solution may overwrite.
        own_check: its ``check_implementation``, or None.

    Args:
        file: its path.
        small: take the sizes that its ``SMALL`` names, or smaller ones that are found
            (:mod:`opsmith.tasks.small_sizes`).
        device: type of the device that a file which asks for it makes its tensors on.

    Raises:
        BrokenProblem: it does not load, or a part is missing.
    """

    def __init__(self, file: Path, *, small: bool = False, device: str = "cpu") -> None:
        self._file = file
        module = self.trying("does not load", lambda: import_problem(file))
        if small and SMALL in vars(module):
            self._make_small(module)
        elif small and vars(module).keys().isdisjoint((CASES, GROUPS)):  # Cases that are named have their sizes.
            module = self.trying("cannot be made smaller", lambda: shrunk(file)) or module
        if DEVICE in vars(module):
            setattr(module, DEVICE, device)
        self._make_model = self._part(module, "Model")
        self._make_groups = None if "get_inputs" in vars(module) else vars(module).get(GROUPS)
        self._make_inputs: Callable[..., Any] = (
            list if self._make_groups is not None else self._part(module, "get_inputs")
        )
        self._make_init = vars(module).get("get_init_inputs", list)
        self.cases = self._named_cases(module)
        self.scratch: tuple[int, ...] = tuple(vars(module).get(SCRATCH, ()))
        self.own_check: Callable[..., Any] | None = vars(module).get(OWN_CHECK)

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

    def inputs(self, seed: int, case: int = 0) -> list[Any]:
        """The arguments of one call, drawn under ``seed``.

        Args:
            case: number of the one of ``cases`` that is asked, where there are any.

        Raises:
            BrokenProblem: ``get_inputs`` raised or returned no list.
        """
        arguments = self.cases[case].arguments if self.cases else {}
        seed_everything(seed)
        if self._make_groups is not None:
            inputs = self._groups()[case]
        else:
            inputs = self.trying("get_inputs() failed", lambda: self._make_inputs(**arguments))
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

    def _groups(self) -> list[Any]:
        assert self._make_groups is not None
        return list(self.trying(f"{GROUPS}() failed", self._make_groups))

    def _named_cases(self, module: ModuleType) -> tuple[NamedCase, ...]:
        if self._make_groups is not None:
            return tuple(NamedCase("group", number, {}) for number in range(len(self._groups())))
        named = vars(module).get(CASES, {})
        try:
            by_source = msgspec.convert(named, dict[str, list[dict[str, Any]]])
        except msgspec.ValidationError as exc:
            raise BrokenProblem(f"{self._file.name}: {CASES} is no dict of lists of dicts: {exc}") from exc
        return tuple(
            NamedCase(source, sample, arguments)
            for source, asked in by_source.items()
            for sample, arguments in enumerate(asked)
        )

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
            raise BrokenProblem(f"{self._place(exc)}: {what}: {in_plain_words(exc)}"[:400]) from exc

    def _place(self, exc: BaseException) -> str:
        """The file, with the line of it that an error came through."""
        lines = [
            frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if Path(frame.filename) == self._file
        ]
        return f"{self._file.name}:{lines[-1]}" if lines else self._file.name


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
        self._parts = ProblemFile(file, small=small, device=device.type)
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

    @property
    def cases(self) -> tuple[NamedCase, ...]:
        """See :class:`ProblemFile`."""
        return self._parts.cases

    @property
    def scratch(self) -> tuple[int, ...]:
        """See :class:`ProblemFile`."""
        return self._parts.scratch

    @property
    def has_own_check(self) -> bool:
        """Whether the file checks results too."""
        return self._parts.own_check is not None

    def inputs(self, seed: int, case: int = 0) -> list[Any]:
        """The arguments of one call, drawn under ``seed``; see :meth:`ProblemFile.inputs`.

        Raises:
            BrokenProblem: ``get_inputs`` raised or returned no list.
        """
        return self._parts.inputs(seed, case)

    def refusal(self, inputs: Sequence[Any], result: Any) -> str | None:
        """Why the file's own check refuses a result; None where it does not.

        Args:
            inputs: as they were before the call; the check may change them.
            result: of the call.
        """
        assert self._parts.own_check is not None
        try:
            said = self._parts.own_check(*inputs, result)
        except torch.AcceleratorError:
            raise  # The device context is lost.
        except Exception as exc:  # noqa: BLE001 - it may raise, as an assert does, what it likes
            said = (False, f"{type(exc).__name__}: {exc}")
        good, message = said if isinstance(said, tuple) else (not said, said)  # Some return a message, or none.
        return None if good else " ".join(f"{OWN_CHECK} refuses it: {message}".split())[:400]

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


def in_plain_words(exc: BaseException) -> str:
    """An error of a problem's code in one line."""
    line = " ".join(str(exc).split())
    if any(sign in line for sign in _NO_CUDA):
        return (
            'it uses CUDA by itself (`.cuda()`, `device="cuda"`), and this run is on the CPU; ask it with --device cuda'
        )
    if isinstance(exc, ModuleNotFoundError) and exc.name:
        needed = exc.name.partition(".")[0]
        return f"{type(exc).__name__}: {line}; it needs the package {needed}, which is not installed"
    if isinstance(exc, OSError) and "huggingface.co" in line and (repository := _hub_repository(exc)) is not None:
        return (
            f"it needs {repository} of the Hugging Face hub, which is not in the cache and cannot be had from here; "
            f"`hf download {repository}` fetches it"
        )
    return f"{type(exc).__name__}: {line}"


def _hub_repository(exc: BaseException) -> str | None:
    """What was asked of the hub when it could not be reached: torch's and transformers' messages do not say."""
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        for name in ("pretrained_model_name_or_path", "path_or_repo_id", "repo_id"):
            if isinstance(asked := frame.f_locals.get(name), str):
                return asked
    return None
