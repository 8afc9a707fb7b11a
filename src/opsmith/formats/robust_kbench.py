"""Tasks of robust-kbench: a module of functions with JSON settings of inputs and weights.

::

    ROOT/mnist_linear/
      func_forward.py      forward_fn, Model(..., fn=forward_fn), get_inputs
      config_forward.json  settings of inputs, of weights, and of both
    KERNELS/mnist_linear/forward/kernel.cu   an extension with a function `forward`

A case is a call of ``forward_fn`` as ``Model`` makes it, under one setting of its inputs and weights; a solution takes
the same arguments. Weights are moved as those of any module problem are. Backward tasks are not read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.syntax_tree import syntax_tree
from opsmith.errors import BadInput
from opsmith.formats.origin import Origin, origin_file
from opsmith.formats.problem_text import ADAPTER, checked_stem, class_text, function_adapter, refused
from opsmith.formats.schema import Document, read_text
from opsmith.formats.sources import names, parsed, renamed
from opsmith.formats.translated import Translated

FORMAT = "robust-kbench"

#: With ``--sizes small`` so many settings are asked, those of the smallest numbers.
SMALL_SETTINGS = 2

_PARTS = ("forward_fn", "Model", "get_inputs")
_CONFIG, _MODULE = "config_forward.json", "func_forward.py"
_EXTENSIONS = (".cu", ".cpp")

Settings = list[dict[str, Any]]


class Config(msgspec.Struct, frozen=True):
    """``config_forward.json``."""

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
    return path.name == _CONFIG if path.is_file() else bool(_configs(path))


def _configs(path: Path) -> list[Path]:
    return sorted(file for depth in range(5) for file in path.glob("*/" * depth + _CONFIG))


def problem_texts(path: Path) -> dict[str, str]:
    """See :class:`opsmith.formats.readers.Reader`."""
    texts: dict[str, str] = {}
    for file in [path] if path.is_file() else _configs(path):
        folder = file.resolve().parent
        level = "" if path.resolve() in (file.resolve(), folder, folder.parent) else f"{folder.parent.name}/"
        name = f"{level}{checked_stem(folder.name, file)}.py"
        if name in texts:
            raise BadInput(f"{file}: another task is called {name.removesuffix('.py')} too; name its folder instead")
        texts[name] = _problem(file)
        origin = Origin(format=FORMAT, name=folder.name, file=str(file.resolve()), record={})
        texts[origin_file(name)] = msgspec.json.encode(origin).decode()
    return texts


def _problem(file: Path) -> str:
    settings = Document(file, read_text(file)).decode(Config).settings()
    name, module = file.resolve().parent.name, file.with_name(_MODULE)
    source = read_text(module)
    missing = [part for part in _PARTS if part not in names(parsed(str(module), source))]
    if missing:
        return refused(name, f"{module} defines no {', '.join(missing)}")
    if not settings:
        return refused(name, f"{file} has no settings")
    smallest = sorted(settings, key=_size)[:SMALL_SETTINGS]
    source = renamed(str(module), source, {"Model": "_TaskModel", "get_inputs": "_make_inputs"})
    return f"""{source.rstrip()}


# {name}, a task of robust-kbench: what follows makes a module problem of it.
import inspect as _inspect

import torch as _torch

from opsmith.tasks.module_state import declared_state as _declared_state
from opsmith.tasks.module_state import perturbed as _perturbed

CASES = {{"setting": {_listed(settings)}}}
SMALL = {{"CASES": {{"setting": {_listed(smallest)}}}}}


class Model(_torch.nn.Module):
    def forward(self, *arguments):
        return forward_fn(*arguments)


@_torch.no_grad()
def get_inputs(setting):
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


def solutions(origin: Origin, path: Path, task: str) -> list[Translated]:  # noqa: ARG001 - its task is in its place
    """Extensions with a function ``forward``, or Python files with ``forward_fn``, at the places of the task."""
    return [_translated(file) for file in _files(path, task) if file.suffix != ".py" or _answers(file)]


def _files(path: Path, task: str) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    level, _, stem = task.rpartition("/")
    number = level.removeprefix("L")
    for parent in dict.fromkeys((*(path / name for name in (level, f"level_{number}", f"level{number}")), path)):
        for suffix in (*_EXTENSIONS, ".py"):
            if (parent / f"{stem}{suffix}").is_file():
                yield parent / f"{stem}{suffix}"
            yield from sorted((parent / stem / "forward").glob(f"*{suffix}"))
            if (parent / stem / f"forward{suffix}").is_file():
                yield parent / stem / f"forward{suffix}"


def _answers(file: Path) -> bool:
    try:
        return "forward_fn" in names(syntax_tree(read_text(file)))
    except SyntaxError:
        return True  # Loading it says where.


def _translated(file: Path) -> Translated:
    if file.suffix == ".py":
        name, text = "solution.py", function_adapter("solution.py", "forward_fn")
    else:
        name = f"kernel{file.suffix}"
        head = f"""from pathlib import Path

from torch.utils.cpp_extension import load

_function = load(
    name="solution",
    sources=[str(Path(__file__).parent / {name!r})],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
    with_cuda={file.suffix == ".cu"!r},
).forward
"""
        text = class_text(f"Builds and calls forward of {file.name}.", head, "return _function(*inputs)")
    return Translated(
        files={name: read_text(file), ADAPTER: text},
        file=ADAPTER,
        written_in=name,
        dsl={".cu": "cuda", ".cpp": "cpp"}.get(file.suffix),
        name=str(file.resolve()),
    )
