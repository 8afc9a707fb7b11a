"""Every operator has a source that it changes as its name says, and what comes out is Python."""

# ruff: noqa: E501 - a row a mistake

from __future__ import annotations

import pytest

from opsmith.mutation.mutants import Mutant, Source, sliced
from opsmith.mutation.operators import all_operators

OPERATORS = {each.name: each for each in all_operators()}
ENTRY = "relu__default_kernel_impl"

#: Operator -> a statement, and what is changed in it or put before it first.
CHANGES = {
    "ceiling_lost": ("return -(-x // 4)", "return x // 4"),
    "mask_boundary": (
        "value = tl.load(x + i, mask=i < n, other=0.0)",
        "value = tl.load(x + i, mask=i <= n, other=0.0)",
    ),
    "mask_dropped": ("value = tl.load(x + i, mask=i < n, other=0.0)", "value = tl.load(x + i)"),
    "mask_fill": ("value = tl.load(x + i, mask=i < n, other=0.0)", "value = tl.load(x + i, mask=i < n, other=1.0)"),
    "mask_weakened": ("mask = (x > 0) & (y > 0)", "mask = x > 0"),
    "narrow_shifted": ("return x.narrow(0, 2, 1)", "return x.narrow(0, 2 - 1, 1)"),
    "program_axis": ("i = tl.program_id(0)", "i = tl.program_id(1)"),
    "range_late": ("for i in range(4):\n    x += i", "for i in range(1, 4):"),
    "range_short": ("for i in range(4):\n    x += i", "for i in range(4 - 1):"),
    "slice_late": ("return x[1:3]", "return x[1 + 1:3]"),
    "slice_short": ("return x[1:3]", "return x[1:3 - 1]"),
    "condition_dropped": ("return p and q", "return q"),
    "condition_fixed": ("return x if p else y", "return x if True else y"),
    "condition_negated": ("return torch.where(x > 0, x, y)", "return torch.where(~(x > 0), x, y)"),
    "connective": ("return p and q", "return p or q"),
    "direction": ("return x < y", "return x > y"),
    "equality_negated": ("return x == y", "return x != y"),
    "equality_widened": ("return x == y", "return x >= y"),
    "negation_dropped": ("return not p", "return p"),
    "strictness": ("return x < y", "return x <= y"),
    "arithmetic_call_swapped": ("return torch.add(x, y)", "return torch.sub(x, y)"),
    "exponent_changed": ("return x ** 2", "return x"),
    "grouping": ("return x * (y + 1)", "return x * y + 1"),
    "integer_operator_swapped": ("return x % 3", "return x // 3"),
    "operand_dropped": ("return x * y", "return x"),
    "operands_swapped": ("return x - y", "return y - x"),
    "operator_swapped": ("return x + y", "return x - y"),
    "sign_dropped": ("return -x", "return x"),
    "stabilisation_dropped": ("return torch.exp(x - largest)", "return torch.exp(x)"),
    "default_changed": (
        "return x * alpha",
        "def relu__default_kernel_impl(x, y=None, p=False, q=True, *, alpha=1, dim=0, keepdim=False, eps=0.1, i=None, weight=None):",
    ),
    "digits_lost": ("return x * 0.044715", "return x * 0.0447"),
    "flag_flipped": ("return x.sum(0, True)", "return x.sum(0, False)"),
    "float_perturbed": ("return x * 0.5", "return x * 0.5005"),
    "infinity_replaced": ("return torch.full_like(x, float('inf'))", "return torch.full_like(x, 1e+30)"),
    "integer_less": ("return x + 2", "return x + 1"),
    "integer_more": ("return x + 2", "return x + 3"),
    "number_sign": ("return x * 0.5", "return x * -0.5"),
    "branch_dropped": ("return torch.where(x > 0, x, y)", "return x"),
    "branches_swapped": ("return torch.where(x > 0, x, y)", "return torch.where(x > 0, y, x)"),
    "clamp_dropped": ("return torch.clamp(x, 0, 1)", "return x"),
    "extremum_swapped": ("return torch.maximum(x, y)", "return torch.minimum(x, y)"),
    "function_dropped": ("return torch.abs(x)", "return x"),
    "neighbour": ("return torch.sin(x)", "return torch.cos(x)"),
    "rearrangement_dropped": ("return x.flip(0)", "return x"),
    "reduction_swapped": ("return x.sum()", "return x.mean()"),
    "rounding": ("return torch.round(x)", "return torch.floor(x + 0.5)"),
    "unstable_form": ("return torch.log1p(x)", "return torch.log(1 + x.to(torch.float32))"),
    "arguments_swapped": ("return torch.sub(x, y)", "return torch.sub(y, x)"),
    "dimension_fixed": ("return x.sum(dim)", "return x.sum(-1)"),
    "epsilon_moved": ("return torch.sqrt(x + eps)", "return torch.sqrt(x) + eps"),
    "keepdim_flipped": ("return x.sum(0, keepdim)", "return x.sum(0, not keepdim)"),
    "keyword_dropped": ("return torch.sum(x, dim=0)", "return torch.sum(x)"),
    "none_mishandled": ("return x if weight is None else x * weight", "return x if True else x * weight"),
    "pair_confused": ("return x // stride[0]", "return x // stride[1]"),
    "parameter_ignored": ("return x * alpha", "alpha = 1"),
    "scale_dropped": ("return x * alpha", "return x"),
    "wrap_dropped": ("d = dim % x.dim()", "d = dim"),
    "integer_cast": ("value = x / n", "value = x // n"),
    "narrower_type": ("return torch.zeros(3, dtype=torch.float64)", "return torch.zeros(3, dtype=torch.bfloat16)"),
    "product_rounded": ("return x @ y", "return x.to(torch.bfloat16).to(x.dtype) @ y.to(torch.bfloat16).to(y.dtype)"),
    "result_cast_dropped": ("return y.to(x.dtype)", "return y"),
    "step_in_bfloat16": ("return torch.exp(x)", "return torch.exp(x).to(torch.bfloat16).to(torch.exp(x).dtype)"),
    "step_in_float16": ("return x @ y", "return (x @ y).to(torch.float16).to((x @ y).dtype)"),
    "upcast_dropped": ("return x.float()", "return x"),
    "band_wrong": (
        "return x",
        "return (lambda r: torch.where((r > 0.5) & (r < 0.505), r * 1.1, r) if isinstance(r, torch.Tensor) and r.is_floating_point() else r)(x)",
    ),
    "denormals_flushed": (
        "return x",
        "return (lambda r: torch.where(r.abs() < torch.finfo(r.dtype).tiny, torch.zeros_like(r), r) if isinstance(r, torch.Tensor) and r.is_floating_point() else r)(x)",
    ),
    "infinity_lost": (
        "return x",
        "return (lambda r: torch.clamp(r, torch.finfo(r.dtype).min, torch.finfo(r.dtype).max) if isinstance(r, torch.Tensor) and r.is_floating_point() else r)(x)",
    ),
    "nan_lost": (
        "return x",
        "return (lambda r: torch.where(torch.isnan(r), torch.zeros_like(r), r) if isinstance(r, torch.Tensor) and r.is_floating_point() else r)(x)",
    ),
    "nan_passed_over": ("return torch.maximum(x, y)", "return torch.fmax(x, y)"),
    "special_test_dropped": ("return torch.isnan(x)", "return torch.zeros_like(x, dtype=torch.bool)"),
    "zero_sign_lost": (
        "return x",
        "return (lambda r: r + 0.0 if isinstance(r, torch.Tensor) and r.is_floating_point() else r)(x)",
    ),
    "duplicates_lost": ("return x.index_add(0, i, y)", "return x.index_copy(0, i, y)"),
    "last_tie": ("return torch.argmax(x, 0)", "return x.shape[0] - 1 - torch.argmax(torch.flip(x, [0]), 0)"),
    "order_reversed": ("return torch.sort(x, stable=True)", "return torch.sort(x, stable=not True)"),
    "rank_shifted": ("return x.gather(0, i)", "return x.gather(0, (i - 1).clamp_min(0))"),
    "scan_exclusive": ("return torch.cumsum(x, 0)", "return torch.cumsum(x, 0) - x"),
    "argument_returned": ("return x + y", "if x.numel() == 1:\nreturn x"),
    "argument_written": ("return x + y", "return (x + y, x.zero_())[0]"),
    "copy_dropped": ("return x.clone()", "return x"),
    "offset_ignored": ("return x", "x = torch.as_strided(x, x.shape, x.stride(), 0)"),
    "stride_of_one": ("return x.stride(0)", "return 1"),
    "strides_ignored": (
        "return x",
        "if x.untyped_storage().nbytes() >= x.element_size() * (x.storage_offset() + x.numel()):\nx = torch.as_strided(x, x.shape, torch.empty(x.shape).stride())",
    ),
    "uninitialised": ("return torch.zeros_like(x)", "return torch.empty_like(x)"),
    "grid_cut": (
        "return x",
        "return (lambda r: torch.where((torch.arange(r.numel()) >= 65536).reshape(r.shape), torch.zeros_like(r), r) if isinstance(r, torch.Tensor) and r.numel() > 65536 else r)(x)",
    ),
    "last_element_lost": (
        "return x",
        "return (lambda r: torch.where((torch.arange(r.numel()) == r.numel() - 1).reshape(r.shape), torch.zeros_like(r), r) if isinstance(r, torch.Tensor) and r.numel() > 1 else r)(x)",
    ),
    "row_cut": (
        "return x",
        "return (lambda r: torch.where(torch.arange(r.shape[-1]) >= 1024, torch.zeros_like(r), r) if isinstance(r, torch.Tensor) and r.dim() and (r.shape[-1] > 1024) else r)(x)",
    ),
    "size_less": ("return torch.arange(x.shape[0])", "return torch.arange(x.shape[0] - 1)"),
    "size_more": ("return torch.arange(x.shape[0])", "return torch.arange(x.shape[0] + 1)"),
    "size_of_all": ("return torch.arange(x.shape[0])", "return torch.arange(x.numel())"),
    "size_of_another": ("return torch.arange(x.shape[0])", "return torch.arange(x.shape[-1])"),
    "case_dropped": ("if p:\n    return y", "pass"),
    "loop_once": ("for i in range(4):\n    x += i", "break"),
    "start_changed": ("total = 0.0", "total = 1"),
    "update_dropped": ("x = x + 1", "pass"),
    "write_dropped": ("x.add_(1)", "pass"),
}
#: Those of code that Triton compiles.
DEVICE = {"mask_boundary", "mask_dropped", "mask_fill", "program_axis", "integer_cast"}


