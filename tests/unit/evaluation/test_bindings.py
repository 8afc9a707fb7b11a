"""What a kernel's shared objects call past the dispatcher, and what its forked children can call."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from opsmith.aten.schemas import aten_schemas
from opsmith.evaluation.integrity.bindings import Bindings, Called
from opsmith.evaluation.integrity.supervision import Supervision

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="slots are not led elsewhere here")

TORCH = Path(torch.__file__).parent
LIBRARY = str(TORCH / "lib" / "libtorch_cpu.so")
CALLS = """
#include <dlfcn.h>
void* _ZN2at3cpu7log_outERNS_6TensorERKS1_(void** out, void** x);
void run(void** x, void** out) { _ZN2at3cpu7log_outERNS_6TensorERKS1_(out, x); }
void* find(const char* name) { return dlsym(dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD), name); }
float cblas_sasum(int n, const float* x, int step) { return n; }
"""

Build = Callable[..., ctypes.CDLL]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds a library of C and opens it."""

    def built(source: str, *options: str) -> ctypes.CDLL:
        (tmp_path / "kernel.c").write_text(source)
        flags = ["-shared", "-fPIC", f"-L{TORCH}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{TORCH}/lib", *options]
        subprocess.run(["gcc", "kernel.c", "-o", "kernel.so", *flags], cwd=tmp_path, check=True)
        return ctypes.CDLL(str(tmp_path / "kernel.so"))

    return built


def names(bindings: Bindings) -> list[tuple[str, bool, bool]]:
    """Of what was called: name, whether torch's, whether looked up."""
    return [(called.found.name, called.of_torch, called.looked_up) for called in bindings.called()]


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-Wl,-z,now", "-fno-plt", "-Wl,-z,norelro"])
def test_a_call_is_noted_and_answered(build: Build, option: str) -> None:
    """Wherever the linker keeps the address, and once for each time that it is asked about."""
    bindings = Bindings()
    library = build(CALLS, option)
    bindings.look()
    assert [] == names(bindings)  # It could, and has not.
    x, out = torch.ones(3), torch.empty(3)
    library.run(*[ctypes.byref(ctypes.c_void_p(tensor._cdata)) for tensor in (x, out)])
    assert [0.0, 0.0, 0.0] == out.tolist()
    assert [("at::cpu::log_out", True, False)] == names(bindings)
    assert [] == names(bindings)


EARLY = """
#include <dlfcn.h>
static void* (*kept)(void**, void**);
__attribute__((constructor)) static void find(void) {
  kept = (void* (*)(void**, void**))dlsym(dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD), NAME);
}
void run(void** x, void** out) { kept(out, x); }
"""


def test_what_an_object_finds_while_it_is_opened_is_noted_when_it_is_called(build: Build) -> None:
    """Nobody has heard of the lookup."""
    bindings = Bindings()
    library = build(EARLY.replace("NAME", '"_ZN2at3cpu7log_outERNS_6TensorERKS1_"'))
    bindings.look()
    assert [] == names(bindings)
    x, out = torch.ones(3), torch.empty(3)
    library.run(*[ctypes.byref(ctypes.c_void_p(tensor._cdata)) for tensor in (x, out)])
    assert [("at::cpu::log_out", True, False)] == names(bindings)


def test_a_lookup_in_c_is_noted_by_its_name(build: Build) -> None:
    """Not that of a function that the kernel has itself, nor one that is nowhere."""
    bindings = Bindings()
    library = build(CALLS)
    bindings.look()
    for name in (b"_ZN2at3cpu3logERKNS_6TensorE", b"malloc", b"cblas_sasum", b"cblas_nothing"):
        library.find(name)
    assert [("at::cpu::log", True, True)] == names(bindings)


def test_of_many_lookups_the_last_are_known(build: Build) -> None:
    """A driver's library looks hundreds up; the names of more than are kept are lost, and nothing else."""
    bindings = Bindings()
    library = build(CALLS)
    bindings.look()
    for _ in range(3000):
        library.find(b"free")
    library.find(b"_ZN2at3cpu3logERKNS_6TensorE")
    assert ["at::cpu::log"] == [called.found.name for called in bindings.called()]


