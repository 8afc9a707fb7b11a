"""A kernel's tile is the one that was measured on its device, or else the one of its rule."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from opsmith.core.case import CallRecord
from opsmith.errors import BadInput
from opsmith.kernels.common import tuning
from opsmith.kernels.convolution import implicit_gemm
from opsmith.kernels.convolution.implicit_gemm import IMPLICIT_GEMM, GemmPlan
from opsmith.kernels.matmul import matmul
from opsmith.tune.works import Table, Tuned, TunedWork, own_table


class Tile(NamedTuple):
    """A choice of two parts."""

    m: int
    n: int


RULE, MEASURED = Tile(64, 64), Tile(128, 32)
DEVICE = torch.device("cuda", 0)


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuning.Family[Tile]]:
    """A family on a GPU that has no table yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tuning, "INTERPRETED", False)
    monkeypatch.setattr(tuning, "device_name", lambda _device: "Some GPU 9")
    monkeypatch.setattr(tuning, "SHIPPED_TABLES", tmp_path / "shipped")
    monkeypatch.setattr(tuning, "FAMILIES", {})
    tuning.table_of.cache_clear()
    yield tuning.Family("some products", Tile, lambda _work: [RULE, MEASURED])
    tuning.table_of.cache_clear()


def work(name: str = "bf16 1024") -> TunedWork:
    """A work of that family."""
    record = CallRecord(op="mm.default", args=(), kwargs={}, storages=())
    return TunedWork(
        family="some products",
        work=name,
        op="mm.default",
        dtype="bf16",
        entry="matmul/matmul.py:mm",
        record=record,
        rule=RULE,
        candidates=(MEASURED,),
    )


def tuned(choice: Tile = MEASURED) -> Tuned:
    """What was measured for it."""
    return Tuned(choice=choice, us=8.5, rule_us=10.0, timed=1, call="mm.default bf16 [1024, 8]")


def test_without_a_table_the_rule_chooses(family: tuning.Family[Tile]) -> None:
    """No file is needed."""
    assert RULE == family.choice(("bf16", 1024), RULE, DEVICE)


def test_what_was_measured_on_this_machine_goes_before_what_is_shipped(family: tuning.Family[Tile]) -> None:
    """And that before the rule, for the work that was measured only."""
    shipped = tuning.SHIPPED_TABLES / "some-gpu-9.json"
    Table(shipped, "Some GPU 9", {}).add(work(), tuned(Tile(256, 16)))
    assert Tile(256, 16) == family.choice(("bf16", 1024), RULE, DEVICE)
    tuning.table_of.cache_clear()
    Table(own_table("Some GPU 9"), "Some GPU 9", {}).add(work(), tuned())
    assert MEASURED == family.choice(("bf16", 1024), RULE, DEVICE)
    assert isinstance(family.choice(("bf16", 1024), RULE, DEVICE), Tile)
    assert RULE == family.choice(("bf16", 1280), RULE, DEVICE)
    assert RULE == family.choice(("bf16", 1024), RULE, torch.device("cpu"))


def test_a_choice_can_be_forced_and_works_be_listened_to(family: tuning.Family[Tile]) -> None:
    """As whoever measures does."""
    heard = []
    family.asked = lambda work, rule: heard.append((work, rule))
    with family.force((32, 32)):
        assert Tile(32, 32) == family.choice(("f32", 7), RULE, DEVICE)
    assert RULE == family.choice(("f32", 8), RULE, DEVICE)
    assert [(("f32", 7), RULE), (("f32", 8), RULE)] == heard


@pytest.mark.parametrize(
    ("size", "expected"), [(1, 1), (16, 16), (17, 20), (21, 24), (1000, 1024), (1025, 1280), (1792, 1792), (1793, 2048)]
)
def test_a_class_of_sizes_is_at_most_a_quarter_wide(size: int, expected: int) -> None:
    """Its name is its largest size."""
    assert expected == tuning.size_class(size)
    assert expected == tuning.size_class(expected)


