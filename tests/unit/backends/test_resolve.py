"""What --backend means, and one clear line where it means nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opsmith.backends import Backend
from opsmith.backends.aten import Aten
from opsmith.backends.attribute import AttributeBackend, NeedsDiscovery
from opsmith.backends.directory import KernelDirectory
from opsmith.backends.inductor import Inductor
from opsmith.backends.resolve import resolve
from opsmith.core.kernel import Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.task import Task
from opsmith.errors import BadInput, MissingDependency, UnknownName

RELU = Task(name="relu.default", suite="smoke", op=OpSchema(name="relu.default", schema="", variant=Variant.FUNCTIONAL))
RELU_INPLACE = Task(
    name="relu_.default",
    suite="smoke",
    op=OpSchema(name="relu_.default", schema="", variant=Variant.INPLACE, functional="relu.default"),
)


def install(site: Path, monkeypatch: pytest.MonkeyPatch, entry_points: str) -> None:
    """Make a distribution named `stranger` importable, with a module of the same name."""
    info = site / "stranger-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.parametrize(("name", "kind"), [("aten", Aten), ("inductor", Inductor)])
def test_a_name_is_a_registered_backend(name: str, kind: type) -> None:
    """The built-ins come through the public door."""
    backend = resolve(name)
    assert isinstance(backend, kind)
    assert isinstance(backend, Backend)


def test_only_the_reference_is_trusted() -> None:
    """The policy exempts nothing but ATen itself."""
    assert [True, False, False] == [getattr(resolve(name), "trusted", None) for name in ("aten", "inductor", "opsmith")]


def test_aten_and_inductor_answer_every_op_by_its_name() -> None:
    """They need no files."""
    kernels = [Aten().kernel_for(RELU), Inductor().kernel_for(RELU)]
    assert [(Loader.ATEN, "relu.default", {}), (Loader.INDUCTOR, "relu.default", {})] == [
        (kernel.loader, kernel.entry, kernel.files) for kernel in kernels if kernel is not None
    ]


def test_the_shipped_kernels_are_a_kernel_directory() -> None:
    """They come through the same door as anyone's."""
    backend = resolve("opsmith")
    assert isinstance(backend, KernelDirectory)
    assert ("opsmith", "kernels") == (backend.name, backend.path.name)


def test_an_existing_directory_is_a_kernel_directory(tmp_path: Path) -> None:
    """Any path to it will do."""
    backend = resolve(str(tmp_path))
    assert isinstance(backend, KernelDirectory)
    assert tmp_path == backend.path


def test_an_import_path_is_left_to_a_worker() -> None:
    """The judge keeps the text and imports nothing."""
    assert NeedsDiscovery(name="my_kernels.mod:table", target="my_kernels.mod:table") == resolve("my_kernels.mod:table")


def test_an_installed_packages_kernels_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through its metadata, without an import."""
    install(tmp_path, monkeypatch, "[opsmith.kernels]\nfast-norms = stranger_kernels:table\n")
    assert NeedsDiscovery(name="fast-norms", target="stranger_kernels:table") == resolve("fast-norms")
    assert "stranger_kernels" not in sys.modules


def test_a_strangers_backend_cannot_call_itself_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust is opsmith's to give."""
    (tmp_path / "stranger_backend.py").write_text(
        "class Mine:\n    name = 'mine'\n    trusted = True\n    def kernel_for(self, task): return None\n"
    )
    install(tmp_path, monkeypatch, "[opsmith.backends]\nmine = stranger_backend:Mine\n")
    with pytest.raises(BadInput, match="'mine' calls itself trusted; only opsmith's own reference is"):
        resolve("mine")


def test_a_registered_object_that_is_no_backend_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract is checked where it is met first."""
    install(tmp_path, monkeypatch, "[opsmith.backends]\nmine = builtins:list\n")
    with pytest.raises(BadInput, match="'mine' has no name, trusted and kernel_for"):
        resolve("mine")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("inductr", UnknownName, "no backend named 'inductr'; did you mean inductor"),
        ("", UnknownName, "no backend named ''"),
        ("./nowhere", BadInput, "there is no kernel directory nowhere"),
        ("/no/such/place", BadInput, "there is no kernel directory /no/such/place"),
        ("a b:c", BadInput, "'a b:c' is not of the form package.module:attribute"),
        ("mod:", BadInput, "'mod:' is not of the form package.module:attribute"),
    ],
)
def test_what_names_nothing_gets_one_line(text: str, error: type[Exception], message: str) -> None:
    """A clear line that says what to do next."""
    with pytest.raises(error, match=message) as caught:
        resolve(text)
    assert "\n" not in str(caught.value)


def test_flag_gems_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is a usage error with the command in it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingDependency, match=r"flag_gems is not installed; run: pip install 'opsmith\[flag-gems\]'"):
        resolve("flag_gems")


def test_a_discovered_backend_answers_what_the_worker_found(tmp_path: Path) -> None:
    """The source file tells language and content hash."""
    source = tmp_path / "mine.py"
    source.write_text("import triton\n@triton.jit\ndef f(p): pass\n")
    backend = NeedsDiscovery(name="mine", target="mine:table").backend({"relu.default": str(source)})
    assert isinstance(backend, AttributeBackend)
    kernel, derived = backend.kernel_for(RELU), backend.kernel_for(RELU_INPLACE)
    assert kernel is not None
    assert derived is not None
    assert (Loader.ATTRIBUTE, "mine:table", "triton", ["mine.py"]) == (
        kernel.loader,
        kernel.entry,
        kernel.dsl,
        list(kernel.files),
    )
    assert "relu.default" == derived.derived_from


def test_a_library_that_registers_its_variants_is_not_helped_out() -> None:
    """FlagGems is judged on the overloads in its own table."""
    backend = NeedsDiscovery(name="x", target="x:y", derives=False).backend({"relu.default": ""})
    assert backend.kernel_for(RELU_INPLACE) is None


def test_a_workers_word_opens_no_file_but_python_source(tmp_path: Path) -> None:
    """The report comes out of a stranger's process."""
    os_file = tmp_path / "secret.key"
    os_file.write_text("secret")
    kernel = NeedsDiscovery(name="x", target="x:y").backend({"relu.default": str(os_file)}).kernel_for(RELU)
    assert kernel is not None
    assert ({}, None) == (kernel.files, kernel.root)


def test_discovery_asks_for_the_functional_overloads_too() -> None:
    """Without them nothing could be derived."""
    asked = NeedsDiscovery(name="x", target="x:y").ops_to_ask([RELU_INPLACE])
    assert ("relu.default", "relu_.default") == asked


def test_an_object_that_names_a_directory_becomes_that_directory(tmp_path: Path) -> None:
    """With the name that was asked for."""
    backend = NeedsDiscovery(name="x", target="x:y").backend({}, kernel_directory=str(tmp_path))
    assert isinstance(backend, KernelDirectory)
    assert "x" == backend.name
