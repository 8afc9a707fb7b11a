"""Scaffolding writes stubs that load, and never touches what is there."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.directory import KernelDirectory
from opsmith.backends.scaffold import scaffold, stub
from opsmith.cli.scaffold import scaffold as scaffold_command
from opsmith.cli.scaffold import select
from opsmith.core.task import Task
from opsmith.errors import BadInput, UnknownName
from opsmith.runner.worker.loading import load_kernel


@pytest.mark.slow
def test_every_schema_of_aten_makes_a_stub_that_parses() -> None:
    """Keywords as names, list defaults, enumerations and quotes included."""
    for schema in aten_schemas().values():
        ast.parse(stub(schema))


def test_a_stub_loads_as_a_kernel_that_declines(tmp_path: Path) -> None:
    """What scaffold writes is what a kernel directory reads."""
    schema = aten_schemas()["add.Tensor"]
    scaffold(tmp_path, [schema])
    kernel = KernelDirectory(tmp_path).kernel_for(Task(name=schema.name, op=schema, suite="smoke"))
    assert kernel is not None
    with pytest.raises(NotImplementedError, match=r"add.Tensor is not written yet"):
        load_kernel(kernel, tmp_path / "add__Tensor", schema)(torch.ones(1), torch.ones(1))


def test_a_stub_has_the_schemas_signature() -> None:
    """Names, order, keyword-only arguments, defaults and types."""
    namespace: dict[str, object] = {}
    exec(stub(aten_schemas()["sum.dim_IntList"]), namespace)
    function = namespace["sum__dim_IntList_kernel_impl"]
    assert callable(function)
    assert (
        "(self: 'torch.Tensor', dim: 'Sequence[int] | None', keepdim: 'bool' = False, *, "
        "dtype: 'torch.dtype | None' = None) -> 'torch.Tensor'"
    ) == str(inspect.signature(function))


@pytest.mark.parametrize(
    ("op", "text"),
    [
        ("avg_pool2d.default", "padding: Sequence[int] = (0, 0),"),
        ("random_.from", "from_: int,"),
        ("randint.low", "dtype: torch.dtype | None = torch.int64,"),
        ("index.Tensor", "indices: Sequence[torch.Tensor | None],"),
        ("max.dim_max", "-> tuple[torch.Tensor, torch.Tensor]:"),
        ("_foreach_add_.Scalar", "-> None:"),
    ],
)
def test_a_stub_speaks_python(op: str, text: str) -> None:
    """Schema types and defaults become Python's."""
    assert text in stub(aten_schemas()[op])


def test_the_docstring_names_the_variants_that_come_for_free() -> None:
    """So that nobody writes add_ by hand."""
    assert "Answers these too, with a copy at the end: add.out, add_.Tensor." in stub(
        aten_schemas()["add.Tensor"], ["add.out", "add_.Tensor"]
    )


def test_existing_files_are_kept(tmp_path: Path) -> None:
    """A second call adds what is missing and reports the rest."""
    schemas = aten_schemas()
    scaffold(tmp_path, [schemas["relu.default"]])
    mine = tmp_path / "relu__default" / "relu__default_implementation_v1.py"
    mine.write_text("my work")
    done = scaffold(tmp_path, [schemas["relu.default"], schemas["exp.default"]])
    assert "my work" == mine.read_text()
    assert ("exp__default/exp__default_implementation_v1.py",) == done.written
    assert ("relu__default/relu__default_implementation_v1.py", "README.md") == done.kept


def test_a_place_that_cannot_be_written_gets_one_line(tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        scaffold(tmp_path / "file", [aten_schemas()["relu.default"]])


def test_a_pattern_leaves_out_what_is_derived() -> None:
    """`relu*` asks for kernels, not for copies; TorchScript's ops on numbers are no kernels either."""
    chosen, derived = select(aten_schemas().values(), ["relu", "relu_", "add"])
    assert ["add.Scalar", "add.Tensor", "relu.default"] == [schema.name for schema in chosen]
    assert {"relu_.default", "relu.out", "add_.Tensor", "add.out"} <= {schema.name for schema in derived}


def test_a_variant_named_exactly_gets_a_stub() -> None:
    """For a direct in-place kernel."""
    chosen, derived = select(aten_schemas().values(), ["relu.default", "relu_.default"])
    assert ["relu.default", "relu_.default"] == [schema.name for schema in chosen]
    assert ["relu.out"] == [schema.name for schema in derived]


@pytest.mark.parametrize("pattern", ["rellu.default", "no_such*", ""])
def test_a_pattern_that_matches_nothing_is_refused(pattern: str) -> None:
    """A typing mistake must not end in an empty directory."""
    with pytest.raises(UnknownName, match="no op named"):
        select(aten_schemas().values(), [pattern])


def test_the_command_prints_one_json_document(tmp_path: Path) -> None:
    """For scripts."""
    app = typer.Typer()
    app.command()(scaffold_command)
    result = CliRunner().invoke(app, [str(tmp_path), "--ops", "relu.default, exp", "--json"])
    assert 0 == result.exit_code, result.output
    document = json.loads(result.stdout)
    assert (str(tmp_path), []) == (document["directory"], document["kept"])
    assert {"exp__default", "relu__default"} == {path.parent.name for path in tmp_path.glob("*/*.py")}
