"""The honest kernels and the module hacks are laid out as their readers and the documentation expect."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from tests.cheats.honest import corpus as honest
from tests.cheats.modules import corpus as modules

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.directory import KernelDirectory
from opsmith.core.op import folder_name
from opsmith.core.task import Task

KERNELS = honest.read_corpus()
HACKS = modules.read_corpus()


def folders(root: Path) -> set[str]:
    """The names of the folders in one."""
    return {path.name for path in root.iterdir() if path.is_dir() and path.name != "__pycache__"}


def test_every_folder_is_part_of_the_corpus() -> None:
    """A folder without about.toml would never be judged."""
    assert folders(honest.ROOT) == {kernel.name for kernel in KERNELS}
    assert folders(modules.ROOT / "hacks") == {hack.name for hack in HACKS}


def test_the_corpus_is_as_large_and_as_varied_as_it_has_to_be() -> None:
    """Thirty kernels that are all one kernel would say little."""
    assert len(KERNELS) >= 36
    assert {"native", "any"} == {kernel.about.policy for kernel in KERNELS}
    assert {"cpu", "cuda"} == {kernel.about.device for kernel in KERNELS}
    assert len({kernel.about.style for kernel in KERNELS}) >= 36
    assert len(HACKS) >= 18
    assert len({hack.about.family for hack in HACKS}) >= 10
    assert {hack.about.problem for hack in HACKS} == {file.stem for file in (modules.ROOT / "problems").glob("*.py")}


def test_descriptions_are_one_sentence() -> None:
    """They become a table of the documentation."""
    descriptions = [kernel.about.description for kernel in KERNELS] + [hack.about.description for hack in HACKS]
    assert [] == [text for text in descriptions if "\n" in text or not text.endswith(".") or len(text) > 140]
    assert [] == [text for text, count in Counter(descriptions).items() if count > 1]


@pytest.mark.parametrize("round_", honest.rounds(KERNELS), ids=lambda round_: round_.name)
def test_a_round_is_a_kernel_directory_that_answers_all_its_tasks(round_: honest.Round, tmp_path: Path) -> None:
    """In the public layout, as anybody's kernels are."""
    directory = KernelDirectory(round_.write(tmp_path / "kernels"))
    for task, kernel in round_.kernels.items():
        found = directory.kernel_for(Task(name=task, op=aten_schemas()[task], suite="opinfo"))
        assert found is not None
        assert found.derived_from is None
        file, _, function = found.entry.rpartition(":")
        assert f"{folder_name(task)}_kernel_impl" == function
        assert function in defined_names(Path(str(found.root)) / file), kernel.name


@pytest.mark.parametrize("side", ["hack", "honest"])
def test_both_sides_of_a_module_hack_define_its_solution(side: modules.Side) -> None:
    """A file without ModelNew would be stopped for that alone."""
    assert [] == [hack.name for hack in HACKS if "ModelNew" not in defined_names(hack.source(side))]


@pytest.mark.parametrize("problem", sorted((modules.ROOT / "problems").glob("*.py")), ids=lambda path: path.stem)
def test_a_problem_defines_what_the_public_format_asks(problem: Path) -> None:
    """Model and the functions that make its arguments."""
    assert {"Model", "get_inputs", "get_init_inputs"} <= defined_names(problem)


def defined_names(file: Path) -> set[str]:
    """The functions, classes and variables at the top of a file."""
    names: set[str] = set()
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names
