"""flashinfer-trace and SOL-ExecBench tasks as module problems, and their solutions as ``ModelNew``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.syntax_tree import expression_tree
from opsmith.errors import BadInput
from opsmith.formats.flashinfer import (
    PYTHON_LANGUAGES,
    BuildSpec,
    CompileOptions,
    ConstAxis,
    Definition,
    ExprAxis,
    RandomInput,
    SafetensorsInput,
    Solution,
    Task,
    TensorSpec,
    Workload,
    definition_in,
    extents,
    solution_in,
    sorted_by_size,
    workloads_in,
)
from opsmith.formats.origin import Origin, origin_file
from opsmith.formats.problem_text import ADAPTER, checked_stem, class_text, function_adapter, refused
from opsmith.formats.sources import with_relative_imports
from opsmith.formats.translated import Translated

FORMAT = "flashinfer-trace"

#: With ``--sizes small`` so many workloads are asked, the smallest.
SMALL_WORKLOADS = 3

#: A language by the name that opsmith has for it, where that is another.
_DSLS = {
    "python": "torch",
    "pytorch": "torch",
    "cuda_cpp": "cuda",
    "cutlass": "cuda",
    "cudnn": "cuda",
    "cublas": "cuda",
}
_SOURCES = (".cpp", ".cc", ".cxx", ".cu", ".c")


def is_root(path: Path) -> bool:
    """Whether a file or folder holds tasks of these formats."""
    if path.is_file():
        return path.suffix == ".json" and not path.name.startswith("config")
    return (path / "definitions").is_dir() or bool(_sol_definitions(path))


def _sol_definitions(path: Path) -> list[Path]:
    return sorted(file for depth in range(4) for file in path.glob("*/" * depth + "definition.json"))


def problem_texts(path: Path) -> dict[str, str]:
    """Relative path -> text of the module problems that the tasks under ``path`` become.

    Raises:
        BadInput: a file is not what its schema says.
    """
    texts: dict[str, str] = {}
    whose: dict[str, Path] = {}
    for file, level, task, root in _tasks(path):
        name = f"{level}/{task.definition.name}.py" if level else f"{task.definition.name}.py"
        if name in texts:
            raise BadInput(f"{file} and {whose[name]} both define {task.definition.name}")
        checked_stem(task.definition.name, file)
        whose[name] = file
        origin = Origin(
            format=FORMAT, name=task.definition.name, file=str(file.resolve()), record=msgspec.to_builtins(task)
        )
        texts[name] = _problem(task, file, root)
        texts[origin_file(name)] = msgspec.json.encode(origin).decode()
    return texts


def _tasks(path: Path) -> Iterator[tuple[Path, str, Task, Path]]:
    """(file of the definition, level, task, root of relative paths) of every task."""
    root = next((folder.parent for folder in path.resolve().parents if folder.name == "definitions"), path)
    if (root / "definitions").is_dir():
        lines = sorted((root / "workloads").rglob("*.jsonl"))
        for file in [path] if path.is_file() else sorted((root / "definitions").rglob("*.json")):
            definition = definition_in(file)
            named = [each for each in lines if each.stem == definition.name] or lines
            found = [workload for each in named for workload in workloads_in(each, definition)]
            yield file, definition.op_type or "", Task(definition, sorted_by_size(definition, found)), root
        return
    for file in _sol_definitions(path) if path.is_dir() else [path]:
        definition = definition_in(file)
        beside = file.with_name("workload.jsonl")
        found = list(workloads_in(beside, definition)) if beside.is_file() else []
        folder = file.parent
        level = folder.parent.name if path.is_dir() and path not in (folder, folder.parent) else ""
        yield file, level, Task(definition, sorted_by_size(definition, found), sol=True), folder


def _problem(task: Task, file: Path, root: Path) -> str:
    definition = task.definition
    if not task.workloads:
        return refused(definition.name, f"{file} has no workload")
    cases = [_case(definition, workload, root) for workload in task.workloads]
    specs = {name: (_shape(spec), spec.dtype) for name, spec in definition.inputs.items()}
    return f"""{definition.reference.rstrip()}


# {definition.name}, from {file.name}: what follows makes a module problem of it.
import torch as _torch

from opsmith.formats.flashinfer_inputs import drawn as _drawn


class Model(_torch.nn.Module):
    def forward(self, {", ".join(definition.inputs)}):
        return _in_order(run({", ".join(definition.inputs)}))


{_IN_ORDER.format(outputs=tuple(definition.outputs))}

INPUTS = {specs!r}
CASES = {{
    "workload": [
{"".join(f"        {case!r},{chr(10)}" for case in cases)}    ]
}}
SMALL = {{"CASES": {{"workload": CASES["workload"][:{SMALL_WORKLOADS}]}}}}


def get_inputs(axes, given):
    return _drawn(INPUTS, axes, given, sampling={definition.op_type == "sampling"}, custom={_maker(definition)})
"""


_IN_ORDER = """def _in_order(result):
    if isinstance(result, dict):
        result = [result[name] for name in {outputs!r}]
    if isinstance(result, (list, tuple)):
        return result[0] if len(result) == 1 else tuple(result)
    return result
