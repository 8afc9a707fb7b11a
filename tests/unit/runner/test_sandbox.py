"""The pieces of the sandbox: what the filter refuses, what may be read, and what the probe finds out."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith.runner.sandbox import landlock, reach, seccomp
from opsmith.runner.sandbox.kernel_calls import forgo_privileges, is_readable, set_readable
from opsmith.runner.sandbox.landlock import EVERYTHING, READ, READ_DIR, PathRule
from opsmith.runner.sandbox.layers import Layer, Sandbox, probe
from opsmith.runner.sandbox.reach import Reach, private, readable

ALLOWED = 0x7FFF0000


def decide(
    machine: str,
    number: int,
    *arguments: int,
    architecture: int | None = None,
    program: list[tuple[int, int, int, int]] | None = None,
) -> int:
    """What the filter answers to a system call: 0 where it may pass, else the error."""
    known = seccomp.ARCHITECTURES[machine] if architecture is None else architecture
    data = {0: number, 4: known} | {
        16 + 8 * i: value for i, value in enumerate((*arguments, *[0] * (6 - len(arguments))))
    }
    program = program or seccomp.program(machine)
    place = accumulator = 0
    while True:
        code, if_true, if_false, value = program[place]
        place += 1
        if code == 0x20:
            accumulator = data[value] & 0xFFFFFFFF
        elif code == 0x06:
            return 0 if value == ALLOWED else value & 0xFFFF
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            place += if_true if holds else if_false


@pytest.mark.parametrize(("machine", "sockets", "pairs", "reads"), [("x86_64", 41, 53, 0), ("aarch64", 198, 199, 63)])
def test_sockets_are_refused_and_pairs_and_files_are_not(machine: str, sockets: int, pairs: int, reads: int) -> None:
    """A pair has both ends in the sandbox, a socket may have its other end anywhere.

    A driver may make one within the machine, until a kernel is loaded.
    """
    assert errno.EPERM == decide(machine, sockets, socket.AF_INET)
    assert 0 == decide(machine, sockets, socket.AF_UNIX)
    assert errno.EPERM == decide(machine, sockets, socket.AF_UNIX, program=seccomp.kernel_program(machine))
    assert 0 == decide(machine, pairs, socket.AF_UNIX) == decide(machine, reads)


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 302), ("aarch64", 261)])
def test_limits_can_be_set_for_oneself_only(machine: str, number: int) -> None:
    """A limit on the referee's processor time would end it."""
    assert 0 == decide(machine, number, 0)
    assert errno.EPERM == decide(machine, number, 4711)


@pytest.mark.parametrize(("machine", "clone", "clone3"), [("x86_64", 56, 435), ("aarch64", 220, 435)])
def test_threads_can_be_made_and_namespaces_cannot(machine: str, clone: int, clone3: int) -> None:
    """A filter cannot see clone3's flags: the C library is told that it does not exist, and uses clone."""
    assert 0 == decide(machine, clone, 0x3D0F00)
    assert errno.EPERM == decide(machine, clone, 0x10000000 | 17)
    assert errno.ENOSYS == decide(machine, clone3)


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 41), ("aarch64", 198)])
def test_a_rank_makes_any_socket_until_all_are_refused(machine: str, number: int) -> None:
    """It connects with the others before a kernel is loaded."""
    for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_NETLINK):
        assert 0 == decide(machine, number, family, program=seccomp.program(machine, connects=True))
        assert errno.EPERM == decide(machine, number, family, program=seccomp.kernel_program(machine))


@pytest.mark.parametrize(
    ("machine", "column", "reads"), [("x86_64", 0, 204), ("aarch64", 1, 123)], ids=["x86_64", "aarch64"]
)
def test_a_kernel_cannot_change_how_its_threads_are_scheduled(machine: str, column: int, reads: int) -> None:
    """Neither cores nor priority, nor a signal that a timer sends; OpenMP reads its cores, which remains."""
    program = seccomp.kernel_program(machine)
    for numbers in seccomp._REFUSED_TO_KERNELS.values():
        number = numbers[column]
        if number is not None:
            assert errno.EPERM == decide(machine, number, 0, program=program)
    assert 0 == decide(machine, reads, 0, program=program)


