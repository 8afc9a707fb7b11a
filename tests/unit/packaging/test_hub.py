"""A kernel directory as a repository of the kernel hub, written and read again."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.dispatch_tables import kernel_file
from typer.testing import CliRunner

from opsmith.aten.schemas import aten_schemas
from opsmith.backends import hub
from opsmith.backends.hub import HubKernels
from opsmith.backends.resolve import resolve
from opsmith.cli.main import app
from opsmith.core.task import Task
from opsmith.errors import BadInput
from opsmith.loading import from_file
from opsmith.packaging.hub import hub_files, write_hub
from opsmith.packaging.kernels import collect

RELU = "from .rows import clamp\n\n\ndef kernel(self):\n    return clamp(self)\n"
ADD = "def kernel(self, other, *, alpha=1):\n    return self - other * -alpha\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two kernels, one of two files, as a repository."""
    kernel_file(tmp_path / "mine", "relu.default", RELU)
    (tmp_path / "mine" / "relu__default" / "rows.py").write_text("def clamp(x):\n    return x * (x > 0)\n")
    kernel_file(tmp_path / "mine", "add.Tensor", ADD)
    contents = collect(tmp_path / "mine", name="my-kernels", version="3.1", license="apache-2.0")
    write_hub(hub_files(contents, contents.kernel_files()), tmp_path / "repo")
    return tmp_path / "repo"


def imported(init: Path, name: str) -> ModuleType:
    """A package by its `__init__.py`, as `kernels` imports a variant."""
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(init.parent)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _imports_undone() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("init", ["build/torch-cpu/__init__.py", "build/torch-cpu/my_kernels/__init__.py"])
def test_a_variant_exports_kernels_and_layers(repository: Path, init: str) -> None:
    """In the folder that is imported today, and in the one that older versions import."""
    module = imported(repository / init, "a_variant")
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(x.relu(), module.relu(x))
    assert torch.equal(x.relu(), module.layers.ReLU()(x))
    assert torch.equal(x + 2 * x, module.add__Tensor(x, x, alpha=2))
    assert {"add__Tensor", "layers", "relu", "relu__default"} == set(module.__all__)


def test_metadata_has_what_kernels_asks_for(repository: Path) -> None:
    """Version 0.17 refuses a variant that lacks one of these, and verifies the digests."""
    variant = repository / "build" / "torch-cpu"
    metadata = json.loads((variant / "metadata.json").read_text())
    assert ("my-kernels", 3, "apache-2.0", [], {"type": "cpu"}) == tuple(
        metadata[name] for name in ("name", "version", "license", "python-depends", "backend")
    )
    assert metadata["id"].isidentifier()
    files = {path.relative_to(variant).as_posix() for path in variant.rglob("*") if path.is_file()}
    assert files - {"metadata.json"} == set(metadata["digest"]["files"])
    for path, expected in metadata["digest"]["files"].items():
        assert expected == base64.b64encode(hashlib.sha256((variant / path).read_bytes()).digest()).decode()


def test_the_builder_finds_its_sources(repository: Path) -> None:
    """`build.toml` names the module that `torch-ext` holds."""
    assert 'name = "my-kernels"\nversion = 3\n' in (repository / "build.toml").read_text()
    assert "[torch-noarch]" in (repository / "build.toml").read_text()
    assert (repository / "torch-ext" / "my_kernels" / "kernels" / "relu__default" / "rows.py").is_file()


def test_kernels_of_a_device_are_for_the_device(tmp_path: Path) -> None:
    """A Triton kernel has nothing to do in a variant for the CPU."""
    kernel_file(tmp_path / "mine", "relu.default", "import triton\n\n\n@triton.jit\ndef rows(): ...\n\n\n" + ADD)
    contents = collect(tmp_path / "mine", license="MIT")
    assert any(path.startswith("build/torch-cuda/") for path in hub_files(contents, contents.kernel_files()))


def test_a_repository_answers_ops_by_the_names_that_it_exports(repository: Path) -> None:
    """In-place forms are derived, and the files are those of the variant."""
    backend = resolve(f"hub:{repository}")
    assert isinstance(backend, HubKernels)
    schemas = aten_schemas()
    kernels = {
        op: backend.kernel_for(Task(name=op, op=schemas[op], suite="smoke"))
        for op in ("relu.default", "relu_.default", "add.Tensor", "mul.Tensor")
    }
    assert kernels["mul.Tensor"] is None
    relu, relu_ = kernels["relu.default"], kernels["relu_.default"]
    assert relu is not None
    assert relu_ is not None
    assert ("__init__.py:relu__default", None, "relu.default") == (relu.entry, relu.derived_from, relu_.derived_from)
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(x.relu(), from_file(relu, Path(relu.root or ""))(x))


def test_a_repository_is_found_in_the_hubs_cache(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `get_kernel` put it."""
    snapshot = tmp_path / "cache" / "kernels--me--relus" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    repository.rename(snapshot)
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))
    assert "hub:me/relus" == HubKernels("hub:me/relus").name
    with pytest.raises(BadInput, match="me/other is no folder with build/VARIANT, and is not in the cache"):
        HubKernels("hub:me/other")


def test_a_repository_without_a_variant_for_this_machine_says_which_there_are(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels for another torch or another device."""
    monkeypatch.setattr(hub, "_wanted", lambda: iter(["torch99-cxx11-cu999-x86_64-linux"]))
    with pytest.raises(BadInput, match="there is torch-cpu; wanted is torch99-cxx11-cu999-x86_64-linux"):
        HubKernels(f"hub:{repository}")


def test_the_command_writes_a_repository_once(tmp_path: Path) -> None:
    """A folder with something in it is somebody's."""
    kernel_file(tmp_path / "mine", "relu.default", "def kernel(self): ...")
    words = ["package", str(tmp_path / "mine"), "--license", "mit", "--hub", str(tmp_path / "repo"), "--json"]
    result = CliRunner().invoke(app, words, standalone_mode=False)
    printed = json.loads(result.stdout)
    assert (None, str(tmp_path / "repo")) == (printed["wheel"], printed["hub"])
    again = CliRunner().invoke(app, words, standalone_mode=False)
    assert 2 == again.return_value
    assert "is not empty; choose another --hub" in again.output


def test_the_hub_takes_one_licence(tmp_path: Path) -> None:
    """It files repositories by it."""
    kernel_file(tmp_path / "mine", "relu.default", "def kernel(self): ...")
    contents = collect(tmp_path / "mine", license="MIT AND Apache-2.0")
    with pytest.raises(BadInput, match="the hub takes one licence"):
        hub_files(contents, contents.kernel_files())
