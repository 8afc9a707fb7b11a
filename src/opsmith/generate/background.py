"""What is found out about tasks before a campaign asks anybody: the compiler's kernels, and what eager does.

Times differ from run to run and a prompt may not, so what was found is kept in the campaign's directory and read again
when the campaign is taken up.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from opsmith.core.case import CallRecord, tensor_values
from opsmith.core.evidence import CallProfile
from opsmith.core.op import TaskKind, Variant
from opsmith.core.run import write_atomically
from opsmith.generate.eager_profile import counters, eager_profiles
from opsmith.generate.inductor import Compiler, Language, NothingWritten, write_kernel
from opsmith.generate.inductor.messages import AskModule, WroteModule
from opsmith.pipeline import Progress
from opsmith.session import AskedTask, Session

#: Contexts that need something found out.
OF_BACKGROUND = ("compiler", "profiler", "counters")
NAME = "background.json"


class Background(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a task; None where nothing was, or where nobody wanted to know.

    Attributes:
        compiler: the kernel of torch's compiler for the most frequent kind of calls, or its whole ``ModelNew``.
        profiler: what eager's largest call spends its time on.
        counters: what Nsight Compute counts of that call.
        timeline: what ran during one such call.
        topology: of what ranks answer together, how the devices are connected.
    """

    compiler: str | None = None
    profiler: str | None = None
    counters: str | None = None
    timeline: CallProfile | None = None
    topology: str | None = None


def backgrounds(
    session: Session, contexts: Collection[str], *, dsl: str, out: Path, progress: Progress
) -> Mapping[str, Background]:
    """Find out what the contexts ask for, or read what was found before.

    Args:
        session: its tasks are asked about.
        contexts: names of what models are told.
        dsl: that is to be written in.
        out: the campaign's directory.
        progress: is told how far this is.
    """
    wanted = [name for name in OF_BACKGROUND if name in contexts]
    if "ranks" in contexts and any(task.op.kind.on_ranks for task in session.tasks.values()):
        wanted.append("ranks")
    kept = out / NAME
    if not wanted:
        return {}
    if kept.exists():
        return msgspec.json.decode(kept.read_bytes(), type=dict[str, Background])
    progress.stage("finding out", len(session.tasks))
    ops = {name: task for name, task in session.tasks.items() if not task.op.kind.of_problems}
    largest = {name: max(session.calls(name), key=_elements) for name in ops}
    device = session.options.device
    profiles = eager_profiles(largest, device) if "profiler" in wanted else {}
    topology = _topology() if "ranks" in wanted and device.startswith("cuda") else None
    found = {}
    with Compiler() as compiler:
        for number, (name, task) in enumerate(session.tasks.items(), start=1):
            found[name] = Background(
                compiler=_compiled(session, task, dsl, compiler) if "compiler" in wanted else None,
                profiler=profiles[name].text or None if name in profiles else None,
                timeline=profiles[name].timeline if name in profiles else None,
                counters=counters(largest[name], device) if "counters" in wanted and name in largest else None,
                topology=topology if task.op.kind.on_ranks else None,
            )
            progress.advance(number, name)
    write_atomically(kept, msgspec.json.encode(found))
    return found


def _topology() -> str | None:
    """How the GPUs of this machine are connected, as NVIDIA's tool says it; None where there is none."""
    try:
        said = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S607
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()


def _elements(call: CallRecord) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensor_values((*call.args, *call.kwargs.values())))


def _compiled(session: Session, task: AskedTask, dsl: str, compiler: Compiler) -> str | None:
    """In C++ or Metal for whoever writes that, else in Triton; what ranks answer together is not compiled."""
    if task.op.kind.on_ranks:
        return None
    if task.op.kind is TaskKind.MODULE:
        file = Path(task.op.schema)
        small = session.options.selection.sizes == "small"
        answer = compiler.ask(AskModule.of(file, small=small))
        return answer.source if isinstance(answer, WroteModule) else None
    if task.op.variant is not Variant.FUNCTIONAL:
        return None
    language = {"cpp": Language.CPP, "metal": Language.METAL}.get(dsl, Language.TRITON)
    try:
        written = write_kernel(task.op, session.calls(task.name), compiler=compiler, language=language, most_rows=1)
    except NothingWritten:
        return None
    return written.first_row
