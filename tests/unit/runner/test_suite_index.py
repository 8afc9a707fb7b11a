"""Asking for one op enumerates what may call it, from the first time on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from opsmith.aten.native_functions import native_names
from opsmith.core.run import Options
from opsmith.runner.plan.planning import relevant_entries
from opsmith.runner.plan.suite_index import SuiteIndex, brought

TORCH = "2.13.0"
OPTIONS = Options(suite="opinfo", backend="aten", device="cpu", dtypes=("f32",))


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def entries(*names: str) -> list[tuple[str, str]]:
    """Entries of the suite in float32."""
    return [(name, "f32") for name in names]


def test_a_fresh_machine_enumerates_only_what_calls_the_op() -> None:
    """A check of one op read all 677 entries of the suite when it was the first."""
    listed = entries(*brought()["opinfo"]["2.13"]["cpu"])
    assert entries("nn.functional.relu") == relevant_entries(listed, ("relu.default",), OPTIONS, TORCH)


def test_an_entry_of_which_nothing_is_known_is_enumerated() -> None:
    """What a new torch brings may call anything."""
    listed = entries("abs", "nn.functional.relu", "brand_new")
    assert entries("nn.functional.relu", "brand_new") == relevant_entries(listed, ("relu.default",), OPTIONS, TORCH)


def test_another_torch_or_device_is_taken_to_call_the_same() -> None:
    """Reading all entries took a check of one op on a GPU more than a minute.

    An op that no entry is known to call may be called by any.
    """
    listed = entries("abs", "nn.functional.relu", "brand_new")
    on_gpu = msgspec.structs.replace(OPTIONS, device="cuda")
    for options, version in ((OPTIONS, "9.9"), (on_gpu, TORCH), (on_gpu, "2.11.0+cu130")):
        assert listed[1:] == relevant_entries(listed, ("relu.default",), options, version)
        assert listed == relevant_entries(listed, ("relu.default", "cudnn_batch_norm.default"), options, version)


def test_what_this_machine_has_seen_comes_first() -> None:
    """The cache is exact for its dtype."""
    SuiteIndex("opinfo", torch=TORCH, device="cpu", dtype="f32").save({"abs": ["relu.default"]})
    assert entries("abs") == relevant_entries(entries("abs"), ("relu.default",), OPTIONS, TORCH)


def test_the_index_that_opsmith_brings_names_ops_and_entries_of_torch() -> None:
    """It is out of date where an entry is missing, and of no use where a name is wrong."""
    from opsmith.suites.opinfo import op_infos

    devices = brought()["opinfo"].get(".".join(torch.__version__.split(".")[:2]), {})
    for ours in devices.values():
        assert set() == {op for ops in ours.values() for op in ops} - native_names()
    if "cpu" in devices:
        listed = {name for name, info in op_infos().items() if info.supports_dtype(torch.float32, "cpu")}
        assert set() == listed - set(devices["cpu"])
