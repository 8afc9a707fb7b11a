"""Tasks of GPU MODE's kernelbot: ``task.yml`` with ``reference.py``, answered by ``custom_kernel``.

::

    ROOT/pmpp_v2/
      utils.py
      vectoradd_py/
        task.yml        files, and sizes of test and benchmark cases
        reference.py    ref_kernel, generate_input, check_implementation
        task.py         types
        submission.py   custom_kernel

Cases are drawn with ``generate_input`` under seeds of the run's own, on the run's device, as kernelbot's secret
leaderboard runs are. ``check_implementation`` is asked besides opsmith's comparison with ``ref_kernel``.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.syntax_tree import syntax_tree
from opsmith.errors import BadInput
from opsmith.formats.origin import Origin, origin_file
from opsmith.formats.problem_text import ADAPTER, checked_stem, function_adapter, refused
from opsmith.formats.schema import YamlDocument, read_text
from opsmith.formats.sources import functions, joined, names, parsed, with_relative_imports
from opsmith.formats.translated import Translated

FORMAT = "kernelbot"

ENTRY = "custom_kernel"
_PARTS = ("ref_kernel", "generate_input", "check_implementation")
#: With ``--sizes small`` so many test cases are asked, the smallest.
SMALL_CASES = 3


class TaskFile(msgspec.Struct, frozen=True):
    """One entry of ``files``."""

    name: str
    source: str


class TaskYaml(msgspec.Struct, frozen=True):
    """``task.yml``, as far as it is read."""

    tests: list[dict[str, Any]] = []
    benchmarks: list[dict[str, Any]] = []
    files: list[TaskFile] = []
    lang: str = "py"
    multi_gpu: bool = False


class Task(msgspec.Struct, frozen=True):
    """What is kept beside a task's problem.

    Attributes:
        tests: sizes of the test cases.
        benchmarks: the same of those that are timed.
        shared: name -> text of the files that a submission may import.
        scratch: places of the argument that hold memory for results.
    """

    tests: list[dict[str, Any]]
    benchmarks: list[dict[str, Any]]
    shared: dict[str, str]
    scratch: tuple[int, ...] = ()


def is_root(path: Path) -> bool:
    """Whether a file or folder holds tasks of this format."""
    return path.suffix in (".yml", ".yaml") if path.is_file() else bool(_task_files(path))


def _task_files(path: Path) -> list[Path]:
    return sorted(file for depth in range(4) for file in path.glob("*/" * depth + "task.yml"))


def problem_texts(path: Path) -> dict[str, str]:
    """See :class:`opsmith.formats.readers.Reader`."""
    texts: dict[str, str] = {}
    for file in [path] if path.is_file() else _task_files(path):
        folder = file.resolve().parent
        level = "" if path.resolve() in (file.resolve(), folder, folder.parent) else f"{folder.parent.name}/"
        name = f"{level}{checked_stem(folder.name, file)}.py"
        if name in texts:
            raise BadInput(
                f"{file}: another task is called {name.removesuffix('.py')} too; name one of the two folders"
            )
        task, texts[name] = _problem(file)
        origin = Origin(format=FORMAT, name=folder.name, file=str(file.resolve()), record=msgspec.to_builtins(task))
        texts[origin_file(name)] = msgspec.json.encode(origin).decode()
    return texts


def _problem(file: Path) -> tuple[Task, str]:
    document = YamlDocument(file)
    described = document.decode(TaskYaml)
    name = file.resolve().parent.name
    sources = {each.name: each.source for each in described.files} or {"reference.py": "reference.py"}
    if described.lang != "py":
        return Task([], [], {}), refused(
            name, f"{file} asks for files of lang {described.lang!r}; those of `py` are read"
        )
    if described.multi_gpu:
        return Task([], [], {}), refused(name, f"{file} is for several GPUs, and a module problem is for one")
    if "reference.py" not in sources:
        document.refuse("no file is called reference.py", ("files",))
    texts = {
        shown: read_text(file.parent / source)
        for shown, source in sources.items()
        if shown.endswith(".py") and shown not in ("submission.py", "eval.py")
    }
    reference = texts.pop("reference.py")
    place = str(file.parent / sources["reference.py"])
    tree = parsed(place, reference)
    missing = [part for part in _PARTS if part not in names(tree)]
    if missing:
        return Task([], [], {}), refused(name, f"{place} defines no {', '.join(missing)}")
    if not described.tests and not described.benchmarks:
        return Task([], [], {}), refused(name, f"{file} has neither tests nor benchmarks")
    _check_cases(document, described, tree)
    task = Task(described.tests, described.benchmarks, texts, _scratch(tree))
    return task, _text(name, task, joined(texts | {place: reference}, _DEVICES))


#: A task writes its device down; on the CPU it is asked there.
_DEVICES = {"cuda": "OPSMITH_DEVICE", "cuda:0": "OPSMITH_DEVICE"}


def _check_cases(document: YamlDocument, described: TaskYaml, tree: ast.Module) -> None:
    """Refuse a case with arguments that ``generate_input`` does not take."""
    maker = functions(tree).get("generate_input")
    if maker is None or maker.args.kwarg is not None:
        return
    taken = {argument.arg for argument in (*maker.args.args, *maker.args.kwonlyargs)}
    for key, cases in (("tests", described.tests), ("benchmarks", described.benchmarks)):
        for number, case in enumerate(cases):
            if unknown := sorted(set(case) - taken):
                document.refuse(f"generate_input takes no {', '.join(unknown)}", (key, number))


def _scratch(tree: ast.Module) -> tuple[int, ...]:
    """Places of the argument that ``ref_kernel`` takes apart and does not read: memory that is there for results."""
    kernel = functions(tree).get("ref_kernel")
    if kernel is None or len(kernel.args.args) != 1:
        return ()
    argument = kernel.args.args[0].arg
    for node in ast.walk(kernel):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Name(id=value)) if value == argument:
                uses = _FirstUses(node)
                uses.visit(kernel)
                places = [target.id if isinstance(target, ast.Name) else "" for target in targets]
                return tuple(n for n, name in enumerate(places) if name and name not in uses.read)
    return ()


class _FirstUses(ast.NodeVisitor):
    """Which names a function reads before it gives them another value, after one of its statements.

    Attributes:
        read: their names.
    """

    def __init__(self, after: ast.stmt) -> None:
        self.read: set[str] = set()
        self._after, self._begun, self._bound = after, False, set[str]()

    def visit_Assign(self, node: ast.Assign) -> None:
        if node is self._after:
            self._begun = True
            return
        self.visit(node.value)  # It is read before the targets are bound.
        for target in node.targets:
            self.visit(target)

    def visit_Name(self, node: ast.Name) -> None:
        if not self._begun:
            return
        if isinstance(node.ctx, ast.Store):
            self._bound.add(node.id)
        elif node.id not in self._bound:
            self.read.add(node.id)


def _text(name: str, task: Task, source: str) -> str:
    small = sorted(task.tests or task.benchmarks, key=_size)[:SMALL_CASES]
    cases = {"test": task.tests, "benchmark": task.benchmarks}
    return f"""{_with_head(source)}


