from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opsmith.evaluation.integrity.static import Kind, StaticFinding
from opsmith.evaluation.integrity.traced_lines import TracedLines
from opsmith.runner.judge.conduct import confirm

HELPER = "def twice(x):\n    return x + x\n"


def load(folder: Path, source: str) -> Callable[..., Any]:
    """The function ``kernel`` of a kernel file with this source, next to a ``helper.py``."""
    (folder / "helper.py").write_text(HELPER)
    path = folder / "kernel.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("traced_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel  # type: ignore[no-any-return]


def test_only_the_lines_of_the_branch_that_ran_are_seen(tmp_path: Path) -> None:
    """Evidence in a branch that the call did not take accuses nobody."""
    kernel = load(tmp_path, "def kernel(x):\n    if x > 0:\n        return 1\n    return 2\n")
    with TracedLines(tmp_path, ["kernel.py"]) as traced:
        kernel(1)
    assert {"kernel.py": {2, 3}} == traced.executed


def test_lines_of_other_files_are_not_seen(tmp_path: Path) -> None:
    """A kernel that formats a string runs a thousand lines of the standard library; those are not its own."""
    kernel = load(tmp_path, "import json\ndef kernel(x):\n    return json.dumps({'x': x})\n")
    with TracedLines(tmp_path, ["kernel.py", "helper.py"]) as traced:
        kernel(1)
    assert {"kernel.py": {3}, "helper.py": set()} == traced.executed


def test_a_thread_started_inside_is_seen(tmp_path: Path) -> None:
    """To compute in another thread hides from what watches a thread, so the lines there count as well."""
    source = "import threading\ndef work():\n    return 1\ndef kernel():\n    t = threading.Thread(target=work)\n"
    kernel = load(tmp_path, source + "    t.start()\n    t.join()\n")
    with TracedLines(tmp_path, ["kernel.py"]) as traced:
        kernel()
    assert {3, 5, 6, 7} == traced.executed["kernel.py"]


def test_threads_that_begin_at_once_all_run(tmp_path: Path) -> None:
    """Python 3.11 lets no two threads install a trace function at the same time: one of them would end at once.

    An audit hook, which no process gets rid of, has each wait there for the others.
    """
    (tmp_path / "kernel.py").write_text("def work(done):\n    done.append(1)\n")
    done = subprocess.run([sys.executable, "-c", AT_ONCE], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "8 of 8, lines [1, 2]\n" == done.stdout, done.stderr


AT_ONCE = """
import sys, threading, time
from pathlib import Path
from opsmith.evaluation.integrity.traced_lines import TracedLines
sys.path.insert(0, ".")
from kernel import work
sys.addaudithook(lambda event, _: event == "sys.settrace" and time.sleep(0.02))
done = []
with TracedLines(Path.cwd(), ["kernel.py"]) as traced:
    threads = [threading.Thread(target=work, args=(done,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(len(done), "of 8, lines", sorted({1} | traced.executed["kernel.py"]))
"""


def test_tracing_ends_with_the_block_and_what_traced_before_goes_on(tmp_path: Path) -> None:
    """A debugger or a coverage tool around the judge loses nothing but the call itself."""
    kernel = load(tmp_path, "def kernel():\n    return 1\n")
    before = sys.gettrace(), threading.gettrace(), threading._start_new_thread  # type: ignore[attr-defined]
    traced = TracedLines(tmp_path, ["kernel.py"])
    with pytest.raises(ZeroDivisionError), traced:
        _ = 1 / 0
    kernel()
    assert before == (sys.gettrace(), threading.gettrace(), threading._start_new_thread)  # type: ignore[attr-defined]
    assert {"kernel.py": set()} == traced.executed
    assert not traced.disturbed


def test_a_kernel_that_switches_tracing_off_is_noticed(tmp_path: Path) -> None:
    """What it ran afterwards is unknown, and it had no honest reason to do that."""
    kernel = load(tmp_path, "import sys\ndef kernel():\n    sys.settrace(None)\n    return 1\n")
    with TracedLines(tmp_path, ["kernel.py"]) as traced:
        kernel()
    assert traced.disturbed


def test_a_finding_is_confirmed_by_its_line_and_its_file() -> None:
    """The same line number in another file is another line."""
    here = StaticFinding(path="kernel.py", line=3, kind=Kind.NUMPY_COMPUTE, text="numpy.maximum")
    elsewhere = StaticFinding(path="helper.py", line=3, kind=Kind.NUMPY_COMPUTE, text="numpy.maximum")
    later = StaticFinding(path="kernel.py", line=4, kind=Kind.NUMPY_COMPUTE, text="numpy.exp")
    unknown = StaticFinding(path="loop.cpp", line=3, kind=Kind.CPP_COMPUTE, text="at::relu")
    executed = {"kernel.py": frozenset({3}), "helper.py": frozenset({4})}
    assert (here,) == confirm([here, elsewhere, later, unknown], executed)
