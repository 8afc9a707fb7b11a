from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from opsmith.audit import audit, sizes
from opsmith.audit.pool import audit_all
from opsmith.core.audit import AuditFigures, Check, ProblemAudit

HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
#: Large enough for any GPU, and small enough for this machine.
ROWS = "ROWS, COLUMNS = 8192, 4096\nSMALL = {'ROWS': 24, 'COLUMNS': 40}\n"
DRAWN = "def get_inputs(): return [torch.randn(ROWS, COLUMNS)]\n"


def model(body: str, *, init: str = "pass", inputs: str = DRAWN, arguments: str = "x") -> str:
    """A problem whose forward is ``body``."""
    return (
        f"{HEAD}{ROWS}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, {arguments}):\n        {body}\n{inputs}"
    )


def audited(tmp_path: Path, text: str) -> ProblemAudit:
    """What an audit says of a problem with this text."""
    file = tmp_path / "problem.py"
    file.write_text(text)
    return audit("problem", file, "cpu", small=True)


def checks(found: ProblemAudit) -> set[Check]:
    """What it has found fault with."""
    return {finding.check for finding in found.findings}


SOUND = {
    "activation": model("return F.gelu(x)"),
    "guarded norm": model("return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-12)"),
    "stable softmax by hand": model(
        "e = (x - x.amax(-1, keepdim=True)).exp(); return torch.log(e.sum(-1)) * e.mean(-1)"
    ),
    "affine norm": model("return self.norm(x)", init="self.norm = nn.LayerNorm(COLUMNS)"),
    "training statistics": model("return self.norm(x)", init="self.norm = nn.BatchNorm1d(COLUMNS)"),
    "clamped after a scale": model("return (x * 2).clamp(-1, 1)"),
    "tied tables": model(
        "return self.head(self.table(x))",
        init="self.table = nn.Embedding(1000, 64); self.head = nn.Linear(64, 1000); "
        "self.head.weight = self.table.weight",
        inputs="def get_inputs(): return [torch.randint(1000, (ROWS, 64))]\n",
    ),
    "bookkeeping over a few positions": model(
        "return x * (torch.arange(x.shape[1]) + 0).sin()",
        inputs=DRAWN.replace("def", "SMALL = {'ROWS': 2048, 'COLUMNS': 40}\ndef"),
    ),
    "one over something": model("return 1 / (x.square() + 0.1)"),
    "dropout": model("return F.dropout(x, 0.5) * x"),
    "lookup": model(
        "return self.table(x)",
        init="self.table = nn.Embedding(1000, 4096)",
        inputs="def get_inputs(): return [torch.randint(1000, (ROWS,))]\n",
    ),
    "several results": model("return {'a': x.sin(), 'b': (x.cos(), x.cumsum(-1))}"),
}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.slow
def test_a_sound_problem_passes(tmp_path: Path, name: str) -> None:
    """An audit that cries wolf is switched off."""
    assert () == audited(tmp_path, SOUND[name]).findings