def source(statement: str, *, device: bool = False) -> str:
    """A kernel file with that statement in it."""
    body = statement.replace("\n", "\n    ")
    if device:
        return f"@triton.jit\ndef kernel(x, n, i):\n    {body}\n\ndef {ENTRY}(x):\n    kernel[1,](x)\n"
    return (
        f"def {ENTRY}(x, y=None, p=True, q=True, *, alpha=1, dim=0, keepdim=False, eps=0.1, i=None, weight=None):\n"
        f"    {body}\n"
    )


def mutants(text: str, *names: str) -> list[Mutant]:
    """What some operators, or all of them, make of a file."""
    return list(Source(text, ENTRY, "relu.default").mutants([OPERATORS[name] for name in names or OPERATORS]))


def test_every_operator_is_tried_here() -> None:
    """A new operator needs a statement that shows it."""
    assert CHANGES.keys() == OPERATORS.keys()
    assert len(OPERATORS) >= 40


@pytest.mark.parametrize("name", CHANGES)
def test_an_operator_makes_its_mistake(name: str) -> None:
    """The changed line is what a reader of the record sees."""
    statement, after = CHANGES[name]
    found = mutants(source(statement, device=name in DEVICE), name)
    assert after in [each.after for each in found]
    for each in found:
        compile(each.source, "mutant", "exec")


