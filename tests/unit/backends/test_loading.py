"""Loading turns a record into a callable, and says clearly why where it cannot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from opsmith import loading as dispatch_loading
from opsmith.aten.schemas import aten_schemas
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema
from opsmith.runner.worker import loading

ADD = "add.Tensor"


def schema(op: str = ADD) -> OpSchema:
    """The real schema of an overload."""
    return aten_schemas()[op]


def file_kernel(entry: str, op: str = ADD, derived_from: str | None = None) -> Kernel:
    """A FILE kernel record."""
    return Kernel(task=op, backend="test", loader=Loader.FILE, entry=entry, derived_from=derived_from)


def load(root: Path, entry: str = "kernel.py:run") -> Callable[..., object]:
    """Load a kernel for add.Tensor from a folder."""
    return loading.load_kernel(file_kernel(entry), root, schema())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file that imports another one relatively."""
    (tmp_path / "kernel.py").write_text(
        "from .tiles import SIZE\ndef run(a, b, *, alpha=1): return a + alpha * b + SIZE\n"
    )
    (tmp_path / "tiles.py").write_text("SIZE = 7\n")
    return tmp_path


def test_aten_loads_the_overload_itself() -> None:
    """The reference is the op."""
    kernel = Kernel(task=ADD, backend="aten", loader=Loader.ATEN, entry=ADD)
    assert torch.ops.aten.add.Tensor is loading.load_kernel(kernel, None, schema())


def test_a_file_may_import_its_neighbours_relatively(folder: Path) -> None:
    """A kernel's folder is a package."""
    assert 13 == load(folder)(2, 4)


def test_two_kernels_share_no_module(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Equal file names in two folders stay apart."""
    other = tmp_path_factory.mktemp("other")
    (other / "kernel.py").write_text("from .tiles import SIZE\ndef run(a, b): return SIZE\n")
    (other / "tiles.py").write_text("SIZE = 1000\n")
    assert (7, 1000) == (load(folder)(0, 0), load(other)(0, 0))


def test_a_file_in_a_subfolder_may_import_its_parent(folder: Path) -> None:
    """An entry of a manifest can lie deeper."""
    (folder / "norms").mkdir()
    (folder / "norms" / "layer-norm.v2.py").write_text("from ..tiles import SIZE\ndef run(a, b): return SIZE\n")
    assert 7 == load(folder, "norms/layer-norm.v2.py:run")(0, 0)


def test_the_folders_own_init_is_run(folder: Path) -> None:
    """A kernel directory may be a regular package."""
    (folder / "__init__.py").write_text("SHIFT = 100\n")
    (folder / "kernel.py").write_text("from . import SHIFT\ndef run(a, b): return SHIFT\n")
    assert 100 == load(folder)(0, 0)


def test_a_missing_function_lists_what_the_file_defines(folder: Path) -> None:
    """The author sees the wrong name at once; imported functions are not in the way."""
    with pytest.raises(ImportError, match=r"^kernel.py defines no add_kernel_impl; it defines: run$"):
        load(folder, "kernel.py:add_kernel_impl")


def test_a_missing_file_lists_what_the_folder_holds(folder: Path) -> None:
    """An empty operator folder is the most frequent case."""
    with pytest.raises(FileNotFoundError, match=r"file other.py is missing; its folder holds: kernel.py, tiles.py"):
        load(folder, "other.py:run")
    (folder / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="its folder holds: nothing"):
        load(folder / "empty")


def test_an_entry_that_cannot_be_called_is_refused(folder: Path) -> None:
    """A constant is no kernel."""
    with pytest.raises(TypeError, match="tiles.py:SIZE is a int, which cannot be called"):
        load(folder, "tiles.py:SIZE")


@pytest.mark.parametrize("entry", ["../kernel.py:run", "link.py:run"])
def test_an_entry_never_leads_out_of_the_folder(folder: Path, entry: str) -> None:
    """Neither by dots nor through a link."""
    inner = folder / "inner"
    inner.mkdir()
    (inner / "link.py").symlink_to(folder / "kernel.py")
    with pytest.raises(ValueError, match="is no file of the kernel's folder"):
        load(inner, entry)


@pytest.mark.parametrize(
    ("source", "error"),
    [("def run(:\n", SyntaxError), ("1 / 0\n", ZeroDivisionError), ("raise SystemExit(0)\n", SystemExit)],
)
def test_a_file_that_fails_to_load_leaves_no_module_behind(
    folder: Path, source: str, error: type[BaseException]
) -> None:
    """The stranger's own error reaches the worker's edge, and a second attempt starts afresh."""
    (folder / "kernel.py").write_text("from . import tiles\n" + source)
    before = set(sys.modules)
    with pytest.raises(error):
        load(folder)
    assert set() == set(sys.modules) - before


def test_a_derived_kernel_is_wrapped(folder: Path) -> None:
    """The functional function of the file answers the in-place overload."""
    kernel = loading.load_kernel(file_kernel("kernel.py:run", "add_.Tensor", ADD), folder, schema("add_.Tensor"))
    x = torch.zeros(2)
    assert kernel(x, torch.ones(2), alpha=2) is x
    assert [9.0, 9.0] == x.tolist()


# ---------------------------------------------------------------- objects behind an import path

STRANGER = """
import pathlib

def fast_add(a, b): return a + b

table = {"add.Tensor": fast_add}
directory = pathlib.Path("op_folders")
number = 3

def finder(op): return table.get(op)

class Library:
    dsl = "triton"
    def kernel_for(self, op): return table.get(op)

library = Library()
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable module of somebody else's."""
    path = tmp_path / "strangers_module.py"
    path.write_text(STRANGER)
    monkeypatch.setattr(dispatch_loading, "_STARTED_IN", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "strangers_module", raising=False)
    return path


@pytest.mark.parametrize(
    ("attribute", "dsl"),
    [
        ("table", "unknown"),
        ("finder", "unknown"),
        ("library", "triton"),
        ("Library", "triton"),
        ("library.kernel_for", "unknown"),
    ],
)
def test_an_object_is_asked_for_every_op(stranger: Path, attribute: str, dsl: str) -> None:
    """A mapping, a function, an object or a class; what it has is found again when it is loaded."""
    target = f"strangers_module:{attribute}"
    found = loading.discover(target, ["add.Tensor", "mul.Tensor"])
    assert {"add.Tensor": str(stranger)} == found.answered
    assert (dsl, None) == (found.dsl, found.kernel_directory)
    kernel = Kernel(task=ADD, backend="x", loader=Loader.ATTRIBUTE, entry=target)
    assert 3 == loading.load_kernel(kernel, None, schema())(1, 2)


def test_a_path_is_a_kernel_directory_next_to_its_module(stranger: Path) -> None:
    """The judge reads the directory itself."""
    found = loading.discover("strangers_module:directory", [ADD])
    assert ({}, str(stranger.parent / "op_folders")) == (found.answered, found.kernel_directory)


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("strangers_module:missing", ImportError, "strangers_module has no attribute missing"),
        ("module_that_is_missing:table", ImportError, "No module named 'module_that_is_missing'"),
        ("strangers_module:number", TypeError, "is a int; it should be a mapping, an object with kernel_for"),
    ],
)
def test_an_object_that_is_no_backend_is_refused(
    stranger: Path, target: str, error: type[Exception], message: str
) -> None:
    """With a line that says what it should be."""
    assert stranger.exists()
    with pytest.raises(error, match=message):
        loading.discover(target, [ADD])


