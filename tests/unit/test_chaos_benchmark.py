"""The chaos harness: what it submits is what it says, and a broken promise is no success."""

from __future__ import annotations

import ast
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from benchmarks.chaos import place
from benchmarks.chaos.kernels import HOSTILE, SLOW, make_kernel
from benchmarks.chaos.place import Place
from benchmarks.chaos.service import MOST_GROWTH_MIB, holds

KEPT: dict[str, Any] = {
    "wrong": {"lost": [], "honest": []},
    "left": {"temporary": [], "processes": []},
    "problems": [],
    "tracebacks": 0,
    "memory": {"grown_mib_per_1000": None},
}


def test_kernels_are_of_every_kind_and_of_no_other_syntax() -> None:
    """A kind that Python refuses would be a kind less; one seed makes the same kernels."""
    made = [make_kernel(n, random.Random(n), hostile_share=0.5, slow_share=0.2, place="/p") for n in range(600)]
    assert {"honest", *HOSTILE, *SLOW} == {kernel.kind for kernel in made}
    assert 600 == len({kernel.source for kernel in made})
    for kernel in made:
        ast.parse(kernel.source)
    again = make_kernel(7, random.Random(7), hostile_share=0.5, slow_share=0.2, place="/p")
    assert made[7] == again


@pytest.mark.parametrize(
    "broken",
    [
        {"wrong": {"lost": ["a"], "honest": []}},
        {"left": {"temporary": [], "processes": ["7 python"]}},
        {"problems": ["a server ended by itself"]},
        {"tracebacks": 1},
        {"memory": {"grown_mib_per_1000": MOST_GROWTH_MIB + 1}},
    ],
)
def test_a_promise_that_is_broken_is_seen(broken: dict[str, Any]) -> None:
    """Each of them by itself."""
    assert holds(KEPT)
    assert not holds(KEPT | broken)


def test_a_file_that_is_opened_meanwhile_does_not_end_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount is not made read-only while a file is open for writing through it; the next one is."""
    ran: list[tuple[str, ...]] = []

    def run(*words: str) -> None:
        ran.append(words)
        if "remount,bind,ro" in words and len(ran) < 6:
            raise subprocess.CalledProcessError(32, words)

    monkeypatch.setattr(place, "_run", run)
    with Place(tmp_path, is_small=True).read_only():
        assert ["mount", "mount", "umount"] * 2 + ["mount", "mount"] == [words[0] for words in ran]
    assert ("umount", "-l", str(tmp_path)) == ran[-1]
