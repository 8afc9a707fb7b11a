"""Tasks of robust-kbench: a module of functions with JSON settings of inputs and weights.

::

    ROOT/mnist_linear/
      func_forward.py       forward_fn, Model(..., fn=forward_fn), get_inputs
      config_forward.json   settings of inputs, of weights, and of both
      func_backward.py      the same, and AutogradFunction, whose backward calls its backward_fn
      config_backward.json
    KERNELS/mnist_linear/
      forward/kernel.cu     an extension with a function `forward`
      backward/kernel.cu    an extension with a function `backward`

A case is a call of ``forward_fn`` as ``Model`` makes it, under one setting of its inputs and weights; a solution takes
the same arguments. Weights are moved as those of any module problem are. For backward tasks see
:mod:`opsmith.formats.robust_kbench_backward`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opsmith.core.syntax_tree import syntax_tree
from opsmith.errors import BadInput
from opsmith.formats import robust_kbench_backward as backward
from opsmith.formats.origin import Origin, origin_file
from opsmith.formats.problem_text import ADAPTER, checked_stem, class_text, refused
from opsmith.formats.schema import Document, read_text
from opsmith.formats.sources import names, parsed, renamed
from opsmith.formats.translated import Translated

FORMAT = "robust-kbench"

#: With ``--sizes small`` so many settings are asked, those of the smallest numbers.
SMALL_SETTINGS = 2

_EXTENSIONS = (".cu", ".cpp")

Settings = list[dict[str, Any]]


class Direction(NamedTuple):
    """What is asked of a task: its result, or its gradients.

    Attributes:
        name: as the format's files have it, and the function of an extension.
        suffix: of a problem's name, behind that of the folder.
        parts: what ``func_NAME.py`` has to define.
        function: of a Python file that is a solution.
    """

    name: str
    suffix: str
    parts: tuple[str, ...]
    function: str

    @property
    def config(self) -> str:
        """The name of the file with the settings."""
        return f"config_{self.name}.json"

    @property
    def module(self) -> str:
        """The name of the file with the functions."""
        return f"func_{self.name}.py"


_PARTS = ("forward_fn", "Model", "get_inputs")
FORWARD = Direction("forward", "", _PARTS, "forward_fn")
BACKWARD = Direction("backward", "_backward", ("AutogradFunction", *_PARTS), "backward_fn")
_DIRECTIONS = {direction.config: direction for direction in (FORWARD, BACKWARD)}


class Config(msgspec.Struct, frozen=True):
    """``config_forward.json`` and ``config_backward.json``."""

    single_input_configs: Settings
    single_init_configs: Settings
    single_shared_configs: Settings
    multi_input_configs: Settings = []
    multi_init_configs: Settings = []
    multi_shared_configs: Settings = []

    def settings(self) -> Settings:
        """``{"init": ..., "inputs": ...}`` of every case: all combinations of the several settings, where there are."""
        several = bool(self.multi_input_configs and self.multi_init_configs and self.multi_shared_configs)
        inits = self.multi_init_configs if several else self.single_init_configs
        inputs = self.multi_input_configs if several else self.single_input_configs
        shared = self.multi_shared_configs if several else self.single_shared_configs
        return [
            {"init": init | both, "inputs": given | both}
            for init, given, both in itertools.product(inits, inputs, shared)
        ]


def is_root(path: Path) -> bool:
    """Whether a file or folder holds tasks of this format."""
    return path.name in _DIRECTIONS if path.is_file() else bool(_configs(path))


def _configs(path: Path) -> list[Path]:
    return sorted(file for depth in range(5) for name in _DIRECTIONS for file in path.glob("*/" * depth + name))


def problem_texts(path: Path) -> dict[str, str]:
    """See :class:`opsmith.formats.readers.Reader`."""
    texts: dict[str, str] = {}
    for file in [path] if path.is_file() else _configs(path):
        folder, direction = file.resolve().parent, _DIRECTIONS[file.name]
        level = "" if path.resolve() in (file.resolve(), folder, folder.parent) else f"{folder.parent.name}/"
        name = f"{level}{checked_stem(folder.name, file)}{direction.suffix}.py"
        if name in texts:
            raise BadInput(f"{file}: another task is called {name.removesuffix('.py')} too; name its folder instead")
        texts[name], record = _problem(file, direction)
        origin = Origin(format=FORMAT, name=folder.name, file=str(file.resolve()), record=record)
        texts[origin_file(name)] = msgspec.json.encode(origin).decode()
    return texts


def _problem(file: Path, direction: Direction) -> tuple[str, dict[str, Any]]:
    """(the text of a problem, the record of its origin)."""
    settings = Document(file, read_text(file)).decode(Config).settings()
    name, module = f"{file.resolve().parent.name}{direction.suffix}", file.with_name(direction.module)
    source = read_text(module)
    tree = parsed(str(module), source)
    missing = [part for part in direction.parts if part not in names(tree)]
    if missing:
        return refused(name, f"{module} defines no {', '.join(missing)}"), {}
    if not settings:
        return refused(name, f"{file} has no settings"), {}
    start = _start(name, renamed(str(module), source, {"Model": "_TaskModel", "get_inputs": "_make_inputs"}), settings)
    if direction is FORWARD:
        return start + _FORWARD_MODEL, {}
    gradients = backward.gradients_of(tree)
    if isinstance(gradients, str):
        return refused(name, f"{module}:{gradients}"), {}
    record = backward.Record(source=source, gradients=gradients)
    return start + backward.problem_model(gradients), msgspec.to_builtins(record)


_FORWARD_MODEL = """

