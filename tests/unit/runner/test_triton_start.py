"""What the first compilation of a process needs is there when it is forked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opsmith.runner.child import triton_start

pytest.importorskip("triton.backends.nvidia.driver")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library in the driver's place, with its functions, which do nothing."""
    import triton.backends.nvidia.driver as of_triton

    called = set(re.findall(r"\b(cu[A-Z]\w+)\b", Path(of_triton.dirname, "driver.c").read_text()))
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(called)))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(tmp_path))
    monkeypatch.setattr(triton_start, "_driver_module", {})
    return library


@pytest.mark.slow
@pytest.mark.usefixtures("driver")
def test_another_cache_needs_no_compiler_for_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with a cache of its own loads what was compiled once."""
    triton_start.DriverModule(tmp_path / "first").keep()
    triton_start.place_driver_module(tmp_path / "second")
    triton_start.place_driver_module(tmp_path / "second")  # It is there already.
    load = [sys.executable, "-c", "from triton.backends.nvidia.driver import CudaUtils; CudaUtils().load_binary"]
    monkeypatch.setenv("CC", "/bin/false")
    for cache, loads in (("second", True), ("third", False)):
        environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / cache)}
        assert loads is (subprocess.run(load, env=environment, capture_output=True, check=False).returncode == 0)
    [_] = (path for path in (tmp_path / "second").rglob("*") if path.is_file())


@pytest.mark.usefixtures("driver")
def test_a_machine_without_a_compiler_places_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own first launch says what is missing."""
    monkeypatch.setenv("CC", "/bin/false")
    triton_start.DriverModule(tmp_path / "first").keep()
    triton_start.place_driver_module(tmp_path / "second")
    assert not (tmp_path / "second").exists()


@pytest.mark.slow
def test_a_zygote_that_compiles_has_hashed_triton(tmp_path: Path) -> None:
    """Its children find the hash that each key of the cache has."""
    script = (
        "import pathlib, sys\n"
        "from opsmith.runner import zygote\n"
        "zygote._import_everything('cuda', pathlib.Path(sys.argv[1]), with_compiler=False, with_opinfo=False)\n"
        "from triton.runtime.cache import triton_key\n"
        "print(triton_key.cache_info().currsize, 'triton.compiler.code_generator' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=os.environ | {"TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "True"]
