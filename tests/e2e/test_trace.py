"""``opsmith trace``: scripts as they are, and models without their weights and without a GPU."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from opsmith.cli import main
from opsmith.core.trace import TraceEntry
from opsmith.traces.capture import Capture
from opsmith.traces.fake_device import FakeDevice
from opsmith.traces.grammar import parse_headers, parse_trace, print_arguments

SCRIPT = """
import sys, torch
print("arguments:", *sys.argv[1:])
device = "cuda" if "--cuda" in sys.argv else "cpu"
layer = torch.nn.Linear(4, 3, device=device)
layer(torch.randn(2, 4, device=device)).relu().sum().backward()
if "--exit" in sys.argv:
    sys.exit(3)
if "--raise" in sys.argv:
    raise ValueError("out of\\ncheese")
"""

MODELS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.words = nn.Embedding(10, width)
        self.lstm = nn.LSTM(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids):
        x = self.dropout(self.lstm(self.words(ids))[0][-1])
        assert not x.isnan().any()
        return self.norm(x)

def get_init_inputs():
    return [16]

def get_inputs():
    return [torch.zeros(3, 5, dtype=torch.long)]

def convolution(batch_size=2, channels=3):
    return nn.Conv2d(channels, 4, 3), torch.randn(batch_size, channels, 8, 8)

def nothing():
    return None

def mismatch():
    return nn.Linear(3, 4), torch.randn(2, 5)
"""


