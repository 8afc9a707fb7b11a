"""What a kernel finds in a bare process, and in its worker: no trace of opsmith, and the walls of the sandbox."""

from __future__ import annotations

import ast
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opsmith.core.case import CallRecord
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.runner.processes.bare_link import BareLink, CallAsked, NotAnswered
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.bare_messages import PlainCall, described
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.worker_messages import Answered, CallToRun, RunCalls
from opsmith.runner.sandbox.layers import Layer

pytestmark = pytest.mark.slow

SCHEMA = OpSchema(name="relu.default", schema="aten::relu(Tensor self) -> Tensor", variant=Variant.FUNCTIONAL)
RECORD = CallRecord(op="relu.default", args=(), kwargs={}, storages=())
LIMITS = Limits(load_s=5.0, call_s=2.0, referee_s=60.0)
HEAD = "import gc, os, resource, socket, stat, sys, traceback\nfrom pathlib import Path\nimport torch\n"


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """One zygote for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_SECRET_TOKEN", "hunter2")
        with Processes("cpu", memory_limit_bytes=512 << 20, output_limit_bytes=1 << 20) as running:
            running.wait_ready()
            yield running


class Bench:
    """Has kernels, given as the body of a function, say what they find in a worker and in a bare process."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        (folder / "kernels").mkdir()
        self._folder = folder
        self._numbers = itertools.count()
        self.worker = WorkerLink(
            processes, device="cpu", builds=folder / "builds", threads=1, spares=1, limits=LIMITS, withheld=(folder,)
        )
        self.bare = BareLink(processes, self.worker.reach, device="cpu", limits=LIMITS)

    def kernel(self, body: str) -> tuple[Kernel, Path]:
        """A kernel and the folder of its file."""
        root = self._folder / "kernels" / str(next(self._numbers))
        root.mkdir()
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (root / "kernel.py").write_text(f"{HEAD}\ndef run():\n{lines}")
        files = {"kernel.py": root.name}
        return Kernel(task=SCHEMA.name, backend="test", loader=Loader.FILE, entry="kernel.py:run", files=files), root

    def in_worker(self, body: str) -> str:
        """What it raised, or returned, under a policy."""
        kernel, root = self.kernel(body)
        self.worker.retire()
        assert self.worker.load(kernel, root, SCHEMA, "any") is None
        call = CallToRun(msgspec.msgpack.encode(RECORD), rng_seed=0)
        (reply,) = self.worker.ask(RunCalls((call,)), (Answered,)).replies
        return str(getattr(reply, "message", "returned"))

    def in_bare(self, body: str, calls: int = 1) -> Sequence[Any]:
        """Of each call what it raised, or its outcomes."""
        kernel, root = self.kernel(body)
        call = CallAsked(PlainCall(json.dumps(described(RECORD)).encode(), os.devnull), 1, 0)
        with self.bare.process() as process:
            return process.ask(kernel, root, SCHEMA, [call] * calls, "0" * 16)

    def found(self, expression: str) -> tuple[Any, Any]:
        """What an expression is in a worker and in a bare process."""
        body = f"raise ValueError(repr({expression}))"
        texts = (self.in_worker(body), self.in_bare(body)[0])
        worker, bare = (ast.literal_eval(text.removeprefix("ValueError: ")) for text in texts)
        return worker, bare


@pytest.fixture
def bench(processes: Processes, tmp_path: Path) -> Iterator[Bench]:
    """With links of its own."""
    found = Bench(processes, tmp_path)
    yield found
    found.worker.close()
    found.bare.close()


NAMELESS = {
    "modules": "[name for name in sys.modules if 'opsmith' in name]",
    "variables": "[name for name in os.environ if 'OPSMITH' in name.upper()]",
    "command line": "'opsmith' in Path('/proc/self/cmdline').read_text() + str(sys.argv) + str(sys.orig_argv)",
    "first environment": "b'OPSMITH_' in Path('/proc/self/environ').read_bytes()",
    "folders": "[p for p in (os.getcwd(), os.environ['HOME'], os.environ['TMPDIR'], __file__) if 'opsmith' in p]",
    "main module": "[k for k, v in vars(sys.modules['__main__']).items() if 'opsmith' in getattr(v, '__module__', '')]",
    "own name": "'opsmith' in __name__",
}


@pytest.mark.parametrize("place", NAMELESS)
def test_neither_process_has_opsmiths_name(bench: Bench, place: str) -> None:
    """Where a kernel looks first."""
    worker, bare = bench.found(NAMELESS[place])
    assert not worker
    assert not bare