def test_a_mutant_differs_in_one_place() -> None:
    """The rest of the file is the original's, so that the fault is the only reason of a verdict."""
    text = "def helper(x):\n    return x + 1\n\n\n" + source("return helper(x) * 2")
    found = mutants(text, "operator_swapped")
    assert {"return x - 1", "return helper(x) / 2"} == {each.after for each in found}
    assert all(("x + 1" in each.source) != ("* 2" in each.source) for each in found)


def test_what_the_entry_does_not_reach_is_left_alone() -> None:
    """Another op's kernel in the same file is no place for this op's faults."""
    assert [] == mutants("def unused(x):\n    return x + 1\n\n\n" + source("return x"), "operator_swapped")


def test_mutants_have_names_of_their_content() -> None:
    """A record is taken up again by names."""
    first, again = (mutants(source("return x + y * 2")) for _ in range(2))
    assert [each.name for each in first] == [each.name for each in again]
    assert len({each.name for each in first}) == len(first)


def test_a_mutant_of_the_same_code_says_so() -> None:
    """The compiler folds constants: that nothing changed needs no run."""
    (same,) = mutants(source("return x if 1 + 0 else y"), "operator_swapped")
    assert same.same_code
    (other,) = mutants(source("return x + 1"), "operator_swapped")
    assert not other.same_code


def test_a_file_is_cut_to_what_an_entry_needs() -> None:
    """Judging reads every line of a kernel, hundreds of times."""
    text = "import math\nSCALE = 2\nOTHER = 3\n\n\ndef helper(x):\n    return x * SCALE\n\n\ndef unused(x):\n    return OTHER\n\n\n"
    cut = sliced(text + source("return helper(x)"), ENTRY)
    assert "def helper" in cut
    assert "SCALE = 2" in cut
    assert "unused" not in cut
    assert "OTHER" not in cut
