"""A kernel directory is read as its layout says, and never run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from opsmith.backends.directory import KernelDirectory
from opsmith.core.kernel import Kernel, Loader, Provenance
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.task import Task
from opsmith.errors import BadInput

SCHEMAS = {
    schema.name: schema
    for schema in (
        OpSchema(name="relu.default", schema="relu(Tensor self) -> Tensor", variant=Variant.FUNCTIONAL),
        OpSchema(name="relu_.default", schema="", variant=Variant.INPLACE, functional="relu.default"),
        OpSchema(name="relu.out", schema="", variant=Variant.OUT, functional="relu.default"),
        OpSchema(name="add.Tensor", schema="", variant=Variant.FUNCTIONAL),
        OpSchema(name="add.Scalar", schema="", variant=Variant.FUNCTIONAL),
        OpSchema(name="add_.Tensor", schema="", variant=Variant.INPLACE, functional="add.Tensor"),
        OpSchema(name="__and__.Tensor", schema="", variant=Variant.FUNCTIONAL),
        OpSchema(
            name="squeeze_.dim",
            schema="",
            variant=Variant.INPLACE,
            functional="squeeze_copy.dim",
            tags=("inplace_view",),
        ),
    )
}


def add_kernel(directory: Path, folder: str, suffix: str = "_v1", text: str = "") -> Path:
    """Write an implementation file and return it."""
    path = directory / folder / f"{folder}_implementation{suffix}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or f"def {folder}_kernel_impl(*args, **kwargs): ...\n")
    return path


def add_manifest(directory: Path, kernels: dict[str, Any]) -> None:
    """Write a manifest with these entries."""
    (directory / "manifest.json").write_text(json.dumps({"format": 1, "kernels": kernels}))


def kernel_of(directory: Path, op: str) -> Kernel | None:
    """What a fresh backend over the directory answers."""
    return KernelDirectory(directory).kernel_for(Task(name=op, op=SCHEMAS[op], suite="smoke"))


def entry_of(directory: Path, op: str) -> str | None:
    """The entry of what a fresh backend answers, or None."""
    kernel = kernel_of(directory, op)
    return None if kernel is None else kernel.entry


def test_a_folder_named_after_an_overload_answers_it(tmp_path: Path) -> None:
    """The record holds everything that a worker needs to load the file."""
    add_kernel(tmp_path, "relu__default")
    kernel = kernel_of(tmp_path, "relu.default")
    assert kernel is not None
    assert Loader.FILE is kernel.loader
    assert "relu__default_implementation_v1.py:relu__default_kernel_impl" == kernel.entry
    assert str(tmp_path / "relu__default") == kernel.root
    assert ["relu__default_implementation_v1.py"] == list(kernel.files)
    assert (tmp_path.name, "relu.default", None) == (kernel.backend, kernel.task, kernel.derived_from)


def test_an_op_without_a_folder_has_no_kernel(tmp_path: Path) -> None:
    """Not answering is no error."""
    add_kernel(tmp_path, "relu__default")
    assert kernel_of(tmp_path, "add.Tensor") is None


@pytest.mark.parametrize(
    ("op", "folder"),
    [("add_.Tensor", "add___Tensor"), ("add.Tensor", "add__Tensor"), ("__and__.Tensor", "__and____Tensor")],
)
def test_folder_names_are_read_from_the_right(tmp_path: Path, op: str, folder: str) -> None:
    """The last double underscore is the dot, so the packet keeps its own underscores."""
    add_kernel(tmp_path, folder)
    assert f"{folder}_implementation_v1.py:{folder}_kernel_impl" == entry_of(tmp_path, op)
    assert [] == KernelDirectory(tmp_path).unrecognised(SCHEMAS)


def test_version_ten_is_newer_than_version_two(tmp_path: Path) -> None:
    """Versions are numbers, not strings, and a file without one is the oldest."""
    for suffix in ("", "_v1", "_v10", "_v2"):
        add_kernel(tmp_path, "relu__default", suffix)
    assert "relu__default_implementation_v10.py:relu__default_kernel_impl" == entry_of(tmp_path, "relu.default")


@pytest.mark.parametrize("best", [2, "v2", "relu__default_implementation_v2.py"])
def test_the_manifest_can_name_the_best_version(tmp_path: Path, best: int | str) -> None:
    """By number, by suffix or by file name."""
    for suffix in ("_v1", "_v2", "_v3"):
        add_kernel(tmp_path, "relu__default", suffix)
    add_manifest(tmp_path, {"relu.default": {"best": best}})
    assert "relu__default_implementation_v2.py:relu__default_kernel_impl" == entry_of(tmp_path, "relu.default")


def test_a_packet_folder_answers_every_overload_without_a_folder_of_its_own(tmp_path: Path) -> None:
    """`add/` serves add.Scalar, `add__Tensor/` goes before it for add.Tensor."""
    add_kernel(tmp_path, "add")
    add_kernel(tmp_path, "add__Tensor")
    assert "add_implementation_v1.py:add_kernel_impl" == entry_of(tmp_path, "add.Scalar")
    assert "add__Tensor_implementation_v1.py:add__Tensor_kernel_impl" == entry_of(tmp_path, "add.Tensor")


def test_a_manifest_entry_goes_before_every_folder(tmp_path: Path) -> None:
    """The author's word decides."""
    add_kernel(tmp_path, "relu__default")
    (tmp_path / "pointwise.py").write_text("def relu(x): ...\n")
    add_manifest(tmp_path, {"relu.default": {"entry": "pointwise.py:relu"}})
    kernel = kernel_of(tmp_path, "relu.default")
    assert kernel is not None
    assert ("pointwise.py:relu", str(tmp_path)) == (kernel.entry, kernel.root)
    assert {"manifest.json", "pointwise.py", "relu__default/relu__default_implementation_v1.py"} == kernel.files.keys()


