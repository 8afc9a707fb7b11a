"""A review is about an entry and what it imports: no less, and where that can be told no more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from opsmith.backends.files import files_of
from opsmith.core.kernel import Kernel, Loader
from opsmith.reviews.scope import reviewed_files, reviewed_hash

ROWS = "from .shared import scale\n\ndef relu(x):\n    return scale(x)\n"
FILES = {
    "rows.py": ROWS,
    "shared.py": "from .deep.most import two\n\ndef scale(x):\n    return two * x\n",
    "deep/__init__.py": "",
    "deep/most.py": "two = 2\n",
    "neighbour.py": "def exp(x):\n    return x\n",
    "table.json": "{}",
}


def kernel(root: Path, entry: str = "rows.py:relu", **changes: object) -> Kernel:
    """The kernel of a folder as it is now."""
    made = Kernel(
        task="relu.default", backend="mine", loader=Loader.FILE, entry=entry, root=str(root), files=files_of(root)
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of kernels and what they import."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_files_are_those_that_the_entry_imports_and_what_these_import(root: Path) -> None:
    """A neighbour's file is none of them, nor is what nobody reads."""
    covered = reviewed_files(kernel(root))
    assert covered is not None
    assert ["deep/__init__.py", "deep/most.py", "rows.py", "shared.py"] == sorted(covered)


@pytest.mark.parametrize(
    ("file", "kept"),
    [
        *(("neighbour.py", True), ("table.json", True), ("rows.py", False), ("shared.py", False)),
        *(("deep/most.py", False), ("deep/__init__.py", False)),
    ],
)
def test_a_change_of_a_neighbour_costs_nothing_and_one_of_the_kernel_everything(
    root: Path, file: str, *, kept: bool
) -> None:
    """Whatever the change is: a comment may be what the reviewer relied on."""
    before = reviewed_hash(kernel(root))
    (root / file).write_text(FILES[file] + "\n# changed\n")
    assert kept == (before == reviewed_hash(kernel(root)))


@pytest.mark.parametrize(
    "source",
    [
        "from pathlib import Path\nT = Path(__file__).with_name('table' + '.json').read_text()\n",
        "T = open('/k/' + 'table').read()\n",
        "import importlib\nM = importlib.import_module('.neighbour', __package__)\n",
        "M = __import__('neighbour')\n",
        "import torch\nE = torch.utils.cpp_extension.load('x', ['k.cpp'])\n",
        "F = relu.__code__.co_filename\n",
        "D = getattr(relu, 'x' + 'y')\n",
        "P = '/somewhere/table.json'\n",
        "import neighbour\n",
        "from neighbour import exp\n",
        "from _kernel_0.neighbour import exp\n",
        'CPP = """#include "table.json"\n"""\n',
        "def broken(:\n",
    ],
)
def test_code_that_can_reach_files_by_other_ways_is_reviewed_with_all_of_them(root: Path, source: str) -> None:
    """Else an approved kernel could be changed through a file that nobody looked at."""
    (root / "rows.py").write_text(ROWS + source)
    before = reviewed_hash(kernel(root))
    (root / "table.json").write_text("[]")
    assert before != reviewed_hash(kernel(root))


def test_a_module_that_another_suffix_may_load_is_covered_too(root: Path) -> None:
    """Python prefers a compiled module to the source beside it."""
    before = reviewed_hash(kernel(root))
    (root / "shared.abi3.so").write_bytes(b"\x7fELF")
    assert before != reviewed_hash(kernel(root))


def test_the_hash_holds_what_a_kernel_is_used_for_and_not_what_its_file_is_called(root: Path) -> None:
    """An approved function must not be handed to another op; a copy from a campaign keeps its reviews."""
    own = reviewed_hash(kernel(root))
    assert own != reviewed_hash(kernel(root, task="exp.default"))
    assert own != reviewed_hash(kernel(root, entry="rows.py:other"))
    assert own != reviewed_hash(kernel(root, elementwise=True))
    assert own == reviewed_hash(kernel(root, task="relu_.default", derived_from="relu.default"))
    (root / "rows.py").rename(root / "renamed.py")
    assert own == reviewed_hash(kernel(root, entry="renamed.py:relu"))


def test_a_file_that_changed_since_it_was_listed_is_not_trusted(root: Path) -> None:
    """What it imports by now is unknown, so everything counts."""
    listed = kernel(root)
    (root / "rows.py").write_text("from .neighbour import exp as relu\n")
    assert set(FILES) == set(reviewed_files(listed) or ())


def test_reviews_are_outside_of_what_they_are_about(root: Path) -> None:
    """Writing a review must not change the kernel."""
    before = kernel(root).content_hash
    (root / "reviews.jsonl").write_text("")
    assert before == kernel(root).content_hash


def test_a_kernel_without_files_cannot_be_reviewed() -> None:
    """Nobody knows what a Python attribute will be tomorrow."""
    loose = Kernel(task="relu.default", backend="b", loader=Loader.ATTRIBUTE, entry="pkg:table")
    assert reviewed_hash(loose) is None