def test_a_bare_process_has_nothing_of_the_judges(bench: Bench) -> None:
    """No module that only a judge imports, no mode, no descriptor, no frame, no object, no variable."""
    expressions = {
        "modules": "[n for n in ('msgspec', 'torch._dynamo', 'triton') if n in sys.modules]",
        "modes": "torch._C._len_torch_dispatch_stack()",
        "descriptors": "[fd for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{fd}') and not os.readlink("
        "f'/proc/self/fd/{fd}').startswith('/proc')]",
        "files of frames": "sorted({Path(f.filename).name for f in traceback.extract_stack()} - {'kernel.py'})[1:]",
        "objects": "[k for k in map(type, gc.get_objects()) if k.__module__.startswith('opsmith')]",
        "frozen": "gc.get_freeze_count()",
        "session": "os.getsid(0) == os.getpid()",
        "secret": "'hunter2' in str(os.environ)",
        "judge's variables": "[n for n in ('OMP_NUM_THREADS', 'PYTHONHASHSEED', 'TORCH_DEVICE_BACKEND_AUTOLOAD', "
        "'TRITON_CACHE_DIR') if n in os.environ]",
        "hashes": "sys.flags.hash_randomization != 1",
    }
    body = f"raise ValueError(repr([{', '.join(expressions.values())}]))"
    (text,) = bench.in_bare(body)
    found = ast.literal_eval(text.removeprefix("ValueError: "))
    assert {} == {name: value for name, value in zip(expressions, found, strict=True) if value}


ATTEMPTS = {
    Layer.FILES: "open({secret!r}).read()",
    Layer.READ_ONLY: "open(sys.prefix + '/written', 'w')",
    Layer.SYSTEM_CALLS: "socket.socket(socket.AF_INET)",
    Layer.SIGNALS: "os.kill({judge}, 0)",
    Layer.MEMORY: "open(f'/proc/{{os.getppid()}}/mem', 'rb')",
}


@pytest.mark.parametrize("layer", ATTEMPTS)
def test_a_bare_process_is_confined_as_a_worker_is(
    bench: Bench, processes: Processes, tmp_path: Path, layer: Layer
) -> None:
    """What runs there is the same stranger's code."""
    if layer in processes.sandbox_missing:
        pytest.skip(processes.sandbox_missing[layer])
    (tmp_path / "secret").write_text("hunter2")
    attempt = ATTEMPTS[layer].format(secret=str(tmp_path / "secret"), judge=os.getpid())
    (text,) = bench.in_bare(attempt)
    assert str(text).startswith(("PermissionError", "OSError"))


def test_what_a_kernel_does_to_its_process_is_its_answer(bench: Bench) -> None:
    """It is told from a process that did not come so far."""
    assert ["ValueError: no"] * 2 == list(bench.in_bare("raise ValueError('no')", calls=2))
    assert "status 3" in bench.in_bare("os._exit(3)")[0]
    assert "SIGSEGV" in bench.in_bare("os.kill(os.getpid(), 11)")[0]
    assert "no answer within" in bench.in_bare("import time; time.sleep(60)")[0]
    assert "more memory" in bench.in_bare("held = b'x' * (1 << 30); import time; time.sleep(1)")[0]
    assert "an answer" in bench.in_bare("Path('../answer').symlink_to('/etc/passwd'); os._exit(0)")[0]
    assert "*" == bench.in_bare("return None")[0][0].form.structure


def test_a_process_that_cannot_be_confined_is_no_answer_of_the_kernels(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else honest kernels would be accused of what the machine lacks."""
    monkeypatch.setattr(
        type(bench.bare), "request", lambda *_: {"calls": [], "rules": [], "module": None, "device": "cpu"}
    )
    with pytest.raises(NotAnswered, match=r"the process for it did not start: .*KeyError"):
        bench.in_bare("return None")


def test_relative_imports_and_packages_load_as_in_a_worker(bench: Bench) -> None:
    """A kernel may be several files."""
    kernel, root = bench.kernel("raise ValueError(__name__)")
    (root / "deep").mkdir()
    (root / "deep" / "__init__.py").write_text("WORD = 'package'\n")
    (root / "other.py").write_text("WORD = 'other'\n")
    (root / "deep" / "add.v2.py").write_text(
        "from . import WORD\nfrom ..other import WORD as OTHER\n\ndef run():\n    raise ValueError(WORD + OTHER)\n"
    )
    kernel = msgspec.structs.replace(kernel, entry="deep/add.v2.py:run")
    call = CallAsked(PlainCall(json.dumps(described(RECORD)).encode(), os.devnull), 1, 0)
    with bench.bare.process() as process:
        assert ["ValueError: packageother"] == process.ask(kernel, root, SCHEMA, [call], "0" * 16)


def test_it_runs_the_same_interpreter(bench: Bench) -> None:
    """With the same packages."""
    worker, bare = bench.found("(sys.executable, torch.__version__)")
    assert worker == bare
    assert sys.executable == bare[0]
