"""opsmith.enable, disable, enabled and active: what their callers can rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.dispatch_tables import KERNELS, kernel_file, tables
from torch import Tensor

import opsmith
from opsmith.core.judging import JUDGING_VARIABLE
from opsmith.dispatch.activity import ServedOp
from opsmith.dispatch.exclusions import REASONS
from opsmith.errors import BadInput, EnabledWhileJudging, UnknownName

X, Y = torch.linspace(-2, 2, 12).reshape(3, 4), torch.linspace(3, -1, 12).reshape(3, 4)


def served(op: str) -> ServedOp:
    """What is known of one op on the CPU."""
    return next(one for one in opsmith.active().ops if one.op == op)


def by_iadd(x: Tensor, y: Tensor) -> Tensor:
    """The statement, as a function."""
    x += y
    return x


VARIANTS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "x.add(y)": (lambda x, y: x.add(y), "add.Tensor"),
    "x + y": (lambda x, y: x + y, "add.Tensor"),
    "x.add_(y)": (lambda x, y: x.add_(y), "add_.Tensor"),
    "x += y": (by_iadd, "add_.Tensor"),
    "torch.add(x, y, out=o)": (lambda x, y: torch.add(x, y, out=torch.zeros(3, 4)), "add.out"),
}


@pytest.mark.parametrize("form", VARIANTS)
def test_one_implementation_serves_every_form_of_an_op(form: str) -> None:
    """A directory with ``add.Tensor`` alone answers what models write in any way."""
    call, op = VARIANTS[form]
    expected = X + Y
    with opsmith.enabled(KERNELS, ops="add.Tensor"):
        assert torch.equal(expected, call(X.clone(), Y))
        assert (1, {}) == (served(op).calls, served(op).fallbacks)
        assert 1 == opsmith.active().calls


def test_what_a_form_returns_is_the_tensor_that_was_written() -> None:
    """``x.add_(y) is x``, and ``out=`` comes back."""
    out, x = torch.zeros(3, 4), X.clone()
    with opsmith.enabled(KERNELS):
        assert out is torch.add(X, Y, out=out)
        assert x is x.add_(Y)
    assert torch.equal(out, x)


@pytest.mark.slow
def test_disable_leaves_the_dispatch_tables_as_they_were() -> None:
    """Each ATen overload's table, for all keys, is the same text as before."""
    before = tables()
    opsmith.enable(KERNELS)
    assert before != tables()
    opsmith.disable()
    changed = [name for name, table in tables().items() if table != before[name]]
    assert [] == changed


def test_disable_of_nothing_is_no_error() -> None:
    """A clean-up may run whether or not something was enabled."""
    opsmith.disable()
    assert "no kernels are enabled" == str(opsmith.active())


def test_enabling_again_replaces_what_was_enabled() -> None:
    """One choice is in force at a time: ops of the one before go back to PyTorch."""
    opsmith.enable(KERNELS, ops="relu")
    opsmith.enable(KERNELS, ops="add.Tensor")
    torch.relu(X)
    assert ["add.Tensor", "add.out", "add_.Tensor"] == [one.op for one in opsmith.active().ops]
    assert 0 == opsmith.active().calls


def test_a_with_statement_restores_what_was_enabled_before() -> None:
    """Also when its body raises; what was counted before is kept."""
    opsmith.enable(KERNELS, ops="relu")
    torch.relu(X)

    def fail() -> None:
        with opsmith.enabled(KERNELS, ops="mm"):
            assert {"mm.default", "mm.out"} == {one.op for one in opsmith.active().ops}
            raise KeyError("of the body")

    with pytest.raises(KeyError):
        fail()
    assert {"relu.default", "relu.out", "relu_.default"} == {one.op for one in opsmith.active().ops}
    torch.relu(X)
    assert 2 == opsmith.active().calls


def test_ops_and_exclude_take_overloads_packets_and_wildcards() -> None:
    """As ``--ops`` does on the command line; a functional overload stands for its forms."""
    with opsmith.enabled(str(KERNELS), ops=["add*", "gelu"], exclude="addmm, add_.Tensor"):
        assert {"add.Tensor", "add.out", "gelu.default", "gelu.out", "gelu_.default"} == {
            one.op for one in opsmith.active().ops
        } - {"addmm_.default"}


def test_random_and_view_ops_are_left_to_pytorch_with_the_reason() -> None:
    """The directory has a kernel for each; using them would lose seeds and aliasing."""
    with opsmith.enabled(KERNELS):
        active = opsmith.active()
        assert REASONS["random"] == active.excluded["rand_like.default"]
        assert REASONS["view"] == active.excluded["view.default"]
        assert X.data_ptr() == X.view(12).data_ptr()
        assert not {one.op for one in active.ops} & active.excluded.keys()


def test_what_is_active_can_be_printed_and_written() -> None:
    """A table for people, JSON for programs."""
    with opsmith.enabled(KERNELS, ops="relu"):
        torch.relu(X)
        torch.relu(X.to(torch.int64))
        lines = str(opsmith.active()).splitlines()
        assert f"{KERNELS}: 3 ops served, 1 of them called, 1 calls" == lines[0]
        assert ["relu.default", "cpu", KERNELS.name, "elementwise.py:relu", "1", "0", "0", "declined", "1"] == lines[
            2
        ].split()
        written = json.loads(opsmith.active().to_json())["ops"][0]
        assert ("relu.default", 1, {"declined": 1}) == (written["op"], written["calls"], written["fallbacks"])


