"""A build that is killed holds up nobody: the kernel's next worker removes what it left and builds anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opsmith import pipeline
from opsmith.core.run import Options, RunDirectory
from opsmith.core.verdict import Status
from opsmith.runner.protocol.limits import Limits

pytestmark = pytest.mark.slow

NAME = "relu__default"
KERNEL = f"""
import ctypes
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

source = Path(__file__).with_name("relu.cpp")
library = ctypes.CDLL(load(name="killed_build", sources=[str(source)], is_python_module=False))


def {NAME}_kernel_impl(self):
    dense = self.contiguous()
    result = torch.empty_like(dense)
    library.forward(ctypes.c_void_p(dense.data_ptr()), ctypes.c_void_p(result.data_ptr()), ctypes.c_long(dense.numel()))
    return result
"""
SOURCE = """
extern "C" void forward(const float* x, float* y, long size) {
  for (long i = 0; i < size; ++i) y[i] = x[i] < 0 ? 0 : x[i];
}
"""
#: A compiler that writes half an object and hangs as long as a file says so.
COMPILER = """#!/bin/sh
case " $* " in
*" -c "*) if [ -e "{slow}" ]; then
    for last; do :; done
    case "$last" in *.o) printf half > "$last" ;; *) printf half > relu.o ;; esac
    sleep 600
  fi ;;
esac
exec {compiler} "$@"
"""


def test_a_build_that_was_killed_does_not_hang_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run ends its worker while torch holds the lock; the second one of the same kernel finds it right."""
    compiler = shutil.which("c++")
    assert compiler is not None
    kernel = tmp_path / "kernels" / NAME
    kernel.mkdir(parents=True)
    (kernel / f"{NAME}_implementation_v1.py").write_text(KERNEL)
    (kernel / "relu.cpp").write_text(SOURCE)
    slow, wrapper = tmp_path / "bin" / "slow", tmp_path / "bin" / "c++"
    slow.parent.mkdir()
    slow.touch()
    wrapper.write_text(COMPILER.format(slow=slow, compiler=compiler))
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = Options(
        suite="smoke",
        backend=str(tmp_path / "kernels"),
        device="cpu",
        dtypes=("f32",),
        ops=("relu.default",),
        timing="off",
    )
    pipeline.evaluate(options, tmp_path / "killed", limits=Limits(load_s=15.0))
    statuses = {verdict.status for verdict in RunDirectory(tmp_path / "killed").verdicts()}
    assert Status.TIMEOUT in statuses
    [lock] = (tmp_path / "cache").rglob("extensions/*/lock")  # This is what torch waits for.
    slow.unlink()
    summary = pipeline.evaluate(options, tmp_path / "right", limits=Limits(load_s=60.0))
    assert summary.per_op["relu.default"].accepted
    assert not lock.exists()