# {name}, a task of kernelbot: what follows makes a module problem of it.
SCRATCH = {task.scratch!r}
CASES = {{
{"".join(f"    {source!r}: {_cases(found)},{chr(10)}" for source, found in cases.items() if found)}}}
SMALL = {{"CASES": {{"test": {_cases(small)}}}}}


class Model(torch.nn.Module):
    def forward(self, data):
        result = ref_kernel(data)
{_cast(task)}        return result


def get_inputs(case):
    drawn = {{"seed": int(torch.randint(1 << 20, ()))}} if "seed" in case else {{}}
    return [generate_input(**{{**case, **drawn}})]
"""


def _cast(task: Task) -> str:
    """Statements that give the reference's result the dtype of the memory that a task has for it: its own may be wider.

    That is the one place for results, of as many elements.
    """
    if len(task.scratch) != 1:
        return ""
    place = f"data[{task.scratch[0]}]"
    return (
        f"        if isinstance(result, torch.Tensor) and result.numel() == {place}.numel():\n"
        f"            result = result.to({place}.dtype)\n"
    )


def _with_head(source: str) -> str:
    """The source with what it needs before anything else of it runs."""
    head = (
        "import os\n\nimport torch\n\n# What torch asks for where a reference asks for deterministic products.\n"
        'os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")\nOPSMITH_DEVICE = "cuda"\n\n\n'
    )
    if source.startswith("from __future__"):
        future, _, rest = source.partition("\n")
        return f"{future}\n\n{head}{rest}"
    return head + source


def _cases(cases: list[dict[str, Any]]) -> str:
    return "[\n" + "".join(f"        {{'case': {case!r}}},\n" for case in cases) + "    ]"


def _size(case: Mapping[str, Any]) -> float:
    return math.prod(value for key, value in case.items() if key != "seed" and isinstance(value, int) and value > 0)


# ---------------------------------------------------------------- submissions


def solutions(origin: Origin, path: Path, task: str) -> list[Translated]:
    """The submissions for a task: a file, or of a folder the files at the places of the task."""
    shared = origin.read(Task).shared
    return [_translated(file, shared) for file in _submissions(path, task) if _answers(file)]


def _submissions(path: Path, task: str) -> Iterator[Path]:
    """Of a folder of submissions (``LEVEL/TASK.py``, ``TASK.py``) or of tasks (``TASK/submission.py``)."""
    if path.is_file():
        yield path
        return
    level, _, stem = task.rpartition("/")
    for parent in dict.fromkeys((path / level, path, *([path.parent] if path.name == stem else []))):
        if (parent / f"{stem}.py").is_file():
            yield parent / f"{stem}.py"
        folder = parent / stem
        yield from sorted(folder.glob("submission*.py" if (folder / "task.yml").is_file() else "*.py"))
        yield from sorted((folder / "submissions").rglob("*.py"))
        yield from sorted((folder / "solutions").rglob("*.py"))


def _answers(file: Path) -> bool:
    """Whether a file defines ``custom_kernel``, or does not parse: loading it says where."""
    try:
        return ENTRY in names(syntax_tree(read_text(file)))
    except SyntaxError:
        return True


def _translated(file: Path, shared: Mapping[str, str]) -> Translated:
    files = dict(shared) | {"submission.py": read_text(file)}
    texts = {name: with_relative_imports(name, text, files) for name, text in files.items()}
    return Translated(
        files=texts | {ADAPTER: function_adapter("submission.py", ENTRY)},
        file=ADAPTER,
        written_in="submission.py",
        name=str(file.resolve()),
    )
