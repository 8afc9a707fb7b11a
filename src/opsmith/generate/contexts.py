"""Contexts: what a model is told about a task besides its stub; each can be switched off to see what it is worth."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from opsmith.backends.directory import KernelDirectory
from opsmith.core.case import digest
from opsmith.core.environment import Environment
from opsmith.core.problems import solution_files
from opsmith.core.task import Task
from opsmith.errors import UnknownName
from opsmith.generate.background import Background
from opsmith.generate.op_facts import OpFacts
from opsmith.session import AskedTask

#: A kernel of another directory that is longer is not shown.
MOST_REFERENCE_BYTES = 20_000


#: DSL -> its examples, each of which ``benchmarks.judging.languages`` judges.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "cuda": ("cuda", "nvrtc"),
    **{
        name: (name,)
        for name in ("cupy", "cutedsl", "cutile", "gluon", "helion", "numba", "pallas", "tilelang", "triton")
    },
}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What contexts draw from.

    Attributes:
        task: to be solved.
        dsl: to be written in.
        environment: where kernels are judged.
        facts: what torch says about the op; None for a module.
        reference: a kernel of the same task in another language, or None.
        similar: (op, source) of a kernel for a similar one, or None.
        background: what was found out about it.
    """

    task: AskedTask
    dsl: str
    environment: Environment
    facts: OpFacts | None = None
    reference: str | None = None
    similar: tuple[str, str] | None = None
    background: Background = Background()


def documentation(setting: Setting) -> str | None:
    """What torch's documentation says."""
    text = setting.facts and setting.facts.documentation
    return f"PyTorch's documentation:\n\n{text}" if text else None


def decomposition(setting: Setting) -> str | None:
    """Python that computes the op from others: the truth about its edge cases."""
    text = setting.facts and setting.facts.decomposition
    return f"What PyTorch itself computes, in terms of other ops:\n\n```python\n{text}\n```" if text else None


def cases(setting: Setting) -> str | None:
    """Some of the calls that will be judged."""
    task = setting.task
    lines = [f"- {example}" for example in task.examples]
    head = (
        f"It is judged on {task.cases} calls, in {', '.join(task.dtypes)}, and on variants of them (other shapes, "
        "strides, offsets, values). T(shape, dtype, stride=...) is a tensor. Some of the calls:"
    )
    return "\n".join([head, *lines])


def hardware(setting: Setting) -> str | None:
    """The machine that the kernel runs on."""
    facts = setting.environment
    versions = f"torch {facts.torch}" + (f", triton {facts.triton}" if facts.triton else "")
    return f"It runs on {facts.device_name} ({facts.device}), with {versions}, Python {facts.python}."


def language(setting: Setting) -> str | None:
    """A short kernel in the language that is asked for, with its launch."""
    told = [f"```python\n{example_of(name)}```" for name in EXAMPLES.get(setting.dsl, ())]
    if not told:
        return None
    return "\n\n".join(
        [
            f"A kernel for `silu.default` in that language (`{setting.dsl}`), to see how one is written and launched:",
            *told,
        ]
    )


def example_of(name: str) -> str:
    """The source of an example.

    Args:
        name: of those in :data:`EXAMPLES`.
    """
    text = importlib.resources.files("opsmith.generate").joinpath("templates", "examples", f"{name}.md").read_text()
    return text.partition("```python\n")[2].rpartition("```")[0]


def reference(setting: Setting) -> str | None:
    """A kernel of the same task in another language."""
    if setting.reference is None:
        return None
    return f"A kernel for the same task, to translate or to beat:\n\n```python\n{setting.reference}\n```"


def similar(setting: Setting) -> str | None:
    """A kernel of a similar task."""
    if setting.similar is None:
        return None
    task, source = setting.similar
    return f"A kernel for {task}, to see how they are written:\n\n```python\n{source}\n```"


def compiler(setting: Setting) -> str | None:
    """The kernel that torch's compiler writes."""
    text = setting.background.compiler
    if text is None or len(text) > MOST_REFERENCE_BYTES:
        return None
    return f"What torch's compiler writes for it, for one kind of calls:\n\n```\n{text}\n```"


