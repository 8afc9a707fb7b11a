"""Mistakes of newcomers, typed into a terminal of 80 columns; ``python -m tests.newcomers`` writes the page of screens.

It needs tmux, and takes a minute or two: some mistakes show only when a kernel is judged. A test asks those again
that are told before a process starts, and compares.
"""

from __future__ import annotations

import html
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "first-mistakes.md"
ROWS, COLUMNS, MOST_S = 400, 80, 240

RELU = "import torch\n\n\ndef relu(x):\n    return torch.where(x > 0, x, 0)\n"
#: What lies in the folder in which everything is typed.
FILES = {
    "relu.py": RELU,
    "mine.py": RELU.replace("def relu", "def my_relu"),
    "model.py": "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n",
    "broken.py": "def relu(x:\n    return x\n",
    "nothing.py": "def relu(x):\n    x.clamp_(min=0)\n",
    "arguments.py": "def relu():\n    return 0\n",
    "missing.py": "import tritonn\n\n\ndef relu(x):\n    return x\n",
    "helpers.py": "SIZE = 4\n",
    "kernels/relu__default/relu__default_implementation_v1.py": RELU,
    "flat/relu.py": RELU,
    "other/relu__default/relu.py": RELU,
    "typo/reul__default/reul__default_implementation_v1.py": RELU.replace("def relu", "def reul__default_kernel_impl"),
    "empty/.keep": "",
    "full/notes.txt": "",
}


class Mistake(NamedTuple):
    """A mistake.

    Attributes:
        title: what went wrong, as a heading.
        command: what is typed.
        status: that it ends with.
        starts: it is told only by processes that judge, so it takes seconds.
    """

    title: str
    command: str
    status: int = 2
    starts: bool = False


MISTAKES = (
    Mistake("The function has a name of its own", "opsmith check mine.py --task relu.default"),
    Mistake("The file answers a module problem", "opsmith check model.py --task relu.default"),
    Mistake("The file defines no function", "opsmith check helpers.py --task relu.default"),
    Mistake("The task is not said", "opsmith check mine.py"),
    Mistake("There is no such file", "opsmith check rellu.py --task relu.default"),
    Mistake("The function that is named is not there", "opsmith check mine.py --task relu --entry my_rleu"),
    Mistake("A typo in the op", "opsmith check relu.py --task reul"),
    Mistake("An overload that the op does not have", "opsmith check relu.py --task relu.Tensor"),
    Mistake("A function that PyTorch composes of ops", "opsmith check relu.py --task F.softmax"),
    Mistake("A typo among the ops of a run", "opsmith run --backend aten --ops relu,sigmiod"),
    Mistake("A file in a kernel directory defines another name", "opsmith run --backend kernels"),
    Mistake("A directory without kernels", "opsmith run --backend empty"),
    Mistake("Files without folders", "opsmith run --backend flat"),
    Mistake("A folder whose file has another name", "opsmith run --backend other"),
    Mistake("A folder that is named for no op", "opsmith run --backend typo"),
    Mistake("No backend", "opsmith run --suite smoke"),
    Mistake("A file where a directory is meant", "opsmith run --backend full/notes.txt"),
    Mistake("A typo in the verb", "opsmith chekc relu.py"),
    Mistake("A typo in the suite", "opsmith run --backend aten --suite opinfoo"),
    Mistake("A dtype that does not exist", "opsmith check relu.py --task relu --dtype float17"),
    Mistake("A device that is spelled wrong", "opsmith check relu.py --task relu --device 'GPU 0'"),
    Mistake("An output directory that is in use", "opsmith run --suite smoke --backend aten -o full"),
    Mistake("Resuming nothing in particular", "opsmith run --suite smoke --backend aten --resume"),
    Mistake("A run that is none", "opsmith report full"),
    Mistake("A typo in scaffold", "opsmith scaffold new --ops geluu"),
    Mistake("A syntax error", "opsmith check broken.py --task relu.default", 1, starts=True),
    Mistake("A package that is not installed", "opsmith check missing.py --task relu.default", 1, starts=True),
    Mistake("Other arguments than the op has", "opsmith check arguments.py --task relu.default", 1, starts=True),
    Mistake("Nothing is returned", "opsmith check nothing.py --task relu.default --policy any", 1, starts=True),
    Mistake("PyTorch does the work", "opsmith check relu.py --task relu.default", 1, starts=True),
    Mistake("A right idea that forgets NaN", "opsmith check relu.py --task relu.default --policy any", 1, starts=True),
)


def write_files(folder: Path) -> None:
    """Lay out what the mistakes are made with."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Terminal:
    """A shell in a terminal of tmux."""

    def __init__(self, folder: Path) -> None:
        self._name = f"newcomers-{os.getpid()}"
        shell = f"PS1='$ ' PROMPT_COMMAND='tmux -L {self._name} wait-for -S ready' exec bash --norc --noprofile"
        # A width that is fixed here counts, whatever the terminal that this runs in has.
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", str(folder), shell
        )
        self._wait()

    def type(self, command: str) -> str:
        """The screen after a command, without its last prompt."""
        self._tmux("clear-history")
        self._tmux("send-keys", "C-l")
        self._tmux("send-keys", "-l", command)
        self._tmux("send-keys", "Enter")
        self._wait()
        lines = self._tmux("capture-pane", "-p").rstrip().splitlines()
        return "\n".join(line.rstrip() for line in lines if line.rstrip() != "$")

    def close(self) -> None:
        """End the shell."""
        self._tmux("kill-server")

    def _wait(self) -> None:
        self._tmux("wait-for", "ready")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, *words], capture_output=True, text=True, check=True, timeout=MOST_S
        )
        return done.stdout


def screens(folder: Path) -> list[tuple[Mistake, str, int]]:
    """Each mistake with its screen and its exit status."""
    write_files(folder)
    terminal = Terminal(folder)
    try:
        found = []
        for mistake in MISTAKES:
            screen = terminal.type(mistake.command)
            status = int(terminal.type("echo $?").splitlines()[-1])
            sys.stderr.write(f"{status} {mistake.command}\n")
            found.append((mistake, screen, status))
        return found
    finally:
        terminal.close()


HEAD = """# First mistakes

What opsmith answers to {count} mistakes of a first hour, typed into a terminal of {columns} columns. The folder holds
`relu.py`, which defines `relu`, `mine.py`, which defines `my_relu`, `model.py`, which defines `ModelNew`, and some
directories.
`python -m tests.newcomers` types them again and writes this page.
"""


def main() -> None:
    """Type every mistake and write the page."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "first"
        folder.mkdir()
        program = shutil.which("opsmith") or sys.exit("opsmith is not on the PATH")
        sys.stderr.write(f"typing {shlex.quote(str(program))}\n")
        parts = [HEAD.format(count=len(MISTAKES), columns=COLUMNS)]
        for mistake, screen, status in screens(folder):
            assert mistake.status == status, f"{mistake.command} ended with {status}:\n{screen}"
            quoted = html.escape(screen, quote=False).replace(str(folder), "~")
            parts.append(f"## {mistake.title}\n\n<pre>\n{quoted}\n</pre>\n\nExit status {status}.\n")
        PAGE.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
