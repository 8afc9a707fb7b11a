"""Many checks at a time on one GPU, as agents start them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="needs TRITON_INTERPRET=0"),
]

RELU = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < N), 0.0, propagate_nan=tl.PropagateNan.ALL), mask=at < N)


def relu__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
SIDE_BY_SIDE = 16
MOST_BYTES = 3 << 30


def start(kernel: Path) -> subprocess.Popen[str]:
    """One ``opsmith check`` of the kernel."""
    main = "from opsmith.cli.main import main; main()"
    options = ["--task", "relu.default", "--dtype", "f32", "--device", "cuda", "--timing", "quick"]
    return subprocess.Popen(
        [sys.executable, "-c", main, "check", str(kernel), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """An honest kernel of Triton's."""
    path = tmp_path / "relu.py"
    path.write_text(RELU)
    return path


def test_one_check_takes_at_most_3_gib(kernel: Path) -> None:
    """Whatever contexts it makes, and however long it takes."""
    before, _ = torch.cuda.mem_get_info()
    most = 0
    with start(kernel) as check:
        while check.poll() is None:
            most = max(most, before - torch.cuda.mem_get_info()[0])
            time.sleep(0.05)
        assert check.stdout is not None
        assert 0 == check.returncode, check.stdout.read()
    assert most <= MOST_BYTES, f"{most / 2**30:.1f} GiB"


def test_sixteen_checks_side_by_side_end_right(kernel: Path) -> None:
    """None is out of memory, and all say the same."""
    checks = [start(kernel) for _ in range(SIDE_BY_SIDE)]
    said = [check.communicate(timeout=900)[0] for check in checks]
    assert [0] * SIDE_BY_SIDE == [check.returncode for check in checks], said
    assert not [text for text in said if re.search("out of memory|internal error", text)]