def test_the_manifest_names_what_ranks_answer_together(tmp_path: Path) -> None:
    """In a section of its own: nothing that replaces ATen's ops sees it, and a fault in it is told."""
    (tmp_path / "talk.py").write_text("def all_reduce(x): ...\n")
    entry = {"entry": "talk.py:all_reduce"}
    missing = {"entry": "talk.py:gather"}
    ranks = {"all_reduce.default": entry, "1_AllReduce": entry, "2_Gather": missing}
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "ranks": ranks}))
    directory = KernelDirectory(tmp_path)
    for name, kind in (("all_reduce.default", TaskKind.COLLECTIVE), ("1_AllReduce", TaskKind.PARALLEL)):
        schema = OpSchema(name=name, schema="", variant=Variant.FUNCTIONAL, kind=kind)
        kernel = directory.kernel_for(Task(name=name, op=schema, suite="parallel"))
        assert kernel is not None
        assert (name, Loader.FILE, "talk.py:all_reduce") == (kernel.task, kernel.loader, kernel.entry)
    assert set() == directory.named_ops()
    assert {"2_Gather"} == directory.faults().keys()


def test_the_manifest_names_classes_for_module_problems(tmp_path: Path) -> None:
    """Before a file that is called like the problem; the worker gets all files of the directory, which share code."""
    (tmp_path / "norms").mkdir()
    (tmp_path / "norms" / "__init__.py").touch()
    (tmp_path / "norms" / "rms.py").write_text("from .. import tiles\nclass RmsNorm: ...\n")
    (tmp_path / "tiles.py").write_text("")
    (tmp_path / "1_RmsNorm.py").write_text("class ModelNew: ...\n")
    modules = {"L1/1_RmsNorm": {"entry": "norms/rms.py:RmsNorm"}, "L1/2_Gone": {"entry": "norms/rms.py:Gone"}}
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "modules": modules}))
    directory = KernelDirectory(tmp_path)

    def answer(kind: TaskKind) -> Kernel | None:
        schema = OpSchema(name="L1/1_RmsNorm", schema="", variant=Variant.FUNCTIONAL, kind=kind)
        return directory.kernel_for(Task(name="L1/1_RmsNorm", op=schema, suite="modules"))

    kernel = answer(TaskKind.MODULE)
    assert kernel is not None
    assert (Loader.FILE, "norms/rms.py:RmsNorm", str(tmp_path)) == (kernel.loader, kernel.entry, kernel.root)
    assert {"norms/rms.py", "tiles.py"} <= kernel.files.keys()
    of_ranks = answer(TaskKind.PARALLEL)
    assert of_ranks is not None
    assert "1_RmsNorm.py:ModelNew" == of_ranks.entry
    assert set() == directory.named_ops()
    assert {"L1/2_Gone"} == directory.faults().keys()


