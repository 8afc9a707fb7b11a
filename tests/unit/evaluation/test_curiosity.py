"""Looks at callers' frames and at all objects are noted, whoever else listens in the process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest

#: Audit hooks cannot be taken away: what listens does so in a process of its own.
SCRIPT = """
import json, sys
from pathlib import Path
from opsmith.evaluation.integrity.curiosity import listen

counted = []
sys.addaudithook(lambda event, _: counted.append(event) if event == "sys._getframe" else None)
noted = {name: [] for name in map(str, range(40))}
for name, lines in noted.items():
    listen(Path("/kernels") / name, lines.append)
look = compile("import sys\\ndef look():\\n    return sys._getframe(1)\\n", "/kernels/7/kernel.py", "exec")
space = {}
exec(look, space)
counted.clear()
space["look"]()
print(json.dumps([{name: lines for name, lines in noted.items() if lines}, len(counted)]))
"""


def test_forty_kernels_of_a_process_cost_one_look_each() -> None:
    """Hooks that hear each other's looks would double the cost of a look with every kernel."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    noted, looks = json.loads(done.stdout)
    assert {"7": ["called sys._getframe at kernel.py:3"]} == noted
    assert 2 == looks  # The kernel's, and the listener's own.


LOOKS = {
    "sys._getframe(1)": "called sys._getframe",
    "sys._current_frames()": "called sys._current_frames",
    "inspect.stack()": "called sys._getframe",
    "traceback.extract_stack()": "called sys._getframe",
    "sys.setprofile(None)": "called sys.setprofile",
    "__import__('opsmith')": "imported opsmith",
    "importlib.import_module('opsmith.plugins')": "looked at opsmith/PLACE",
    "open('/proc/self/cmdline').read()": "looked at /proc/self/cmdline",
    "Path('/proc/self/environ').read_bytes()": "looked at /proc/self/environ",
    "os.listdir('/proc/self/fd')": "looked at /proc/self/fd",
    "os.listdir('/proc')": "looked at /proc",
    "glob.glob('/proc/*/comm')": "looked at /proc",
    "open(f'/proc/{os.getppid()}/stat')": "looked at another process in /proc/",
    "subprocess.run(['ps', 'ax'], capture_output=True)": "ran ps",
}
NO_LOOKS = (
    "open('/proc/meminfo').read()",
    "open('/proc/self/status').read()",
    "open(f'/proc/{os.getpid()}/statm').read()",
    "logging.getLogger(__name__).warning('compiled')",
    "inspect.signature(json.dumps).parameters",
    "inspect.getsource(json.dumps)",
    "traceback.format_exc()",
    "warnings.warn('slow path', stacklevel=2)",
    "collections.namedtuple('Config', 'block warps')",
    "typing.NamedTuple('Config', [('block', int)])",
    "dataclasses.make_dataclass('Config', ['block'])",
    "[name for name in sys.modules if name.startswith('numpy')]",
    "sys.modules.get('numpy')",
    "os.environ.get('MY_KERNEL_BLOCK', '128')",
    "subprocess.run(['true'])",
    "torch.compile(torch.sin, backend='eager')(torch.ones(3))",
)
LOOKING = """
import collections, dataclasses, glob, importlib, inspect, json, logging, os, re, subprocess, sys
import traceback, typing, warnings
from pathlib import Path
import torch
from opsmith.evaluation.integrity.curiosity import listen

noted = []
listen(Path("/kernels/7"), noted.append)
for name in [name for name in sys.modules if name.partition(".")[0] == "opsmith"]:
    del sys.modules[name]  # As in a worker.
found = {}
for text in json.loads(sys.stdin.read()):
    noted.clear()
    try:
        eval(compile(text, "/kernels/7/kernel.py", "eval"))
    except Exception:
        pass
    found[text] = [re.sub(r"opsmith/\\S+", "opsmith/PLACE", line) for line in noted]
print(json.dumps(found))
"""


def looks_of(texts: Iterable[str]) -> dict[str, list[str]]:
    """What is noted of a kernel with these expressions."""
    done = subprocess.run(
        [sys.executable, "-c", LOOKING],
        input=json.dumps(list(texts)),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    found: dict[str, list[str]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.slow
def test_every_look_at_the_judge_is_noted_with_its_line() -> None:
    """Through the library, too, if a line of the kernel has it look."""
    assert {text: f"{look} at kernel.py:1" for text, look in LOOKS.items()} == {
        text: notes[0] if notes else None for text, notes in looks_of(LOOKS).items()
    }


@pytest.mark.slow
def test_what_honest_kernels_do_is_no_look() -> None:
    """Loggers, signatures and named tuples look at frames for themselves."""
    assert {text: [] for text in NO_LOOKS} == looks_of(NO_LOOKS)
