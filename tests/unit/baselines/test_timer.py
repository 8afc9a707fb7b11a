"""Timing baselines in processes of their own: one that dies or hangs costs itself only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opsmith.baselines.timer import BaselineTimer
from opsmith.cli.main import app
from opsmith.core.baseline_times import BaselineRequest, BaselineTime
from opsmith.errors import BadInput

PROBLEMS = Path(__file__).parents[2] / "modules" / "problems"
pytestmark = pytest.mark.slow

DIES = "import os\nos._exit(3)\n"
HANGS = "import time\ntime.sleep(600)\n"


def request(file: Path) -> BaselineRequest:
    """Eager, with two trials."""
    return BaselineRequest(task=file.stem, file=str(file), baseline="eager", device="cpu", trials=2)


def test_a_problem_that_dies_or_hangs_costs_itself_only(tmp_path: Path) -> None:
    """What comes after it is timed."""
    files = [tmp_path / "dies.py", tmp_path / "hangs.py", PROBLEMS / "level1" / "2_Softsign.py"]
    files[0].write_text(DIES)
    files[1].write_text(HANGS)
    found = list(BaselineTimer("cpu", timeout_s=20, jobs=1).time([request(file) for file in files]))
    assert ["dies", "hangs", "2_Softsign"] == [time.task for time in found]
    assert "its process ended with status 3" == found[0].problem
    assert "it took longer than 20 s; --timeout gives it more" == found[1].problem
    assert found[2].times


def test_a_device_that_is_not_there_is_bad_input() -> None:
    """Before any problem is run."""
    with pytest.raises(BadInput, match="device nowhere cannot be used"):
        BaselineTimer("nowhere", timeout_s=20, jobs=1)


def test_the_verb_writes_and_prints(tmp_path: Path) -> None:
    """Times as one JSON document, the files in the folder of this hardware."""
    words = ["baseline", str(PROBLEMS), "--ops", "L1/2_*", "--baselines", "eager,channels_last", "--device", "cpu"]
    words += ["--trials", "2", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--json"], standalone_mode=False)
    assert 0 == result.return_value, result.output
    eager, channels_last = (BaselineTime(**entry) for entry in json.loads(result.stdout))
    assert ("L1/2_Softsign", "eager") == (eager.task, eager.baseline)
    assert "no input has four dimensions" in str(channels_last.problem)
    (file,) = tmp_path.glob("*/baseline_time_torch.json")
    assert ["2_Softsign.py"] == list(json.loads(file.read_text())["level1"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--baselines", "tensorrt"], "no baseline named 'tensorrt'"),
        (["--baselines", "cudagraphs"], "cudagraphs needs a CUDA device, not cpu"),
        (["--ops", "L9/*"], "no problem named 'L9/*'"),
    ],
)
def test_wrong_usage_is_told_before_anything_runs(words: list[str], message: str) -> None:
    """Exit status 2 and one line."""
    result = CliRunner().invoke(app, ["baseline", str(PROBLEMS), "--device", "cpu", *words])
    assert 2 == result.exit_code
    assert message in result.output