def test_entries_for_ops_are_no_mistakes_where_collectives_are_asked(tmp_path: Path) -> None:
    """One directory may answer both."""
    entry = {"entry": "all.py:answer"}
    sections = {"kernels": {"relu.default": entry, "relv.default": entry}, "ranks": {"all_reduce.default": entry}}
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, **sections}))
    assert ["relv.default"] == KernelDirectory(tmp_path).unrecognised({"relu.default"})
    assert [] == KernelDirectory(tmp_path).unrecognised({"all_reduce.default"})


def test_the_manifest_tells_language_and_provenance(tmp_path: Path) -> None:
    """What the author states is recorded, for a folder's kernel too."""
    add_kernel(tmp_path, "relu__default")
    add_manifest(tmp_path, {"relu.default": {"dsl": "cutile", "provenance": {"author": "me", "attempt": 3}}})
    kernel = kernel_of(tmp_path, "relu.default")
    assert kernel is not None
    assert ("cutile", Provenance(author="me", attempt=3)) == (kernel.dsl, kernel.provenance)


def test_no_file_is_parsed_for_a_language_that_the_manifest_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsing a hundred files takes half a second, at every start of a program that uses them."""
    add_kernel(tmp_path, "relu__default")
    add_kernel(tmp_path, "add__Tensor")
    add_manifest(tmp_path, {"relu.default": {"dsl": "triton"}})
    parsed: list[str] = []

    def guess(file: Path) -> str:
        parsed.append(file.parent.name)
        return "torch"

    monkeypatch.setattr("opsmith.backends.directory.guess_dsl", guess)
    found = [kernel_of(tmp_path, op) for op in ("relu.default", "add.Tensor")]
    assert ["triton", "torch"] == [kernel.dsl for kernel in found if kernel is not None]
    assert ["add__Tensor"] == parsed


@pytest.mark.parametrize("folder", ["relu__default", "relu"])
@pytest.mark.parametrize("op", ["relu_.default", "relu.out"])
def test_variants_without_a_kernel_are_derived_from_the_functional_one(tmp_path: Path, op: str, folder: str) -> None:
    """Also where a packet folder answers the functional overload: its function takes no `out`."""
    add_kernel(tmp_path, folder)
    kernel = kernel_of(tmp_path, op)
    assert kernel is not None
    assert (op, "relu.default", f"{folder}_implementation_v1.py:{folder}_kernel_impl") == (
        kernel.task,
        kernel.derived_from,
        kernel.entry,
    )


def test_a_variant_with_a_kernel_of_its_own_is_not_derived(tmp_path: Path) -> None:
    """A direct kernel is judged as such."""
    add_kernel(tmp_path, "relu__default")
    add_kernel(tmp_path, "relu___default")
    kernel = kernel_of(tmp_path, "relu_.default")
    assert kernel is not None
    assert kernel.derived_from is None


def test_an_in_place_view_is_never_derived(tmp_path: Path) -> None:
    """squeeze_ changes its argument's shape, which a copy cannot."""
    add_kernel(tmp_path, "squeeze_copy__dim")
    assert kernel_of(tmp_path, "squeeze_.dim") is None