def profiler(setting: Setting) -> str | None:
    """What eager spends its time on."""
    text = setting.background.profiler
    return (
        f"What eager PyTorch spends its time on in the largest call, by torch's profiler:\n\n{text}" if text else None
    )


def counters(setting: Setting) -> str | None:
    """What the device counts while eager runs."""
    text = setting.background.counters
    return f"What Nsight Compute counts of eager PyTorch's kernels in that call:\n\n{text}" if text else None


def ranks(setting: Setting) -> str | None:
    """Where ranks run, how they reach each other, and an example of it."""
    counts = setting.task.ranks
    if not counts:
        return None
    on_gpus = not setting.environment.device.startswith("cpu")
    where = "processes of one machine, rank r on `cuda:r`" if on_gpus else "processes of one machine, over gloo"
    lines = [
        f"It is asked on {' and on '.join(map(str, counts))} {where}.",
        importlib.resources.files("opsmith.generate")
        .joinpath("templates", "symmetric_memory.md" if on_gpus else "messages.md")
        .read_text(),
    ]
    if setting.background.topology is not None:
        lines.append(f"How the GPUs are connected (`nvidia-smi topo -m`):\n\n```\n{setting.background.topology}\n```")
    return "\n\n".join(lines)


#: In the order in which a prompt holds them.
CONTEXTS: Mapping[str, Callable[[Setting], str | None]] = {
    context.__name__: context
    for context in (
        *(documentation, decomposition, cases, hardware, language, ranks),
        *(reference, similar, compiler, profiler, counters),
    )
}
#: What is told about earlier attempts; see :mod:`opsmith.generate.feedback`.
OF_ATTEMPTS = ("failures", "profile")


def selected(text: str) -> tuple[str, ...]:
    """The contexts that ``--context`` asks for: ``all``, ``none``, names, or ``all,-NAME`` without some.

    Raises:
        UnknownName: there is no such context.
    """
    known = (*CONTEXTS, *OF_ATTEMPTS)
    chosen: dict[str, None] = {}
    for word in filter(None, text.split(",")):
        name = word.removeprefix("-")
        if name not in (*known, "all", "none"):
            raise UnknownName("context", name, known)
        if word == "all":
            chosen |= dict.fromkeys(known)
        elif word.startswith("-"):
            chosen.pop(name, None)
        elif word != "none":
            chosen[word] = None
    return tuple(name for name in known if name in chosen)


class References:
    """A directory of kernels that models are shown: those of the same task, and of similar ones.

    Args:
        folder: a kernel directory, or a folder of solutions.

    Raises:
        BadInput: it cannot be read as one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kernels = KernelDirectory(folder)

    def same(self, task: AskedTask) -> str | None:
        """The source of the kernel for a task, where that is one file."""
        if task.op.kind.of_problems:
            samples = solution_files(self._folder, task.name)
            return _text(samples[min(samples)]) if samples else None
        return self._source(task, task.name)

    def similar(self, task: AskedTask) -> tuple[str, str] | None:
        """(op, source) of the kernel whose op's name shares most words with the task's."""
        if task.op.kind.of_problems:
            return None
        words = _words(task.name)
        others = sorted(op for op in self._kernels.named_ops() if op != task.name and words & _words(op))
        for op in sorted(others, key=lambda op: -len(words & _words(op))):
            source = self._source(task, op)
            if source is not None:
                return op, source
        return None

    def _source(self, task: AskedTask, op: str) -> str | None:
        schema = msgspec.structs.replace(task.op, name=op, functional=None)
        kernel = self._kernels.kernel_for(Task(name=op, op=schema, suite=""))
        if kernel is None or kernel.root is None:
            return None
        return _text(Path(kernel.root) / kernel.entry.rpartition(":")[0])


def references_hash(folder: Path) -> str:
    """Names what is in a folder of kernels, wherever that lies."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".json") and path.is_file())
    return digest(repr([(str(path.relative_to(folder)), digest(path.read_bytes())) for path in files]).encode())


def _words(op: str) -> set[str]:
    return set(op.replace(".", "_").lower().split("_")) - {"", "default", "tensor", "scalar", "self", "out"}


def _text(file: Path) -> str | None:
    try:
        data = file.read_bytes()
    except OSError:
        return None
    return data.decode(errors="replace") if len(data) <= MOST_REFERENCE_BYTES else None
