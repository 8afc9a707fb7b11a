"""Are right kernels accepted, whatever the seed? Kernels after public projects, the honest corpus and the shipped ones.

::

    python -m benchmarks.judging.specificity -o specificity
    python -m benchmarks.judging.specificity --device cuda --subjects public,honest,shipped --parallel 8 -o specificity

Each run of ``opsmith run`` judges kernels of one policy and dtype under one seed. The table has a line a kernel and a
column a seed. The exit status is 1 if a kernel's verdict depends on the seed, if one is refused that is not in
``public_kernels/refused``, or if one of those is accepted. A run that the folder holds already is not made again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import enum
import fnmatch
import gzip
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opsmith.core.run import RunDirectory, RunManifest, Summary
from opsmith.core.verdict import Status, Verdict

PUBLIC = Path(__file__).parent / "public_kernels"
#: Module problems, and solutions after Liger-Kernel: what has no overload of its own.
MODULES = PUBLIC / "modules"
#: The project whose kernels are refused, each with its cause.
REFUSED = "refused"
SUBJECTS = ("public", "honest", "shipped")
OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"


class Outcome(enum.StrEnum):
    """What a run says of a kernel."""

    ACCEPTED = "accepted"
    #: It declines calls of other dtypes, or that mix dtypes, and is right wherever it answers.
    ACCEPTED_FOR = "accepted for it"
    #: It declines calls of this dtype with NotImplementedError, and is right wherever it answers.
    DECLINES = "declines"
    REFUSED = "refused"
    #: The suite has no case of the op on this device.
    NOT_ASKED = "not asked"


class PublicKernel(NamedTuple):
    """A kernel of ``public_kernels``: an entry of a project's manifest.

    Attributes:
        project: its folder.
        op: the overload that it answers.
        entry: what the manifest says of it.
        policy: under which it is judged.
    """

    project: str
    op: str
    entry: Mapping[str, Any]
    policy: str

    @property
    def name(self) -> str:
        return f"{self.project}/{self.op}"

    @property
    def dtypes(self) -> Sequence[str]:
        return tuple(self.entry["dtypes"])


class Round(NamedTuple):
    """What one run judges under each seed.

    Attributes:
        name: of the round, of letters that a folder may have.
        backend: as ``--backend`` takes it.
        policy: as ``--policy`` takes it.
        dtype: short name.
        kernels: overload or problem -> name of its kernel; None for whatever the backend has.
        asked: the suite and its options, as the command line takes them.
    """

    name: str
    backend: str
    policy: str
    dtype: str
    kernels: Mapping[str, str] | None
    asked: tuple[str, ...] = ("--suite", "opinfo")


def public_kernels(root: Path = PUBLIC) -> list[PublicKernel]:
    """Every kernel of every project, in order of project and op; ``project.toml`` names a policy other than native."""
    found = []
    for manifest in sorted(root.glob("*/manifest.json")):
        project = manifest.parent / "project.toml"
        policy = tomllib.loads(project.read_text())["policy"] if project.exists() else "native"
        for op, entry in sorted(json.loads(manifest.read_bytes())["kernels"].items()):
            found.append(PublicKernel(manifest.parent.name, op, entry, policy))
    return found


def public_rounds(kernels: Iterable[PublicKernel], dtypes: Sequence[str], folder: Path) -> list[Round]:
    """Rounds of one policy and dtype that ask each overload once; writes their kernel directories."""
    groups: list[tuple[str, str, dict[str, PublicKernel]]] = []
    for kernel in kernels:
        for dtype in (dtype for dtype in dtypes if dtype in kernel.dtypes):
            fitting = (g for p, d, g in groups if (p, d) == (kernel.policy, dtype) and kernel.op not in g)
            group = next(fitting, None)
            if group is None:
                group = {}
                groups.append((kernel.policy, dtype, group))
            group[kernel.op] = kernel
    rounds = []
    for number, (policy, dtype, group) in enumerate(groups):
        name = f"public-{policy}-{dtype}-{number}"
        directory = folder / "kernels" / name
        write_directory(list(group.values()), directory)
        rounds.append(Round(name, str(directory), policy, dtype, {op: each.name for op, each in group.items()}))
    return rounds


def module_rounds(dtypes: Sequence[str], device: str, patterns: Sequence[str]) -> list[Round]:
    """The module problems with their solutions, of sizes for the device; they are in float32."""
    named = {path.stem: f"liger/{path.stem}" for path in sorted((MODULES / "solutions").glob("*.py"))}
    kernels = {task: name for task, name in named.items() if any(fnmatch.fnmatchcase(name, p) for p in patterns)}
    if "f32" not in dtypes or not kernels:
        return []
    sizes = "small" if device == "cpu" else "full"
    asked = ("--suite", "modules", "--problems", str(MODULES / "problems"), "--sizes", sizes)
    return [Round("modules", str(MODULES / "solutions"), "native", "f32", kernels, asked)]


def write_directory(kernels: Sequence[PublicKernel], directory: Path, root: Path = PUBLIC) -> None:
    """Write one kernel directory with a package for each project."""
    if directory.exists():
        shutil.rmtree(directory)
    entries = {}
    for kernel in kernels:
        target = directory / kernel.project
        if not target.exists():
            unwanted = shutil.ignore_patterns("manifest.json", "*.toml", "__pycache__")
            shutil.copytree(root / kernel.project, target, ignore=unwanted)
            (target / "__init__.py").touch()
        entries[kernel.op] = {**kernel.entry, "entry": f"{kernel.project}/{kernel.entry['entry']}"}
    (directory / "manifest.json").write_text(json.dumps({"format": 1, "kernels": entries}, indent=1))


def honest_rounds(dtypes: Sequence[str], device: str, folder: Path) -> list[Round]:
    """The rounds of the honest corpus; on a device those for a CPU are left out, as those for CUDA are on a CPU."""
    from tests.cheats.honest.corpus import read_corpus, rounds  # Only a checkout has it.

    found = []
    for each in rounds(read_corpus()):
        if each.dtype not in dtypes or each.device != device:
            continue
        name = f"honest-{each.name}"
        directory = folder / "kernels" / name
        if directory.exists():
            shutil.rmtree(directory)
        kernels = {op: f"honest/{kernel.name}" for op, kernel in each.kernels.items()}
        found.append(Round(name, str(each.write(directory)), each.policy, each.dtype, kernels))
    return found


def judge(round_: Round, seed: int, device: str, jobs: int | None, folder: Path) -> Path:
    """Run ``opsmith run`` unless its results are there; the run's folder.

    Raises:
        RuntimeError: the run itself failed.
    """
    run = folder / "runs" / f"{round_.name}-seed{seed}"
    if (run / "summary.json").exists():
        return run
    ops = [] if round_.kernels is None else ["--ops", ",".join(round_.kernels)]
    dtype = [] if "modules" in round_.asked else ["--dtype", round_.dtype]
    command = [
        *(sys.executable, "-c", OPSMITH, "run", *round_.asked, "--backend", round_.backend, *ops, *dtype),
        *("--device", device, "--policy", round_.policy, "--integrity", "on"),
        *("--timing", "off", "--seed", str(seed), "-o", str(run), "--json"),
        *([] if jobs is None else ["--jobs", str(jobs)]),
    ]
    shutil.rmtree(run, ignore_errors=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, check=False, env=environment)  # noqa: S603 - opsmith itself
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{round_.name} under seed {seed}: {done.stderr.decode()[-2000:]}")
    return run


def outcomes(round_: Round, run: Path) -> dict[str, tuple[Outcome, str]]:
    """Of each kernel what a run found, and the first complaint about it."""
    summary = msgspec.json.decode((run / "summary.json").read_bytes(), type=Summary)
    complaints: dict[str, str] = {}
    for verdict in RunDirectory(run).verdicts():
        if verdict.counts_against and (
            verdict.op not in complaints or complaints[verdict.op].startswith(Status.UNSUPPORTED)
        ):
            complaints[verdict.op] = complaint(verdict)
    kernels = round_.kernels
    if kernels is None:
        kernels = {op: f"{round_.backend}/{op}" for op, score in summary.per_op.items() if score.answered}
    found = {}
    for op, name in kernels.items():
        score = summary.per_op.get(op)
        text = complaints.get(op, "")
        if score is None or not score.cases:
            found[name] = (Outcome.NOT_ASKED, "")
        elif score.accepted:
            found[name] = (Outcome.ACCEPTED, "")
        elif round_.dtype in score.accepted_for:
            found[name] = (Outcome.ACCEPTED_FOR, text)
        elif text.startswith(Status.UNSUPPORTED):
            found[name] = (Outcome.DECLINES, text)
        else:
            found[name] = (Outcome.REFUSED, text)
    return found


def complaint(verdict: Verdict) -> str:
    """A verdict in one line."""
    where = f" ({verdict.variant})" if verdict.variant else ""
    return f"{verdict.status}{where}: {verdict.detail} on {verdict.inputs}"[:600]


class Line(NamedTuple):
    """A kernel in a dtype, and what each seed said."""

    kernel: str
    dtype: str
    by_seed: Mapping[int, tuple[Outcome, str]]

    @property
    def flips(self) -> bool:
        return len({outcome for outcome, _ in self.by_seed.values()}) > 1

    @property
    def as_expected(self) -> bool:
        """No flip, and refused exactly if there is a cause for it."""
        refused = {Outcome.REFUSED} if self.kernel.startswith(f"{REFUSED}/") else set()
        return not self.flips and all(
            (outcome in refused) == bool(refused) and (refused or outcome is not Outcome.REFUSED)
            for outcome, _ in self.by_seed.values()
            if outcome is not Outcome.NOT_ASKED
        )


def table(lines: Sequence[Line], seeds: Sequence[int]) -> str:
    """The lines as Markdown, then what speaks against a kernel."""
    rows = [f"| kernel | dtype | {' | '.join(f'seed {seed}' for seed in seeds)} |", "|---" * (2 + len(seeds)) + "|"]
    rows += [f"| {each.kernel} | {each.dtype} | {' | '.join(each.by_seed[s][0] for s in seeds)} |" for each in lines]
    rows.append("")
    for line in lines:
        texts = dict.fromkeys(text for _, text in line.by_seed.values() if text)
        rows += [f"- {line.kernel}, {line.dtype}: {text}" for text in texts]
    return "\n".join(rows) + "\n"


def figures(lines: Sequence[Line]) -> dict[str, int]:
    """What the table adds up to."""
    found = Counter[str]()
    for line in lines:
        outcome = next(iter(line.by_seed.values()))[0]
        found["flips" if line.flips else outcome.value] += 1
        found["unexpected"] += not line.as_expected
    asked = {line.kernel for line in lines if next(iter(line.by_seed.values()))[0] is not Outcome.NOT_ASKED}
    return {"kernels": len(asked), "lines": len(lines), **found}


def main() -> int:
    """Judge, print the table and write it with the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--subjects", default="public", help=f"of {','.join(SUBJECTS)}; separated by commas")
    parser.add_argument("--dtype", default="f32,bf16")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--kernels", default="*", help="patterns of PROJECT/OP, separated by commas")
    parser.add_argument("-j", "--jobs", type=int, help="ops that a run judges at a time; its own default if not given")
    parser.add_argument("-p", "--parallel", type=int, default=1, help="runs at a time")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    dtypes, seeds = arguments.dtype.split(","), [int(seed) for seed in arguments.seeds.split(",")]
    rounds: list[Round] = []
    for subject in arguments.subjects.split(","):
        if subject == "public":
            patterns = arguments.kernels.split(",")
            wanted = [k for k in public_kernels() if any(fnmatch.fnmatchcase(k.name, p) for p in patterns)]
            rounds += public_rounds(wanted, dtypes, arguments.out)
            rounds += module_rounds(dtypes, arguments.device, patterns)
        elif subject == "honest":
            rounds += honest_rounds(dtypes, arguments.device, arguments.out)
        elif subject == "shipped":
            rounds += [Round(f"shipped-{dtype}", "opsmith", "native", dtype, None) for dtype in dtypes]
        else:
            parser.error(f"{subject} is none of {', '.join(SUBJECTS)}")
    start = time.monotonic()
    results: dict[tuple[str, str], dict[int, tuple[Outcome, str]]] = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as pool:
        asked = {
            pool.submit(judge, round_, seed, arguments.device, arguments.jobs, arguments.out): (round_, seed)
            for seed in seeds
            for round_ in rounds
        }
        for done in concurrent.futures.as_completed(asked):
            round_, seed = asked[done]
            for name, outcome in outcomes(round_, done.result()).items():
                results.setdefault((name, round_.dtype), {})[seed] = outcome
            print(f"{round_.name} seed {seed}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    lines = [Line(kernel, dtype, by_seed) for (kernel, dtype), by_seed in sorted(results.items())]
    text = table(lines, seeds)
    one = RunDirectory(arguments.out / "runs" / f"{rounds[0].name}-seed{seeds[0]}").manifest()
    write_record(arguments.out, one, lines, text, time.monotonic() - start)
    print(text)
    print(json.dumps(figures(lines)))
    return 0 if all(line.as_expected for line in lines) else 1


def write_record(folder: Path, one: RunManifest, lines: Sequence[Line], text: str, wall_s: float) -> None:
    """Write ``table.md``, ``outcomes.json.gz``, ``summary.json``, and ``run.json`` with the environment of one run."""
    by_line = [[line.kernel, line.dtype, {str(s): list(o) for s, o in line.by_seed.items()}] for line in lines]
    (folder / "outcomes.json.gz").write_bytes(gzip.compress(json.dumps(by_line).encode(), mtime=0))
    (folder / "table.md").write_text(text)
    (folder / "summary.json").write_text(json.dumps(figures(lines), indent=2) + "\n")
    record = {
        "command": " ".join(["python -m benchmarks.judging.specificity", *sys.argv[1:-1], "FOLDER"]),
        "environment": msgspec.to_builtins(one.environment),
        "made_utc": one.finished_utc,
        "wall_s": round(wall_s, 1),
    }
    (folder / "run.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