def test_calls_under_another_name_are_refused() -> None:
    """The 32-bit table and x32 have numbers of their own for the same calls."""
    assert errno.ENOSYS == decide("x86_64", 102, architecture=0x40000003)
    assert errno.ENOSYS == decide("x86_64", 0x40000000 | 41)


def reach_of(folder: Path, **fields: object) -> Reach:
    """A run's places below ``folder``."""
    places = {"scratch": str(folder / "scratch"), "builds": str(folder / "builds"), "home": str(folder / "home")}
    return Reach(**{**places, "withheld": (), **fields})  # type: ignore[arg-type]


def allowed(rules: list[PathRule], path: Path) -> bool:
    """Whether rules let a file be read."""
    return any(rule.rights & landlock.READ_FILE and path.is_relative_to(rule.path) for rule in rules)


def test_python_and_compilers_can_be_read(tmp_path: Path) -> None:
    """Wherever they are installed."""
    rules = readable(reach_of(tmp_path))
    for path in (os.__file__, ctypes.__file__, sys.executable, landlock.__file__, "/usr/bin/env"):
        assert allowed(rules, Path(path).resolve()), path


def test_what_is_withheld_is_left_out_of_what_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run directory in the folder from which kernels are imported stays out of reach, its neighbours do not."""
    for name in ("project/kernels.py", "project/runs/now/.seed", "project/runs/other.py", "project/.env", "scratch/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    project = tmp_path / "project"
    monkeypatch.setattr(sys, "path", [*sys.path, str(project)])
    rules = readable(reach_of(tmp_path, withheld=(str(project / "runs" / "now"),)))
    assert allowed(rules, project / "kernels.py")
    assert allowed(rules, project / "runs" / "other.py")
    assert not allowed(rules, project / "runs" / "now" / ".seed")
    assert not allowed(rules, project / ".env")
    assert not allowed(rules, tmp_path / "scratch" / "x")
    assert PathRule(str(project), READ_DIR) in rules


@pytest.mark.parametrize("hidden", [(), ("nvidia1", "nvidia3")])
def test_the_files_of_other_gpus_are_left_out(
    hidden: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With those of the graphics subsystem, which lead to them as well; the driver's own stay."""
    names = {"nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm", "dri"}
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(reach, "_DEVICE_FILES", tmp_path)
    rules = readable(reach_of(tmp_path, hidden=tuple(str(tmp_path / name) for name in hidden)))
    left_out = {*hidden, "dri"} if hidden else set()
    assert names - left_out == {name for name in names if allowed(rules, tmp_path / name)}


def test_of_a_home_only_modules_are_given(tmp_path: Path) -> None:
    """Who starts a run in the home directory means the modules there, not the letters."""
    home = tmp_path / "home"
    names = ("kernels.py", "package/__init__.py", "letters/love.txt", "notes.txt", ".ssh/id_ed25519")
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    rules = readable(reach_of(tmp_path, started_in=str(home)))
    assert {"kernels.py", "package/__init__.py"} == {name for name in names if allowed(rules, home / name)}


def test_where_the_command_was_started_is_given_only_when_kernels_come_from_there(tmp_path: Path) -> None:
    """A kernel directory is copied, so nothing else is needed."""
    (tmp_path / "kernels.py").touch()
    assert not allowed(readable(reach_of(tmp_path)), tmp_path / "kernels.py")
    assert allowed(readable(reach_of(tmp_path, started_in=str(tmp_path))), tmp_path / "kernels.py")


def in_a_child(act: Callable[[], object]) -> int:
    """The error with which ``act`` fails in a process of its own; 0 if it does not."""
    pid = os.fork()
    if pid == 0:
        status = 0
        try:
            act()
        except OSError as exc:
            status = exc.errno or 255
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


needs_landlock = pytest.mark.skipif(not landlock.limits_files(), reason="this kernel has no Landlock")


