"""An installed package of kernels: on with ``import torch``, off with one variable, gone with ``pip uninstall``."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from tests.dispatch_tables import KERNELS, kernel_file

import opsmith
from opsmith.packaging.kernels import collect

RELU = "import torch, opsmith; x = torch.tensor([-1.0, 2.0]); print(x.relu().tolist()); a = opsmith.active(); "


class Environment:
    """A virtual environment that sees the packages of this one, and what is installed into it besides."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        self.site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
        shared = sysconfig.get_path("purelib")
        (self.site / "shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n")

    def run(self, code: str, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program that imports torch, as a user of the environment does."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPSMITH", "TORCH"))}
        source = str(Path(opsmith.__file__).parents[1])
        environment = {**kept, "OPSMITH_CHOOSE": "all", "PYTHONPATH": source, **variables}
        command = [str(self.python), *flags, "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    def pip(self, *arguments: str) -> None:
        """Run pip for the environment, without an index."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def install(self, directory: Path, name: str, **options: object) -> None:
        """Package a kernel directory and unpack the wheel, which is what installing one comes to."""
        contents = collect(directory, name=name, license="MIT", **options)  # type: ignore[arg-type]
        zipfile.ZipFile(io.BytesIO(contents.wheel())).extractall(self.site)

    def install_by_pip(self, directory: Path, name: str) -> None:
        """Package a kernel directory and install the wheel."""
        contents = collect(directory, name=name, license="MIT")
        wheel = self.site / contents.metadata.file_name
        wheel.write_bytes(contents.wheel())
        self.pip("install", "--no-deps", "--no-index", str(wheel))
        wheel.unlink()


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An empty environment."""
    return Environment(tmp_path / "environment")


def test_an_installed_package_is_in_use_until_it_is_uninstalled(environment: Environment) -> None:
    """``pip install`` turns the kernels on in every program, ``pip uninstall`` leaves no file and no kernel."""
    files = set(environment.site.rglob("*"))
    environment.install_by_pip(KERNELS, "tuned-kernels")
    told = "print(a.kernels, a.calls, {op.backend for op in a.ops}, 'triton' in __import__('sys').modules)"
    used = environment.run(RELU + told)
    assert ("[0.0, 2.0]\ntuned-kernels 1 {'tuned-kernels'} False\n", "") == (used.stdout, used.stderr)
    environment.pip("uninstall", "--yes", "tuned-kernels")
    assert files == {path for path in environment.site.rglob("*") if "__pycache__" not in path.parts}
    assert "[0.0, 2.0]\nNone\n" == environment.run(RELU + "print(a.kernels)").stdout


def test_one_variable_turns_packages_off(environment: Environment) -> None:
    """Neither opsmith nor a kernel is imported then."""
    environment.install(KERNELS, "tuned-kernels")
    off = environment.run("import torch, sys; print('opsmith' in sys.modules)", OPSMITH_KERNELS_OFF="1")
    assert ("False\n", "") == (off.stdout, off.stderr)


def test_a_kernel_file_is_imported_when_its_op_is_first_called(environment: Environment) -> None:
    """``import torch`` and other ops pay nothing for it."""
    environment.install(KERNELS, "tuned-kernels")
    code = (
        "import sys, torch; files = lambda: [n for n in sys.modules if n.startswith('_kernel_')]\n"
        "x = torch.ones(2); x.exp(); print(len(files())); x.relu(); print(len(files()) > 0)"
    )
    assert "0\nTrue\n" == environment.run(code).stdout


def test_a_kernel_that_does_not_load_is_warned_of_once_and_torch_answers(
    environment: Environment, tmp_path: Path
) -> None:
    """A syntax error costs its own op alone."""
    directory = kernel_file(tmp_path / "kernels", "relu.default", "def kernel(x: return x")
    kernel_file(directory, "neg.default", "def kernel(x): return 0 - x")
    environment.install(directory, "broken")
    done = environment.run(RELU + "x.relu(); print((-x).tolist()); print(opsmith.active().to_json())")
    relu, neg, record = done.stdout.splitlines()
    assert ("[0.0, 2.0]", "[1.0, -2.0]") == (relu, neg)
    ops = {op["op"]: op for op in json.loads(record)["ops"]}
    assert {"unloadable": 2} == ops["relu.default"]["fallbacks"]
    assert 1 == ops["neg.default"]["calls"]
    assert 1 == done.stderr.count("does not load: SyntaxError")


def test_a_damaged_package_is_told_in_one_line_and_torch_works(environment: Environment) -> None:
    """An entry point that raises would keep torch from being imported; warnings that are errors change nothing."""
    environment.install(KERNELS, "tuned-kernels")
    (environment.site / "opsmith_kernels_tuned_kernels" / "package.json").write_text("{")
    done = environment.run("import torch; print(torch.ones(2).relu().tolist())", "-W", "error::UserWarning")
    assert "[1.0, 1.0]\n" == done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("the kernels of the package tuned-kernels are off: DecodeError: ")


def test_of_two_packages_the_first_by_name_serves_an_op(environment: Environment, tmp_path: Path) -> None:
    """The other one is named in a warning, and serves what is its alone."""
    environment.install(KERNELS, "second", ops=["relu", "gelu"])
    environment.install(kernel_file(tmp_path / "k", "relu.default", "def kernel(x): return x * 0 + 7"), "first")
    done = environment.run(RELU + "torch.nn.functional.gelu(x); print(opsmith.active().to_json())")
    relu, record = done.stdout.splitlines()
    assert "[7.0, 7.0]" == relu
    served = {op["op"]: op["backend"] for op in json.loads(record)["ops"]}
    assert ("first", "second") == (served["relu.default"], served["gelu.default"])
    (line,) = done.stderr.splitlines()
    assert line.startswith("the packages first and second both have kernels for 3 ops; those of first are used")


def test_the_judge_finds_an_installed_package_by_its_name(environment: Environment, tmp_path: Path) -> None:
    """``--backend NAME`` judges what is installed, against PyTorch as it comes."""
    environment.install(KERNELS, "tuned-kernels", ops=["relu"])
    options = "--suite smoke --backend tuned-kernels --ops relu.default --device cpu --timing off --json"
    command = ["opsmith", "run", *options.split(), "-o", str(tmp_path / "run")]
    code = f"import sys; sys.argv = {command!r}; from opsmith.cli.main import main; main()"
    done = environment.run(code, XDG_CACHE_HOME=str(tmp_path / "cache"))
    summary = json.loads(done.stdout)
    assert ("tuned-kernels", 1) == (summary["backend"], summary["ops"]["answered"])
    assert "are off" not in done.stderr
