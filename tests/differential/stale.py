"""Passes of users whose helper modules change: what was compiled with the old helper must not be served."""

from __future__ import annotations

import contextlib
import importlib
import linecache
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tests.differential.grammar import Program, Step
from tests.differential.running import Tolerance, Verdict, differences, observe
from tests.graphs import in_aten

from opsmith.compile.pass_registry import choose_passes, forget_pass

NAME = "generated"
_PASS = f'''\
import torch
from PACKAGE import rules
from opsmith.compile import graph_pass


@graph_pass("{NAME}", stage="lowered")
def rewrite(graph):
    """Additions of real numbers become something else."""
    fired = 0
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        if node.meta["val"].is_floating_point() and not node.kwargs:
            node.target = rules.TARGET
            fired += 1
    return fired
'''
#: What the helper replaces additions by, one version after the other.
TARGETS = ("mul", "sub", "mul")


def check_stale(program: Program, number: int) -> Verdict:
    """Compile a program with one version of a pass's helper after the other, with Inductor's caches on.

    Args:
        program: an addition is added to it.
        number: for the package's name: a pass is kept on disk under it.
    """
    program = with_an_addition(program)
    with tempfile.TemporaryDirectory() as folder, _importing(Path(folder)):
        package = f"generated_passes_{number}"
        for place, target in enumerate(TARGETS):
            _write_package(Path(folder) / package, package, target)
            _reload(package)
            try:
                verdict = _compare(program)
            finally:
                forget_pass(NAME)
            if verdict.kind != "passed":
                verdict.detail = f"version {place + 1} of the helper, {target}: {verdict.detail}"
                return verdict
    return verdict


def with_an_addition(program: Program) -> Program:
    """In inference, with one size, and without what is written: helpers may do what they want."""
    name = program.given[0].name
    steps = (Step(f"v0 = {name}.float() + 2.5"), Step("v1 = v0 * 3"))
    return Program(given=program.given, steps=steps, returned=("v1",), form="single")


def _compare(program: Program) -> Verdict:
    torch._dynamo.reset()
    expected = observe(program, lambda run: torch.compile(run, backend=in_aten(choose_passes("all"))), (6,))
    torch._dynamo.reset()
    options: dict[str, Any] = {"fallback": "raise", "fallback_random": True}
    observed = observe(program, lambda run: torch.compile(run, backend="opsmith", options=options), (6,))
    if "error" in expected:
        return Verdict("discarded", expected["error"])
    found = differences(observed, expected, Tolerance(half=program.in_half_precision))
    text = "\n".join(f"{place}: {sentence}" for place, sentence in found.items())
    return Verdict("failed" if found else "passed", text)


def _write_package(folder: Path, package: str, target: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text("")
    (folder / "passes.py").write_text(_PASS.replace("PACKAGE", package))
    (folder / "rules.py").write_text(f"import torch\n\nTARGET = torch.ops.aten.{target}.Tensor\n")


def _reload(package: str) -> None:
    """As a new process would import it."""
    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        del sys.modules[name]
    importlib.invalidate_caches()
    linecache.clearcache()
    importlib.import_module(f"{package}.passes")


@contextlib.contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Modules of a folder, without compiled ones that are older than a second."""
    before = sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = before
