"""Digests of memory: equal where it is equal, different where any bit is not."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opsmith.calls import digests
from opsmith.calls.digests import digest_memory

SIZES = [0, 1, 7, 8, 9, 63, 64, 65, 1000, 4096 + 3]


def memory(size: int, seed: int = 1) -> torch.Tensor:
    """Flat random bytes."""
    data = random.Random(seed).randbytes(size)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)


def digest(flat: torch.Tensor) -> tuple[int, ...]:
    """As plain numbers."""
    one, two = digest_memory(flat).tolist()
    return one, two


@pytest.mark.parametrize("size", SIZES)
def test_equal_memory_has_an_equal_digest(size: int) -> None:
    """Wherever it lies; what is digested does not change."""
    flat = memory(size)
    kept = flat.clone()
    assert digest(flat) == digest(flat.clone()) == digest(flat)
    assert torch.equal(kept, flat)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3000), st.data())
def test_any_flipped_bit_changes_both_numbers(size: int, data: st.DataObject) -> None:
    """Of a sign, of a mantissa, in the last byte."""
    flat = memory(size)
    other = flat.clone()
    other[data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert all(one != two for one, two in zip(digest(flat), digest(other), strict=True))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_two_flipped_bits_do_not_make_up_for_each_other(data: st.DataObject) -> None:
    """The same bit of two elements: a sum of plain words would not see a sign here and a sign there."""
    words = memory(8 * 64).view(torch.int64)
    first, second = data.draw(st.lists(st.integers(0, 63), min_size=2, max_size=2, unique=True))
    bit = data.draw(st.sampled_from([63, 62, 32, 31, 0]))
    other = words.clone()
    mask = torch.tensor(1 << bit if bit < 63 else -(1 << 63))
    other[first] ^= mask
    other[second] ^= mask
    assert digest(words.view(torch.uint8)) != digest(other.view(torch.uint8))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_swapped_words_change_the_digest(data: st.DataObject) -> None:
    """The same numbers in another order are another result."""
    words = memory(8 * 64).view(torch.int64)
    first, second = data.draw(st.lists(st.integers(0, 63), min_size=2, max_size=2, unique=True))
    other = words.clone()
    other[first], other[second] = words[second], words[first]
    assert digest(words.view(torch.uint8)) != digest(other.view(torch.uint8))


def test_negated_numbers_change_the_digest() -> None:
    """Every sign bit at once."""
    numbers = torch.arange(1.0, 257.0)
    assert digest(numbers.view(torch.uint8)) != digest((-numbers).view(torch.uint8))


def test_zeros_of_every_length_differ() -> None:
    """In whole words; that a last one is filled up with zeros does no harm, as an outcome's form tells sizes."""
    assert 12 == len({digest(torch.zeros(8 * words, dtype=torch.uint8)) for words in range(1, 13)})


@pytest.mark.parametrize("chunk_bytes", [8, 64, 1024])
@pytest.mark.parametrize("size", [1, 64, 65, 1000, 2048])
def test_the_digest_does_not_depend_on_how_it_is_cut(
    monkeypatch: pytest.MonkeyPatch, size: int, chunk_bytes: int
) -> None:
    """Positions count on over the chunks."""
    flat = memory(size)
    whole = digest(flat)
    monkeypatch.setattr(digests, "CHUNK_BYTES", chunk_bytes)
    assert whole == digest(flat)


def test_words_that_change_places_over_a_chunks_border_change_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the same place of two chunks, too."""
    monkeypatch.setattr(digests, "CHUNK_BYTES", 64)
    words = memory(8 * 32).view(torch.int64)
    for first, second in ((7, 8), (0, 8), (3, 27)):
        other = words.clone()
        other[first], other[second] = words[second], words[first]
        assert digest(words.view(torch.uint8)) != digest(other.view(torch.uint8))


@pytest.mark.parametrize("start", range(1, 9))
@pytest.mark.parametrize("size", SIZES)
def test_memory_may_begin_anywhere(start: int, size: int) -> None:
    """A piece that begins at no multiple of eight has the digest of its copy."""
    around = memory(size + 16)
    piece = around[start : start + size]
    assert digest(piece.clone()) == digest(piece)


def test_digests_of_random_memory_all_differ() -> None:
    """In each of the two numbers, and most of them in the lowest bits already."""
    found = [digest(memory(16, seed)) for seed in range(2000)]
    for number in range(2):
        assert 2000 == len({pair[number] for pair in found})
        assert 1800 < len({pair[number] % (1 << 24) for pair in found})
