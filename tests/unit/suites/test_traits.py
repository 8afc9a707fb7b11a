"""What a suite says of itself is known without loading it, be it opsmith's own or a plug-in's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsmith import plugins
from opsmith.cli.selection import parse_dtype, parse_selection
from opsmith.core.op import TaskKind
from opsmith.core.run import Options, Selection
from opsmith.errors import BadInput
from opsmith.runner.machine.cores import MAX_DEVICE_JOBS, jobs_on
from opsmith.suites import AsksOwnTasks, AsksWholeModels, Selective, Shrinkable
from opsmith.suites.traits import Reads, SuiteTraits, traits_of

Install = Callable[[str], None]
#: The suite's own module, which the judge must not import.
HEAVY = "import torch\n\n\nclass Mine: ...\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a plug-in's suite ``mine``, with the traits that a text makes; none where it is empty."""

    def install_suite(traits: str) -> None:
        info = tmp_path / "mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        groups = "[opsmith.suites]\nmine = mine_suite:Mine\n"
        if traits:
            groups += "[opsmith.suite_traits]\nmine = mine_traits:TRAITS\n"
            header = "from opsmith.core.op import TaskKind\nfrom opsmith.suites.traits import Reads, SuiteTraits\n\n"
            (tmp_path / "mine_traits.py").write_text(f"{header}TRAITS = {traits}\n")
        (info / "entry_points.txt").write_text(groups)
        (tmp_path / "mine_suite.py").write_text(HEAVY)
        monkeypatch.syspath_prepend(str(tmp_path))

    traits_of.cache_clear()
    yield install_suite
    traits_of.cache_clear()
    sys.modules.pop("mine_traits", None)


def options(**more: object) -> Options:
    """Of a run of the plug-in's suite on a device."""
    return Options(suite="mine", backend="aten", device="cuda", dtypes=("f32",), **more)  # type: ignore[arg-type]


def test_a_plug_ins_suite_has_default_dtypes_of_its_own(install: Install) -> None:
    """On a device, others."""
    install('SuiteTraits(dtypes=("f16", "f32"), device_dtypes=("bf16",))')
    assert ("bf16",) == parse_dtype("", suite="mine", device="cuda")
    assert ("f16", "f32") == parse_dtype("", suite="mine", device="cpu")
    assert ("f64",) == parse_dtype("f64", suite="mine", device="cuda")
    assert "mine_suite" not in sys.modules


def test_a_plug_ins_suite_that_says_nothing_has_the_documented_defaults(install: Install) -> None:
    """It asks ops in float32, reads nothing, and may be made of OpInfo's samples."""
    install("")
    assert SuiteTraits() == traits_of("mine")
    assert ("f32",) == parse_dtype("", suite="mine", device="cuda")
    assert Selection(sample=3) == parse_selection("mine", sample=3)
    assert MAX_DEVICE_JOBS == jobs_on(100, options())
    with pytest.raises(BadInput, match="suite mine has no recorded dtypes"):
        parse_dtype("recorded", suite="mine", device="cuda")
    with pytest.raises(BadInput, match="suite mine reads no dataset"):
        parse_selection("mine", top_inputs=3)
    assert "mine_suite" not in sys.modules


def test_a_plug_ins_suite_may_read_a_dataset(install: Install) -> None:
    """It takes the options of one."""
    install('SuiteTraits(reads=Reads.DATASET, device_dtypes=("recorded",), device_jobs=3)')
    assert ("recorded",) == parse_dtype("", suite="mine", device="cuda")
    assert ("f32", "recorded") == parse_dtype("f32,recorded", suite="mine", device="cpu")
    assert Selection(top_inputs=3) == parse_selection("mine", top_inputs=3)
    assert 3 == jobs_on(100, options())


def test_a_plug_ins_suite_may_ask_collectives(install: Install) -> None:
    """Its ranks share processors, and take all devices."""
    install("SuiteTraits(tasks=TaskKind.COLLECTIVE)")
    asked = parse_selection("mine", ranks="2,4")
    assert (2, 4) == asked.ranks
    assert 1 == jobs_on(100, options(selection=asked))


def test_a_plug_ins_suite_may_read_problems(install: Install, tmp_path: Path) -> None:
    """It takes the options of them."""
    install("SuiteTraits(tasks=TaskKind.MODULE, reads=Reads.PROBLEMS)")
    (tmp_path / "problem.py").write_text("class Model: ...\n")
    asked = parse_selection("mine", problems=str(tmp_path / "problem.py"), trials=2, sizes="small")
    assert (str(tmp_path / "problem.py"), 2, "small") == (asked.problems, asked.trials, asked.sizes)


def test_traits_of_another_type_are_refused(install: Install) -> None:
    """At once: they would fail somewhere else."""
    install('{"reads": "dataset"}')
    with pytest.raises(BadInput, match="'mine' is a dict; it has to be a SuiteTraits"):
        traits_of("mine")


@pytest.mark.parametrize("name", ["distributed", "fuzz", "models", "modules", "opinfo", "smoke", "traces"])
def test_what_a_suite_says_is_what_it_is(name: str) -> None:
    """The suite itself shows it by its methods."""
    traits, suite = traits_of(name), plugins.load(plugins.SUITES, name)()
    assert (traits.reads is Reads.DATASET) is (name == "traces")
    assert (traits.redrawn_source is not None) is isinstance(suite, Shrinkable)
    assert (traits.tasks is TaskKind.MODEL) is isinstance(suite, AsksWholeModels)
    assert (traits.tasks in (TaskKind.MODULE, TaskKind.COLLECTIVE)) is isinstance(suite, AsksOwnTasks)
    if traits.reads is not Reads.NOTHING:
        assert isinstance(suite, Selective)


def test_every_suite_of_opsmiths_says_something_of_itself() -> None:
    """Through the door that a plug-in's suite has."""
    ours = [name for name in plugins.names(plugins.SUITES) if plugins.is_ours(plugins.SUITES, name)]
    assert ours == [name for name in plugins.names(plugins.SUITE_TRAITS) if plugins.is_ours(plugins.SUITE_TRAITS, name)]


def test_what_suites_say_is_known_without_torch() -> None:
    """The judge asks for it."""
    program = (
        "import sys\n"
        "from opsmith import plugins\n"
        "from opsmith.suites.traits import traits_of\n"
        "print([traits_of(name).reads for name in plugins.names(plugins.SUITES)][-1])\n"
        "print(sorted({'torch', 'triton', 'numpy'} & sys.modules.keys()))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert "dataset\n[]\n" == done.stdout


def test_an_installation_from_before_the_traits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An editable one keeps its old entry points: `traces` would lose its dtypes without a word."""
    traits_of.cache_clear()
    known = plugins.names
    monkeypatch.setattr(plugins, "names", lambda group: [] if group == plugins.SUITE_TRAITS else known(group))
    with pytest.raises(BadInput, match="install it again"):
        traits_of("traces")
    traits_of.cache_clear()
