"""Whole models under several columns, judged in processes of their own: right ones pass, wrong ones say why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.dispatch_tables import kernel_file
from typer.testing import CliRunner

from opsmith.cli.main import app
from opsmith.core.run import ColumnResult, Options, RunDirectory, Selection, Summary
from opsmith.core.verdict import Status
from opsmith.errors import BadInput, UnknownName
from opsmith.whole_models.judging import ModelLimits
from opsmith.whole_models.pipeline import evaluate_models, survey_models


def options(backend: str, *columns: str, models: str, timing: str = "off", **selection: object) -> Options:
    """What is asked of small models on the CPU; every timed case gets three pairs of blocks."""
    chosen = Selection(models=tuple(models.split(",")), sizes="small", columns=columns, **selection)  # type: ignore[arg-type]
    return Options(
        suite="models", backend=backend, device="cpu", dtypes=("f32",), timing=timing, timing_pairs=3, selection=chosen
    )


def results(out: Path) -> dict[tuple[str, str], ColumnResult]:
    """What was found, by task and column."""
    return {(one.verdict.op, one.column): one for one in RunDirectory(out).column_results()}


def test_models_are_judged_in_inference_and_in_training_under_every_column(tmp_path: Path) -> None:
    """Outputs, gradients and statistics of the batch are eager's, and each column is timed against eager."""
    out = tmp_path / "run"
    words = ["run", "--suite", "models", "--models", "conv_net,text_lengths", "--sizes", "small"]
    kernels = kernel_file(tmp_path / "kernels", "relu.default", "def kernel(x):\n    return torch.clamp_min(x, 0)")
    words += ["--backend", "aot_eager", "--columns", str(kernels), "--timing-pairs", "3", "--device", "cpu"]
    answer = CliRunner().invoke(app, [*words, "--json", "-o", str(out)], standalone_mode=False)
    assert 0 == answer.return_value, answer.output
    summary = msgspec.json.decode(answer.stdout, type=Summary)
    assert summary.accepted
    assert {"asked": 4, "answered": 4, "correct": 4} == summary.ops
    assert ["eager", "aot_eager", str(kernels)] == list(summary.columns)
    for column in summary.columns.values():
        assert 4 == column.passed == column.cases
        assert 4 == sum(column.labels_e.values())
    assert 1 == results(out)["text_lengths/train", "aot_eager"].graphs  # Its length is marked as dynamic.
    page = (out / "report.html").read_text()
    assert "Columns against eager" in page
    assert 4 == len(list(RunDirectory(out).timed_cases()))


@pytest.mark.slow
@pytest.mark.corpus
def test_opsmith_and_inductor_compile_a_training_step(tmp_path: Path) -> None:
    """Both backends that generate code, on a model whose weights a backward pass changes nothing of."""
    out = tmp_path / "run"
    summary = evaluate_models(options("opsmith", "inductor", models="conv_net", mode="train"), out)
    assert {"PASSED"} == {one.verdict.status for one in results(out).values()}, results(out)
    assert {"opsmith", "inductor"} == set(summary.columns)
    figures = results(out)["conv_net/train", "opsmith"].verdict.figures
    assert figures is None or 0 == figures.mismatched


