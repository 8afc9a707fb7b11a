"""What installed kernels cost the caller on the host: ``torch.add`` and forms of it on four numbers.

    python -m benchmarks.dispatch.host_cost --device cpu -o FILE
    python -m benchmarks.dispatch.host_cost --device cuda -o FILE

Fresh processes measure every state in turn. Each figure is the median over the processes of the median over rounds,
of the time and of its ratio to eager's in the same round.

On a GPU the kernels are the shipped ones: as they are, repeated from launch plans in Python and in C++, and FlagGems
where it is installed. On a CPU they do no more than allocate, so that what is left is the way there, and plans launch
nothing: theirs is the cost of all but the driver.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
import triton

import opsmith
from opsmith.core.environment import Environment
from opsmith.core.run import write_atomically
from opsmith.dispatch.plans.mode import VARIABLE, LaunchMode
from opsmith.runner.machine.environment import describe_environment

PROCESSES, ROUNDS, CALLS = 5, 9, 1000
#: Calls in a state before it is timed: kernels compile, plans are recorded.
WARM_UP = 20
EAGER, OFF = "eager", "installed, switched off"

KERNEL = """
import torch
RESULT = torch.zeros(4)
def add__Tensor_kernel_impl(x, y, *, alpha=1):
    return {result}
"""
#: A kernel that is only called, one that allocates as each has to, and one that declines.
KERNELS = {
    "kernel that returns a constant": "RESULT",
    "kernel that allocates": "torch.empty_like(x)",
    "kernel that declines": "decline()",
}
PLANS = {"plans in Python": LaunchMode.PYTHON, "plans in C++": LaunchMode.NATIVE}

Form = Callable[[], object]
State = Callable[[], AbstractContextManager[None]]


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One form of call in one state.

    Attributes:
        us: microseconds on the host, output allocation included.
        ratio: to eager's, paired by round.
        processes: the ratio in each process.
    """

    us: float
    ratio: float
    processes: tuple[float, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed; ``costs`` by state and form."""

    command: tuple[str, ...]
    environment: Environment
    made_utc: str
    processes: int
    rounds: int
    calls: int
    costs: dict[str, dict[str, Cost]]


class Measured(NamedTuple):
    """What one process finds: the device's name and the microseconds of each round by state and form."""

    device_name: str
    us: dict[str, dict[str, list[float]]]


# ---------------------------------------------------------------- one process


def measure(device: str) -> Iterator[Measured]:
    """Time every form in every state; the states take turns.

    Nothing first, when everything is ready to be timed.
    """
    torch.set_num_threads(1)
    calls = forms(device)
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        entered = cpu_states(Path(folder)) if device == "cpu" else cuda_states()
        for enter in entered.values():  # What is compiled once is compiled before the first round.
            with enter():
                for call in calls.values():
                    timed_us(call, device)
        yield Measured(torch.cuda.get_device_name() if device == "cuda" else "", {})
        for _ in range(ROUNDS):
            for state, enter in entered.items():
                with enter():
                    for form, call in calls.items():
                        found.setdefault(state, {}).setdefault(form, []).append(timed_us(call, device))
        yield Measured(torch.cuda.get_device_name() if device == "cuda" else "", found)


def forms(device: str) -> dict[str, Form]:
    """The calls that are timed."""
    x, y, out = (torch.ones(4, device=device, dtype=torch.float64 if device == "cpu" else None) for _ in range(3))
    shapes = [(x, y), (x.reshape(2, 2), y.reshape(2, 2))]

    def two_shapes() -> None:
        for one, other in shapes:
            torch.add(one, other)

    return {
        "torch.add(x, y)": lambda: torch.add(x, y),
        "of two shapes in turn": two_shapes,
        "x.add_(y)": lambda: x.add_(y),
        "torch.add(x, y, out=o)": lambda: torch.add(x, y, out=out),
        "x + 1": lambda: x + 1,
    }


def timed_us(call: Form, device: str) -> float:
    """Microseconds on the host for one call; what the device does meanwhile is waited for before and after."""
    for _ in range(WARM_UP):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = timeit.timeit(call, number=CALLS)
    if device == "cuda":
        torch.cuda.synchronize()
    return seconds / CALLS / (2 if call.__name__ == "two_shapes" else 1) * 1e6


def cuda_states() -> dict[str, State]:
    """Each state on a GPU, and what enters it."""
    states: dict[str, State] = {
        EAGER: nullcontext,
        "kernels without plans": lambda: shipped(LaunchMode.OFF),
        **{name: lambda choice=choice: shipped(choice) for name, choice in PLANS.items()},  # type: ignore[misc]
    }
    if importlib.util.find_spec("flag_gems") is not None:
        states["FlagGems"] = flag_gems
    return states


@contextmanager
def shipped(choice: LaunchMode) -> Iterator[None]:
    """The shipped kernels, with plans carried out so."""
    os.environ[VARIABLE] = choice
    with opsmith.enabled(ops="add.Tensor", device="cuda", choose="all"):
        yield
        answered = {op.op: (op.planned if choice is not LaunchMode.OFF else op.calls) for op in opsmith.active().ops}
    assert all(answered.values()) or not any(answered.values()), f"some forms went another way: {answered}"


@contextmanager
def flag_gems() -> Iterator[None]:
    """FlagGems' own kernels, as it installs them."""
    import flag_gems

    with flag_gems.use_gems():
        yield


def cpu_states(folder: Path) -> dict[str, State]:
    """Each state on a CPU, and what enters it."""
    states: dict[str, State] = {EAGER: nullcontext}
    for number, (name, result) in enumerate(KERNELS.items()):
        directory = folder / str(number)
        (directory / "add__Tensor").mkdir(parents=True)
        source = KERNEL.format(result=result) + "def decline(): raise NotImplementedError\n"
        (directory / "add__Tensor" / "add__Tensor_implementation_v1.py").write_text(source)
        states[name] = lambda directory=directory: opsmith.enabled(directory, choose="all")  # type: ignore[misc]
    for name, choice in PLANS.items():
        states[name] = lambda choice=choice: launching_nothing(choice)  # type: ignore[misc]
    # Entries stay in torch's tables while somebody else runs Python: as after disable() beside a busy thread.
    states[OFF] = lambda: switched_off(folder / "0")
    return states


@contextmanager
def launching_nothing(choice: LaunchMode) -> Iterator[None]:
    """Plans carried out so, on a device whose launches do nothing."""
    from tests.launch_stand_in import DRIVER, stand_in_driver
    from tests.launch_stand_in import KERNELS as LAUNCHED

    # Takes nothing, does nothing and returns 0, which is success.
    nothing = ctypes.cast(ctypes.CDLL("libm.so.6").fegetround, ctypes.c_void_p).value
    driver = msgspec.structs.replace(
        DRIVER, launch=lambda *_: None, stream=lambda _: 0, launch_address=nothing, stream_address=nothing
    )
    os.environ[VARIABLE] = choice
    with stand_in_driver(driver), opsmith.enabled(LAUNCHED, ops="add.Tensor", device="cpu", choose="all"):
        yield


@contextmanager
def switched_off(directory: Path) -> Iterator[None]:
    """Entries in the tables, and no kernel in use."""
    from opsmith.dispatch.install import _installed

    with opsmith.enabled(directory, choose="all"):
        _installed.registry.switch_off()
        yield


# ---------------------------------------------------------------- all processes


def main() -> None:
    """Measure in fresh processes, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("-o", "--out", type=Path, help="write the record here as JSON")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        for measured in measure(options.device):
            print(json.dumps(measured), flush=True)
            sys.stdin.readline()
        return
    runs = _measured_apart(options.device)
    record = Record(
        command=("python", "-m", "benchmarks.dispatch.host_cost", *sys.argv[1:]),
        environment=_environment(options.device, runs[0].device_name),
        made_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        processes=PROCESSES,
        rounds=ROUNDS,
        calls=CALLS,
        costs={state: {form: _cost(runs, state, form) for form in of} for state, of in runs[0].us.items()},
    )
    _print(record)
    if options.out:
        write_atomically(options.out, msgspec.json.format(msgspec.json.encode(record), indent=1))


def _measured_apart(device: str) -> list[Measured]:
    """What each process finds; all of them get ready before the first one is timed, then one at a time is."""
    command = [sys.executable, "-m", "benchmarks.dispatch.host_cost", "--one", "--device", device]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 - this file
            )
            for _ in range(PROCESSES)
        ]
        for process in processes:
            _next_line(process)
        found = []
        for process in processes:
            _go_on(process)
            found.append(Measured(*json.loads(_next_line(process))))
            _go_on(process)
    return found


def _next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit(f"a process that measures has ended with status {process.wait()}")
    return line


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _environment(device: str, device_name: str) -> Environment:
    facts = {"torch": str(torch.__version__), "triton": triton.__version__, "cuda": torch.version.cuda}
    return describe_environment(facts, device=device, device_name=device_name)


def _cost(runs: list[Measured], state: str, form: str) -> Cost:
    ratios = [
        statistics.median(us / eager for us, eager in zip(run.us[state][form], run.us[EAGER][form], strict=True))
        for run in runs
    ]
    return Cost(
        us=round(statistics.median(statistics.median(run.us[state][form]) for run in runs), 3),
        ratio=round(statistics.median(ratios), 3),
        processes=tuple(round(ratio, 3) for ratio in ratios),
    )


def _print(record: Record) -> None:
    forms_of = list(record.costs[EAGER])
    width = max(map(len, record.costs))
    print(" " * width, *(form.rjust(22) for form in forms_of))
    for state, of in record.costs.items():
        print(state.ljust(width), *(f"{of[form].us:.2f} ({of[form].ratio:.2f}x)".rjust(22) for form in forms_of))


if __name__ == "__main__":
    main()
