"""`opsmith mcp` over standard input and output, used by the SDK's own client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

import anyio
from examples.mcp_client import OPSMITH, work

from opsmith.core.run import RunDirectory

pytestmark = pytest.mark.slow

WRONG, RIGHT = (
    f"import torch\n\n\ndef relu__default_kernel_impl(x):\n    return {expression}\n"
    for expression in ("torch.where(x > 0, x, 0)", "x.clamp(min=0)")
)
#: Answers right, and tampers with what others compare with.
CHEAT = f"import torch\n\ntorch.allclose = lambda *args, **kwargs: True\n{RIGHT}"


def test_a_client_goes_through_the_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong, repeated, dishonest, right: the last word is a run on disk, and the cheat is in no directory."""
    asked = ("--suite", "smoke", "--ops", "relu.default", "--device", "cpu", "--policy", "any", "--timing", "off")
    assert OPSMITH[0] == sys.executable
    found = anyio.run(_work, (*asked, "-o", str(tmp_path / "bench")))
    said = capsys.readouterr().out
    assert "expected nan, got 0.0" in said
    assert "tampered with its process: torch.allclose was replaced" in said
    assert "WRONG_VALUE" == found["reproduce"]["status"]
    assert found["check"]["accepted"]
    assert found["submit"]["accepted"]
    assert RunDirectory(tmp_path / "bench/runs/0001").manifest().seed is not None
    (kernel,) = (tmp_path / "bench/kernels").rglob("*.py")
    assert RIGHT == kernel.read_text()


async def _work(words: tuple[str, ...]) -> dict[str, dict[str, object]]:
    return await work(OPSMITH, wrong=WRONG, cheat=CHEAT, right=RIGHT, words=words)
