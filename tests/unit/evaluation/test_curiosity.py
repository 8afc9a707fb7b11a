"""Looks at callers' frames and at all objects are noted, whoever else listens in the process."""

from __future__ import annotations

import json
import subprocess
import sys

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
