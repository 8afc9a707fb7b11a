"""The language of a kernel is read from its syntax, never from its comments."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.backends.dsl import guess_dsl


@pytest.mark.parametrize(
    ("source", "dsl"),
    [
        ("import triton\n@triton.jit\ndef f(p): pass\n", "triton"),
        ("import triton.language as tl\ndef f(p): tl.load(p)\n", "triton"),
        ("def f():\n    from triton import jit\n    jit(f)\n", "triton"),
        ("from triton.language import *\n", "triton"),
        ("try:\n    import triton\nexcept ImportError:\n    triton = None\nHAS = triton is not None\n", "torch"),
        ("import triton\nprint(triton.__version__)\n", "torch"),
        ("import helion\nimport triton\n@helion.kernel()\ndef f(x): return triton.cdiv(x, 2)\n", "helion"),
        ("from triton.experimental import gluon\nimport triton\n@gluon.jit\ndef f(): triton.cdiv(1, 2)\n", "gluon"),
        ("import triton.experimental.gluon as g\n@g.jit\ndef f(): pass\n", "gluon"),
        ("import cuda.tile as ct\n@ct.kernel\ndef f(): pass\n", "cutile"),
        ("from jax.experimental import pallas as pl\npl.pallas_call(print)\n", "pallas"),
        ("import jax\njax.numpy.dot(1, 2)\n", "torch"),
        ("from numba import cuda\n@cuda.jit\ndef f(): pass\n", "numba"),
        ("import numba.cuda\n@numba.cuda.jit\ndef f(): pass\n", "numba"),
        ("import numba\n@numba.njit\ndef f(): pass\n", "torch"),
        ("import cupy\ncupy.RawKernel('', 'f')\n", "cupy"),
        ("from cuda.core import Program\nProgram('', 'c++')\n", "cuda"),
        ("import torch\ntorch.cuda._compile_kernel('', 'f')\n", "cuda"),
        ("import torch\ntorch.cuda.synchronize()\n", "torch"),
        ("import cutlass.cute as cute\n@cute.kernel\ndef f(): pass\n", "cutedsl"),
        ("from torch.utils.cpp_extension import load_inline\nload_inline('x', cpp_sources='')\n", "cpp"),
        ("from torch.utils import cpp_extension\ncpp_extension.load_inline('x', '', cuda_sources='')\n", "cuda"),
        ("import torch\ntorch.utils.cpp_extension.load('x', ['a.cpp', 'b.cu'])\n", "cuda"),
        ("import json\njson.load(open('x'))\n", "torch"),
        ("import torch\nlibrary = torch.mps.compile_shader('kernel void f() {}')\n", "metal"),
        ("# import triton\ns = 'load_inline(cuda_sources=1)'\n", "torch"),
        ("from . import triton\n", "torch"),
        (r"s = '\d'" + "\n", "torch"),
        ("def f(:\n", "unknown"),
        ("x = " + "(" * 10_000, "unknown"),
        ("\0", "unknown"),
    ],
)
def test_the_syntax_tells_the_language(tmp_path: Path, source: str, dsl: str) -> None:
    """What is used and called counts; comments, strings, relative imports and imports alone do not."""
    path = tmp_path / "kernel.py"
    path.write_text(source)
    assert dsl == guess_dsl(path)


def test_a_missing_file_is_of_unknown_language(tmp_path: Path) -> None:
    """The loader reports the missing file; the guess does not fail."""
    assert "unknown" == guess_dsl(tmp_path / "missing.py")


def test_a_huge_file_is_not_parsed(tmp_path: Path) -> None:
    """A stranger's file cannot hold up the judge."""
    path = tmp_path / "kernel.py"
    path.write_text("import triton\n" + "x = 1\n" * 200_000)
    assert "unknown" == guess_dsl(path)
