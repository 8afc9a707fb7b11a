"""A build cache is one process's at a time, and begins without what a killed one left half done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from opsmith.runner.child.build_cache import BuildCache

#: File systems count time in ticks of some milliseconds.
TICK_S = 0.02


def in_killed_process(act: Callable[[Callable[[], None]], None]) -> None:
    """Do something in a forked process until it calls what it is given, by which it is killed."""
    done, tell = os.pipe()
    pid = os.fork()
    if pid == 0:

        def end_here() -> None:
            os.write(tell, b"1")
            time.sleep(60)

        try:
            act(end_here)
        finally:
            os._exit(1)
    os.close(tell)
    assert b"1" == os.read(done, 1)
    os.close(done)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def write(cache: BuildCache, name: str) -> Path:
    """Write a file of a cache, a moment after what was written before."""
    time.sleep(TICK_S)
    path = cache.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("content")
    return path


def names(cache: BuildCache) -> set[str]:
    """The files of a cache."""
    return {str(path.relative_to(cache.folder)) for path in cache.folder.rglob("*") if not path.is_dir()}


def test_what_was_built_is_there_for_the_next_process(tmp_path: Path) -> None:
    """A worker is killed between two requests, and what it built is whole then."""

    def build(end_here: Callable[[], None]) -> None:
        cache = BuildCache.claim(tmp_path, "kernel")
        with cache.building():
            write(cache, "extensions/relu/relu.so")
            write(cache, "triton/KEY/relu.cubin")
        end_here()

    in_killed_process(build)
    again = BuildCache.claim(tmp_path, "kernel")
    assert tmp_path / "kernel" == again.folder
    assert {"extensions/relu/relu.so", "triton/KEY/relu.cubin"} == names(again)
    again.release()


def test_what_a_killed_process_was_building_is_removed(tmp_path: Path) -> None:
    """Its locks, objects, logs and temporary files go; what it had built before stays."""

    def build(end_here: Callable[[], None]) -> None:
        cache = BuildCache.claim(tmp_path, "kernel")
        with cache.building():
            write(cache, "extensions/first/first.so")
            write(cache, "extensions/first/.ninja_log")
            write(cache, "triton/KEY/__grp__first.json")
        time.sleep(TICK_S)
        with cache.building():
            for name in ("second.o", ".ninja_log", "second.so"):
                write(cache, f"extensions/second/{name}")
            write(cache, "triton/OTHER/tmp.pid_7_a/second.cubin")
            write(cache, "extensions/first/.ninja_log")
            end_here()

    in_killed_process(build)
    again = BuildCache.claim(tmp_path, "kernel")
    assert {"extensions/first/first.so", "triton/KEY/__grp__first.json"} == names(again)
    again.release()
    assert names(BuildCache.claim(tmp_path, "kernel"))  # Once is enough.


def test_a_lock_that_nobody_holds_is_removed_with_what_came_after_it(tmp_path: Path) -> None:
    """A thread went on building after the call had returned, or an earlier version left it."""

    def build(end_here: Callable[[], None]) -> None:
        cache = BuildCache.claim(tmp_path, "kernel")
        write(cache, "extensions/relu/main.cpp")
        write(cache, "extensions/relu/lock")
        write(cache, "extensions/relu/relu.o")
        end_here()

    in_killed_process(build)
    assert {"extensions/relu/main.cpp"} == names(BuildCache.claim(tmp_path, "kernel"))


def test_processes_that_live_at_the_same_time_build_apart(tmp_path: Path) -> None:
    """Nobody waits for a lock of somebody who may be killed, and nobody's files are removed under him."""
    mine = BuildCache.claim(tmp_path, "kernel")
    held = write(mine, "extensions/relu/lock")

    other = BuildCache.claim(tmp_path, "kernel")
    assert mine.folder != other.folder
    write(other, "relu.so")
    assert tmp_path / "others" == BuildCache.claim(tmp_path, "others").folder
    assert held.exists()
    mine.release()
    assert mine.folder == BuildCache.claim(tmp_path, "kernel").folder
    assert not held.exists()


def test_a_link_out_of_the_cache_is_not_followed(tmp_path: Path) -> None:
    """A kernel cannot have files removed that are not its own."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "lock").write_text("another's")

    def build(end_here: Callable[[], None]) -> None:
        cache = BuildCache.claim(tmp_path, "kernel")
        with cache.building():
            write(cache, "extensions/relu.so")
            (cache.folder / "extensions" / "linked").symlink_to(outside)
            (cache.folder / "extensions" / "lock").symlink_to(outside / "lock")
            end_here()

    in_killed_process(build)
    assert set() == names(BuildCache.claim(tmp_path, "kernel"))
    assert (outside / "lock").exists()
