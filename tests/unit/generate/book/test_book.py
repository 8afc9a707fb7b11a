"""Books: what is the same stays once, what was judged is not judged again, and files are what was written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opsmith.errors import BadInput
from opsmith.generate.book.build import Builder, summarise
from opsmith.generate.book.files import Entry, Log, check_ending, read_book, write_book
from opsmith.generate.book.pairs import NotPaired, Pair, ast_hash, distinct, library_calls
from opsmith.generate.inductor.messages import AskModule, Facts, Refused, WroteModule

SOLUTION = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.mm(x, x)
        kernel[(1,)](y)
        return torch.ops.aten.sort.stable(y)
"""


def pair(task: str, **changes: Any) -> Pair:
    """A pair that is like no other."""
    fields: dict[str, Any] = {
        "task": task, "module": "m", "triton": "t", "sizes": "small", "kernels": 1, "library_calls": ("torch.mm",),
        "ast_hash": f"a {task}", "graph_hash": f"g {task}", "kernel_hash": f"k {task}", "validated": True,
        "validated_on": "interpreter", "problem": None, "license": "MIT", "torch": "2", "triton_version": "3",
        "architecture": "sm_90",
    }  # fmt: skip
    return Pair(**(fields | changes))


def test_comments_and_docstrings_make_no_other_module() -> None:
    """Names and numbers do."""
    one = '"""A."""\nclass Model:\n    """B."""\n    def forward(self, x):\n        return x + 1  # C\n'
    assert ast_hash(one) == ast_hash("class Model:\n    def forward(self, x): return x + 1\n")
    assert ast_hash(one) != ast_hash(one.replace("x + 1", "x + 2"))


@pytest.mark.parametrize(("kind", "field"), [("ast", "ast_hash"), ("graph", "graph_hash"), ("kernel", "kernel_hash")])
def test_of_two_that_are_the_same_the_validated_one_stays(kind: str, field: str) -> None:
    """In whichever way they are the same."""
    first = pair("L1/1", validated=False, problem="TIMEOUT", **{field: "same"})
    second, third = pair("L1/2", **{field: "same"}), pair("L1/3")
    kept, left_out = distinct([first, second, third])
    assert ["L1/2", "L1/3"] == [one.task for one in kept]
    assert {"ast": 0, "graph": 0, "kernel": 0} | {kind: 1} == left_out


def test_library_calls_are_those_of_the_forward() -> None:
    """Without launches."""
    assert ("torch.mm", "torch.ops.aten.sort.stable") == library_calls(SOLUTION)


@pytest.mark.parametrize("name", ["book.parquet", "book.jsonl", "book.json"])
def test_a_book_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    """In each of its formats, an empty one too."""
    for pairs in ([pair("L1/1"), pair("L1/2", validated=False, problem="TIMEOUT: 60 s")], []):
        write_book(tmp_path / name, pairs)
        assert pairs == read_book(tmp_path / name)


def test_another_ending_is_refused_before_the_work(tmp_path: Path) -> None:
    """With those that there are."""
    with pytest.raises(BadInput, match=r"\.parquet, \.jsonl, \.json"):
        check_ending(tmp_path / "book.csv")


def test_a_line_that_a_kill_cut_short_is_passed_over(tmp_path: Path) -> None:
    """The problem is asked again then."""
    path = tmp_path / "log.jsonl"
    log = Log(path)
    log.add(Entry(key="1", pair=pair("L1/1")))
    log.add(Entry(key="2", not_paired=NotPaired(task="L1/2", reason="r")))
    path.write_bytes(path.read_bytes()[:-9])
    assert {"1"} == Log(path).known.keys()


class Written:
    """Stands in for the compiler."""

    facts = Facts(torch="2", triton="3", vector_flags=())

    def __init__(self) -> None:
        self.source = SOLUTION

    def ask(self, question: AskModule) -> WroteModule | Refused:
        """Refuses the problem that is called so."""
        if "bad" in question.file:
            return Refused("the compiler leaves all of it to libraries")
        return WroteModule(source=self.source, kernels=1, graph_hash=question.file, kernel_hash=question.file)


class Judging(Builder):
    """Whose judge only counts."""

    judged = 0

    def _problem(self, task: str, source: str) -> str | None:
        self.judged += 1
        return "WRONG_VALUE: all of it" if task == "wrong" else None


#: Stands in for a session that is asked where it judges.
NOWHERE: Any = SimpleNamespace(options=SimpleNamespace(device="cpu"))


def test_a_build_goes_on_from_its_log(tmp_path: Path) -> None:
    """And judges again what the compiler writes otherwise now."""
    problems = {}
    for name in ("right", "wrong", "bad"):
        problems[name] = tmp_path / f"{name}.py"
        problems[name].write_text("class Model: pass\n")
    compiler = Written()

    def build() -> tuple[Judging, list[Entry]]:
        log = Log(tmp_path / "log.jsonl")
        builder = Judging(compiler, NOWHERE, small=True, license_id="MIT", folder=tmp_path, log=log)  # type: ignore[arg-type]
        made: list[str] = []
        entries = builder.build(problems, jobs=2, made=made.append)
        assert set(problems) == set(made)
        return builder, entries

    builder, entries = build()
    assert 2 == builder.judged
    pairs, duplicates = distinct([entry.pair for entry in entries if entry.pair is not None])
    summary = summarise(entries, pairs, duplicates, on="interpreter")
    # Both problems have one text, so that one of the pairs is left out, and the validated one stays.
    assert (3, 1, 1) == (summary.problems, summary.pairs, summary.validated)
    assert {"the compiler leaves all of it to libraries": 1} == summary.not_paired
    again, same = build()
    assert (0, entries) == (again.judged, same)
    compiler.source += "\n# Another edition.\n"
    assert 2 == build()[0].judged
