"""The command that judges one case again, to paste into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import TaskKind, folder_name
from opsmith.core.problems import split_sample
from opsmith.core.run import Options, PlannedOp, RunManifest
from opsmith.core.verdict import Part, Verdict


def repro_command(run: Path, manifest: RunManifest, planned: PlannedOp, verdict: Verdict) -> str:
    """The shell command that judges the verdict's case again.

    A kernel that is one file is checked as the run's own snapshot holds it, so the command keeps
    working when the original is edited; where the backend is that one file, it is checked itself.
    Every other kernel goes through its backend.

    Args:
        run: the run directory as it was named; a relative one makes a relative command.
        manifest: the run's ``run.json``. While the run is not finished its seed is secret and
            the command draws another one.
        planned: the op of the verdict, as planned.
        verdict: the verdict.
    """
    options = manifest.options
    kernel = planned.kernel
    if planned.kind.of_problems:
        words = _module_words(run, options, planned)
    elif planned.kind is TaskKind.COLLECTIVE:
        words = ["opsmith", "run", "--suite", options.suite, "--backend", options.backend, "--ops", planned.op]
    elif planned.kind is TaskKind.MODEL:
        words = _model_words(options, planned)
    elif kernel is not None and kernel.snapshot_name is not None and _is_one_file(kernel, options):
        # Somebody who checks one file is editing it, and the run may be temporary.
        name, _, entry = options.backend.rpartition(":")
        snapshot = run / "kernels" / kernel.snapshot_name / kernel.entry.rpartition(":")[0]
        edited = next((text for text in (name, options.backend) if text.endswith(".py")), None)
        file = snapshot if edited is None else Path(edited)
        words = ["opsmith", "check", str(file), "--task", planned.op, "--suite", options.suite]
        if name.endswith(".py"):
            words += ["--entry", entry]
    else:
        words = ["opsmith", "run", "--suite", options.suite, "--backend", options.backend, "--ops", planned.op]
    if planned.kind.on_ranks:
        words += ["--ranks", ",".join(map(str, options.selection.ranks))]
    words += ["--dtype", verdict.dtype or ",".join(options.dtypes), "--device", options.device]
    if verdict.part is Part.CASE:
        words += ["--case", verdict.case]  # A variant is made of all of the op's cases, and conduct is about them.
    words += _judging_options(options)
    if manifest.seed is not None:
        words += ["--seed", str(manifest.seed)]
    return shlex.join(words)


def _module_words(run: Path, options: Options, planned: PlannedOp) -> list[str]:
    """The command for a module: the solution as the run's snapshot holds it, unless it was itself asked for."""
    backend, kernel = options.backend, planned.kernel
    if kernel is not None and kernel.snapshot_name is not None and kernel.loader is Loader.MODULE:
        snapshot = run / "kernels" / kernel.snapshot_name / kernel.entry.rpartition(":")[0]
        backend = backend if backend.endswith(".py") else str(snapshot)
    problems = options.selection.problems
    assert problems is not None, "a module is asked out of a folder of problems"
    words = ["opsmith", "run", "--suite", options.suite, "--problems", problems, "--backend", backend]
    words += ["--ops", split_sample(planned.op)[0]]
    small = planned.kind is TaskKind.PARALLEL and options.selection.sizes == "small"
    return [*words, "--sizes", "small"] if small else words


def _model_words(options: Options, planned: PlannedOp) -> list[str]:
    """The command for a whole model, under the backend's column alone."""
    model, _, mode = planned.op.rpartition("/")
    words = ["opsmith", "run", "--suite", options.suite, "--backend", options.backend]
    words += ["--models", model, "--mode", mode, "--sizes", options.selection.sizes, "--timing", options.timing]
    return [*words, "--autocast"] if options.selection.autocast else words


def _is_one_file(kernel: Kernel, options: Options) -> bool:
    """Whether ``opsmith check`` on the kernel's file alone judges the same function.

    It looks the function up by the op's name, and gives the worker no other file. Other versions
    of the kernel and its notes lie in the same folder and are not needed.
    """
    op = kernel.derived_from or kernel.task
    file, _, function = kernel.entry.rpartition(":")
    named_for_op = function in {f"{folder_name(op)}_kernel_impl", f"{op.rpartition('.')[0]}_kernel_impl"}
    named_for_op |= options.backend.endswith(f"{file}:{function}")  # The user's own --entry.
    needed = [name for name in kernel.files if "_implementation" not in name and not name.endswith(".md")]
    return kernel.loader is Loader.FILE and named_for_op and set(needed) <= {file}


def _judging_options(options: Options) -> list[str]:
    """The options that change a verdict, where they are not the default."""
    words: list[str] = []
    if options.policy != "native":
        words += ["--policy", options.policy]
    if options.integrity != "auto":
        words += ["--integrity", options.integrity]
    if options.tolerance != "strict":
        words += ["--tolerance", options.tolerance]
    if options.layout != "dense":
        words += ["--layout", options.layout]
    if options.selection.dataset is not None:
        words += ["--dataset", options.selection.dataset]
    return words