FAULTY = {
    "the answer is constant": (model("return torch.sort(x * 0)[0]"), {Check.CONSTANT}),
    "an input makes no difference": (
        model(
            "return torch.softmax(x + y, -1)",
            arguments="x, y",
            inputs="def get_inputs(): return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, 1)]\n",
        ),
        {Check.INDEPENDENT, Check.REDUNDANT},
    ),
    "a layer's result is thrown away": (
        model("self.unused(x); return x.tanh()", init="self.unused = nn.Linear(COLUMNS, 7)"),
        {Check.UNUSED, Check.REDUNDANT},
    ),
    "zeros nearly pass": (model("return torch.softmax(x * 30, -1)"), {Check.TRIVIAL}),
    "its mean nearly passes": (model("return (x.sin() * 1e-3) + 5"), {Check.TRIVIAL}),
    "the answer to other inputs passes": (
        model("return x.square().mean()", inputs="def get_inputs(): return [torch.randn(4000, 4000)]\n"),
        {Check.TRIVIAL},
    ),
    "its input nearly passes": (model("return x + 1e-3 * x.cos()"), {Check.TRIVIAL}),
    "a clamp after a tanh": (model("return x.tanh().clamp(-1, 1)"), {Check.REDUNDANT}),
    "a relu of what is positive": (model("return x.exp().relu() + x"), {Check.REDUNDANT}),
    "a mean over one element": (
        model("m = x.mean(-1, keepdim=True); return x * m.mean(-1, keepdim=True)"),
        {Check.REDUNDANT},
    ),
    "a softmax before an argmax": (model("return torch.softmax(x, -1).argmax(-1)"), {Check.REDUNDANT}),
    "infinities": (model("return x.log()"), {Check.FINITE}),
    "nothing in it is a float": (
        model(
            "return (x + 1) * 0.5",
            inputs="def get_inputs(): return [torch.randint(0, 2, (ROWS, COLUMNS)).float()]\n",
        ),
        {Check.TOLERANCE},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_found(tmp_path: Path, name: str) -> None:
    """And nothing else is, so that a person knows what to mend."""
    text, expected = FAULTY[name]
    assert expected == checks(audited(tmp_path, text))


def test_what_is_found_names_its_place(tmp_path: Path) -> None:
    """The op, its shape and how it was taken out."""
    (finding,) = audited(tmp_path, model("return x.tanh().clamp(-1, 1)")).findings
    assert "clamp.default of 24x40 (call 2): its argument 0 in its place changes nothing" == finding.detail


def counted(tmp_path: Path, text: str, *, small: bool = False) -> AuditFigures:
    """The sizes of a problem with this text."""
    file = tmp_path / "problem.py"
    file.write_text(HEAD + text)
    return sizes.figures(file, small=small)


def test_work_is_counted_without_doing_it(tmp_path: Path) -> None:
    """Two products of 2 n^3 operations that this machine would need minutes for, and a view that is free."""
    text = """
N = 16384
class Model(nn.Module):
    def forward(self, x, y): return (x @ y).t() @ y
def get_inputs(): return [torch.randn(N, N), torch.randn(N, N)]
"""
    found = counted(tmp_path, text)
    assert (2, 4 * 16384**3, 6 * 4 * 16384**2) == (found.launches, found.flops, found.moved_bytes)
    assert (4 * 4 * 16384**2, 2 * 4 * 16384**2) == (found.peak_bytes, found.case_bytes)


def test_memory_that_is_given_back_is_not_counted_again(tmp_path: Path) -> None:
    """Gradients are off, so a chain of any length needs its input, one result and the next."""
    text = """
class Model(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(9): y = y.sin()
        return y
def get_inputs(): return [torch.randn(1 << 20)]
"""
    assert 3 * 4 << 20 == counted(tmp_path, text).peak_bytes


def test_a_recurrent_layer_is_one_call(tmp_path: Path) -> None:
    """As it is on a GPU, where a CPU's ATen goes step by step."""
    text = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 16)
    def forward(self, x): return self.rnn(x)[0]
def get_inputs(): return [torch.randn(100, 4, 8)]
"""
    found = counted(tmp_path, text)
    assert (1, 400 * 2 * 4 * 16 * (8 + 16)) == (found.launches, found.flops)


def test_a_constructor_may_read_what_it_computes(tmp_path: Path) -> None:
    """Rates that grow from layer to layer are a tensor's elements in many models."""
    text = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rates = torch.linspace(0, 1, 3).tolist()
    def forward(self, x): return x * self.rates[1]
def get_inputs(): return [torch.randn(100)]
"""
    assert 800 == counted(tmp_path, text).moved_bytes


def test_a_table_is_not_read_where_it_is_not_looked_up(tmp_path: Path) -> None:
    """An embedding reads its rows, not its 400 MB."""
    text = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100_000, 1000)
    def forward(self, x): return self.table(x)
def get_inputs(): return [torch.randint(9, (10,))]
"""
    assert 2 * 10 * 1000 * 4 >= counted(tmp_path, text).moved_bytes


def size(**changes: float) -> AuditFigures:
    """The sizes of a sound problem, with some changed."""
    figures = AuditFigures(launches=1, flops=0, moved_bytes=0, least_us=10.0, peak_bytes=1 << 30, case_bytes=1 << 30)
    return msgspec.structs.replace(figures, **changes)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        (size(), set()),
        (size(least_us=9.9), {Check.LAUNCH_BOUND}),
        (size(peak_bytes=12 << 30), {Check.MEMORY}),
        (size(case_bytes=3 << 30), {Check.MEMORY}),
    ],
)
def test_a_problem_has_a_size_that_can_be_judged(figures: AuditFigures, expected: set[Check]) -> None:
    """Large enough to be timed, small enough for two of them on a card of 24 GB and for the judge to carry."""
    assert expected == {finding.check for finding in sizes.findings(figures)}


def test_a_problem_that_does_not_become_small_is_not_computed_on_a_cpu(tmp_path: Path) -> None:
    """Model reads its size; it would take an hour. That it was not looked at is a finding, with the remedy."""
    text = (
        HEAD
        + """
SIZE = 8192
class Model(nn.Module):
    def forward(self, x): return x.view(SIZE, SIZE) @ x
def get_inputs(): return [torch.randn(SIZE, SIZE)]
"""
    )
    (finding,) = audited(tmp_path, text).findings
    assert Check.NOT_AUDITED == finding.check
    assert "name smaller sizes in SMALL, or audit on a GPU" in finding.detail


def test_a_problem_that_does_not_load_says_so(tmp_path: Path) -> None:
    """In one line."""
    found = audited(tmp_path, "import nowhere\n")
    assert {Check.LOADS, Check.NOT_AUDITED} == checks(found)


@pytest.mark.slow
def test_a_problem_that_dies_or_hangs_costs_itself_only(tmp_path: Path) -> None:
    """The others are audited."""
    texts = {
        "dies": "import os\nos._exit(3)\n",
        "hangs": "import time\ntime.sleep(1000)\n",
        "sound": SOUND["activation"],
    }
    files = {name: tmp_path / f"{name}.py" for name in texts}
    for name, file in files.items():
        file.write_text(texts[name])

    def audit_of(*names: str, timeout_s: float) -> dict[str, ProblemAudit]:
        chosen = {name: files[name] for name in names}
        found = audit_all(chosen, device="cpu", sizes="small", jobs=2, timeout_s=timeout_s)
        return {each.problem: each for each in found}

    audit_of("sound", timeout_s=60.0)  # Starts the server that audits are forked from, which takes the longest.
    found = audit_of(*files, timeout_s=6.0)
    assert () == found["sound"].findings
    assert "its process ended with status 3" == found["dies"].findings[0].detail
    assert "it took longer than 6 s; --timeout gives it more" == found["hangs"].findings[0].detail


def test_auditing_leaves_torch_as_it_was(tmp_path: Path) -> None:
    """A fast path that stayed off would be somebody else's slow one."""
    audited(tmp_path, SOUND["activation"])
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.is_grad_enabled()