@needs_landlock
def test_rules_can_only_be_tightened(tmp_path: Path) -> None:
    """A worker that may write to every build cache while it waits may write to one of them in the end."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()

    def confined(folder: Path) -> Callable[[], None]:
        def act() -> None:
            forgo_privileges()
            landlock.restrict([PathRule(str(tmp_path), EVERYTHING)])
            landlock.restrict([PathRule(str(tmp_path / "one"), EVERYTHING)])
            landlock.restrict([PathRule(str(tmp_path), EVERYTHING)])
            (folder / "file").write_text("x")

        return act

    assert 0 == in_a_child(confined(tmp_path / "one"))
    assert errno.EACCES == in_a_child(confined(tmp_path / "other"))


@needs_landlock
def test_a_worker_reads_about_itself_and_no_other_process(tmp_path: Path) -> None:
    """The judge's command line may hold a seed, its memory does."""

    def act(pid: str) -> Callable[[], None]:
        def look() -> None:
            forgo_privileges()
            landlock.restrict([*readable(reach_of(tmp_path)), *private(str(tmp_path), str(tmp_path), str(tmp_path))])
            Path("/proc", pid, "cmdline").read_bytes()

        return look

    assert 0 == in_a_child(act("self"))
    assert errno.EACCES == in_a_child(act(str(os.getpid())))


@pytest.mark.slow
def test_the_probe_names_every_layer_and_says_what_is_missing(tmp_path: Path) -> None:
    """One line for each layer that does not hold, among them those that nobody wanted."""
    found = probe(tmp_path, {Layer.SYSTEM_CALLS})
    assert set(Layer) == set(found)
    assert "left out on request" == found[Layer.SYSTEM_CALLS]
    assert all(problem is None or "\n" not in problem for problem in found.values())


@pytest.mark.slow
def test_a_layer_that_does_not_hold_is_not_called_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that installs and lets everything through is none."""
    monkeypatch.setattr(seccomp, "refuse_system_calls", lambda: None)
    monkeypatch.setattr(seccomp, "refuse_to_kernels", lambda: None)
    assert "it was put on, and what it should stop went through" == probe(tmp_path)[Layer.SYSTEM_CALLS]


@pytest.mark.slow
def test_what_a_layer_brings_along_is_missing_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals are stopped by the rules about files, which are put on nobody if they let files through."""
    if probe(tmp_path)[Layer.SIGNALS] is not None:
        pytest.skip("this machine lacks the layer")
    monkeypatch.setattr("opsmith.runner.sandbox.layers.readable", lambda _: [PathRule("/", READ)])
    found = probe(tmp_path)
    assert found[Layer.FILES] is not None
    assert found[Layer.SIGNALS] is not None


@pytest.mark.slow
def test_files_are_out_of_reach_below_a_folder_that_python_imports_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ``PYTHONPATH=/tmp``."""
    if probe(tmp_path)[Layer.FILES] is not None:
        pytest.skip("this machine lacks the layer")
    monkeypatch.syspath_prepend(str(tmp_path.parent))
    assert probe(tmp_path)[Layer.FILES] is None


@pytest.mark.slow
def test_an_old_kernel_is_told_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the version that would do."""
    monkeypatch.setattr(landlock, "abi", lambda: 1)
    found = probe(tmp_path)
    assert "Linux 5.19" in str(found[Layer.FILES])
    assert "Linux 6.12" in str(found[Layer.SIGNALS])


def test_a_sandbox_without_layers_changes_nothing(tmp_path: Path) -> None:
    """The machine that can do nothing still judges."""

    def act() -> None:
        sandbox = Sandbox(dict.fromkeys(Layer, "missing"))
        sandbox.enter(reach_of(tmp_path))
        sandbox.confine(str(tmp_path), str(tmp_path))
        sandbox.narrow(tmp_path)
        (tmp_path / "written").write_text("x")
        socket.socket(socket.AF_UNIX).close()

    assert 0 == in_a_child(act)


def test_a_process_can_be_hidden_from_others_and_shown_again() -> None:
    """The judge hides itself for the time of a run, and is then what it was before."""
    before = is_readable()
    set_readable(readable=False)
    assert not is_readable()
    set_readable(readable=before)
    assert before == is_readable()


def test_rights_of_reading_hold_no_writing() -> None:
    """A typo in a bit would go unnoticed by every test that only reads."""
    assert not READ & landlock.WRITE_FILE
    assert READ | landlock.WRITE_FILE | EVERYTHING == EVERYTHING