def test_an_object_that_forgot_its_answer_is_told(stranger: Path) -> None:
    """What discovery found must be there when it is loaded."""
    assert stranger.exists()
    kernel = Kernel(task="mul.Tensor", backend="x", loader=Loader.ATTRIBUTE, entry="strangers_module:table")
    with pytest.raises(ImportError, match=r"strangers_module:table has no kernel for mul.Tensor"):
        loading.load_kernel(kernel, None, schema("mul.Tensor"))


def test_the_users_folder_hides_no_installed_package(stranger: Path) -> None:
    """A json.py in the working directory must not replace the real one."""
    (stranger.parent / "msgspec.py").write_text("raise AssertionError\n")
    loading.discover("strangers_module:table", [])
    assert str(stranger.parent) == sys.path[-1]


def test_flag_gems_is_asked_for_the_table_that_it_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names without an overload mean the default one; an entry whose condition fails is left out."""
    package = tmp_path / "flag_gems"
    package.mkdir()
    (package / "__init__.py").write_text(
        "def abs(x): ...\ndef add(a, b): ...\ndef old(x): ...\n"
        "_FULL_CONFIG = (('abs', abs), ('add.Tensor', add, lambda: True), ('_to_copy', old, lambda: False))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "flag_gems", raising=False)
    from opsmith.backends import flag_gems

    flag_gems._table.cache_clear()
    backend = flag_gems.FlagGems()
    found = loading.discover(backend.target, ["abs.default", "add.Tensor", "_to_copy.default", "mm.default"])
    flag_gems._table.cache_clear()
    assert {"abs.default", "add.Tensor"} == found.answered.keys()
    assert {str(package / "__init__.py")} == set(found.answered.values())