class Model(_torch.nn.Module):
    def forward(self, *arguments):
        return forward_fn(*arguments)


def get_inputs(setting):
    return _arguments(setting)
"""


def _start(name: str, source: str, settings: Settings) -> str:
    """The text of a problem up to its Model: ``_arguments(setting)`` are those that the task's Model hands to fn."""
    smallest = sorted(settings, key=_size)[:SMALL_SETTINGS]
    return f"""{source.rstrip()}


# {name}, a task of robust-kbench: what follows makes a module problem of it.
import inspect as _inspect

import torch as _torch

from opsmith.tasks.module_state import declared_state as _declared_state
from opsmith.tasks.module_state import perturbed as _perturbed

CASES = {{"setting": {_listed(settings)}}}
SMALL = {{"CASES": {{"setting": {_listed(smallest)}}}}}


@_torch.no_grad()
def _arguments(setting):
    model = _TaskModel(**setting["init"])
    generator = _torch.Generator().manual_seed(int(_torch.randint(1 << 30, ())))
    for tensor in {{id(each): each for each in _declared_state(model).values()}}.values():
        tensor.copy_(_perturbed(tensor, generator))
    found = []

    def call(*args, **kwargs):
        found.append(_inspect.signature(forward_fn).bind(*args, **kwargs).args)
        return forward_fn(*args, **kwargs)

    model(*_make_inputs(**setting["inputs"]), fn=call)
    return [_plain(argument) for argument in found[0]]


def _plain(argument):
    return argument.detach().clone() if isinstance(argument, _torch.Tensor) else argument
"""


def _listed(settings: Settings) -> str:
    return "[\n" + "".join(f"    {{'setting': {setting!r}}},\n" for setting in settings) + "]"


def _size(setting: Mapping[str, Mapping[str, Any]]) -> float:
    values = [*setting["init"].values(), *setting["inputs"].values()]
    return math.prod(value for value in values if isinstance(value, int) and value > 0)


# ---------------------------------------------------------------- solutions


def solutions(origin: Origin, path: Path, task: str) -> list[Translated]:
    """Extensions with a function of the direction's name, or Python files with its function, at the task's places."""
    direction = _DIRECTIONS[Path(origin.file).name]
    files = [file for file in _files(path, task, direction) if file.suffix != ".py" or _answers(file, direction)]
    return [_translated(file, origin, direction) for file in files]


def _files(path: Path, task: str, direction: Direction) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    level, _, name = task.rpartition("/")
    stem = name.removesuffix(direction.suffix)
    number = level.removeprefix("L")
    for parent in dict.fromkeys((*(path / name for name in (level, f"level_{number}", f"level{number}")), path)):
        for suffix in (*_EXTENSIONS, ".py"):
            if (parent / f"{name}{suffix}").is_file():
                yield parent / f"{name}{suffix}"
            yield from sorted((parent / stem / direction.name).glob(f"*{suffix}"))
            if (parent / stem / f"{direction.name}{suffix}").is_file():
                yield parent / stem / f"{direction.name}{suffix}"


def _answers(file: Path, direction: Direction) -> bool:
    try:
        return direction.function in names(syntax_tree(read_text(file)))
    except SyntaxError:
        return True  # Loading it says where.


def _translated(file: Path, origin: Origin, direction: Direction) -> Translated:
    if file.suffix == ".py":
        name, head = "solution.py", f"from .solution import {direction.function} as _function\n"
    else:
        name = f"kernel{file.suffix}"
        head = f"""from pathlib import Path

from torch.utils.cpp_extension import load

_function = load(
    name="solution",
    sources=[str(Path(__file__).parent / {name!r})],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
    with_cuda={file.suffix == ".cu"!r},
).{direction.name}
"""
    files = {name: read_text(file)}
    doc = f"Calls {direction.function if file.suffix == '.py' else direction.name} of {file.name}."
    if direction is FORWARD:
        files[ADAPTER] = class_text(doc, head, "return _function(*inputs)")
    else:
        files |= backward.adapter(doc, head, origin.read(backward.Record))
    return Translated(
        files=files,
        file=ADAPTER,
        written_in=name,
        dsl={".cu": "cuda", ".cpp": "cpp"}.get(file.suffix),
        name=str(file.resolve()),
    )
