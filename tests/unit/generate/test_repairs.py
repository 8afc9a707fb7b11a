"""Right kernels in the disguises that replies give them, and what is no disguise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsmith.generate.reply import NoCode, kernel_source

NAME = "relu__default_kernel_impl"
KERNEL = f"import torch\n\ndef {NAME}(x):\n    return torch.clamp_min(x, 0)\n"
IMPORT, FUNCTION = "import torch\n", f"def {NAME}(x):\n    return torch.clamp_min(x, 0)\n"
DRAFT = KERNEL.replace("0)", "1)")
PLUSES = "".join(f"+{line}\n" for line in KERNEL.splitlines())


def fenced(source: str, language: str = "python") -> str:
    """A block of Markdown."""
    return f"```{language}\n{source}```\n"


def shifted(text: str, blanks: int) -> str:
    """A text farther to the right."""
    return "".join(f"{' ' * blanks}{line}\n" if line else "\n" for line in text.splitlines())


SHAPES = {
    "no-break spaces": fenced(KERNEL.replace("    ", "\u00a0" * 4)),
    "a zero-width space": fenced(KERNEL.replace("torch\n", "torch\u200b\n", 1)),
    "an interpreter's prompts": fenced(
        "".join(f"{'...' if line[:1] in {' ', ''} else '>>>'} {line}\n" for line in KERNEL.splitlines())
    ),
    "numbered lines": fenced("".join(f"{number:3d} | {line}\n" for number, line in enumerate(KERNEL.splitlines()))),
    "a patch": fenced(PLUSES, "diff"),
    "a patch with its heads": fenced(f"--- /dev/null\n+++ b/kernel.py\n@@ -0,0 +1,4 @@\n{PLUSES}", "diff"),
    "a notebook's command": fenced(f"%%writefile kernel.py\n{KERNEL}"),
    "JSON": json.dumps({"thoughts": "clamp it", "files": [{"code": KERNEL}]}),
    "a block of JSON": fenced(json.dumps({"code": KERNEL}) + "\n", "json"),
    "HTML": f"<p>Here:</p>\n<pre><code class='language-python'>{KERNEL}</code></pre>",
    "HTML with entities": f"<pre>{KERNEL.replace('x, 0', 'x if 1 &lt; 2 else x, 0')}</pre>",
    "an indented block": f"Here it is:\n\n{shifted(KERNEL, 4)}\nThat's it.\n",
    "a list in a list": f"1. so:\n   - the kernel:\n\n{shifted(fenced(KERNEL), 5)}\n2. done\n",
    "a block begun anew": f"```python\ndef {NAME}(x):\nNo, wait.\n\n{fenced(KERNEL)}",
    "a test behind it": fenced(KERNEL) + fenced(f"from kernel import {NAME}\nassert {NAME}(3)\n"),
    "imports in a block of their own": f"{fenced(IMPORT)}and\n{fenced(FUNCTION)}",
    "a helper in a block of its own": fenced("import torch\ndef low(x):\n    return torch.clamp_min(x, 0)\n")
    + fenced(f"def {NAME}(x):\n    return low(x)\n"),
    "a harmony of channels": f"<|channel|>analysis<|message|>{fenced(DRAFT)}<|end|><|start|>assistant"
    f"<|channel|>final<|message|>{fenced(KERNEL)}<|return|>",
    "thoughts with a prefix": f"<seed:think>\n{fenced(DRAFT)}</seed:think>\n{fenced(KERNEL)}",
    "thoughts in brackets": f"[THINK]{fenced(DRAFT)}[/THINK]{KERNEL}",
    "a loop": fenced(f"import torch\nfor _ in [0]:\n{shifted(FUNCTION, 4)}"),
    "a walrus": fenced(f"import torch\n({NAME} := lambda x: torch.clamp_min(x, 0))\n"),
}


class Torch:
    """Only what the kernels call."""

    @staticmethod
    def clamp_min(number: float, least: float) -> float:
        """The larger one."""
        return max(number, least)


@pytest.mark.parametrize("name", SHAPES)
def test_a_right_kernel_is_found(name: str) -> None:
    """What is found is the whole of it: it runs and has the last word of the reply."""
    source = kernel_source(SHAPES[name], NAME, complete=True)
    assert "import torch" in source
    names: dict[str, Any] = {"torch": Torch}
    exec(source.replace("import torch\n", ""), names)
    assert [0, 0, 2] == [names[NAME](x) for x in (-1, 0, 2)]


def test_what_is_python_is_not_repaired() -> None:
    """A no-break space in a string is the kernel's."""
    source = f"def {NAME}(x):\n    return '\u00a0+1'\n"
    assert source == kernel_source(fenced(source), NAME, complete=True)


def test_a_block_that_has_all_its_names_stands_alone() -> None:
    """A draft before it is no part of it."""
    assert KERNEL == kernel_source(fenced(DRAFT) + fenced(KERNEL), NAME, complete=True)


@pytest.mark.parametrize(
    "text",
    [
        fenced("- x\n+ y\n", "diff"),
        fenced(f"from kernel import {NAME}\n"),
        fenced(f">>> {NAME}(3)\n3\n"),
        json.dumps({"code": "x = 1", "name": NAME}),
        json.dumps([[[]]]),
        "{" * 10_000,
    ],
)
def test_what_holds_no_kernel_is_refused(text: str) -> None:
    """With one sentence that says why."""
    with pytest.raises(NoCode):
        kernel_source(text, NAME, complete=True)


@pytest.mark.parametrize("shape", ["an indented block", "HTML", "a patch", "an interpreter's prompts"])
def test_a_reply_that_was_cut_off_is_taken_only_where_its_block_has_ended(shape: str) -> None:
    """Half a kernel may be valid Python."""
    text = SHAPES[shape].replace("return torch", "y = torch")
    end = text.index("0)", text.index("clamp_min")) + 2
    assert NAME in kernel_source(text[:end], NAME, complete=True)
    with pytest.raises(NoCode, match="was cut off"):
        kernel_source(text[:end], NAME, complete=False)