def test_importing_opsmith_imports_no_torch() -> None:
    """The judge and the command line's help start at once."""
    program = "import sys, opsmith; print('torch' in sys.modules, hasattr(opsmith, 'nonsense'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "False False\n" == done.stdout


# ---------------------------------------------------------------- mistakes


def test_a_mistake_leaves_what_was_enabled_in_force() -> None:
    """Everything is looked up and loaded before anything is changed."""
    opsmith.enable(KERNELS, ops="relu")
    with pytest.raises(UnknownName, match="did you mean"):
        opsmith.enable(KERNELS, ops="reluu")
    assert 3 == len(opsmith.active().ops)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernels": "/nowhere/at/all"}, "there is no kernel directory"),
        ({"kernels": "aten"}, "is PyTorch itself"),
        ({"kernels": "inductor", "ops": "relu"}, "made by torch itself"),
        ({"kernels": KERNELS, "ops": "sort"}, "has no kernel for the ops asked for"),
        ({"kernels": KERNELS, "ops": "view"}, "has no kernel to install"),
        ({"kernels": KERNELS, "device": "cpu:0"}, "give 'cpu' instead of 'cpu:0'"),
        ({"kernels": KERNELS, "device": "toaster"}, "is no device type"),
        ({"kernels": "json:nothing"}, "holds no kernels"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(arguments: dict[str, object], message: str) -> None:
    """Raised, not printed; nothing is enabled."""
    with pytest.raises(BadInput, match=message) as caught:
        opsmith.enable(**arguments)  # type: ignore[arg-type]
    assert 1 == len(str(caught.value).splitlines())
    assert 0 == opsmith.active().registered


def test_an_unknown_backend_is_named() -> None:
    """As on the command line."""
    with pytest.raises(UnknownName, match="opsmith"):
        opsmith.enable("opsmit")


def test_a_kernel_that_does_not_load_is_named_with_the_way_out(tmp_path: Path) -> None:
    """One broken file does not have to stop the others."""
    kernel_file(tmp_path, "relu.default", "import no_such_package")
    kernel_file(tmp_path, "neg.default", "def kernel(x): return torch.zeros_like(x)")
    with pytest.raises(BadInput, match="relu.default at .*no_such_package.*exclude='relu.default'"):
        opsmith.enable(tmp_path)
    with opsmith.enabled(tmp_path, exclude="relu.default"):
        assert torch.equal(torch.zeros(2), -torch.ones(2))


def test_calls_of_dtypes_that_a_kernel_does_not_declare_are_pytorchs(tmp_path: Path) -> None:
    """Its author knows what it serves; indices and masks beside floats are none of that."""
    (tmp_path / "family.py").write_text("def relu(x): return x + 7\ndef take(x, index): return x[index] + 7\n")
    entries = {f"{op}.default": {"entry": f"family.py:{op}", "dtypes": ["f32", "bf16"]} for op in ("relu", "take")}
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "kernels": entries}))
    with opsmith.enabled(tmp_path):
        answers = [torch.relu(torch.zeros((), dtype=dtype)).item() for dtype in (torch.float32, torch.float64)]
        answers += [torch.relu(torch.zeros((), dtype=torch.int64)).item()]
        assert [7.0, 0.0, 0] == answers
        assert 7.0 == torch.take(torch.zeros(3), torch.tensor(1)).item()


def test_the_ops_of_one_file_share_it(tmp_path: Path) -> None:
    """What a file compiles or keeps is there once; a directory with other content is another one."""
    source = "made = []\ndef relu(x): made.append(1); return x * 0 + len(made)\nneg = relu\n"
    (tmp_path / "family.py").write_text(source)
    entries = {f"{op}.default": {"entry": f"family.py:{op}"} for op in ("relu", "neg")}
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "kernels": entries}))
    with opsmith.enabled(tmp_path):
        assert [1.0, 2.0] == [torch.relu(torch.ones(())).item(), torch.neg(torch.ones(())).item()]
    (tmp_path / "family.py").write_text(source.replace("len(made)", "10 * len(made)"))
    with opsmith.enabled(tmp_path):
        assert 10.0 == torch.relu(torch.ones(())).item()


def test_triton_kernels_are_not_installed_on_a_cpu_that_cannot_run_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call would be declined, at a cost."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(BadInput, match="only with TRITON_INTERPRET=1"):
        opsmith.enable("opsmith", device="cpu")


def test_an_importable_object_holds_kernels_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``opsmith run --backend package.module:attribute`` judges can be enabled by the same name."""
    source = "import torch\ntable = {'relu.default': lambda x: torch.full_like(x, 7)}\n"
    (tmp_path / "held_kernels.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with opsmith.enabled("held_kernels:table"):
        assert torch.equal(torch.full((3,), 7.0), torch.ones(3).relu_())


def test_kernels_cannot_be_enabled_where_kernels_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither way of enabling gets as far as the dispatch tables, and the message is one line."""
    monkeypatch.setenv(JUDGING_VARIABLE, "1")
    with pytest.raises(EnabledWhileJudging, match=r"^kernels cannot be enabled where kernels are judged; .*$"):
        opsmith.enable(KERNELS)
    with pytest.raises(EnabledWhileJudging), opsmith.enabled(KERNELS):
        pytest.fail("the block was entered")
    assert 0 == opsmith.active().registered
