"""Which tile of a work is kept: of those that run on the device and are right, none being needed for the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from triton.runtime.errors import OutOfResources

from opsmith.cli.main import app
from opsmith.core.case import CallRecord
from opsmith.tune.measuring import exact_results, times_of
from opsmith.tune.works import Tuned, TunedWork

RULE, FAST, WRONG, LARGE, LOST = (1,), (2,), (3,), (4,), (5,)


def work(rule: tuple[int, ...]) -> TunedWork:
    """Its rule, and all others as candidates."""
    record = CallRecord(op="mm.default", args=(), kwargs={}, storages=())
    return TunedWork(
        family="product",
        work="bf16",
        op="mm.default",
        dtype="bf16",
        entry="matmul/matmul.py:mm",
        record=record,
        rule=rule,
        candidates=tuple(choice for choice in (RULE, FAST, WRONG, LARGE, LOST) if choice != rule),
    )


def is_right(choice: tuple[int, ...]) -> bool:
    """As a device that is too small for one of them says."""
    if choice == LARGE:
        raise OutOfResources(524288, 232448, "shared memory")
    if choice == LOST:
        raise RuntimeError("CUDA error")
    return choice != WRONG


@pytest.mark.parametrize("rule", [RULE, LARGE, WRONG])
def test_what_does_not_run_or_is_wrong_is_no_choice(monkeypatch: pytest.MonkeyPatch, rule: tuple[int, ...]) -> None:
    """Be it the rule's own: a device may have less shared memory than the one that the rule was made on."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert {RULE: 10.0, FAST: 5.0} == times_of(work(rule), is_right, lambda choice: 10.0 / choice[0])


def test_choices_are_compared_with_float64() -> None:
    """Not with another choice's, which may be the wrong one."""
    a, b = torch.randn(3, 70).bfloat16(), torch.randn(70, 5).bfloat16()
    torch.testing.assert_close(exact_results("mm.default", (a, b), {}), [a.double() @ b.double()], rtol=0, atol=0)
    q, k, v = torch.randn(3, 1, 2, 5, 8).half()
    exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    flash = "_scaled_dot_product_flash_attention"
    torch.testing.assert_close(exact_results(f"{flash}.default", (q, k, v, 0.0, True), {}), [exact])
    with pytest.raises(RuntimeError, match="nothing is known"):
        exact_results("_efficient_attention_forward.default", (q, k, v, None, None, None, None, None, 0.5, 0), {})
    values, order = torch.randn(4, 4).sort()
    assert torch.equal(exact_results("sort.default", (values.float(), -1), {})[0], values.double())
    assert torch.equal(exact_results("gather.default", (values, 1, order), {})[0], values.gather(1, order).double())


def test_all_gradients_of_attention_are_compared() -> None:
    """A tile of one launch may spoil those of keys alone."""
    q, k, v, grad = (torch.randn(1, 2, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(4))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    exact = torch.autograd.grad(out, (q, k, v), grad)
    lse = (q @ k.mT / 8**0.5).logsumexp(-1)
    state = None, None, 5, 5, 0.0, False, torch.zeros(2), torch.zeros(())
    call = (grad, q, k, v, out, lse, *state)
    found = exact_results("_scaled_dot_product_flash_attention_backward.default", call, {})
    torch.testing.assert_close([one.detach() for one in found], list(exact))


def test_a_work_is_timed_while_others_are_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that is interrupted keeps what it has measured, and does not measure that again."""
    first, second = work(RULE), msgspec.structs.replace(work(RULE), work="f16")
    asked = []

    def compiled(works: list[TunedWork], **_: object) -> Iterator[tuple[TunedWork, int]]:
        asked.append(works)
        yield works[0], 4
        raise KeyboardInterrupt

    def timed(works: Iterable[TunedWork]) -> Iterator[tuple[TunedWork, Tuned]]:
        for one in works:
            yield one, Tuned(choice=FAST, us=5.0, rule_us=10.0, timed=1, call="mm.default bf16 [2, 2]")

    stand_ins = {
        "chosen_tasks": lambda *_: [],
        "selection.parse_device": lambda _: "cuda",
        "gpu": lambda: ("NVIDIA H200", {}),
        "find_works": lambda *_, **__: [first, second],
        "compile_all": compiled,
        "time_all": timed,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(f"opsmith.cli.tune.{name}", stand_in)
    table = tmp_path / "table.json"
    for kept in (["bf16"], ["bf16", "f16"]):
        with pytest.raises(SystemExit, match="130"):
            app(["tune", "-o", str(table)])
        assert kept == [*json.loads(table.read_text())["families"]["product"]]
    assert [[first, second], [second]] == asked
    assert "goes on where it was" in capsys.readouterr().err
