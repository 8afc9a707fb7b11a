"""A campaign as a user runs it: a server on loopback, the real judge, and what is left in the directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.chat_server import ChatServer, Said
from tests.shared_processes import shared_processes
from typer.testing import CliRunner

import opsmith
from opsmith.cli.main import app

RIGHT = "torch.where(self < 0, torch.zeros_like(self), self)"
BODIES = {
    "relu__default_kernel_impl": ["self.abs()", "torch.nonsense(self)", RIGHT],
    # The op itself, then hidden in a method: never accepted.
    "exp__default_kernel_impl": ["torch.exp(self)", "self.clone().exp_()", "torch.special.expm1(self) + 2"],
}


def script(body: dict[str, Any], _before: int) -> Said:
    """Write the next kernel of the list for the op that is asked for."""
    question = body["messages"][1]["content"]
    name = question.partition("def ")[2].partition("(")[0]
    code = f"import torch\n\ndef {name}(self):\n    return {BODIES[name][body['seed']]}\n"
    return Said(f"```python\n{code}```", usage=(len(question) // 4, 40))


@pytest.fixture(scope="module")
def _shared() -> Iterator[None]:
    with shared_processes("opinfo"):
        yield


@pytest.fixture(scope="module")
def campaign(_shared: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str], ChatServer]]:
    """A finished campaign of two ops, the command that made it, and the server that answered."""
    out = tmp_path_factory.mktemp("campaign") / "out"
    words = [
        "generate",
        "--model",
        "openai:m",
        "--ops",
        "relu.default,exp.default",
        "--dtype",
        "f32",
        "--device",
        "cpu",
    ]
    words += [
        "--device",
        "cpu",
        "--dsl",
        "torch",
        "--policy",
        "any",
        "--attempts",
        "3",
        "--timing",
        "off",
        "--json",
        "-o",
        str(out),
    ]
    with ChatServer(script) as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENAI_BASE_URL", server.url)
        environment.setenv("OPENAI_API_KEY", "sk-secret")
        result = CliRunner().invoke(app, words, standalone_mode=False)
        assert 0 == result.return_value, result.output
        yield out, words, server


def test_it_accepts_what_is_right_and_honest(campaign: tuple[Path, list[str], ChatServer]) -> None:
    """The third kernel for relu; none for exp."""
    out, _, server = campaign
    summary = json.loads((out / "summary.json").read_text())
    assert {"relu.default": True, "exp.default": False} == {
        task: result["accepted"] for task, result in summary["tasks"].items()
    }
    assert 2 == summary["tasks"]["relu.default"]["first_accepted"]
    assert 2 == summary["attempts"]["POLICY"]
    assert 6 == len(server.bodies)
    assert ["relu__default"] == [path.name for path in (out / "kernels").iterdir() if path.is_dir()]


def test_its_kernels_can_be_enabled(campaign: tuple[Path, list[str], ChatServer]) -> None:
    """A kernel directory as any other."""
    out, _, _ = campaign
    x = torch.randn(5)
    with opsmith.enabled(out / "kernels"):
        assert torch.equal(x.clamp(min=0), torch.relu(x))
        [served] = [entry for entry in opsmith.active().ops if entry.op == "relu.default"]
        assert served.calls


def test_it_is_replayed_without_asking(campaign: tuple[Path, list[str], ChatServer]) -> None:
    """Every kernel is judged again, and every status is the same."""
    out, words, server = campaign
    before, asked = json.loads((out / "summary.json").read_text()), len(server.bodies)
    result = CliRunner().invoke(app, [*words, "--replay"], standalone_mode=False)
    assert 0 == result.return_value, result.output
    after = json.loads(result.stdout)
    assert {"judged": 6, "differ": 0} == after["replayed"]
    assert before["tasks"] == after["tasks"]
    assert asked == len(server.bodies)


def test_the_key_is_in_no_file(campaign: tuple[Path, list[str], ChatServer]) -> None:
    """Neither in the journal nor in a run."""
    out, _, _ = campaign
    assert not [file for file in out.rglob("*") if file.is_file() and b"sk-secret" in file.read_bytes()]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "name who writes"),
        (["--model", "gpt"], "names no provider"),
        (["--model", "nobody:gpt"], "names no provider"),
        (["--provider", "nobody"], "no provider named 'nobody'"),
        (["--model", "openai:m", "--budget", "usd=1"], "--prices"),
        (["--model", "openai:m", "--strategy", "swarms"], "did you mean swarm"),
        (["--model", "openai:m", "--context", "weather"], "no context named"),
        (["--model", "openai:m", "--dsl", "fortran"], "no dsl named"),
        (["--model", "openai:m", "--resume"], "holds no campaign"),
        (["--model", "command:/no/such/program"], "there is no program"),
        (["--provider", "inductor", "--advisor", "gpt"], "--advisor gpt names no provider"),
        (["--provider", "inductor", "--advisor", "inductor"], "answers no questions"),
    ],
)
def test_bad_words_get_one_line(tmp_path: Path, words: list[str], line: str) -> None:
    """Before any process is started."""
    result = CliRunner().invoke(app, ["generate", *words, "-o", str(tmp_path / "out")], standalone_mode=False)
    assert 2 == result.exit_code or 2 == result.return_value
    assert line in result.stderr
    assert 1 == len(result.stderr.strip().splitlines())


@pytest.mark.slow
@pytest.mark.corpus
def test_the_compiler_writes_triton_without_a_gpu(tmp_path: Path) -> None:
    """Judged under the policy `native`, in Triton's interpreter; what it leaves to a library has no kernel."""
    out = tmp_path / "out"
    words = ["generate", "--provider", "inductor", "--dsl", "triton", "--device", "cpu", "--suite", "smoke"]
    words += ["--ops", "mm.default,relu.default", "--timing", "off", "--attempts", "1", "--json", "-o", str(out)]
    result = CliRunner().invoke(app, words, standalone_mode=False)
    assert 0 == result.return_value, result.output
    tasks = json.loads(result.stdout)["tasks"]
    assert {"mm.default": False, "relu.default": True} == {task: found["accepted"] for task, found in tasks.items()}
    [written] = (out / "kernels").glob("*/*.py")
    assert "@triton.jit" in written.read_text()
    assert "torch._inductor" not in written.read_text()


@pytest.mark.slow
@pytest.mark.corpus
def test_the_compiler_writes_metal_that_nobody_judges(tmp_path: Path) -> None:
    """The campaign is complete and says so; the kernels are a kernel directory."""
    out = tmp_path / "out"
    words = ["generate", "--provider", "inductor", "--dsl", "metal", "--device", "cpu", "--suite", "smoke"]
    words += ["--ops", "mm.default,relu.default", "--timing", "off", "--attempts", "1", "-o", str(out)]
    result = CliRunner().invoke(app, words, standalone_mode=False)
    assert 0 == result.return_value, result.output
    assert "1 kernels were written and not judged: Metal runs on a Mac" in result.stdout
    [written] = (out / "unjudged").glob("*/*.py")
    assert "kernel void" in written.read_text()
    assert not list((out / "kernels").glob("*/*.py"))
