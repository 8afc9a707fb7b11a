"""What other people's CI reads: exit status, JUnit XML, annotations, defaults, and what failed the last time."""

from __future__ import annotations

import itertools
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from tests.report_runs import manifest, planned, timing, verdict, write_run

from opsmith.cli.outcomes import Ending, last_failed
from opsmith.cli.settings import defaults, read_settings
from opsmith.cli.watch import watched
from opsmith.core.run import Options, PlannedOp
from opsmith.core.timing import Label
from opsmith.core.verdict import Status
from opsmith.errors import BadInput
from opsmith.report.annotations import error_lines
from opsmith.report.junit import junit_xml
from opsmith.report.results import Results

OPTIONS = Options(suite="smoke", backend="mine", device="cpu", dtypes=("f32",))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Four ops: right, right and slow, wrong, without a kernel."""
    ops = [planned(f"{name}.default", 1, answered=name != "none") for name in ("right", "slow", "wrong", "none")]
    verdicts = [
        verdict("right.default", timings=(timing(1.5, label=Label.FASTER),)),
        verdict("slow.default", timings=(timing(0.5, label=Label.SLOWER),)),
        verdict("wrong.default", 0, Status.WRONG_VALUE, detail="expected <1> & got\x1b[31m 2\n::error::forged"),
    ]
    return Results.read(write_run(tmp_path / "run", ops, verdicts, manifest(options=OPTIONS)))


def test_a_junit_reader_finds_each_op_and_what_failed(results: Results, tmp_path: Path) -> None:
    """Counts, names, statuses and the command that repeats a case; nothing that XML cannot hold."""
    file = tmp_path / "opsmith.xml"
    assert 1 == Ending(junit=file).carry_out(results)
    suite = ET.parse(file).getroot()[0]
    assert ("4", "2") == (suite.get("tests"), suite.get("failures"))
    failures = {case.get("name"): case.find("failure") for case in suite}
    assert ["wrong.default", "none.default"] == [name for name, failure in failures.items() if failure is not None] or {
        "wrong.default",
        "none.default",
    } == {name for name, failure in failures.items() if failure is not None}
    wrong = failures["wrong.default"]
    assert wrong is not None
    assert ("WRONG_VALUE", "0 of 1 case passed") == (wrong.get("type"), wrong.get("message"))
    assert wrong.text is not None
    assert "opsmith check" in wrong.text
    assert "<1> &" in wrong.text


@pytest.mark.parametrize(("fail_on", "slower"), [("wrong", []), ("slower", ["slow.default"])])
def test_slower_ops_fail_where_that_is_asked(
    results: Results, fail_on: str, slower: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A right kernel that is slower beyond doubt; one that is faster does not."""
    file = tmp_path / "opsmith.xml"
    Ending(fail_on=fail_on, junit=file).carry_out(results)
    failures = {
        case.get("name") for case in ET.parse(file).getroot()[0] if case.find("failure[@type='SLOWER']") is not None
    }
    assert set(slower) == failures
    assert bool(slower) is ("slow.default: K 0.50x" in capsys.readouterr().err)


def test_right_and_slow_is_status_1_only_with_fail_on_slower(tmp_path: Path) -> None:
    """Exit statuses stay as they are without the option."""
    run = write_run(
        tmp_path / "run",
        [planned(cases=1)],
        [verdict(timings=(timing(0.5, label=Label.SLOWER),))],
        manifest(options=OPTIONS),
    )
    assert [0, 1] == [Ending(fail_on=fail_on).carry_out(Results.read(run)) for fail_on in ("wrong", "slower")]


