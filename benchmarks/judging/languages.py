"""Is every kernel language judged? Five honest kernels and two dishonest ones of each, under policy native.

::

    python -m benchmarks.judging.languages --device cuda -o DIR
    python -m benchmarks.judging.languages --device cuda --languages gluon,helion -o DIR

Each language is one ``opsmith run``, with a time limit of its own; several are judged side by side. The honest kernels
answer an elementwise op, a reduction, softmax rows, a matrix product and a transposed copy; the first of them is the
example that ``opsmith generate`` shows to models. Of the dishonest ones one has a library compute and one returns the
answers of calls before. A language whose packages are missing gets a line that names them.

DIR gets ``table.md``, ``record.json`` (each kernel with what was found), ``run.json`` (command, environment), the
runs and a cache of their own. The exit status is 1 if an honest kernel was refused or a dishonest one was not.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime as dt
import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from benchmarks.judging.specificity import OPSMITH, complaint

from opsmith.core.run import RunDirectory, RunManifest, Summary
from opsmith.core.verdict import Status
from opsmith.generate.contexts import example_of
from opsmith.runner.plan.suite_index import SuiteIndex

KERNELS = Path(__file__).parent / "language_kernels"
#: Cases of all seven ops together, beside the variants that each op gets.
SAMPLE = 70
HONEST = {
    "silu.default": "example.py:silu__default_kernel_impl",
    "sum.dim_IntList": "honest.py:sum__dim_IntList_kernel_impl",
    "_softmax.default": "honest.py:_softmax__default_kernel_impl",
    "mm.default": "honest.py:mm__default_kernel_impl",
    "t_copy.default": "honest.py:t_copy__default_kernel_impl",
}
CHEATS = {
    "bmm.default": "cheats.py:bmm__default_kernel_impl",
    "relu.default": "cheats.py:relu__default_kernel_impl",
}
#: The entries of OpInfo that are these ops' own. A hundred and eighty more call one of them, above all ``sum``.
ENTRIES = {
    "nn.functional.silu": "silu.default",
    "sum": "sum.dim_IntList",
    "softmax": "_softmax.default",
    "mm": "mm.default",
    "t_copy": "t_copy.default",
    "bmm": "bmm.default",
    "nn.functional.relu": "relu.default",
}
#: In which dtype the kernels are asked.
DTYPE = "f32"
#: What says that a kernel was found out, and not merely wrong.
FOUND_OUT = frozenset({Status.POLICY, Status.DISHONEST})


class Language(NamedTuple):
    """A way of writing kernels.

    Attributes:
        name: of its folder and its example.
        title: as its makers call it.
        dsl: the name that opsmith records.
        modules: what has to be importable, without which nothing can be judged.
        packages: whose versions are recorded.
        program: what has to be on ``PATH`` or below ``CUDA_HOME``.
        on_cpu: it runs without a GPU, interpreted.
    """

    name: str
    title: str
    dsl: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    program: str | None = None
    on_cpu: bool = False


LANGUAGES = (
    Language("cuda", "CUDA C++ (load_inline)", "cuda", ("torch",), ("torch", "ninja"), program="nvcc"),
    Language("nvrtc", "CUDA C++ (NVRTC)", "cuda", ("cuda.core", "numpy"), ("cuda-core", "cuda-bindings")),
    Language("triton", "Triton", "triton", ("triton",), ("triton",), on_cpu=True),
    Language("gluon", "Gluon", "gluon", ("triton.experimental.gluon",), ("triton",)),
    Language("helion", "Helion", "helion", ("helion",), ("helion", "triton")),
    Language("tilelang", "TileLang", "tilelang", ("tilelang",), ("tilelang", "apache-tvm-ffi"), program="nvcc"),
    Language("cutedsl", "CuTe DSL", "cutedsl", ("cutlass.cute",), ("nvidia-cutlass-dsl",)),
    Language("cutile", "cuTile Python", "cutile", ("cuda.tile",), ("cuda-tile",), program="tileiras"),
    Language("numba", "Numba-CUDA", "numba", ("numba.cuda",), ("numba", "numba-cuda")),
    Language("cupy", "CuPy RawKernel", "cupy", ("cupy",), ("cupy-cuda13x", "cupy-cuda12x", "cupy")),
    Language("pallas", "Pallas (JAX)", "pallas", ("jax.experimental.pallas",), ("jax", "jax-cuda13-plugin")),
)
#: Languages that ``opsmith generate`` does not name, and why.
UNNAMED = {"Mojo": "not judged: a kernel is no Python function, and its compiler is no compiler that workers may start"}


class Row(NamedTuple):
    """What was found of one language.

    Attributes:
        language: which.
        versions: package -> version.
        missing: why it was not judged, or why judging it ended early; empty otherwise.
        kernels: op -> what was found of its kernel, and the first complaint.
        wall_s: how long judging took.
        manifest: of the run, where there is one.
    """

    language: Language
    versions: Mapping[str, str]
    missing: str = ""
    kernels: Mapping[str, tuple[str, str]] = {}
    wall_s: float = 0.0
    manifest: RunManifest | None = None

    @property
    def accepted(self) -> int:
        return sum(self.kernels.get(op, ("", ""))[0] == "accepted" for op in HONEST)

    @property
    def refused(self) -> int:
        return sum(self.kernels.get(op, ("", ""))[0] == "found out" for op in CHEATS)

    @property
    def as_expected(self) -> bool:
        """Nothing was judged, or all as it should be."""
        return (bool(self.missing) and not self.wall_s) or (self.accepted, self.refused) == (len(HONEST), len(CHEATS))


def missing(language: Language, device: str) -> str:
    """Why a language cannot be judged here; empty if it can."""
    if not (KERNELS / language.name / "honest.py").is_file():
        return "not judged: no kernels in it yet"
    for module in language.modules:
        if not _is_importable(module):
            return f"not judged: no module {module}"
    if device == "cpu" and not language.on_cpu:
        return "not judged: needs a GPU"
    if device != "cpu" and language.program is not None and not _has_program(language.program):
        return f"not judged: no {language.program}"
    return ""


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False  # A package above it is missing, or cannot be imported here.


def _has_program(name: str) -> bool:
    folders = [os.environ.get(variable, "") for variable in ("CUDA_HOME", "CUDA_PATH")]
    return shutil.which(name) is not None or any(Path(folder, "bin", name).exists() for folder in folders if folder)


def versions(language: Language) -> dict[str, str]:
    """The installed ones of a language's packages."""
    found = {}
    for package in language.packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write_kernels(language: Language, folder: Path) -> Path:
    """Make ``folder`` a kernel directory of one language: its example, its honest and its dishonest kernels."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / "example.py").write_text(example_of(language.name))
    for name in ("honest.py", "cheats.py"):
        shutil.copy(KERNELS / language.name / name, folder / name)
    entries = {op: {"entry": entry, "dsl": language.dsl} for op, entry in (HONEST | CHEATS).items()}
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "kernels": entries}, indent=1))
    return folder


def write_index(device: str) -> None:
    """Have runs with this process's cache folder enumerate the seven ops' own entries, and not all that call them.

    What it says of the other entries is untrue: use a folder that nothing else uses.
    """
    from opsmith.suites.opinfo import OpInfoSuite

    asked = {entry: [ENTRIES[entry]] if entry in ENTRIES else [] for entry in OpInfoSuite().entries(DTYPE, device)}
    SuiteIndex("opinfo", torch=torch.__version__, device=device, dtype=DTYPE).save(asked)


def judge(language: Language, arguments: argparse.Namespace) -> Row:
    """Judge the seven kernels of a language; one that takes too long is ended with all that it started."""
    known = versions(language)
    reason = missing(language, arguments.device)
    if reason:
        return Row(language, known, reason)
    out: Path = arguments.out
    run = out / "runs" / language.name
    shutil.rmtree(run, ignore_errors=True)
    backend = write_kernels(language, out / "kernels" / language.name)
    command = [
        *(sys.executable, "-c", OPSMITH, "run", "--suite", "opinfo", "--backend", str(backend)),
        *("--ops", ",".join((*HONEST, *CHEATS)), "--dtype", DTYPE, "--sample", str(SAMPLE)),
        *("--device", arguments.device, "--policy", "native", "--integrity", "on", "--timing", arguments.timing),
        *("--seed", str(arguments.seed), "--jobs", str(arguments.jobs), "-o", str(run)),
    ]
    log = out / "logs" / f"{language.name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)  # noqa: S603
        try:
            status: int | None = child.wait(arguments.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGTERM)
            status = None
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    wall_s = time.monotonic() - start
    reason = f"ended after {arguments.limit_s} s" if status is None else ""
    if status not in (0, 1, None):
        reason = f"judging failed with status {status}: {_last_line(log)}"
    return Row(language, known, reason, outcomes(run), wall_s, _manifest(run))


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def _manifest(run: Path) -> RunManifest | None:
    return RunDirectory(run).manifest() if (run / "run.json").exists() else None


def outcomes(run: Path) -> dict[str, tuple[str, str]]:
    """Of each op what a run found of its kernel, and the first complaint; of one that did not end, what it said so far.

    An honest kernel is ``accepted``, ``refused`` or ``unjudged``; a dishonest one is ``found out``, ``refused`` for
    being wrong alone, ``accepted`` or ``unjudged``.
    """
    if not (run / "verdicts.jsonl").exists():
        return {}
    complaints: dict[str, str] = {}
    statuses: dict[str, set[Status]] = {}
    for verdict in RunDirectory(run).verdicts():
        statuses.setdefault(verdict.op, set()).add(verdict.status)
        if verdict.counts_against and (verdict.op not in complaints or verdict.status in FOUND_OUT):
            complaints[verdict.op] = complaint(verdict)
    accepted = set()
    if (run / "summary.json").exists():
        summary = msgspec.json.decode((run / "summary.json").read_bytes(), type=Summary)
        # Calls in other dtypes, of which a run in float32 has a few, may be declined.
        accepted = {op for op, score in summary.per_op.items() if score.accepted or "f32" in score.accepted_for}
    found = {}
    for op in (*HONEST, *CHEATS):
        outcome = "accepted" if op in accepted else "refused" if op in complaints else "unjudged"
        if op in CHEATS and FOUND_OUT & statuses.get(op, set()):
            outcome = "found out"
        found[op] = (outcome, complaints.get(op, ""))
    return found


def table(rows: Sequence[Row], device_name: str) -> str:
    """A line for each language, then what speaks against kernels."""
    lines = [
        "| language | `dsl` | versions | honest kernels accepted | dishonest ones found out | judged on | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        known = ", ".join(f"{package} {version}" for package, version in row.versions.items())
        head = f"| {row.language.title} | `{row.language.dsl}` | {known} "
        if row.missing and not row.kernels:
            lines.append(
                f"{head}| | | {row.missing} | {row.wall_s:.0f} |" if row.wall_s else f"{head}| | | {row.missing} | |"
            )
            continue
        where = f"{device_name}; {row.missing}" if row.missing else device_name
        lines.append(
            f"{head}| {row.accepted} of {len(HONEST)} | {row.refused} of {len(CHEATS)} | {where} | {row.wall_s:.0f} |"
        )
    lines += [f"| {name} | | | | | {reason} | |" for name, reason in UNNAMED.items()]
    lines.append("")
    for row in rows:
        for op, (outcome, text) in row.kernels.items():
            if outcome != ("accepted" if op in HONEST else "found out"):
                lines.append(f"- {row.language.title}, {op}: {outcome}. {' '.join(text.split())[:500]}".rstrip())
    return "\n".join(lines) + "\n"


def record(row: Row) -> dict[str, Any]:
    """A language as data."""
    return {
        "language": row.language.name,
        "title": row.language.title,
        "dsl": row.language.dsl,
        "versions": dict(row.versions),
        "missing": row.missing,
        "accepted": row.accepted,
        "found_out": row.refused,
        "kernels": {op: {"outcome": outcome, "complaint": text} for op, (outcome, text) in row.kernels.items()},
        "wall_s": round(row.wall_s, 1),
    }


def write(rows: Sequence[Row], arguments: argparse.Namespace, wall_s: float) -> None:
    """Write what is known so far, so that an end from outside costs the languages that are not done alone."""
    environment = next((row.manifest.environment for row in rows if row.manifest is not None), None)
    device_name = environment.device_name if environment is not None else arguments.device
    (arguments.out / "table.md").write_text(table(rows, device_name))
    (arguments.out / "record.json").write_text(json.dumps([record(row) for row in rows], indent=1) + "\n")
    manifest = {
        "command": " ".join(["python -m benchmarks.judging.languages", *sys.argv[1:-1], "DIR"]),
        "environment": msgspec.to_builtins(environment),
        "made_utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "seed": arguments.seed,
        "wall_s": round(wall_s, 1),
    }
    (arguments.out / "run.json").write_text(json.dumps(manifest, indent=2) + "\n")


def main() -> int:
    """Judge, print the table and write it with the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--languages", default="all", help="names, separated by commas")
    parser.add_argument("--timing", default="off", choices=["off", "quick"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-j", "--jobs", type=int, default=2, help="ops that a run judges at a time")
    parser.add_argument(
        "-p", "--parallel", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2), help="runs at a time"
    )
    parser.add_argument("--limit-s", type=float, default=200, help="seconds for a language")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    names = [language.name for language in LANGUAGES]
    wanted = names if arguments.languages == "all" else arguments.languages.split(",")
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        parser.error(f"no language {', '.join(unknown)}; there are {', '.join(names)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    os.environ["XDG_CACHE_HOME"] = str(arguments.out.absolute() / "cache")
    write_index(arguments.device)
    print(f"{time.monotonic() - start:4.0f} s  the suite's entries are known", file=sys.stderr, flush=True)
    rows = []
    with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as pool:
        # Those that start compilers take longest.
        slowest_first = sorted(LANGUAGES, key=lambda language: language.program is None)
        asked = [pool.submit(judge, language, arguments) for language in slowest_first if language.name in wanted]
        for done in concurrent.futures.as_completed(asked):
            row = done.result()
            rows.append(row)
            said = row.missing or f"{row.accepted} accepted, {row.refused} found out"
            print(f"{time.monotonic() - start:4.0f} s  {row.language.title}: {said}", file=sys.stderr, flush=True)
            write(sorted(rows, key=lambda row: names.index(row.language.name)), arguments, time.monotonic() - start)
    print((arguments.out / "table.md").read_text())
    return 0 if all(row.as_expected for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
