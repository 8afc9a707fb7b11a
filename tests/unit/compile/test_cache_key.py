"""Compiled graphs on disk are never taken for those of other code."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.compile import forget_pass, graph_pass
from opsmith.compile.backend import LoweredPasses
from opsmith.compile.cache_key import opsmith_content
from opsmith.compile.graph_pass import Rewrite
from opsmith.compile.options import read_options

PASS = """
import torch
from opsmith.compile import graph_pass
from swapping.helper import REPLACEMENT

@graph_pass("swapped")
def swapped(graph):
    fired = 0
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        node.target = REPLACEMENT
        fired += 1
    return fired
"""
HELPER = "import torch\nREPLACEMENT = torch.ops.aten.{}.Tensor\n"

#: Compiles a product plus a matrix in three processes with the opsmith of a folder, of which a file has changed for the
#: third, and prints what Inductor's caches said. The processes share the imports of torch: those take most of the time.
PROGRAM = """
import os, sys
folder, changed = sys.argv[1:]
sys.path.insert(0, folder)
import torch, torch._inductor.compile_fx
from torch._dynamo.utils import counters
assert "opsmith" not in sys.modules
def run(x, y):
    return torch.addmm(y, x, y)
def compiled():
    x, y = torch.ones(2, 2), torch.full((2, 2), 3.0)
    got = torch.compile(run, backend="opsmith", options={"fallback": "raise"})(x, y)
    import opsmith
    assert opsmith.__file__.startswith(folder), opsmith.__file__
    hits = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
    print(hits, got[0, 0].item(), flush=True)
for process in range(3):
    if process == 2:
        open(changed, "a").write("# Changed.\\n")
    if not os.fork():
        compiled()
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Writes a package with a pass whose helper names the replacement of additions, and imports it anew."""
    folder = tmp_path / "swapping"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "rewriting.py").write_text(PASS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(replacement: str) -> None:
        (folder / "helper.py").write_text(HELPER.format(replacement))
        for name in [name for name in sys.modules if name.partition(".")[0] == "swapping"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        importlib.import_module("swapping.rewriting")
        torch._dynamo.reset()

    yield write
    forget_pass("swapped")


@pytest.mark.slow
def test_a_changed_helper_of_a_pass_compiles_anew(package: Callable[[str], None]) -> None:
    """The file of the pass is what it was; only a module that it imports has changed."""
    x, y = torch.tensor([7.0, 8.0]), torch.tensor([2.0, 3.0])
    for name, expected in (("mul", x * y), ("sub", x - y), ("mul", x * y)):
        package(name)
        result = torch.compile(lambda x, y: (x + y).relu(), backend="opsmith")(x, y)
        assert expected.relu().tolist() == result.tolist()


def test_a_helper_that_alone_is_imported_anew_counts(package: Callable[[str], None], tmp_path: Path) -> None:
    """A pass that asks its helper at each call does something else from then on, and was registered before."""
    package("mul")
    before = LoweredPasses(read_options(None, {})).uuid()
    (tmp_path / "swapping" / "helper.py").write_text(HELPER.format("sub"))
    assert before is not None
    assert before != LoweredPasses(read_options(None, {})).uuid()


def _uuid_with(run: Rewrite, key: str | None = None) -> object:
    graph_pass("mine", key=key)(run)
    try:
        return LoweredPasses(read_options(None, {})).uuid()
    finally:
        forget_pass("mine")


def _nothing(graph: torch.fx.Graph) -> int:
    return 0


_nothing.__module__ = "__main__"


def test_a_pass_of_which_nobody_knows_the_code_turns_caches_off() -> None:
    """It stands in a file by itself, or another function has made it and may have given it anything."""

    def made(graph: torch.fx.Graph) -> int:
        return 0

    assert [None, None, None] == [_uuid_with(run) for run in (_nothing, made, lambda graph: 0)]


def test_a_key_stands_for_the_code_of_a_pass() -> None:
    """Its author changes it with the code; then caches stay on."""
    first, second = (_uuid_with(_nothing, key) for key in ("1", "2"))
    assert None not in (first, second)
    assert first != second
    assert first == _uuid_with(_nothing, "1")


@pytest.mark.slow
def test_a_changed_module_of_opsmith_compiles_anew(tmp_path: Path) -> None:
    """Here a helper of the lowered passes; without a change the second process finds what the first one compiled."""
    shutil.copytree(Path(opsmith.__file__).parent, tmp_path / "opsmith", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(tmp_path / "opsmith" / "compile/lowered/nodes.py")]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()
    cold, warm, changed = (int(line.removesuffix(" 9.0")) for line in said)
    assert [0, True, 0] == [cold, warm > 0, changed]


@pytest.mark.parametrize("changed", ["dispatch/layout.py", "kernels/softmax/softmax.py", "compile/measured.json"])
def test_every_file_of_opsmith_counts(changed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A graph may call a kernel, through dispatch, by a table; a file that is new counts as well."""
    folder = tmp_path / "opsmith"
    (folder / changed).parent.mkdir(parents=True)
    monkeypatch.setattr(opsmith, "__path__", [str(folder)])
    contents = []
    for content in (None, "1", "2"):
        if content is not None:
            (folder / changed).write_text(content)
        opsmith_content.cache_clear()
        contents.append(opsmith_content())
    opsmith_content.cache_clear()
    assert 3 == len(set(contents))