@pytest.fixture
def told() -> Iterator[tuple[Supervision, list[str]]]:
    """Supervises this process for the task `relu`, and what it tells."""
    lines: list[str] = []
    supervision = Supervision(torch.device("cpu"), lambda line, _offence: lines.append(line))
    supervision.begin(aten_schemas()["relu.default"], "native")
    yield supervision, lines
    supervision.end()


@pytest.mark.slow
def test_a_lookup_by_ctypes_is_held_against_the_kernel(told: tuple[Supervision, list[str]]) -> None:
    """By attribute, by index or through the C module."""
    library = ctypes.CDLL(LIBRARY)
    _, lines = told
    library["_ZN2at3cpu4reluERKNS_6TensorE"]
    assert 1 == len(lines)
    assert lines[0].startswith("looked up at::cpu::relu past the dispatcher at test_bindings.py:")
    with pytest.raises(AttributeError, match="through ctypes itself"):
        _ = ctypes.CDLL(None).dlsym


VENDOR = """
float scipy_cblas_sdot64_(long n, const float* x, long step, const float* y, long other);
float run(long n, const float* x) { return scipy_cblas_sdot64_(n, x, 1, x, 1); }
"""


def test_a_call_of_a_package_that_came_with_the_kernel_is_noted(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy's way to cuBLAS is a package's object, and so is that of any other array library."""
    vendors = next((Path(torch.__file__).parents[1] / "numpy.libs").glob("libscipy_openblas*"), None)
    if vendors is None:
        pytest.skip("this numpy has no library of its own")
    folders = (str(tmp_path), str(vendors.parents[1]))
    monkeypatch.setattr("opsmith.evaluation.integrity.bindings.installed_folders", lambda: folders)
    bindings = Bindings()
    library = build(VENDOR, f"-L{vendors.parent}", f"-l:{vendors.name}", f"-Wl,-rpath,{vendors.parent}")
    bindings.look()
    assert [] == names(bindings)
    library.run.restype = ctypes.c_float
    assert 12.0 == library.run(3, (ctypes.c_float * 3)(2, 2, 2))
    assert [("scipy_cblas_sdot64_", False, False)] == names(bindings)


@pytest.mark.slow
def test_what_a_kernel_calls_like_a_vendors_is_its_own(told: tuple[Supervision, list[str]], build: Build) -> None:
    """And other functions of torch's and of the system's are free."""
    supervision, lines = told
    library = build(CALLS)
    for opened, name in ((library, "cblas_sasum"), (ctypes.CDLL(None), "malloc"), (ctypes.CDLL("libm.so.6"), "expf")):
        assert getattr(opened, name)
    assert [] == lines
    assert not supervision.conduct(None).forbidden


def test_a_vendors_function_is_an_open_call(told: tuple[Supervision, list[str]], build: Build) -> None:
    """Nothing hides it: it is a call like one of an op."""
    supervision, lines = told
    found = next((Path(torch.__file__).parents[1] / "numpy.libs").glob("libscipy_openblas*"), None)
    if found is None:
        pytest.skip("this numpy has no library of its own")
    assert ctypes.CDLL(str(found)).scipy_cblas_sdot64_ is not None
    (call,) = supervision.conduct(None).forbidden
    assert str(call).startswith("scipy_cblas_sdot64_ at test_bindings.py:")
    assert [] == lines


def test_what_is_called_is_said_as_people_write_it() -> None:
    """A line of a verdict."""
    assert {"found", "place", "of_torch", "looked_up"} == set(Called._fields)


CHILDREN = """
import ctypes, os, subprocess, torch
from opsmith.evaluation.integrity.inheritance import keep_code_from_children
x = torch.randn(4)
keep_code_from_children()
def status(act):
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(status(lambda: None), status(lambda: x.data_ptr()), status(lambda: torch.relu(x)), status(lambda: x + x))
print(status(lambda: torch.ops.aten.mm.default(x[None], x[:, None])))
print(status(lambda: ctypes.string_at(x.data_ptr(), 16)))
print(subprocess.run(["true"], preexec_fn=os.getpid).returncode, float((x - x).sum()))
"""


@pytest.mark.slow
def test_a_forked_child_has_everything_but_torchs_ops() -> None:
    """It starts compilers, runs code of its own and hands tensors' memory on; a call of torch ends it."""
    done = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, check=True)
    assert ["0", "0", "-11", "-11", "-11", "0", "0", "0.0"] == done.stdout.split()
