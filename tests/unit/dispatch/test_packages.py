"""Kernels of an installed package: enabled without being loaded, with the guarantees of ``enable``."""

from __future__ import annotations

import io
import logging
import warnings
import zipfile
from pathlib import Path

import msgspec
import pytest
import torch
from tests.dispatch_tables import kernel_file, tables

import opsmith
from opsmith.core import package
from opsmith.core.judging import JUDGING_VARIABLE
from opsmith.core.package import Package
from opsmith.dispatch.activity import ServedOp
from opsmith.dispatch.install import _installed
from opsmith.dispatch.override import FallbackWarning
from opsmith.dispatch.packages import activate
from opsmith.errors import EnabledWhileJudging
from opsmith.packaging.kernels import collect

X = torch.tensor([-1.0, 2.0])


@pytest.fixture(autouse=True)
def _forget_packages() -> None:
    """A process has the packages that were there when torch was imported; each test has its own."""
    _installed.packages.clear()


def installed(folder: Path, op: str, source: str) -> Path:
    """The folder of a package with one kernel; ``source`` defines ``kernel``."""
    kernel_file(folder, op, source)
    with zipfile.ZipFile(io.BytesIO(collect(folder, license="MIT").wheel())) as archive:
        archive.extractall(folder.parent / "site")
    return folder.parent / "site" / f"opsmith_kernels_{folder.name}"


def served(op: str) -> ServedOp:
    """What is known of one op on the CPU."""
    return next(one for one in opsmith.active().ops if (one.op, one.device) == (op, "cpu"))


def test_a_kernel_is_loaded_once_when_its_op_is_first_called(tmp_path: Path) -> None:
    """By whichever form of the op comes first."""
    loads = tmp_path / "loads"
    source = f"with open({str(loads)!r}, 'a') as f: f.write('.')\ndef kernel(x): return x * 0 + 7"
    activate(installed(tmp_path / "mine", "relu.default", source))
    assert not loads.exists()
    assert [7.0, 7.0] == X.clone().relu_().tolist()
    assert [7.0, 7.0] == X.relu().tolist()
    assert "." == loads.read_text()
    assert ("mine", 1) == (served("relu.default").backend, served("relu.default").calls)


@pytest.mark.parametrize("op", ["relu.default", "relu_.default"])
def test_where_a_kernel_does_not_load_torch_answers(tmp_path: Path, op: str) -> None:
    """Also for a kernel that writes to its argument: it has not been called. Warned of once."""
    activate(installed(tmp_path / "mine", op, "import a_package_that_is_missing"))
    function = torch.relu if op == "relu.default" else torch.relu_
    with pytest.warns(FallbackWarning, match="does not load: ModuleNotFoundError: .*; PyTorch's own kernel answers"):
        assert [0.0, 2.0] == function(X.clone()).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [0.0, 2.0] == function(X.clone()).tolist()
    assert (0, {"unloadable": 2}) == (served(op).calls, served(op).fallbacks)


def test_disable_takes_packages_out_of_the_tables_too(tmp_path: Path) -> None:
    """As with ``enable``."""
    before = tables()
    activate(installed(tmp_path / "mine", "relu.default", "def kernel(x): return x * 0 + 7"))
    opsmith.disable()
    assert before == tables()
    assert [0.0, 2.0] == X.relu().tolist()


def test_what_enabled_adds_for_a_while_gives_way_to_the_package_again(tmp_path: Path) -> None:
    """The choice before is put back."""
    activate(installed(tmp_path / "mine", "relu.default", "def kernel(x): return x * 0 + 7"))
    with opsmith.enabled(kernel_file(tmp_path / "other", "relu.default", "def kernel(x): return x * 0 + 8")):
        assert [8.0, 8.0] == X.relu().tolist()
    assert [7.0, 7.0] == X.relu().tolist()


def test_an_op_with_another_schema_than_the_package_knows_is_left_to_torch(tmp_path: Path) -> None:
    """The kernel was written for other arguments, or the op is gone."""
    folder = installed(tmp_path / "mine", "relu.default", "def kernel(x): return x * 0 + 7")
    path = folder / package.NAME
    found = msgspec.json.decode(path.read_bytes(), type=Package)
    other = [
        msgspec.structs.replace(
            op, schema=msgspec.structs.replace(op.schema, schema="relu(Tensor self, int n) -> Tensor")
        )
        for op in found.ops
    ]
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, ops=tuple(other), torch="1.0")))
    activate(folder)
    assert [0.0, 2.0] == X.relu().tolist()
    assert "its schema is another one than in torch 1.0" == opsmith.active().excluded["relu.default"]


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_of_two_packages_the_first_by_name_wins_in_any_order(
    tmp_path: Path, order: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The order of a folder on disk decides nothing."""
    for name in order:
        value = {"first": 7, "second": 8}[name]
        activate(installed(tmp_path / name, "relu.default", f"def kernel(x): return x * 0 + {value}"))
    assert [7.0, 7.0] == X.relu().tolist()
    assert "first, second" == opsmith.active().kernels
    told = "the packages first and second both have kernels for 3 ops; those of first are used: uninstall one of them"
    assert [("opsmith", logging.WARNING, told)] == caplog.record_tuples


def test_no_package_is_enabled_where_kernels_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a kernel's answer would be compared with its own."""
    monkeypatch.setenv(JUDGING_VARIABLE, "1")
    with pytest.raises(EnabledWhileJudging):
        activate(installed(tmp_path / "mine", "relu.default", "def kernel(x): return x"))
    assert opsmith.active().kernels is None