def test_a_folder_without_an_implementation_is_an_answer(tmp_path: Path) -> None:
    """It is found and will fail to load; leaving it out would hide it from the score."""
    (tmp_path / "relu__default").mkdir()
    kernel = kernel_of(tmp_path, "relu.default")
    assert kernel is not None
    assert {} == kernel.files


def test_the_hash_follows_every_file_of_the_folder(tmp_path: Path) -> None:
    """A changed helper file is another kernel; bytecode, hidden files and the directory's place are not."""
    kernel_file = add_kernel(tmp_path, "relu__default")
    (kernel_file.parent / "tiles.py").write_text("BLOCK = 128\n")
    before = kernel_of(tmp_path, "relu.default")
    (kernel_file.parent / "__pycache__").mkdir()
    (kernel_file.parent / "__pycache__" / "x.pyc").write_bytes(b"cache")
    (kernel_file.parent / ".hidden").write_text("editor state")
    same = kernel_of(tmp_path, "relu.default")
    (kernel_file.parent / "tiles.py").write_text("BLOCK = 256\n")
    changed = kernel_of(tmp_path, "relu.default")
    assert before is not None
    assert same is not None
    assert changed is not None
    assert before.content_hash == same.content_hash
    assert before.content_hash != changed.content_hash


def test_a_link_out_of_the_folder_is_no_file_of_the_kernel(tmp_path: Path) -> None:
    """A kernel cannot pull a foreign file into the run's snapshot."""
    kernel_file = add_kernel(tmp_path / "kernels", "relu__default")
    (tmp_path / "secret.txt").write_text("secret")
    (kernel_file.parent / "innocent.txt").symlink_to(tmp_path / "secret.txt")
    kernel = kernel_of(tmp_path / "kernels", "relu.default")
    assert kernel is not None
    assert [kernel_file.name] == list(kernel.files)


def test_reading_a_directory_runs_nothing_of_it(tmp_path: Path) -> None:
    """The judge only reads files, whatever stands in them."""
    marker = tmp_path / "ran"
    add_kernel(tmp_path, "relu__default", text=f"open({str(marker)!r}, 'w')\n")
    assert kernel_of(tmp_path, "relu.default") is not None
    assert not marker.exists()


def test_folders_that_name_no_op_are_listed(tmp_path: Path) -> None:
    """A typing mistake in a folder's name must not just lower the score."""
    for folder in ("relu__default", "add", "rellu__default", ".git", "__pycache__", "shared_code"):
        (tmp_path / folder).mkdir()
    (tmp_path / "shared_code" / "norms.py").write_text("")
    add_manifest(tmp_path, {"add.Tensro": {"entry": "shared_code/norms.py:add"}, "relu": {"best": 1}})
    assert ["add.Tensro", "rellu__default"] == KernelDirectory(tmp_path).unrecognised(SCHEMAS)


