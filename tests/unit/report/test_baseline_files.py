"""Files of baseline times: the public layout, with what the times depend on."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.report_runs import manifest

from opsmith.core.baseline_times import FILES, BaselineTime, TrialTimes
from opsmith.core.environment import Environment
from opsmith.core.problems import public_place
from opsmith.errors import BadInput
from opsmith.report.baseline_times import BaselineFolder, speedups_by_level

H200 = msgspec.structs.replace(manifest().environment, device="cuda", device_name="NVIDIA H200")
ASKED = {"dtype": "bf16", "tf32": "default", "sizes": "full", "trials": 4}


def time(task: str, baseline: str = "eager", **means: float) -> BaselineTime:
    """Times with these means; none is a problem."""
    times = {
        quantity: TrialTimes(mean=mean, std=0.1, min=mean, max=mean, num_trials=4) for quantity, mean in means.items()
    }
    problem = None if times else "too large"
    return BaselineTime(task=task, baseline=baseline, times=times, tf32_matmul=False, tf32_cudnn=True, problem=problem)


FOUND = [
    time("L1/23_Softmax", K=2.0, E=3.0),
    time("L1/23_Softmax", "compile", K=1.0, E=3.0),
    time("L1/24_Other", E=8.0),
    time("L1/24_Other", "compile"),
    time("vision/3_UNet", K=1.0, E=1.0),
    time("vision/3_UNet", "compile", K=4.0, E=1.0),
]


def written(out: Path) -> Path:
    """The folder with all of it."""
    folder = BaselineFolder(out, H200, ASKED)
    folder.begin([])
    folder.write(FOUND)
    return folder.path


@pytest.mark.parametrize(
    ("task", "place"),
    [("L1/23_A", ("level1", "23_A.py")), ("vision/3_B", ("vision", "3_B.py")), ("my_block", ("", "my_block.py"))],
)
def test_public_files_know_a_problem_by_level_and_file(task: str, place: tuple[str, str]) -> None:
    """As its folder is called in the public set."""
    assert place == public_place(task)


def test_times_are_written_in_the_public_layout(tmp_path: Path) -> None:
    """Milliseconds of K with E beside it, of E alone where there is no K, null without a time."""
    folder = written(tmp_path)
    assert tmp_path / "NVIDIA_H200" == folder
    eager = json.loads((folder / FILES["eager"]).read_text())
    assert {"level1": ["23_Softmax.py", "24_Other.py"], "vision": ["3_UNet.py"]} == {
        level: list(problems) for level, problems in eager.items()
    }
    softmax = eager["level1"]["23_Softmax.py"]
    assert (2.0, 0.1, 2.0, 2.0, 4) == tuple(softmax[name] for name in ("mean", "std", "min", "max", "num_trials"))
    assert ("NVIDIA H200", "cuda", "K", "bf16", False, True) == tuple(
        softmax[name] for name in ("hardware", "device", "quantity", "dtype", "tf32_matmul", "tf32_cudnn")
    )
    assert 3.0 == softmax["E"]["mean"]
    assert ("E", False) == (eager["level1"]["24_Other.py"]["quantity"], "E" in eager["level1"]["24_Other.py"])
    assert json.loads((folder / FILES["compile"]).read_text())["level1"]["24_Other.py"] is None
    assert not (folder / FILES["channels_last"]).exists()


def test_what_times_depend_on_lies_beside_them(tmp_path: Path) -> None:
    """Versions and hardware, options, and why something has no time."""
    folder = written(tmp_path)
    found = json.loads((folder / "environment.json").read_text())
    assert ("2.13.0", "NVIDIA H200") == (found["environment"]["torch"], found["environment"]["device_name"])
    assert ASKED == found["asked"]
    assert [{"problem": "L1/24_Other", "baseline": "compile", "reason": "too large"}] == found["without_time"]


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    """In one line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        BaselineFolder(tmp_path / "file", H200, ASKED)


def test_an_interrupted_command_is_continued(tmp_path: Path) -> None:
    """Each time is kept as soon as it is known; what went wrong is asked again, a line that was cut off too."""
    folder = BaselineFolder(tmp_path, H200, ASKED)
    folder.begin([])
    for found in FOUND:
        folder.add(found)
    with (folder.path / "times.jsonl").open("ab") as lines:
        lines.write(b'{"task":"L1/25_')
    again = BaselineFolder(tmp_path, H200, ASKED)
    assert [one for one in FOUND if one.times] == again.known()
    again.begin(again.known())
    again.add(FOUND[3])
    assert [one for one in FOUND if one.times] == again.known()


@pytest.mark.parametrize(
    ("environment", "asked", "message"),
    [
        (H200, {**ASKED, "trials": 5}, "was asked otherwise, or elsewhere"),
        (msgspec.structs.replace(H200, torch="2.12.0"), ASKED, "was asked otherwise, or elsewhere"),
        (msgspec.structs.replace(H200, device_name="NVIDIA H100"), ASKED, "has no times to continue"),
    ],
)
def test_times_of_something_else_are_not_continued(
    tmp_path: Path, environment: Environment, asked: dict[str, object], message: str
) -> None:
    """With one line that says what to do."""
    BaselineFolder(tmp_path, H200, ASKED).begin(FOUND)
    with pytest.raises(BadInput, match=message):
        BaselineFolder(tmp_path, environment, asked).known()


def test_baselines_are_compared_with_eager_by_level() -> None:
    """Over problems that both have a time of the same quantity for."""
    found = speedups_by_level([*FOUND, time("L1/24_Other", "cudagraphs", K=1.0)])
    assert ["L1", "vision", "all"] == list(found)
    assert {"eager": (1.0, 2), "compile": (2.0, 1)} == found["L1"]
    mean, count = found["all"]["compile"]
    assert (0.5**0.5, 2) == (pytest.approx(mean), count)


def test_nothing_timed_has_no_means() -> None:
    """Absence is no number."""
    assert {} == speedups_by_level([time("L1/24_Other")])