def test_annotations_name_the_place_and_cannot_be_forged(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each failing op; what a kernel says stays within its line."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "kernels" / "wrong.py"
    file.parent.mkdir()
    file.write_text("import torch\n\n\ndef wrong__default_kernel_impl(x):\n    return x\n")
    plan = [
        msgspec.structs.replace(
            op,
            kernel=msgspec.structs.replace(
                op.kernel, root=str(file.parent), entry="wrong.py:wrong__default_kernel_impl"
            ),
        )
        if op.op == "wrong.default" and op.kernel is not None
        else op
        for op in results.plan.ops
    ]
    changed = Results.read(write_run(tmp_path / "other", plan, list(results.verdicts), manifest(options=OPTIONS)))
    lines = list(error_lines(changed, {}))
    assert 2 == len(lines)
    (wrong,) = [line for line in lines if "wrong.default" in line]
    assert wrong.startswith("::error file=kernels/wrong.py,line=4,title=wrong.default WRONG_VALUE::")
    assert all("\n" not in line and "\x1b" not in line for line in lines)


def test_what_failed_is_known_the_next_time(results: Results) -> None:
    """``--last-failed`` finds ops, the first case and its seed; another backend's are not its business."""
    Ending().carry_out(results)
    failed = last_failed(OPTIONS)
    assert failed is not None
    assert {"wrong.default", "none.default"} == set(failed.ops)
    assert ("opinfo:wrong.default:f32:sample:0:0", results.manifest.seed) == (failed.case, failed.seed)
    assert last_failed(msgspec.structs.replace(OPTIONS, backend="other")) is None


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        (Ending(fail_on="slower"), msgspec.structs.replace(OPTIONS, timing="off")),
        (Ending(junit=Path("/no/such/folder/x.xml")), OPTIONS),
    ],
)
def test_what_cannot_be_carried_out_is_refused_before_the_run(ending: Ending, options: Options) -> None:
    """Not after ten minutes of judging."""
    with pytest.raises(BadInput):
        ending.check(options)


def test_a_document_of_no_op_is_valid(tmp_path: Path) -> None:
    """A run in which nothing was planned."""
    ops: list[PlannedOp] = []
    run = Results.read(write_run(tmp_path / "run", ops, [], manifest(options=OPTIONS)))
    assert "0" == ET.fromstring(junit_xml(run, {})).get("tests")


# ---------------------------------------------------------------- defaults of a project

FLAGS = {"device": "device", "dtype": "dtype", "fail-on": "fail_on"}


def settings(folder: Path, text: str) -> tuple[Path, dict[str, object]]:
    """What is found from a folder below the one with the file."""
    (folder / "pyproject.toml").write_text(text)
    below = folder / "a" / "b"
    below.mkdir(parents=True, exist_ok=True)
    found = read_settings(below)
    assert found is not None
    return found


def test_a_verb_takes_its_own_table_before_the_general_one(tmp_path: Path) -> None:
    """Lists become what the command line takes; options of other verbs are passed over."""
    text = (
        '[tool.opsmith]\ndevice = "cpu"\nmodels = "x"\ndtype = ["bf16", "f32"]\n[tool.opsmith.run]\ndevice = "cuda"\n'
    )
    text += 'fail-on = "slower"\n'
    expected = {"device": "cuda", "dtype": "bf16,f32", "fail_on": "slower"}
    assert expected == defaults(settings(tmp_path, text), "run", FLAGS)
    assert {"device": "cpu", "dtype": "bf16,f32"} == defaults(settings(tmp_path, text), "check", FLAGS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[tool.opsmith.run]\ndevcie = "cpu"\n', "has no option devcie; did you mean device"),
        ("[tool.opsmith]\nrun = 3\n", "run has to be a table"),
        ("[tool.opsmith.run]\ndevice = 2020-01-01\n", "device has to be a text"),
    ],
)
def test_a_wrong_setting_is_told_with_its_file(tmp_path: Path, text: str, says: str) -> None:
    """A default that is misspelled would be passed over for ever."""
    with pytest.raises(BadInput, match=says):
        defaults(settings(tmp_path, text), "run", FLAGS)


def test_a_file_that_is_no_toml_is_told(tmp_path: Path) -> None:
    """With its place."""
    (tmp_path / "pyproject.toml").write_text("[tool\n")
    with pytest.raises(BadInput, match=r"pyproject.toml cannot be read"):
        read_settings(tmp_path)


# ---------------------------------------------------------------- watching


def test_a_watched_file_is_judged_again_when_it_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with it is told, and the next change waited for."""
    file = tmp_path / "kernel.py"
    file.write_text("1")
    judged = []

    def judge() -> int:
        judged.append(file.read_text())
        if len(judged) == 2:
            raise BadInput("it defines nothing")
        return 0

    steps = itertools.count()

    def sleep(_: float) -> None:
        match next(steps):
            case 0:
                file.unlink()
            case 1 | 2:
                file.write_text("2" * (len(judged) + 1))
            case _:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watched(file, judge, sleep=sleep)
    assert ["1", "22", "222"] == judged
    assert "it defines nothing" in capsys.readouterr().err
