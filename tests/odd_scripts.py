# ruff: noqa: E501 - one script a line
"""Scripts that end, branch and call in odd ways, each run as it is and under ``opsmith trace``.

``python -m tests.odd_scripts FOLDER`` imports torch once, forks a process for each run and prints what became of them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

#: A relu is counted, so each script says how many it makes that a trace can hold.
PRELUDE = "import os, sys, signal, threading, time, torch\nx = torch.ones(3)\n"


class Odd(NamedTuple):
    """One script.

    Attributes:
        text: after :data:`PRELUDE`.
        relus: calls of relu that the trace has to hold; 0: none is made, and no trace is written.
        says: what the tracer has to say on standard error.
    """

    text: str
    relus: int
    says: str = ""


SCRIPTS = {
    "plain": Odd("torch.relu(x); print('done')", 1),
    "nested": Odd("n = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]); print(torch.relu(n).numel()); torch.relu(x)", 1, "nested tensor"),
    "jagged": Odd("n = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged); print((n * 2).values()); torch.relu(x)", 1),
    "sparse": Odd("print(torch.eye(3).to_sparse().sum()); torch.relu(x)", 1, "layout"),
    "sparse_csr": Odd("print((torch.eye(3).to_sparse_csr() @ torch.ones(3, 1)).sum()); torch.relu(x)", 1),
    "quantised": Odd("print(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize()); torch.relu(x)", 1, "quantized"),
    "complex": Odd("print((x * 1j).abs(), torch.view_as_real(x * 1j)); torch.relu(x)", 1),
    "float8": Odd("print(x.to(torch.float8_e4m3fn).float()); torch.relu(x)", 1),
    "subclass": Odd("class T(torch.Tensor): pass\nprint(torch.relu(x.as_subclass(T)).sum()); torch.relu(x)", 1),
    "hooks": Odd("m = torch.nn.Linear(3, 3); m.register_forward_hook(lambda *a: torch.relu(a[2]))\nm.weight.register_hook(lambda g: torch.relu(g)); m(x).sum().backward()", 2),
    "backward": Odd("y = x.requires_grad_(); torch.relu(y).sum().backward(); print(y.grad)", 1),
    "own_function": Odd("class F(torch.autograd.Function):\n  @staticmethod\n  def forward(c, a): return torch.relu(a)\n  @staticmethod\n  def backward(c, g): return torch.relu(g)\nF.apply(x.requires_grad_()).sum().backward()", 2),
    "inference": Odd("with torch.inference_mode(): torch.relu(x)", 1),
    "func": Odd("print(torch.func.vmap(torch.relu)(torch.ones(2, 3))); torch.relu(x)", 2),
    "exec": Odd("exec('torch.relu(x)')", 1),
    "thread": Odd("t = threading.Thread(target=lambda: torch.relu(x)); t.start(); t.join(); torch.relu(x)", 2),
    "late_thread": Odd("threading.Thread(target=lambda: (time.sleep(0.2), torch.relu(x), print('late'))).start()", 1),
    "pool": Odd("from concurrent.futures import ThreadPoolExecutor as P\nwith P(4) as p: print(len(list(p.map(lambda _: torch.relu(x), range(8)))))", 8),
    "thread_raises": Odd("t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join(); torch.relu(x)", 1),
    "fork": Odd("p = os.fork()\nif p == 0:\n    torch.relu(x); os._exit(0)\nprint(os.waitpid(p, 0)[1]); torch.relu(x)", 2),
    "fork_raises": Odd("p = os.fork()\nif p == 0:\n    torch.relu(x); sys.exit(4)\nprint(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1])); torch.relu(x)", 2),
    "multiprocessing": Odd("import multiprocessing as m\nm = m.get_context('fork')\np = m.Process(target=torch.relu, args=(x,)); p.start(); p.join(); print(p.exitcode); torch.relu(x)", 2),
    "loader": Odd("from torch.utils.data import DataLoader\nprint(sum(1 for _ in DataLoader([torch.relu(x)] * 4, num_workers=1, collate_fn=lambda b: torch.relu(b[0]))))", 5),
    "subprocess": Odd("import subprocess; subprocess.run(['true']); torch.relu(x)", 1, "true (1)"),
    "exit_0": Odd("torch.relu(x); sys.exit()", 1),
    "os_exit": Odd("torch.relu(x); os._exit(0)", 1, "ended by os._exit(0)"),
    "os_exit_7": Odd("torch.relu(x); os._exit(7)", 1, "ended by os._exit(7)"),
    "terminated": Odd("torch.relu(x); os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", 1, "ended by SIGTERM"),
    "hung_up": Odd("torch.relu(x); os.kill(os.getpid(), signal.SIGHUP); time.sleep(9)", 1, "ended by SIGHUP"),
    "own_handler": Odd("signal.signal(signal.SIGTERM, lambda *_: print('mine'))\nos.kill(os.getpid(), signal.SIGTERM); time.sleep(0.05); torch.relu(x)", 1),
    "killed": Odd("torch.relu(x); time.sleep(1.1); torch.relu(x); os.kill(os.getpid(), signal.SIGKILL)", 2),
    "interrupted": Odd("torch.relu(x); os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", 1, "was interrupted; its"),
    "becomes": Odd("torch.relu(x); sys.stdout.flush(); os.execvp('true', ['true'])", 1, "executed another program in its place"),
    "exec_fails": Odd("try: os.execv('/no/such', ['x'])\nexcept OSError: print('no')\ntorch.relu(x)", 1),
    "at_exit": Odd("import atexit\n@atexit.register\ndef last(): print(torch.relu(x).sum())\nprint(last.__name__); torch.relu(x)", 2, "2 calls at exit, added to"),
    "at_exit_taken_back": Odd("import atexit\ndef last(): print('never')\natexit.register(last); atexit.unregister(last); torch.relu(x)", 1),
    "exit_7": Odd("torch.relu(x); sys.exit(7)", 1, "ended with status 7"),
    "alarm": Odd("torch.relu(x); signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(9)", 1, "ended by SIGALRM"),
    "gone_folder": Odd("import tempfile, shutil; d = tempfile.mkdtemp(); os.chdir(d); torch.relu(x); time.sleep(1.1); shutil.rmtree(d)\ntorch.relu(x); print('on')", 2),
    "torchscript": Odd("f = torch.jit.trace(lambda a: torch.relu(a) + 1, x, check_trace=False); print(f(x))", 2),
    "stderr_closed": Odd("torch.relu(x); print('a'); sys.stdout.flush(); sys.stderr.close()", 1),
    "raw_thread": Odd("import _thread; e = threading.Event()\n_thread.start_new_thread(lambda: (torch.relu(x), e.set()), ()); e.wait(); print('on')", 1),
    "fork_os_exit": Odd("p = os.fork()\nif p == 0:\n    torch.relu(x); os._exit(0)\nos.waitpid(p, 0); torch.relu(x); os._exit(0)", 2, "ended by os._exit(0)"),
    "fork_[of]_odd_name": Odd("p = os.fork()\nif p == 0:\n    torch.relu(x); os._exit(0)\nprint(os.waitpid(p, 0)[1]); torch.relu(x)", 2),
    "raises": Odd("torch.relu(x); raise ValueError('red \\x1b[31m')", 1, "red \\x1b[31m"),
    "raises_at_once": Odd("raise ValueError", 0, "raised ValueError"),
    "system_exit_text": Odd("torch.relu(x); sys.exit('bad \\x1b[31m')", 1, "bad \\x1b[31m"),
}  # fmt: skip


class Ended(NamedTuple):
    """How a run ended: its status as the shell has it, what it wrote, and the seconds it took."""

    status: int
    out: str
    err: str
    seconds: float


def run(script: Path, out: Path | None) -> Ended:
    """Run a script in a fork: as it is, or recorded to ``out``."""
    output, errors = script.with_suffix(".stdout"), script.with_suffix(".stderr")
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.chdir(script.parent)
        for number, path in ((1, output), (2, errors)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        _carry_out(script, out)
    _, status = os.waitpid(child, 0)
    text, error = (path.read_text(errors="replace") for path in (output, errors))
    return Ended(os.waitstatus_to_exitcode(status), text, error, time.monotonic() - started)


def _carry_out(script: Path, out: Path | None) -> None:
    """In the fork: end as a Python of its own would."""
    status: int | str | None = 1
    atexit._clear()  # What this process registered is not the script's.
    try:
        if out is None:
            sys.argv = [str(script)]
            runpy.run_path(str(script), run_name="__main__")
        else:
            from opsmith.cli.main import main

            sys.argv = ["opsmith", "trace", str(script), "-o", str(out)]
            main()
        status = 0
    except SystemExit as exc:
        status = exc.code
        if isinstance(status, str):
            sys.stderr.write(status)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as exc:  # noqa: BLE001 - as the interpreter does
        sys.stderr.write(repr(exc))
    import threading

    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):  # The script may have closed it.
            stream.flush()
    os._exit(status if isinstance(status, int) else 1 if status else 0)


def main(folder: Path) -> None:
    """Run all scripts both ways; print both as JSON."""
    import torch

    from opsmith.cli.trace import _trace_script

    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork.
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job ignores it,
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup this.
    warm = folder / "warm.py"
    warm.write_text(PRELUDE + "torch.relu(x)\n")
    with contextlib.redirect_stdout(sys.stderr):  # Imports what every fork needs.
        _trace_script(warm, [], fake=False, out=folder / "warm.txt", json_output=True)
    found = {}
    for name, odd in SCRIPTS.items():
        script = folder / f"{name}.py"
        script.write_text((PRELUDE if odd.relus else "") + odd.text + "\n")
        out = folder / f"{name}.txt"
        found[name] = {"plain": run(script, None)._asdict(), "traced": run(script, out)._asdict()}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
