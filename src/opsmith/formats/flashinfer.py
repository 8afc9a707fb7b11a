"""flashinfer-trace and SOL-ExecBench: tasks, workloads and solutions as JSON.

::

    ROOT/                                    flashinfer-trace
      definitions/rmsnorm/rmsnorm_h128.json  a task: axes, inputs, outputs, and its reference as source
      workloads/rmsnorm/rmsnorm_h128.jsonl   sizes and values of its cases
      solutions/.../NAME.json                sources, entry point, language
    ROOT/.../PROBLEM/                        SOL-ExecBench
      definition.json  workload.jsonl  solution*.json

Field names and meanings are those of the two projects, whose schemas differ little: SOL-ExecBench adds axes that are
expressions and inputs that the reference's own function makes, and has ``languages`` where flashinfer-trace has
``language``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from opsmith.core.syntax_tree import expression_tree, syntax_tree
from opsmith.errors import BadInput
from opsmith.formats.schema import Document, read_text

Name = Annotated[str, msgspec.Meta(min_length=1)]
Extent = Annotated[int, msgspec.Meta(ge=0)]

#: Languages whose entry point is a Python function, by the names of both projects; the others are compiled.
PYTHON_LANGUAGES = frozenset({"python", "pytorch", "triton", "tilelang", "cute_dsl", "cutile", "cudnn_frontend"})
_COMPILED = frozenset({"cpp", "cuda", "cuda_cpp", "cutlass", "cudnn", "cublas"})


class ConstAxis(msgspec.Struct, frozen=True, tag_field="type", tag="const"):
    """An axis of one extent."""

    value: Extent


class VarAxis(msgspec.Struct, frozen=True, tag_field="type", tag="var"):
    """An axis whose extent a workload says."""


class ExprAxis(msgspec.Struct, frozen=True, tag_field="type", tag="expr"):
    """An axis whose extent follows from those of others."""

    expression: Name


class TensorSpec(msgspec.Struct, frozen=True):
    """An input or output; ``shape`` names axes, and None means a number."""

    shape: list[Name] | None
    dtype: Name
    description: str | None = None


class Definition(msgspec.Struct, frozen=True):
    """A task."""

    name: Name
    axes: dict[str, ConstAxis | VarAxis | ExprAxis]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    reference: Name
    op_type: str | None = None
    custom_inputs_entrypoint: str | None = None
    description: str | None = None


class RandomInput(msgspec.Struct, frozen=True, tag_field="type", tag="random"):
    """Values are drawn."""


class ScalarInput(msgspec.Struct, frozen=True, tag_field="type", tag="scalar"):
    """A number."""

    value: int | float | bool


class SafetensorsInput(msgspec.Struct, frozen=True, tag_field="type", tag="safetensors"):
    """Values stand in a file; a relative path starts at the root of the set."""

    path: Name
    tensor_key: Name


class CustomInput(msgspec.Struct, frozen=True, tag_field="type", tag="custom"):
    """A function of the reference makes it."""


class Workload(msgspec.Struct, frozen=True):
    """Sizes and values of one case."""

    uuid: Name
    axes: dict[str, Extent]
    inputs: dict[str, RandomInput | ScalarInput | SafetensorsInput | CustomInput] = {}
    tolerance: dict[str, Any] | None = None


class _WorkloadTrace(msgspec.Struct, frozen=True):
    """A line that wraps a workload, as flashinfer-trace writes it."""

    definition: Name
    workload: Workload


class SourceFile(msgspec.Struct, frozen=True):
    """A file of a solution."""

    path: Name
    content: str


class CompileOptions(msgspec.Struct, frozen=True):
    """Flags of SOL-ExecBench's solutions."""

    cflags: list[str] = []
    cuda_cflags: tuple[str, ...] = ("-O3", "--use_fast_math")
    ld_flags: tuple[str, ...] = ("-lcuda",)


class BuildSpec(msgspec.Struct, frozen=True):
    """How a solution is built and called."""

    entry_point: Name
    language: str | None = None
    languages: list[str] = []
    destination_passing_style: bool = True
    binding: str | None = None
    dependencies: list[str] = []
    compile_options: CompileOptions | None = None

    @property
    def file(self) -> str:
        """Of the entry point."""
        return self.entry_point.partition("::")[0]

    @property
    def function(self) -> str:
        """Of the entry point."""
        return self.entry_point.partition("::")[2]

    @property
    def spoken(self) -> list[str]:
        """The languages, by either project's field."""
        return [*self.languages, *([self.language] if self.language else [])]


class Solution(msgspec.Struct, frozen=True):
    """A candidate for a definition."""

    name: Name
    definition: Name
    spec: BuildSpec
    sources: list[SourceFile]
    author: str = "unknown"
    description: str | None = None


class Task(msgspec.Struct, frozen=True):
    """A definition with its workloads, the small ones first, as it is kept beside its problem.

    Attributes:
        sol: it has the layout of SOL-ExecBench.
    """

    definition: Definition
    workloads: list[Workload]
    sol: bool = False


# ---------------------------------------------------------------- reading


def definition_in(file: Path) -> Definition:
    """Read a definition.

    Raises:
        BadInput: it is not what the schema says, with file and line.
    """
    document = Document(file, read_text(file))
    definition = document.decode(Definition)
    _check_reference(definition, document)
    for group, tensors in (("inputs", definition.inputs), ("outputs", definition.outputs)):
        for name, spec in tensors.items():
            for number, axis in enumerate(spec.shape or ()):
                if axis not in definition.axes and not axis.isdecimal():
                    document.refuse(f"there is no axis {axis!r}", (group, name, "shape", number))
    for name, described in definition.axes.items():
        if isinstance(described, ExprAxis):
            unknown = _names_in(described.expression) - set(definition.axes)
            if unknown:
                document.refuse(f"there is no axis {min(unknown)!r}", ("axes", name, "expression"))
    return definition