WRONG_BACKENDS = """
import os
import time

from torch._dynamo.backends.common import aot_autograd


def wrong_gradients(graph, example_inputs):
    def backward(graph, inputs):
        return lambda *args: [out if out is None else out * 1.001 for out in graph(*args)]

    return aot_autograd(fw_compiler=lambda graph, inputs: graph, bw_compiler=backward)(graph, example_inputs)


def first_answer(graph, example_inputs):
    kept = []

    def run(*args):
        if not kept:
            kept.extend(graph(*args))
        return kept

    return run


def refuses(graph, example_inputs):
    raise ValueError("no such op in this compiler")


def dies(graph, example_inputs):
    print("about to die")
    os._exit(3)


def hangs(graph, example_inputs):
    time.sleep(1000)
"""
#: Backend -> the model's mode, and what it gets.
WRONG = {
    "wrong_gradients": ("train", Status.WRONG_VALUE, "result"),
    "first_answer": ("infer", Status.WRONG_VALUE, "result 1"),
    "refuses": ("infer", Status.ERROR, "no such op in this compiler"),
    "dies": ("infer", Status.CRASHED, "status 3"),
    "hangs": ("infer", Status.TIMEOUT, "longer than 20 s"),
}


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of backends, as torch finds them: by the entry points of its distribution."""
    facts = tmp_path / "site" / "wrong_backends-1.dist-info"
    facts.mkdir(parents=True)
    (facts.parent / "wrong_backends.py").write_text(WRONG_BACKENDS)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-backends\nVersion: 1\n")
    names = "\n".join(f"{name} = wrong_backends:{name}" for name in WRONG)
    (facts / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{names}\n")
    monkeypatch.syspath_prepend(facts.parent)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("backend", WRONG)
def test_a_backend_that_is_wrong_or_fails_costs_itself_only_and_says_why(tmp_path: Path, backend: str) -> None:
    """Installed packages' backends are columns, and none of them ends the run."""
    mode, status, detail = WRONG[backend]
    asked = options(backend, "aot_eager", models="perceptron", mode=mode)
    summary = evaluate_models(asked, tmp_path / "run", limits=ModelLimits(column_s=20.0))
    found = {column: one.verdict for (_, column), one in results(tmp_path / "run").items()}
    assert not summary.accepted
    assert status is found[backend].status
    assert detail in found[backend].detail
    assert Status.PASSED is found["aot_eager"].status
    assert status is not Status.CRASHED or "about to die" in found[backend].evidence


def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """What was found stays, a torn line goes, and a result without its verdict gets it."""
    out, asked = tmp_path / "run", options("aot_eager", "eager", models="perceptron")
    evaluate_models(asked, out, seed=5)
    run = RunDirectory(out)
    run.write("run.json", msgspec.structs.replace(run.manifest(), finished_utc=None))
    lines = (out / "columns.jsonl").read_bytes().splitlines(keepends=True)
    (out / "columns.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:40])
    (out / "verdicts.jsonl").write_bytes(b"")
    summary = evaluate_models(asked, out, resume=True)
    assert summary.accepted
    assert lines[:2] == (out / "columns.jsonl").read_bytes().splitlines(keepends=True)[:2]
    assert 4 == len(results(out))
    assert 1 == run.manifest().resumed
    assert {"perceptron/infer", "perceptron/train"} == {verdict.op for verdict in run.verdicts()}


def test_autocast_is_judged_against_eager_under_autocast(tmp_path: Path) -> None:
    """Weights and gradients stay float32, results of products are bfloat16."""
    summary = evaluate_models(options("aot_eager", models="perceptron", autocast=True), tmp_path / "run")
    assert summary.accepted
    assert {"models:perceptron/train:f32:autocast:0:0", "models:perceptron/infer:f32:autocast:0:0"} == {
        one.verdict.case for one in results(tmp_path / "run").values()
    }


def test_names_of_nothing_are_told_before_anything_is_judged(tmp_path: Path) -> None:
    """With the nearest name that exists."""
    with pytest.raises(UnknownName, match="aot_eager"):
        evaluate_models(options("aot_eagre", models="perceptron"), tmp_path / "run")
    with pytest.raises(UnknownName, match="perceptron"):
        evaluate_models(options("eager", models="perceptrons"), tmp_path / "run")
    with pytest.raises(BadInput, match=r"pip install 'opsmith\[models\]'"):
        evaluate_models(options("eager", models="timm:resnet50"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_models_of_the_suite_are_listed() -> None:
    """Each in inference and in training; those of packages that are not installed with the reason."""
    plan = survey_models(Options(suite="models", backend="eager", device="cpu", dtypes=("f32",)))
    tasks = {planned.op for planned in plan.ops}
    assert {"gpt/infer", "gpt/train", "llama/train", "L4/8_BERT/infer"} <= tasks
    assert {model for model in plan.skipped if model.startswith("timm:")} == set(plan.skipped)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--suite", "models", "--backend", "eager", "--policy", "any"],
        ["run", "--suite", "opinfo", "--backend", "aten", "--mode", "train"],
        ["check", "kernel.py", "--task", "relu.default", "--suite", "models"],
    ],
)
def test_options_that_mean_nothing_are_refused(words: list[str]) -> None:
    """An option that is passed over in silence would be taken for one that holds."""
    answer = CliRunner().invoke(app, words, standalone_mode=False)
    assert 2 == answer.return_value
    assert "models" in answer.output