def test_a_package_answers_no_op_by_its_name(tmp_path: Path) -> None:
    """`relu/` may hold a family's files: without an implementation it is no kernel that is missing, nor a typo."""
    for folder in ("relu", "common"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    assert kernel_of(tmp_path, "relu.default") is None
    assert kernel_of(tmp_path, "relu_.default") is None
    assert [] == KernelDirectory(tmp_path).unrecognised(SCHEMAS)
    assert 0 == len(KernelDirectory(tmp_path))
    add_kernel(tmp_path, "relu")
    assert "relu_implementation_v1.py:relu_kernel_impl" == entry_of(tmp_path, "relu.default")


def test_a_manifest_declares_the_dtypes_of_a_kernel(tmp_path: Path) -> None:
    """They are part of what is judged."""
    add_kernel(tmp_path, "relu__default")
    silent = kernel_of(tmp_path, "relu.default")
    add_manifest(tmp_path, {"relu.default": {"dtypes": ["f32"]}})
    declared = kernel_of(tmp_path, "relu.default")
    assert silent is not None
    assert declared is not None
    assert ((), ("f32",)) == (silent.dtypes, declared.dtypes)
    assert silent.content_hash != declared.content_hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1,\n "kernels": {"relu.default" {}}}', r"is no JSON at line 2 column 29: Expecting ':' delimiter"),
        ("", "is no JSON at line 1 column 1"),
        ("[" * 100_000, "is no kernel manifest"),
        ('{"kernels": {"relu.default": {"entri": "a.py:f"}}}', r"unknown field `entri` - at `\$.kernels"),
        ('{"kernels": {"relu.default": {}, "relu.default": {}}}', "'relu.default' is given twice"),
        ('{"format": 2}', "has format 2; this opsmith reads format 1"),
        ('{"kernels": {"relu.default": {"entry": "../x.py:relu"}}}', "leads out of the kernel directory"),
        ('{"kernels": {"relu.default": {"entry": "/etc/x.py:relu"}}}', "leads out of the kernel directory"),
        ('{"kernels": {"relu.default": {"entry": "link/x.py:relu"}}}', "leads out of the kernel directory"),
        ('{"kernels": {"relu.default": {"best": "../x.py"}}}', "is no file name"),
        ('{"kernels": {"relu.default": {"entry": "pointwise.py"}}}', "not of the form file.py:function"),
        ('{"kernels": {"relu.default": {"entry": "a.py:f", "best": 2}}}', "keep one of them"),
        (
            '{"kernels": {"relu.default": {"dtypes": ["float"]}}}',
            "'float' among the dtypes of 'relu.default' is none of",
        ),
        (b'{"\xff": 1}', "is no kernel manifest: 'utf-8' codec"),
    ],
)
def test_a_damaged_manifest_gets_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    """The line names the file and the place, and nothing outside the directory is ever named by it."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "link").symlink_to(tmp_path)
    (kernels / "manifest.json").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(BadInput, match=message) as caught:
        KernelDirectory(kernels)
    assert "\n" not in str(caught.value)
    assert str(kernels / "manifest.json") in str(caught.value)


def test_a_missing_directory_says_how_to_make_one(tmp_path: Path) -> None:
    """One line with the next step."""
    with pytest.raises(BadInput, match="there is no kernel directory .*nowhere; make one with `opsmith scaffold"):
        KernelDirectory(tmp_path / "nowhere")


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    """The message leads to the verb that judges one file."""
    (tmp_path / "relu.py").write_text("")
    with pytest.raises(BadInput, match=r"is no directory; to judge one file use `opsmith check"):
        KernelDirectory(tmp_path / "relu.py")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_gets_one_line(tmp_path: Path) -> None:
    """The line names the file."""
    add_kernel(tmp_path, "relu__default").chmod(0)
    with pytest.raises(BadInput, match=r"relu__default_implementation_v1.py cannot be read: Permission denied"):
        kernel_of(tmp_path, "relu.default")


def test_backends_leave_torch_out_of_the_judge() -> None:
    """The judge initialises no device, so nothing that it imports here may bring torch."""
    import subprocess

    program = (
        "import sys; import opsmith.plugins, opsmith.backends.resolve as r; r.resolve('aten'); r.resolve('opsmith');"
        "sys.exit(any(name in sys.modules for name in ('torch', 'triton', 'numpy')))"
    )
    assert 0 == subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode


def test_a_directory_knows_how_many_kernels_it_holds(tmp_path: Path) -> None:
    """So that no more workers are started than kernels will be judged."""
    for folder in ("relu", "add__Tensor", "add__Scalar"):
        add_kernel(tmp_path, folder)
    assert 3 == len(KernelDirectory(tmp_path))
