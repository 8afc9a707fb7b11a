"""Real inputs from a trace to verdicts, as a stranger would use them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TRACE = """\
# model: timm:tiny
Operator: aten.relu.default
cnt: 7, ((T([64, 256], f16),), {})
cnt: 2, ((T([8], f16),), {})
Operator: aten.gather.default
cnt: 1, ((T([16, 9], f16), 1, T([16, 4], i64)), {})
Operator: aten.mm.default
cnt: 3, ((T([12, 34], f16, stride=(1, 12)), T([34, 5], f16)), {})
Operator: aten.bernoulli_.float
cnt: 1, ((T([4096], f16), 0.25), {})
"""


def opsmith(*arguments: str, folder: Path, own_caches: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, with caches of its own."""
    caches = {"XDG_CACHE_HOME": str(folder / "cache")} if own_caches else {}
    return subprocess.run(
        [sys.executable, "-c", "from opsmith.cli.main import main; main()", *arguments],
        cwd=folder,
        env={**os.environ, **caches, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset."""
    made = tmp_path_factory.mktemp("traces")
    (made / "tiny.txt").write_text(TRACE)
    assert 0 == opsmith("dataset", "build", "tiny.txt", "-o", "tiny.parquet", folder=made).returncode
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> dict[str, Any]:
    """The summary of eager judged on that dataset."""
    arguments = ("--suite", "traces", "--dataset", "tiny.parquet", "--backend", "aten", "--device", "cpu")
    done = opsmith("run", *arguments, "--timing", "off", "--json", "-o", "run", folder=folder)
    assert "" == done.stderr.replace("\n", "") or done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def test_eager_is_right_on_every_input(run: dict[str, Any]) -> None:
    """Indices fit, random results are compared as distributions."""
    assert {"asked": 4, "answered": 4, "correct": 4} == run["ops"]
    assert {"asked": 5, "passed": 5} == run["cases"]


def test_the_cpu_is_asked_in_single_precision(run: dict[str, Any]) -> None:
    """Half precision is slow there; other dtypes can be asked for."""
    assert ["f32"] == run["dtypes"]


def test_a_verdict_holds_the_count_and_can_be_reproduced(run: dict[str, Any], folder: Path) -> None:
    """The command that the report prints judges this one case again."""
    assert run
    verdicts = [json.loads(line) for line in (folder / "run" / "verdicts.jsonl").read_text().splitlines()]
    first = next(verdict for verdict in verdicts if verdict["op"] == "relu.default")
    assert 7 == first["count"]
    again = "run --suite traces --dataset tiny.parquet --backend aten --ops relu.default --device cpu --timing off"
    seed = json.loads((folder / "run" / "run.json").read_text())["seed"]
    words = (*shlex.split(again), "--case", first["case"], "--seed", str(seed), "-o", "again")
    assert 0 == opsmith(*words, folder=folder).returncode
    (same,) = [json.loads(line) for line in (folder / "again" / "verdicts.jsonl").read_text().splitlines()]
    assert first["content_hash"] == same["content_hash"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--suite", "smoke", "--top-inputs", "2"), "suite smoke reads no dataset"),
        (("--suite", "smoke", "--spread-inputs", "2"), "suite smoke reads no dataset"),
        (
            ("--suite", "traces", "--top-inputs", "2", "--spread-inputs", "2"),
            "give either --top-inputs or --spread-inputs, not both",
        ),
        (("--suite", "modules", "--sample", "2"), "--sample draws inputs of ops"),
        (("--suite", "smoke", "--dtype", "recorded"), "suite smoke has no recorded dtypes"),
        (("--suite", "traces", "--dataset", "no.parquet"), "no.parquet cannot be read"),
        (("--suite", "traces", "--dataset", "tiny.parquet", "--models", "no*"), "no case for dtype"),
    ],
)
def test_a_selection_that_cannot_be_made_is_told(folder: Path, arguments: tuple[str, ...], says: str) -> None:
    """One line, status 2."""
    done = opsmith("run", "--backend", "aten", "--device", "cpu", *arguments, "-o", "never", folder=folder)
    assert (2, "") == (done.returncode, done.stdout)
    assert says in done.stderr.splitlines()[-1]
    assert not (folder / "never").exists()


@pytest.mark.corpus
def test_a_sample_of_the_operator_tests_is_spread_over_the_ops(folder: Path) -> None:
    """As many cases as were asked for, of each op some."""
    arguments = [
        "--backend",
        "aten",
        "--device",
        "cpu",
        "--ops",
        "relu,neg,abs",
        "--sample",
        "12",
        "--integrity",
        "off",
    ]
    # The index of the suite takes half a minute to make, and other tests have made it.
    done = opsmith("run", "--suite", "opinfo", *arguments, "-o", "sampled", folder=folder, own_caches=False)
    assert 0 == done.returncode, done.stderr
    verdicts = [json.loads(line) for line in (folder / "sampled" / "verdicts.jsonl").read_text().splitlines()]
    assert 12 == len(verdicts)
    assert {"relu.default", "neg.default", "abs.default"} <= {verdict["op"] for verdict in verdicts}


@pytest.mark.corpus
def test_a_measurement_that_was_killed_goes_on_where_it_was(folder: Path) -> None:
    """Nothing is measured twice, and the dataset holds every time."""
    command = [sys.executable, "-c", "from opsmith.cli.main import main; main()"]
    arguments = ["dataset", "build", "tiny.txt", "-o", "timed.parquet", "--measure", "--device", "cpu"]
    journal = folder / "timed.parquet.measurements.jsonl"
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    with subprocess.Popen(
        [*command, *arguments], cwd=folder, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as first:
        deadline = time.monotonic() + 60
        while not (journal.exists() and journal.read_bytes()) and time.monotonic() < deadline:
            time.sleep(0.001)
        first.send_signal(signal.SIGKILL)
    kept = journal.read_text().splitlines()[:2]
    journal.write_text("".join(f"{line}\n" for line in kept) + '{"uuid": "torn')
    assert 0 == opsmith(*arguments, folder=folder).returncode
    lines = journal.read_text().splitlines()
    assert kept == lines[: len(kept)]
    assert 5 == len({json.loads(line)["uuid"] for line in lines}) == len(lines)
    stats = json.loads(opsmith("dataset", "stats", "timed.parquet", "--json", folder=folder).stdout)
    assert 5 == stats[0]["measured"]
