"""What `pip install opsmith` brings is enough: the wheel and its base dependencies, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = "import sys; sys.argv[0] = 'opsmith'; from opsmith.cli.main import main; main()"
KERNEL = "def relu(x):\n    return x.clamp(min=0)\n"

pytestmark = pytest.mark.slow


def base_dependencies() -> set[str]:
    """The distributions that opsmith needs without any extra, and what these need."""
    found: set[str] = set()
    todo = ["opsmith"]
    while todo:
        name = todo.pop()
        try:
            required = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # Needed on another platform or version of Python.
        found.add(name)
        for line in required:
            matched = re.match(r"[A-Za-z0-9._-]+", line)
            assert matched is not None
            wanted = matched.group().lower()
            if "extra ==" not in line and wanted not in found:
                todo.append(wanted)
    return found - {"opsmith"}


def link(name: str, site: Path) -> None:
    """Put a distribution that is installed here into another environment, by links."""
    installed = distribution(name)
    for top in {file.parts[0] for file in installed.files or () if file.parts[0] not in {"..", "__pycache__"}}:
        target = Path(str(installed.locate_file(top)))
        if target.exists() and not (site / top).exists():
            (site / top).symlink_to(target)


def test_the_wheel_judges_a_kernel_with_base_dependencies_only(tmp_path: Path) -> None:
    """A module that is imported from an extra or from the tests' own packages would be missing here."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("opsmith-*.whl")
    venv.create(tmp_path / "clean", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "clean").glob("lib/python*/site-packages")
    for name in base_dependencies():
        link(name, site)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (tmp_path / "relu.py").write_text(KERNEL)
    python = tmp_path / "clean" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONWARNINGS": "default"}

    def opsmith(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-c", RUN, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert 0 != subprocess.run([python, "-c", "import pytest"], capture_output=True, check=False).returncode
    assert "Judge kernels" in opsmith("--help").stdout
    asked = ("check", "relu.py", "--task", "relu.default", "--suite", "smoke", "--device", "cpu", "--policy", "any")
    judged = opsmith(*asked, "--timing", "off")
    assert (0, True) == (judged.returncode, judged.stdout.startswith("ACCEPTED  relu.default")), judged.stderr
