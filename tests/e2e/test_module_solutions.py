"""Honest solutions of ``examples`` are accepted with all checks on, and solutions of every quality are told apart."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from benchmarks.modules.verdicts import RULES, SOLUTIONS

from opsmith.core.run import Summary
from opsmith.report.outcome import outcome

pytestmark = [pytest.mark.slow, pytest.mark.corpus]

EXAMPLES = Path(__file__).parents[2] / "examples" / "module_solutions"
OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"

#: Of every kind of solution one or two: file -> its outcomes under each of RULES.
VARIED = {
    "level_1_problem_13_sample_1_kernel.py": ("WRONG_VALUE", "PASSED"),
    "level_1_problem_15_sample_2_kernel.py": ("PASSED", "WRONG_VALUE"),
    "level_1_problem_25_sample_1_kernel.py": ("PASSED", "WRONG_VALUE"),
    "level_1_problem_33_sample_1_kernel.py": ("PASSED", "DISHONEST"),
    "level_1_problem_39_sample_1_kernel.py": ("WRONG_SHAPE", "WRONG_SHAPE"),
    "level_2_problem_1_sample_0_kernel.py": ("PASSED", "PASSED"),
    "level_2_problem_30_sample_0_kernel.py": ("PASSED", "WRONG_VALUE"),
}


def judge(folder: Path, ops: str, out: Path, *options: str) -> Summary:
    """Run ``opsmith run`` at small sizes on the CPU, Triton's kernels under its interpreter."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", OPSMITH, "run", "--suite", "modules", "--backend", str(folder), "--ops", ops),
            *("--device", "cpu", "--sizes", "small", "--timing", "off", "--seed", "0", "-o", str(out), "--json"),
            *options,
        ],
        capture_output=True,
        check=False,
        timeout=280,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )
    assert done.returncode in (0, 1), done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Summary)


def test_honest_fused_solutions_are_accepted(tmp_path: Path) -> None:
    """Two in C++ and three in Triton, two of them samples of one problem; the whole folders take minutes."""
    chosen = {
        "level_2_problem_1_sample_0_kernel.py": EXAMPLES / "cpp" / "level_2_problem_1_sample_0_kernel.py",
        "level_2_problem_5_sample_0_kernel.py": EXAMPLES / "cpp" / "level_2_problem_5_sample_0_kernel.py",
        "level_2_problem_1_sample_1_kernel.py": EXAMPLES / "triton" / "level_2_problem_1_sample_0_kernel.py",
        "level_1_problem_26_sample_0_kernel.py": EXAMPLES / "triton" / "level_1_problem_26_sample_0_kernel.py",
        "level_2_problem_86_sample_0_kernel.py": EXAMPLES / "triton" / "level_2_problem_86_sample_0_kernel.py",
    }
    (tmp_path / "solutions").mkdir()
    for name, file in chosen.items():
        shutil.copy(file, tmp_path / "solutions" / name)
    ops = "L1/26_*,L2/1_*,L2/5_*,L2/86_*"
    summary = judge(tmp_path / "solutions", ops, tmp_path / "run", "--integrity", "on")
    assert dict.fromkeys(summary.per_op, "PASSED") == {name: outcome(op) for name, op in summary.per_op.items()}
    assert 5 == len(summary.per_op)


def test_a_loose_judge_and_a_strict_one_differ(tmp_path: Path) -> None:
    """As benchmarks/results/modules/cpu-2core/module-verdicts records of all of them."""
    (tmp_path / "solutions").mkdir()
    for name in VARIED:
        shutil.copy(SOLUTIONS / name, tmp_path / "solutions" / re.sub(r"sample_\d+", "sample_0", name))
    ops = ",".join(f"L{name.split('_')[1]}/{name.split('_')[3]}_*" for name in VARIED)
    found = [
        {
            task: outcome(op)
            for task, op in judge(
                tmp_path / "solutions", ops, tmp_path / rules, "--policy", "any", *options
            ).per_op.items()
        }
        for rules, options in RULES.items()
    ]
    assert list(VARIED.values()) == [(found[0][task], found[1][task]) for task in found[0]]
