"""Each language that kernels are written in has a template, an example, and kernels that are judged."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from benchmarks.judging.languages import (
    CHEATS,
    ENTRIES,
    HONEST,
    KERNELS,
    LANGUAGES,
    Row,
    missing,
    table,
    write_index,
    write_kernels,
)
from tests.campaigns import ReadingSession

from opsmith.backends.directory import KernelDirectory
from opsmith.backends.dsl import guess_dsl
from opsmith.core.run import Options
from opsmith.evaluation.integrity.static import Kind, StaticFinding, examine
from opsmith.generate.contexts import EXAMPLES, Setting, example_of, language
from opsmith.generate.prompt import DSLS, _template
from opsmith.runner.plan.planning import relevant_entries
from opsmith.suites.opinfo import OpInfoSuite

#: Of the findings, those that say that something else than the kernel's own code computes.
COMPUTED_ELSEWHERE = frozenset(
    {Kind.TORCH_COMPUTE, Kind.DELEGATION, Kind.ARRAY_COMPUTE, Kind.NUMPY_COMPUTE, Kind.CPP_COMPUTE}
)
BY_NAME = {each.name: each for each in LANGUAGES}


def found(name: str, file: str, task: str) -> set[Kind]:
    """The kinds of what reading a file of the corpus shows."""
    return {each.kind for each in findings((KERNELS / name / file).read_bytes(), task)}


def findings(source: bytes, task: str) -> tuple[StaticFinding, ...]:
    """What reading one file shows under policy native."""
    return examine({"kernel.py": source}, policy="native", task=task)


@pytest.mark.parametrize("name", DSLS)
def test_every_language_has_a_template(name: str) -> None:
    """Without one a campaign would ask for nothing in particular."""
    assert _template(name).startswith("Write it in")


@pytest.mark.parametrize("name", [name for names in EXAMPLES.values() for name in names])
def test_every_example_is_in_its_language_and_computes_itself(name: str, tmp_path: Path) -> None:
    """A model copies what it is shown."""
    source = tmp_path / "example.py"
    source.write_text(example_of(name))
    assert BY_NAME[name].dsl == guess_dsl(source)
    assert not COMPUTED_ELSEWHERE & {each.kind for each in findings(source.read_bytes(), "silu.default")}


def test_the_context_shows_the_examples_of_the_language_that_is_asked_for() -> None:
    """Both ways of compiling CUDA C++; none for what is no kernel language."""
    text = language(setting("cuda"))
    assert text is not None
    assert "load_inline(" in text
    assert "torch.cuda._compile_kernel(" in text
    assert "(`gluon`)" in (language(setting("gluon")) or "")
    assert language(setting("torch")) is None


def setting(dsl: str) -> Setting:
    """What contexts draw from, for one language."""
    session = ReadingSession(["silu.default"])
    return Setting(task=session.tasks["silu.default"], dsl=dsl, environment=session.environment)


@pytest.mark.parametrize("name", [name for name in BY_NAME if (KERNELS / name).is_dir()])
def test_the_corpus_names_its_language(name: str) -> None:
    """By what the files use, so that a check of one records it."""
    for file in ("honest.py", "cheats.py"):
        assert BY_NAME[name].dsl == guess_dsl(KERNELS / name / file)


@pytest.mark.parametrize("name", [name for name in BY_NAME if (KERNELS / name).is_dir()])
def test_no_honest_kernel_is_suspected(name: str) -> None:
    """Reading them finds nothing that computes elsewhere, in whichever language."""
    for task, entry in HONEST.items():
        if entry.startswith("honest.py"):
            assert not COMPUTED_ELSEWHERE & found(name, "honest.py", task)


@pytest.mark.parametrize(
    "name", [name for name in BY_NAME if (KERNELS / name).is_dir() and name not in ("cuda", "nvrtc", "helion")]
)
def test_reading_finds_where_the_library_computes(name: str) -> None:
    """What calls cuBLAS behind C++ or ctypes, and torch within a function of Helion's, are seen when they run."""
    assert COMPUTED_ELSEWHERE & found(name, "cheats.py", "bmm.default")


def test_a_directory_answers_all_seven_ops(tmp_path: Path) -> None:
    """Each file defines what the manifest says."""
    for each in LANGUAGES:
        folder = write_kernels(each, tmp_path / each.name)
        assert {*HONEST, *CHEATS} == set(KernelDirectory(folder).named_ops())
        for entry in (HONEST | CHEATS).values():
            file, _, function = entry.partition(":")
            tree = ast.parse((folder / file).read_bytes())
            assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_language_enumerates_the_entries_of_its_ops_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight runs side by side spent two minutes on the 672 entries of the suite."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write_index("cpu")
    listed = [(entry, "f32") for entry in OpInfoSuite().entries("f32", "cpu")]
    options = Options(suite="opinfo", backend="aten", device="cpu", dtypes=("f32",))
    asked = relevant_entries(listed, [*HONEST, *CHEATS], options, torch.__version__)
    assert set(ENTRIES) == {entry for entry, _ in asked}
    assert {*HONEST, *CHEATS} == set(ENTRIES.values())


def test_what_is_not_installed_is_named() -> None:
    """A line says why nothing was judged, and is no failure."""
    absent = BY_NAME["gluon"]._replace(modules=("no_such_module.at_all",))
    assert "not judged: no module no_such_module.at_all" == missing(absent, "cuda")
    assert "not judged: needs a GPU" == missing(BY_NAME["gluon"], "cpu")
    row = Row(absent, {}, missing(absent, "cuda"))
    assert row.as_expected
    assert "not judged: no module no_such_module.at_all" in table([row], "a GPU")


def test_a_language_that_was_ended_is_a_failure() -> None:
    """It costs its own row, and the row says so."""
    row = Row(BY_NAME["gluon"], {}, "ended after 150 s", {"mm.default": ("refused", "wrong")}, 150.0)
    assert not row.as_expected
    assert "| 0 of 5 | 0 of 2 | a GPU; ended after 150 s | 150 |" in table([row], "a GPU")
    assert "- Gluon, mm.default: refused. wrong" in table([row], "a GPU")
