"""Tries to get at everything that is none of a kernel's business, and reports what came of it.

``places.json``, which the test writes beside this file, says where the secrets are.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

PLACES = json.loads(Path(__file__).with_name("places.json").read_text())
OUT, HOME, TREE = Path(PLACES["out"]), Path(PLACES["home"]), Path(PLACES["tree"])
JUDGE = PLACES["judge"]
#: Of all processes of the run: the folder that holds their private folders and the spool.
SHARED = Path.cwd().parents[1]
LIBC = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    if getattr(LIBC, name)(*[a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]) < 0:
        raise OSError(ctypes.get_errno(), name)


def first_that_works(attempt, candidates):
    """Run ``attempt`` on each candidate until one works; else raise what says that something is there."""
    refused = OSError(errno.ENOENT, "nothing there")
    for candidate in candidates:
        try:
            return attempt(candidate)
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ESRCH):
                refused = exc
    raise refused


def other_processes():
    own = set(map(int, os.listdir("/proc/self/task")))
    return [pid for pid in range(max(2, os.getpid() - 3000), os.getpid() + 50) if pid not in own]


def connect(family, kind, address):
    with socket.socket(family, kind) as sock:
        sock.settimeout(2.0)
        sock.connect(address)
        sock.send(b"x")


def find_environment_secret():
    seen = str(os.environ) + Path("/proc/self/environ").read_text()
    if PLACES["secret"] not in seen:
        raise OSError(errno.ENOENT, "no secret")


ATTEMPTS = {
    "seed_file": lambda: (OUT / ".seed").read_bytes(),
    "run_file": lambda: (OUT / "plan.json").read_bytes(),
    "run_folder": lambda: os.listdir(OUT),
    "original_source": lambda: (TREE / "kernels/exp__default/exp__default_implementation_v1.py").read_bytes(),
    "snapshots": lambda: os.listdir(OUT / "kernels"),
    "other_build": lambda: (TREE / "cache/opsmith/builds/another/main.cpp").read_bytes(),
    "other_builds": lambda: os.listdir(TREE / "cache/opsmith/builds"),
    "spool": lambda: first_that_works(Path.read_bytes, [SHARED / f"spool/{number}.spool" for number in range(100)]),
    "zygote_log": lambda: (SHARED / "zygote.log").read_bytes(),
    "other_workers": lambda: os.listdir(SHARED),
    "judge_memory": lambda: Path(f"/proc/{JUDGE}/mem").open("rb"),
    "judge_environ": lambda: Path(f"/proc/{JUDGE}/environ").read_bytes(),
    "judge_cmdline": lambda: Path(f"/proc/{JUDGE}/cmdline").read_bytes(),
    "judge_maps": lambda: Path(f"/proc/{JUDGE}/maps").read_bytes(),
    "judge_descriptors": lambda: os.listdir(f"/proc/{JUDGE}/fd"),
    "any_memory": lambda: first_that_works(lambda pid: Path(f"/proc/{pid}/mem").open("rb"), other_processes()),
    "any_descriptors": lambda: first_that_works(lambda pid: os.listdir(f"/proc/{pid}/fd"), other_processes()),
    "environment": find_environment_secret,
    "ssh_key": lambda: (HOME / ".ssh/id_ed25519").read_bytes(),
    "home": lambda: os.listdir(HOME),
    "shadow": lambda: Path("/etc/shadow").read_bytes(),
    "write_tree": lambda: (TREE / "written").write_text("x"),
    "write_run": lambda: (OUT / "verdicts.jsonl").open("a"),
    "write_package": lambda: Path(json.__file__).open("a"),
    "write_own_source": lambda: Path(__file__).write_text(""),
    "remove_secret": lambda: (HOME / ".ssh/id_ed25519").unlink(),
    "change_mode": lambda: OUT.chmod(0o700),
    "tcp": lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", PLACES["port"])),
    "udp": lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", PLACES["port"])),
    "unix": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, PLACES["listener"]),
    "abstract": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, PLACES["abstract"]),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).bind((0, 0)),
    "io_uring": lambda: call("syscall", 425, 1, 0),
    "signal_judge": lambda: os.kill(JUDGE, 0),
    "signal_parent": lambda: os.kill(os.getppid(), 0),
    "signal_any": lambda: first_that_works(lambda pid: os.kill(pid, 0), other_processes()),
    "ptrace": lambda: call("ptrace", 0x4206, JUDGE, 0, 0),
    "read_memory": lambda: call("process_vm_readv", JUDGE, 0, 0, 0, 0, 0),
    "limits": lambda: resource.prlimit(JUDGE, resource.RLIMIT_NOFILE),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, JUDGE, os.getpriority(os.PRIO_PROCESS, JUDGE)),
    "cores": lambda: os.sched_setaffinity(JUDGE, os.sched_getaffinity(JUDGE)),
    "own_priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, 19),
    "own_cores": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "own_timer": lambda: signal.setitimer(signal.ITIMER_REAL, 1000.0),
    "namespace": lambda: call("unshare", 0x10000000),
    "interpreter": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "mount": lambda: call("mount", b"none", b"/mnt", b"tmpfs", 0, 0),
}


def outcome(attempt):
    try:
        attempt()
    except OSError as exc:
        return errno.errorcode.get(exc.errno, "unknown")
    return "through"


FOUND = [f"{name}={outcome(attempt)}" for name, attempt in ATTEMPTS.items()]


def relu__default_kernel_impl(x):
    # A verdict keeps the last lines of what is raised.
    raise RuntimeError("\n".join(" ".join(FOUND[start::7]) for start in range(7)))