def _check_reference(definition: Definition, document: Document) -> None:
    try:
        tree = syntax_tree(definition.reference)
    except SyntaxError as exc:
        document.refuse(f"line {exc.lineno or 1} of it does not parse: {exc.msg}", ("reference",))
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "run" not in defined:
        document.refuse("it defines no function `run`", ("reference",))
    arguments = defined["run"].args
    taken = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if taken[: len(definition.inputs)] != list(definition.inputs):
        document.refuse(f"`run` takes {', '.join(taken)}; inputs are {', '.join(definition.inputs)}", ("reference",))
    maker = definition.custom_inputs_entrypoint
    if maker is not None and maker not in defined:
        document.refuse(f"the reference defines no function {maker!r}", ("custom_inputs_entrypoint",))


def workloads_in(file: Path, definition: Definition) -> Iterator[Workload]:
    """The workloads of a file that belong to a definition.

    Raises:
        BadInput: a line is not what the schema says.
    """
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        document = Document(file, line, first_line=number)
        fields = document.decode(dict[str, Any])
        where: tuple[str, ...] = ()
        if "workload" in fields:
            trace = document.decode(_WorkloadTrace)
            if trace.definition != definition.name:
                continue
            workload, where = trace.workload, ("workload",)
        else:
            workload = document.decode(Workload)
        for name, axis in definition.axes.items():
            if isinstance(axis, VarAxis) and name not in workload.axes:
                document.refuse(f"it says no extent of the axis {name!r}", (*where, "axes"))
        for name in workload.inputs:
            if name not in definition.inputs:
                document.refuse(f"{definition.name} has no input {name!r}", (*where, "inputs", name))
        yield workload


def solution_in(file: Path) -> Solution:
    """Read a solution.

    Raises:
        BadInput: it is not what the schema says, with file and line.
    """
    document = Document(file, read_text(file))
    solution = document.decode(Solution)
    spec, paths = solution.spec, [source.path for source in solution.sources]
    if spec.entry_point.count("::") != 1:
        document.refuse("write FILE::FUNCTION", ("spec", "entry_point"))
    if spec.file not in paths:
        document.refuse(f"no source has the path {spec.file!r}", ("spec", "entry_point"))
    for number, path in enumerate(paths):
        if Path(path).is_absolute() or ".." in Path(path).parts:
            document.refuse(f"{path!r} leads out of the solution's folder", ("sources", number, "path"))
        if path in paths[:number]:
            document.refuse(f"{path!r} is there twice", ("sources", number, "path"))
    if not spec.spoken:
        document.refuse("it says no language", ("spec",))
    unknown = set(spec.spoken) - PYTHON_LANGUAGES - _COMPILED
    if unknown:
        known = ", ".join(sorted(PYTHON_LANGUAGES | _COMPILED))
        document.refuse(f"unknown language {min(unknown)!r}; there is: {known}", ("spec",))
    return solution


# ---------------------------------------------------------------- sizes


def extents(definition: Definition, axes: Mapping[str, int]) -> dict[str, int]:
    """The extent of every axis.

    Args:
        axes: those that a workload says.

    Raises:
        BadInput: an expression has no whole number for a value.
    """
    found = {name: axis.value for name, axis in definition.axes.items() if isinstance(axis, ConstAxis)} | dict(axes)
    left = {name: axis.expression for name, axis in definition.axes.items() if isinstance(axis, ExprAxis)}
    while left:
        ready = [name for name, expression in left.items() if _names_in(expression) <= set(found)]
        if not ready:
            raise BadInput(f"{definition.name}: the axes {', '.join(left)} depend on each other")
        for name in ready:
            found[name] = _value_of(left.pop(name), found, definition.name)
    return found


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


#: Powers beyond it are no sizes, and take for ever.
_LARGEST_EXPONENT = 64


def _names_in(expression: str) -> set[str]:
    try:
        return {node.id for node in ast.walk(expression_tree(expression)) if isinstance(node, ast.Name)}
    except SyntaxError:
        return set()  # Its value is refused.


def _value_of(expression: str, known: Mapping[str, int], name: str) -> int:
    """The value of an arithmetic expression; never evaluated as Python."""
    try:
        value = _arithmetic(expression_tree(expression), known)
        if value == int(value):
            return int(value)
    except (ArithmeticError, KeyError, SyntaxError, TypeError, ValueError):
        pass
    raise BadInput(f"{name}: the axis expression {expression!r} has no whole number for a value")


def _arithmetic(node: ast.expr, known: Mapping[str, int]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_arithmetic(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            one, other = _arithmetic(left, known), _arithmetic(right, known)
            if isinstance(op, ast.Pow) and abs(other) > _LARGEST_EXPONENT:
                raise ValueError(ast.unparse(node))
            result: float = _OPERATORS[type(op)](one, other)
            return result
    raise TypeError(ast.unparse(node))


def elements(definition: Definition, workload: Workload) -> int:
    """Of all inputs and outputs together."""
    sizes = extents(definition, workload.axes)
    total = 0
    for spec in (*definition.inputs.values(), *definition.outputs.values()):
        count = 1
        for axis in spec.shape or ():
            count *= sizes[axis] if axis in sizes else int(axis)
        total += count
    return total


def sorted_by_size(definition: Definition, workloads: Iterable[Workload]) -> list[Workload]:
    """The small ones first."""
    return sorted(workloads, key=lambda workload: elements(definition, workload))
