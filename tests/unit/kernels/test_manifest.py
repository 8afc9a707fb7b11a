from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from keyword import iskeyword
from pathlib import Path

import pytest
from tests.unit.kernels.against_eager import FOLDER, MANIFEST, eager, files_of_kernels, kernel

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.shipped import Shipped
from opsmith.core.task import Task


@pytest.mark.parametrize("op", sorted(MANIFEST))
def test_an_entry_takes_the_arguments_of_its_overload(op: str) -> None:
    """Names, order, keyword-only ones and which may be left out, by the schema."""
    schema = eager(op)._schema  # type: ignore[attr-defined]
    parameters = list(inspect.signature(kernel(op)).parameters.values())
    names = [f"{argument.name}_" if iskeyword(argument.name) else argument.name for argument in schema.arguments]
    assert names == [parameter.name for parameter in parameters]
    for argument, parameter in zip(schema.arguments, parameters, strict=True):
        assert argument.kwarg_only == (parameter.kind is parameter.KEYWORD_ONLY)
        assert not argument.has_default_value() or parameter.default is not parameter.empty


def test_no_folder_of_a_family_is_taken_for_an_op() -> None:
    """`softmax/` answers no `softmax.int` by its name: an answer is an entry of the manifest, and its file is there."""
    shipped = Shipped()
    assert set(MANIFEST) == shipped.named_ops()
    assert [] == shipped.unrecognised(aten_schemas())
    assert shipped.kernel_for(Task(name="softmax.int", op=aten_schemas()["softmax.int"], suite="smoke")) is None
    for name, schema in aten_schemas().items():
        kernel = shipped.kernel_for(Task(name=name, op=schema, suite="smoke"))
        assert kernel is None or kernel.entry.partition(":")[0] in kernel.files, name


def test_every_family_is_a_package() -> None:
    """A folder without an `__init__.py` would be missing from the wheel."""
    families = {file.partition("/")[0] for file in files_of_kernels()}
    assert "common" in families
    assert {f"{family}/__init__.py" for family in families} == {
        path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/__init__.py")
    }


def test_the_folder_works_under_another_name_in_another_place(tmp_path: Path) -> None:
    """A worker imports a copy, so the files may import each other only relatively."""
    shutil.copytree(FOLDER, tmp_path / "snapshot", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from snapshot.pointwise.basic import relu; import torch; print(relu(torch.tensor([-1.0, 2.0])).tolist())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "[0.0, 2.0]\n" == done.stdout
