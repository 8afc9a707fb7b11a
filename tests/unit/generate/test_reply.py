"""From a reply's text to a kernel's source."""

from __future__ import annotations

import pytest

from opsmith.generate.reply import NoCode, kernel_source

KERNEL = "def relu__default_kernel_impl(self):\n    return self\n"
NAME = "relu__default_kernel_impl"


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{KERNEL}```",
        f"Some words.\n\n```py\n{KERNEL}```\nMore words.",
        f"````triton\n{KERNEL}````",
        f"~~~\n{KERNEL}~~~",
        KERNEL,
        f"```bash\npip install x\n```\n```python\n{KERNEL}```",
        f"First try:\n```python\n{KERNEL}    # old\n```\nBetter:\n```python\n{KERNEL}```",
        f"```python\n{KERNEL}```\nUse it so:\n```python\nrelu__default_kernel_impl(x)\n```",
    ],
)
def test_the_last_block_that_defines_it_counts(text: str) -> None:
    """Models explain, correct themselves and give examples."""
    assert KERNEL == kernel_source(text, NAME, complete=True)


DRAFT = f"```python\ndef {NAME}(self):\n    return 0\n```\n"
LISTED = "".join(f"   {line}\n" for line in KERNEL.splitlines())
EXPLAINED = f'def {NAME}(self):\n    """As in\n\n```python\nrelu(x)\n```\n"""\n    return self\n'


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (f"Here:\n\n```python\n{KERNEL}", KERNEL),
        (f"Here:\n\n```python\n{KERNEL}\nIt's what you asked for.\n", KERNEL),
        (f"```python\n{KERNEL}``` which returns its argument\n", KERNEL),
        (f"<think>\n{DRAFT}</think>\n{KERNEL}", KERNEL),
        (f"Let me see.\n{DRAFT}</think>\n\n```python\n{KERNEL}```", KERNEL),
        (f"<thinking>\n```python\ndef {NAME}(x):\nhm\n</thinking>\n```python\n{KERNEL}```", KERNEL),
        (f"<answer>\n```python\n{KERNEL}```\n</answer>", KERNEL),
        (f"1. The kernel:\n\n   ```python\n{LISTED}   ```\n", KERNEL),
        ("> ```python\n" + "".join(f"> {line}\n" for line in KERNEL.splitlines()) + "> ```\n", KERNEL),
        (f"```python\n{EXPLAINED}```\n", EXPLAINED),
        (f"Here:\n```python\n{KERNEL}```\n".replace("\n", "\r\n"), KERNEL),
        (f"```python\n{KERNEL}`````\n", KERNEL),
        (f"````markdown\n```python\n{KERNEL}```\n````\n", KERNEL),
        (f"```python title=kernel.py\n{KERNEL}```\n", KERNEL),
        (f"Here is the kernel, as asked:\n\n{KERNEL}\nIt returns its argument.\n", KERNEL),
        (f"\ufeff{KERNEL}", KERNEL),
    ],
)
def test_a_right_kernel_is_found_in_any_shape_of_reply(text: str, source: str) -> None:
    """Fences that are missing, nested or longer, drafts within what was thought, blocks in lists and quotations."""
    assert source == kernel_source(text, NAME, complete=True)


@pytest.mark.parametrize(
    "source",
    [
        f"import torch\nif torch.cuda.is_available():\n    def {NAME}(x):\n        return x\n",
        f"try:\n    import triton\nexcept ImportError:\n    def {NAME}(x):\n        return x\n",
        f"from typing import Callable\ndef f(x):\n    return x\n{NAME}: Callable = f\n",
        f"def f(x):\n    return x\n{NAME}, other = f, 1\n",
        f"from math import fabs as {NAME}\n",
    ],
)
def test_a_name_may_be_bound_in_any_way(source: str) -> None:
    """Wherever a module's statements bind it."""
    assert source == kernel_source(f"```python\n{source}```", NAME, complete=True)


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{KERNEL}",
        KERNEL,
        f"```python\ndef {NAME}(self):\n    x = self + 1\n    return x.clamp(",
    ],
)
def test_what_was_cut_off_is_not_taken_for_whole(text: str) -> None:
    """It may go on."""
    with pytest.raises(NoCode, match="cut off"):
        kernel_source(text, NAME, complete=False)


def test_a_mistake_does_not_end_the_code_before_it() -> None:
    """What stands above it is not the kernel that was meant."""
    for text in (
        f"```python\ndef {NAME}(x):\n    y = x\n    return (\n",
        f"def {NAME}(x):\n    y = x\n    retrun y + 1\n",
    ):
        with pytest.raises(NoCode, match="no Python"):
            kernel_source(text, NAME, complete=True)


def test_a_fence_that_is_missing_is_named() -> None:
    """With the line of the block."""
    text = f"Look:\n\n```python\ndef {NAME}(x):\n    return (x\n"
    with pytest.raises(NoCode, match="code block in line 3 has no closing fence"):
        kernel_source(text, NAME, complete=True)


def test_an_assignment_defines_it_too() -> None:
    """A compiled function is often given its name so."""
    assert "impl = f" in kernel_source("```python\nf = abs\nimpl = f\n```", "impl", complete=True)


@pytest.mark.parametrize(
    ("text", "complete", "why"),
    [
        ("I cannot.", True, "no Python code block"),
        ("```python\ndef other(): pass\n```", True, "no Python code block"),
        (f"```python\n{KERNEL}    return (\n```", True, "line 3"),
        (f"```python\n{KERNEL[:20]}", False, "cut off"),
        ("", True, "no Python code block"),
    ],
)
def test_what_holds_no_kernel_says_why(text: str, *, complete: bool, why: str) -> None:
    """In a clause that its model is told."""
    with pytest.raises(NoCode, match=why):
        kernel_source(text, NAME, complete=complete)