def test_a_table_is_kept_between_commands_and_read_a_line_a_work(tmp_path: Path) -> None:
    """What was measured is not measured again."""
    file = tmp_path / "table.json"
    table = Table(file, "Some GPU 9", {"torch": "2.13.0"})
    for name in ("b", "a"):
        table.add(work(name), tuned())
    again = Table(file, "Some GPU 9", {"torch": "2.13.0"})
    assert [True, False] == [again.has(work("a")), again.has(work("c"))]
    lines = [line.split(":")[0].strip() for line in file.read_text().splitlines() if '"choice"' in line]
    assert ['"a"', '"b"'] == lines
    assert [128, 32] == json.loads(file.read_text())["families"]["some products"]["a"]["choice"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no table of tiles"),
        ("[]", "is no table of tiles"),
        ('{"device": "A", "families": {}}', "of another device, A"),
    ],
)
def test_a_file_that_is_no_table_of_this_device_is_left_alone(tmp_path: Path, text: str, says: str) -> None:
    """One line says what to do."""
    file = tmp_path / "table.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=says):
        Table(file, "Some GPU 9", {})
    assert text == file.read_text()


PRODUCT = ("bfloat16", "ieee", "nn", "eee", 1, 4096, 4096, 4096)
CONVOLUTION = ("bfloat16", "ieee", "channels", 0, 9, 1, 64, 100352, 64)


def test_candidates_fit_the_work_and_the_device() -> None:
    """A tile is no wider than twice a narrow result, and a split one never leaves programs without terms."""
    plans = matmul.PRODUCTS.candidates(PRODUCT)
    assert matmul.ProductPlan(128, 256, 64, 8, 3, 1) in plans
    assert 1 == len({plan.splits for plan in plans})  # The tiles fill the device.
    narrow = matmul.PRODUCTS.candidates((*PRODUCT[:5], 1, 4096, 4096))
    assert {16} == {plan.m for plan in narrow}
    assert max(plan.splits for plan in narrow) > 1
    gathered = IMPLICIT_GEMM.candidates(CONVOLUTION)
    assert GemmPlan(64, 256, 64, 8, 3, 1) in gathered
    assert all(plan.o <= 64 for plan in gathered)
    for plan in plans:
        assert (plan.m + plan.n) * plan.k * 2 * plan.stages <= matmul.SHARED_BYTES
    assert [] == matmul.PRODUCTS.candidates(("int64", "none", *PRODUCT[2:]))


def test_the_tiles_of_the_rules_fit_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the shape: what is asked without a table has to run. A stage holds a tile of each factor."""
    monkeypatch.setattr(matmul, "INTERPRETED", False)
    monkeypatch.setattr(implicit_gemm, "INTERPRETED", False)
    kinds = [(torch.bfloat16, "ieee"), (torch.float32, "ieee"), (torch.float32, "tf32x3"), (torch.float32, "tf32")]
    kinds += [(torch.float64, "ieee")]
    sizes = (1, 16, 17, 32, 33, 64, 128, 129, 1000, 16384)
    for (dtype, precision), batch, rows, columns in itertools.product(kinds, (1, 16), sizes, sizes):
        for terms in (8, 32, 64, 4096):
            tile = matmul.product_tile(batch, rows, columns, terms, dtype, precision)
            assert (tile.m + tile.n) * tile.k * dtype.itemsize * tile.stages <= matmul.SHARED_BYTES
            gathered = implicit_gemm.product_tile(rows, columns, batch, terms, dtype, precision)
            assert (gathered.o + gathered.p) * gathered.k * dtype.itemsize * gathered.stages <= matmul.SHARED_BYTES


def test_a_forced_split_gives_the_same_product() -> None:
    """Whatever was measured, the result is that of the rule: 3 programs share 10 steps, 64 have one each or none."""
    a, b = torch.randn(20, 640), torch.randn(640, 40)
    for splits in (1, 3, 64):
        with matmul.PRODUCTS.force((32, 32, 64, 4, 1, splits)):
            torch.testing.assert_close(matmul.mm(a, b), a @ b, rtol=1e-4, atol=1e-4)
