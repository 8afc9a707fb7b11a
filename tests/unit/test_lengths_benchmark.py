"""The benchmark of language models on texts of many lengths, at small sizes on a CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest
import torch
from benchmarks.compile import lengths
from benchmarks.compile.jobs import Job
from benchmarks.compile.lengths import Measured, drawn_batches, drawn_shapes, measure, parsed, table, workload_of
from torch import Tensor, nn

pytestmark = pytest.mark.slow


def _measured(mode: str, columns: str) -> Measured:
    options = parsed(["-", "--sizes", "small", "--device", "cpu", "--columns", columns])
    # Torch's own test utilities, which other tests import, forbid to set flags outside of this.
    with torch.backends.__allow_nonbracketed_mutation():
        found = measure(Job("gpt", (mode, "f32")), options, lambda: None)
    assert "" == found.note
    assert len(set(found.shapes)) > 3
    return found


def test_one_compilation_serves_the_whole_stream() -> None:
    """And every batch's logits are eager's."""
    found = _measured("inference", "eager,opsmith")
    assert ({"opsmith": 1}, {"opsmith": 0}, {}, {}) == (found.graphs, found.recompiled, found.causes, found.wrong)
    assert ([], []) == (found.fallbacks, found.undone)
    assert found.is_one_compilation
    assert {"eager", "opsmith"} == set(found.stream_ms)
    assert "opsmith compiled for the first batch alone in 1 of 1" == table([found]).splitlines()[-1]


def test_losses_and_gradients_of_training_are_held_against_eagers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of every batch; a column that is wrong is not timed."""
    found = _measured("training", "eager,aot_eager")
    assert ({"aot_eager": 1}, {}) == (found.graphs, found.wrong)
    assert {"eager", "aot_eager"} == set(found.stream_ms)
    monkeypatch.setattr(lengths, "_gradients", _wrong_once())
    found = _measured("training", "eager,aot_eager")
    assert ({"aot_eager": len(found.shapes)}, {"eager"}) == (found.wrong_batches, set(found.stream_ms))


def _wrong_once() -> Callable[[nn.Module], list[Tensor]]:
    """Eager's gradients, a column's, and float64's, batch by batch."""
    values = itertools.cycle((1.0, 2.0, 1.0))
    return lambda _: [torch.tensor([next(values)])]


def test_a_stream_is_skewed_and_of_about_equal_batches() -> None:
    """The same for the same seed, between 16 and 1,024 tokens, no single text and no square."""
    shapes = drawn_shapes(batches=2000, tokens=2048, seed=0, small=False)
    assert shapes[:40] == drawn_shapes(batches=40, tokens=2048, seed=0, small=False)
    lengths = sorted(length for _, length in shapes)
    assert (16, 1024) == (lengths[0], lengths[-1])
    assert sum(lengths) / len(lengths) > 1.3 * lengths[1000]
    assert all(texts >= 2 and texts != length for texts, length in shapes)
    assert all(1024 <= texts * length <= 2 * 1024 + length for texts, length in shapes)


def test_an_encoders_texts_are_padded_to_the_longest_of_their_batch() -> None:
    """Which is there; what is padded does not count."""
    workload = workload_of("bert_base", small=True, layers=1)
    batch = drawn_batches(workload, [(9, 12)])[0]
    lengths = batch.inputs["attention_mask"].sum(1)
    assert ((9, 12), 12) == (batch.inputs["input_ids"].shape, lengths.max().item())
    assert lengths.min().item() < 12
    assert lengths.sum().item() == batch.tokens
    assert 1 == workload.module.config.num_hidden_layers  # type: ignore[union-attr]


def test_what_was_compiled_again_is_told() -> None:
    """And is not one compilation; nor is a graph that went without opsmith's part."""
    once = Measured(model="a", mode="inference", precision="f32", graphs={"opsmith": 1}, recompiled={"opsmith": 0})
    twice = Measured(model="b", mode="inference", precision="f32", graphs={"opsmith": 2}, recompiled={"opsmith": 1})
    without = msgspec.structs.replace(once, fallbacks=["Error: no"])
    assert [True, False, False] == [one.is_one_compilation for one in (once, twice, without)]
    lines = table([once, twice, without]).splitlines()
    assert "  Error: no" in lines
    assert "opsmith compiled for the first batch alone in 1 of 3" == lines[-1]