def opsmith(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder that holds SCRIPT and MODELS."""
    (folder / "script.py").write_text(SCRIPT)
    (folder / "models.py").write_text(MODELS)
    program = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"
    return subprocess.run(
        [sys.executable, "-c", program, "trace", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


class Ended(NamedTuple):
    """How the command line ended, and what it printed."""

    status: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command line like :func:`opsmith`, in this process, which is faster."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "empty.py").touch()
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["opsmith", "trace", *arguments])
        with pytest.raises(SystemExit) as end:
            main.main()
        return Ended(int(end.value.code or 0), *capfd.readouterr())

    return run


def entries(path: Path) -> list[TraceEntry]:
    """What a trace file holds."""
    return parse_trace(path.read_text(encoding="utf-8"), source=str(path))


def counts(path: Path) -> dict[str, int]:
    """Op -> number of calls, of a trace file."""
    found: dict[str, int] = {}
    for entry in entries(path):
        found[entry.call.op] = found.get(entry.call.op, 0) + entry.count
    return found


# ---------------------------------------------------------------- scripts


def test_a_script_runs_as_it_does_without_opsmith(tmp_path: Path) -> None:
    """It gets its own arguments and prints where it always does; the trace is named after it."""
    done = opsmith("script.py", "--", "--epochs", "1", folder=tmp_path)
    assert (0, "arguments: --epochs 1\n") == (done.returncode, done.stdout)
    found = counts(tmp_path / "script.txt")
    assert (1, 1, 1) == (found["addmm.default"], found["relu.default"], found["threshold_backward.default"])
    assert {"model": "script.py", "torch": torch.__version__} == parse_headers((tmp_path / "script.txt").read_text())


@pytest.mark.parametrize(
    ("flag", "says", "status"),
    [("--raise", "raised ValueError at line 10: out of cheese", 1), ("--exit", "ended with status 3", 3)],
)
def test_a_script_that_fails_costs_nothing_that_it_called_before(
    here: Run, tmp_path: Path, flag: str, says: str, status: int
) -> None:
    """One line says what went wrong, the status is the script's, and the trace is there."""
    done = here("script.py", "-o", "kept.txt", "--", flag)
    assert status == done.status
    assert f"opsmith: script.py {says}; its 18 calls until then are in kept.txt\n" in done.err
    assert "Traceback" not in done.err
    assert 1 == counts(tmp_path / "kept.txt")["relu.default"]


def test_a_module_runs_with_its_package(here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts with relative imports are run by their module's name."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("import torch\nx = torch.ones(2)\n")
    (package / "train.py").write_text("import sys\nfrom .part import x\nprint(*sys.argv[1:])\nx.relu()\n")
    done = here("-m", "package.train", "-o", "module.txt", "--", "--epochs", "1")
    assert (0, "--epochs 1\n") == (done.status, done.out), done.err
    assert 1 == counts(tmp_path / "module.txt")["relu.default"]


def test_a_script_that_fails_at_once_leaves_an_earlier_trace(here: Run, tmp_path: Path) -> None:
    """And its message reaches the terminal without its escape sequences."""
    (tmp_path / "kept.txt").write_text("# earlier\n")
    (tmp_path / "fails.py").write_text("raise ValueError('\\x1b[31mred')\n")
    done = here("fails.py", "-o", "kept.txt")
    assert 1 == done.status
    assert "# earlier\n" == (tmp_path / "kept.txt").read_text()
    assert "\\x1b[31mred; it had called nothing" in done.err
    assert "\x1b[31m" not in done.err


def test_a_script_can_run_on_a_gpu_that_is_not_there(here: Run, tmp_path: Path) -> None:
    """Its CUDA tensors have shapes and no content; calls on the host are no part of the trace."""
    done = here("--fake", "script.py", "--", "--cuda")
    assert (0, "arguments: --cuda\n") == (done.status, done.out)
    assert 1 == counts(tmp_path / "script.txt")["threshold_backward.default"]


def test_json_is_all_that_stands_on_stdout(here: Run, tmp_path: Path) -> None:
    """Not even the script's own lines, which go to stderr then."""
    done = here("script.py", "--json")
    summary = json.loads(done.out)
    assert "arguments:" in done.err
    found = counts(tmp_path / "script.txt")
    assert (len(found), sum(found.values()), None) == (summary["ops"], summary["calls"], summary["error"])
    assert {"aten.detach.default"} == set(summary["left_out"])


# ---------------------------------------------------------------- models


def test_a_model_is_traced_as_a_gpu_runs_it(here: Run, tmp_path: Path) -> None:
    """Inference and a training step with its optimizer, in the ops that CUDA has and a CPU does not."""
    done = here("--model", "models.py", "-o", "trace.txt")
    assert 0 == done.status, done.err
    found = counts(tmp_path / "trace.txt")
    assert (6, 3) == (found["_thnn_fused_lstm_cell.default"], found["_thnn_fused_lstm_cell_backward_impl.default"])
    assert (1, 1) == (found["native_dropout.default"], found["native_dropout_backward.default"])
    assert (2, 1) == (found["native_batch_norm.default"], found["native_batch_norm_backward.default"])
    assert 1 == found["_foreach_addcdiv_.ScalarList"]
    assert {"model": "models.py", "mode": "infer, train", "dtype": "bf16", "torch": torch.__version__} == parse_headers(
        (tmp_path / "trace.txt").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize(
    ("options", "weights", "computed"),
    [
        (["--dtype", "f16"], "f16", "f16"),
        (["--dtype", "f16", "--autocast"], "f32", "f16"),
        (["--dtype", "f32"], "f32", "f32"),
    ],
)
def test_a_model_computes_in_the_dtype_that_was_asked_for(
    here: Run, tmp_path: Path, options: list[str], weights: str, computed: str
) -> None:
    """Autocast keeps the weights in f32 and converts them, as training in mixed precision does."""
    arguments = ("--model", "models.py:convolution", "--mode", "train", "--optimizer", "sgd", "-o", "trace.txt")
    done = here(*arguments, *options, "--batch-size", "7", "--config", "channels=5")
    assert 0 == done.status, done.err
    found = entries(tmp_path / "trace.txt")
    by_op = {entry.call.op: entry.call for entry in found}
    assert f"((T([7, 5, 8, 8], {computed}), T([4, 5, 3, 3], {computed})" in print_arguments(
        by_op["convolution.default"]
    )
    assert weights in print_arguments(by_op["_foreach_add_.List"])
    copies = [print_arguments(entry.call) for entry in found if entry.call.op == "_to_copy.default"]
    assert (weights != computed) == any("T([4, 5, 3, 3], f32)" in copy for copy in copies)


def test_a_model_of_70_billion_parameters_needs_no_memory(tmp_path: Path) -> None:
    """Inference and training within three gigabytes; few wide layers have as many as many narrow ones."""
    pytest.importorskip("transformers")
    config: dict[str, object] = {
        "hidden_size": 8192,
        "intermediate_size": 12 * 28672,
        "num_hidden_layers": 8,
        "num_attention_heads": 64,
    }
    config |= {
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = (
        "--model",
        "transformers:config.json",
        "--batch-size",
        "1",
        "--sequence-length",
        "2048",
        "-o",
        "trace.txt",
    )
    done = opsmith(*arguments, folder=tmp_path)
    assert 0 == done.returncode, done.stderr
    found = counts(tmp_path / "trace.txt")
    assert (8 * 3, 8) == (
        found["_scaled_dot_product_flash_attention.default"],  # a prompt, the token after it, and training
        found["silu_backward.default"],
    )
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 3 * 2**20


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either a SCRIPT or a --model"),
        (("script.py", "--model", "models.py"), "give either a SCRIPT or a --model"),
        (("none.py",), "there is no script none.py"),
        (("script.py", "--mode", "train"), "--mode goes with --model"),
        (("--fake", "--model", "models.py"), "--fake goes with a SCRIPT"),
        (("--model", "resnet50"), "'resnet50' names no model; give timm:NAME"),
        (("--model", "transformers:lama"), "no transformers model named 'lama'; did you mean llama"),
        (("--model", "transformers:none.json"), "none.json cannot be read: No such file or directory"),
        (
            ("--model", "transformers:llama", "--config", "hidden_size=big"),
            "transformers:llama cannot be run as asked: ",
        ),
        (("--model", "transformers:llama", "--config", "hidden_size"), "--config 'hidden_size' is no KEY=VALUE"),
        (("--model", "none.py"), "none.py cannot be loaded: FileNotFoundError"),
        (
            ("--model", "empty.py"),
            "empty.py defines no Model; name a function that makes the model: empty.py:FUNCTION",
        ),
        (("--model", "models.py:convolutoin"), "no models.py model named 'convolutoin'; did you mean convolution"),
        (("--model", "models.py:nothing"), "models.py:nothing returned no pair of a torch.nn.Module and its inputs"),
        (
            ("--model", "models.py:mismatch"),
            "models.py:mismatch cannot be run as asked: RuntimeError: a and b must have",
        ),
        (("--model", "models.py:convolution", "--config", "size=3"), "takes no size; it takes: batch_size, channels"),
        (("--model", "models.py", "--dtype", "i64"), "--dtype 'i64': a model computes in one of bf16, f16, f32, f64"),
        (
            ("--model", "models.py", "-o", "no/such/folder.txt"),
            "no/such/folder.txt cannot be written: there is no folder",
        ),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_in_one_line(
    here: Run, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    """Status 2, one line, and no file."""
    done = here(*arguments)
    assert (2, "") == (done.status, done.out)
    assert says in done.err
    assert 1 == done.err.count("\n")
    assert [] == list(tmp_path.glob("*.txt"))


@pytest.mark.parametrize("library", ["timm", "torchvision", "transformers"])
def test_a_library_that_is_missing_is_told_with_what_installs_it(
    here: Run, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is needed for anything else."""
    monkeypatch.setitem(sys.modules, library, None)
    done = here("--model", f"{library}:resnet50")
    assert 2 == done.status
    assert f"opsmith: {library} is not installed; run: pip install 'opsmith[models]'\n" == done.err


# ---------------------------------------------------------------- fidelity


class Vision(torch.nn.Module):
    """What convolutional networks and transformers for images are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, 2), torch.nn.BatchNorm2d(16), torch.nn.ReLU(inplace=True), torch.nn.MaxPool2d(2)
        )
        self.norm = torch.nn.LayerNorm(16)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
        self.head = torch.nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images).flatten(2).transpose(1, 2)
        x = x + self.mlp(self.norm(x))
        result: torch.Tensor = self.head(x.mean(1)).log_softmax(-1)
        return result


class Sequences(torch.nn.Module):
    """What differs between a CPU and a GPU: dropout, recurrent cells, attention, RMS norm."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.lstm = torch.nn.GRU(16, 16), torch.nn.LSTM(16, 16)
        self.encoder = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.norm = torch.nn.RMSNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(self.encoder(self.lstm(self.gru(x)[0])[0]))
        return result


def step(module: torch.nn.Module, x: torch.Tensor, device: str) -> dict[str, int]:
    """Trace inference and training: ``op arguments`` -> count."""
    with Capture(device=device) as capture:
        with torch.no_grad():
            module.eval()(x)
        module.train()(x).sum().backward()
    return {f"{entry.call.op} {print_arguments(entry.call)}": entry.count for entry in capture.entries()}


def test_fake_tensors_call_what_real_ones_call() -> None:
    """Where a CPU and a GPU run the same ops, the trace without content is the trace of the real run."""
    with FakeDevice(), torch.device("cuda"):
        fake = step(Vision(), torch.randn(2, 3, 32, 32), "cuda")
    real = step(Vision(), torch.randn(2, 3, 32, 32), "cpu")
    assert real == fake


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(("kind", "shape"), [(Vision, (2, 3, 32, 32)), (Sequences, (4, 8, 16))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fake_tensors_call_what_a_gpu_calls(
    kind: type[torch.nn.Module], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """With cuDNN off and its attention off, as documented, a real GPU runs exactly the traced ops."""
    with FakeDevice(), torch.device("cuda"):
        fake = step(kind().to(dtype), torch.randn(shape, dtype=dtype), "cuda")
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    with torch.backends.cudnn.flags(enabled=False), torch.device("cuda"):
        real = step(kind().to(dtype), torch.randn(shape, dtype=dtype), "cuda")
    assert real == fake