"""


def _maker(definition: Definition) -> str | None:
    return definition.custom_inputs_entrypoint


def _shape(spec: TensorSpec) -> list[str | int] | None:
    return None if spec.shape is None else [int(axis) if axis.isdecimal() else axis for axis in spec.shape]


def _case(definition: Definition, workload: Workload, root: Path) -> dict[str, Any]:
    given = {}
    for name, value in workload.inputs.items():
        fields = msgspec.to_builtins(value)
        if isinstance(value, SafetensorsInput):
            fields["path"] = str((root / value.path).resolve())
        if not isinstance(value, RandomInput):
            given[name] = fields
    return {"axes": extents(definition, workload.axes), "given": given}


# ---------------------------------------------------------------- solutions


def solutions(origin: Origin, path: Path, task: str) -> list[Translated]:  # noqa: ARG001 - a solution names its task
    """The solutions of a task that a file or folder holds, in the order of their files' names.

    Raises:
        BadInput: a solution is not what the schema says, or writes into outputs whose sizes nobody knows beforehand.
    """
    asked = origin.read(Task)
    return [
        Translated(
            files=_solution_texts(asked, solution),
            file=ADAPTER,
            written_in=solution.spec.file,
            dsl=_dsl_of(solution),
            author=solution.author,
            name=solution.name,
        )
        for solution in _solutions_in(path)
        if solution.definition == asked.definition.name
    ]


def _solutions_in(folder: Path) -> list[Solution]:
    if folder.is_file():
        files = [folder]
    else:
        place = folder / "solutions" if (folder / "solutions").is_dir() else folder
        files = [file for file in sorted(place.rglob("*.json")) if file.name != "definition.json"]
    return [solution_in(file) for file in files if _is_solution(file)]


def _is_solution(file: Path) -> bool:
    """Whether a file looks like a solution at all; a damaged one does."""
    try:
        fields = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return True
    return (
        isinstance(fields, dict) and not {"spec", "sources", "definition"}.isdisjoint(fields) and "axes" not in fields
    )


def _solution_texts(task: Task, solution: Solution) -> dict[str, str]:
    paths = [source.path for source in solution.sources]
    files = {
        source.path: with_relative_imports(source.path, source.content, paths)
        if source.path.endswith(".py")
        else source.content
        for source in solution.sources
    }
    return files | {ADAPTER: _adapter(task, solution)}


def _dsl_of(solution: Solution) -> str:
    spoken = solution.spec.spoken[0]
    return _DSLS.get(spoken, spoken)


def _adapter(task: Task, solution: Solution) -> str:
    spec = solution.spec
    head = "\n" + _IN_ORDER.format(outputs=tuple(task.definition.outputs))
    body = _into_outputs(task) if spec.destination_passing_style else "return _in_order(_function(*inputs))"
    if set(spec.spoken) <= PYTHON_LANGUAGES:
        return function_adapter(spec.file, spec.function, head=head, body=body)
    built = _built(spec, [source.path for source in solution.sources], sol=task.sol)
    return class_text(f"Builds and calls {spec.entry_point}.", f"from pathlib import Path\n\n{built}\n{head}", body)


def _built(spec: BuildSpec, paths: list[str], *, sol: bool) -> str:
    """Statements that build the extension; ``_function`` is the entry point."""
    sources = [path for path in paths if path.endswith(_SOURCES)]
    cuda = [path for path in sources if path.endswith(".cu")]
    where = "_HERE = Path(__file__).parent"
    if (spec.binding or ("torch" if sol else "tvm-ffi")) != "torch":
        cpp = [path for path in sources if path not in cuda]
        return f"""import tvm_ffi.cpp

{where}
_function = tvm_ffi.cpp.load(
    "solution",
    cpp_files=[str(_HERE / path) for path in {cpp!r}] or None,
    cuda_files=[str(_HERE / path) for path in {cuda!r}] or None,
    extra_include_paths=[str(_HERE)],
)[{spec.function!r}]
"""
    with_cuda = bool(cuda) or not set(spec.spoken) <= {"cpp"}
    flags = spec.compile_options or (CompileOptions() if with_cuda else CompileOptions(cuda_cflags=(), ld_flags=()))
    return f"""from torch.utils.cpp_extension import load

{where}
_function = load(
    name="solution",
    sources=[str(_HERE / path) for path in {sources!r}],
    extra_cflags={flags.cflags!r},
    extra_cuda_cflags={list(flags.cuda_cflags)!r},
    extra_ldflags={list(flags.ld_flags)!r},
    extra_include_paths=[str(_HERE)],
    with_cuda={with_cuda!r},
).{spec.function}
"""


def _into_outputs(task: Task) -> str:
    """The body of a forward that makes the outputs, hands them over and returns them."""
    definition = task.definition
    bound: dict[str, str] = {
        name: str(axis.value) for name, axis in definition.axes.items() if isinstance(axis, ConstAxis)
    }
    for number, spec in enumerate(definition.inputs.values()):
        for place, axis in enumerate(spec.shape or ()):
            bound.setdefault(axis, f"inputs[{number}].shape[{place}]")
    tensors = [n for n, spec in enumerate(definition.inputs.values()) if spec.shape is not None]
    device = f"inputs[{tensors[0]}].device" if tensors else "torch.get_default_device()"
    make = "zeros" if task.sol else "empty"  # Each as its own harness does.
    outputs = [
        f"torch.{make}(({''.join(f'{_extent(axis, bound, definition)}, ' for axis in spec.shape or ())}), "
        f"dtype=torch.{spec.dtype}, device={device})"
        for spec in definition.outputs.values()
    ]
    lines = "".join(f"    {output},\n" for output in outputs)
    return f"outputs = (\n{lines})\n_function(*inputs, *outputs)\nreturn _in_order(outputs)"


def _extent(axis: str, bound: Mapping[str, str], definition: Definition) -> str:
    if axis.isdecimal():
        return axis
    described = definition.axes[axis]
    if isinstance(described, ExprAxis) and axis not in bound:
        tree = expression_tree(described.expression)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = _extent(node.id, bound, definition)
        return f"int({ast.unparse(tree)})"
    if axis not in bound:
        raise BadInput(f"{definition.name}: no input has the axis {axis!r}, so nobody can make its outputs beforehand")
    return bound[axis]
