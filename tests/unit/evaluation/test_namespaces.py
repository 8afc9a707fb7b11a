"""Ops outside ATen: what computes, what does a task's work, and whose ops are registered later."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.aten.schemas import aten_schemas
from opsmith.core.conduct import AtenCall
from opsmith.evaluation.integrity import namespaces
from opsmith.evaluation.integrity.namespaces import computing, does_task, known, registered_since
from opsmith.evaluation.integrity.policy import forbidden
from opsmith.evaluation.integrity.supervision import Supervision


@pytest.mark.parametrize(
    ("op", "computes"),
    [
        ("mkldnn._linear_pointwise.default", True),
        ("quantized.add.default", True),
        ("prims.exp.default", True),
        ("mkldnn_prepacked.conv2d_run.default", True),
        ("profiler._record_function_exit._RecordFunction", False),
        ("inductor._reinterpret_tensor.default", False),
        ("prims.transpose.default", False),
        ("streams.record_stream.default", False),
        ("c10d.allreduce_.default", False),
    ],
)
def test_what_takes_tensors_computes(op: str, *, computes: bool) -> None:
    """But for views, for names of memory, and for what ranks send each other."""
    assert computes is (op in computing())


@pytest.mark.parametrize(
    ("op", "task", "same"),
    [
        ("mkldnn._linear_pointwise.default", "linear.default", True),
        ("mkldnn._linear_pointwise.default", "mm.default", True),
        ("onednn.qlinear_pointwise.default", "addmm.default", True),
        ("mkldnn._convolution_pointwise.default", "convolution.default", True),
        ("onednn.qconv2d_pointwise.default", "convolution.default", True),
        ("quantized.add_relu.default", "relu.default", True),
        ("prims.exp.default", "exp.default", True),
        ("prims.exp.default", "expm1.default", False),
        ("mkldnn._linear_pointwise.default", "relu.default", False),
        ("prims.mul.default", "add.Tensor", False),
    ],
)
def test_an_op_elsewhere_does_a_task_that_its_name_names(op: str, task: str, *, same: bool) -> None:
    """Under policy any the others are free."""
    assert same is does_task(op, task)
    assert (same and op in computing()) is (op in forbidden(aten_schemas()[task], "any"))


@pytest.mark.parametrize("policy", ["native", "any"])
def test_a_call_elsewhere_is_seen_on_every_thread(policy: str) -> None:
    """The poison is in every namespace; what no mode could see is hidden."""
    supervision = Supervision(torch.device("cpu"), lambda _line, _offence: None)
    supervision.begin(aten_schemas()["exp.default"], policy)
    with supervision.watching(()):
        thread = threading.Thread(target=lambda: torch.ops.prims.exp(torch.ones(2)))
        thread.start()
        thread.join()
    (call, *_) = supervision.conduct(None).hidden
    assert str(call).startswith("prims::exp.default at test_namespaces.py:")
    supervision.end()


DEFINES = """
import torch
library = torch.library.Library("{namespace}", "DEF")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: x.clone(), "CPU")
@torch.library.custom_op("{namespace}::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
"""


def defined(folder: Path, namespace: str) -> Any:
    """Run a file that defines two ops."""
    path = folder / "defines.py"
    path.write_text(DEFINES.format(namespace=namespace))
    scope: dict[str, Any] = {"__name__": "defines"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages."""
    known()
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(namespaces, "installed_folders", lambda: (f"{folder}/",))
    return folder


def test_what_a_package_registers_later_is_no_work_of_the_kernels(installed: Path, tmp_path: Path) -> None:
    """What the kernel registers itself is."""
    kept = defined(installed, "packaged"), defined(tmp_path, "mine")
    assert {"packaged.double.default", "packaged.twice.default"} == registered_since()
    assert kept


REGISTERS = """
extern void _ZN5torch7Library4_defE(void) __attribute__((weak));
void *uses(void) { return _ZN5torch7Library4_defE; }
const char *name = "packaged_in_cpp";
"""


def test_a_library_that_registers_is_known_by_what_it_imports(installed: Path, tmp_path: Path) -> None:
    """One that only holds the words, such as CUDA's of gigabytes, is not read."""
    for folder, name, source in (
        (installed, "registers", REGISTERS),
        (installed, "mentions", 'const char *text = "_ZN5torch7Library, packaged_in_cpp";'),
        (tmp_path, "mine", REGISTERS),
    ):
        library = folder / f"{name}.so"
        program = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(program, input=source.encode(), check=True)
        ctypes.CDLL(str(library))
    assert [(installed / "registers.so").read_bytes()] == namespaces._registering_libraries()


def test_an_op_that_a_call_imports_is_seen_in_that_call(installed: Path) -> None:
    """By the watch; the poison follows."""
    supervision = Supervision(torch.device("cpu"), lambda _line, _offence: None)
    supervision.begin(aten_schemas()["exp.default"], "native")
    x = torch.ones(2)
    with supervision.watching((x,)):
        kept = defined(installed, "imported_late")
        torch.ops.imported_late.double(x)
    assert "imported_late.double.default" in {call.op for call in supervision.conduct(None).forbidden}
    supervision.end()
    assert kept


def test_calls_are_written_with_their_namespace() -> None:
    """As a dispatcher does."""
    assert "aten::add.Tensor at k.py:3" == str(AtenCall("add.Tensor", "k.py:3"))
    assert "mkldnn::_linear_pointwise.default at k.py:3" == str(AtenCall("mkldnn._linear_pointwise.default", "k.py:3"))
    assert "cblas_sgemm at k.so" == str(AtenCall("cblas_sgemm", "k.so"))


def test_a_kernel_that_was_taken_out_while_loading_tells() -> None:
    """By torch's private functions, of which nobody hears; an op that is called then tells nothing."""
    lines: list[str] = []
    supervision = Supervision(torch.device("cpu"), lambda line, _offence: lines.append(line))
    supervision.expect(aten_schemas()["exp.default"], "native")
    taken = torch._C._dispatch_get_computed_kernel_for_dispatch_key("aten::log", "CPU")
    table = torch.exp(torch.ones(3))
    supervision.begin(aten_schemas()["exp.default"], "native")
    with supervision.watching((table,)):
        taken.call_boxed(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), table)
    assert {"log.default"} == {call.op for call in supervision.conduct(None).forbidden}
    supervision.end()
