"""Some of torch's own samples of ops, through all passes; ``tests/differential/opinfo.py`` runs all of them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator

import pytest
import torch
from tests.differential.opinfo import LOWERED, Case, Verdict, cases, copied, examine, remaining, summary
from tests.differential.opinfo_known import KNOWN
from torch import fx

from opsmith.compile import choose_passes
from opsmith.compile.graph_pass import GraphPass, Stage

pytestmark = pytest.mark.slow

VIEWS = (
    "as_strided",
    "broadcast_to",
    "diagonal",
    "expand",
    "permute",
    "reshape",
    "split",
    "squeeze",
    "unbind",
    "unfold",
)
WRITES = ("__getitem__", "add", "clamp", "fill", "index_put", "masked_fill", "mul", "pow", "scatter_add", "zero_")
NORMS = ("nn.functional.batch_norm", "nn.functional.group_norm", "nn.functional.layer_norm", "nn.functional.rms_norm")
PRODUCTS = ("addmm", "bmm", "linalg.multi_dot", "matmul", "nn.functional.linear")
IMAGES = ("nn.functional.avg_pool2d", "nn.functional.conv2d")
ROWS = ("nn.functional.cross_entropy", "nn.functional.gelu", "nn.functional.scaled_dot_product_attention", "softmax")
REDUCTIONS = ("amax", "cumsum", "mean", "sum")
INDEXING = ("gather", "nn.functional.embedding", "sort", "where")
OTHERS = ("cat", "clone", "neg", "real")
OPS = (*VIEWS, *WRITES, *NORMS, *PRODUCTS, *IMAGES, *ROWS, *REDUCTIONS, *INDEXING, *OTHERS)
ALL = choose_passes("all")


def _cases(name: str, samples: int = 1) -> Iterator[Case]:
    of_samples = itertools.islice(cases(name, torch.float32, "cpu", 0), samples)
    return itertools.chain.from_iterable(of_samples)


def _first(name: str, variant: str = "op") -> Case:
    return next(one for one in _cases(name) if one.variant == variant)


def _examined(case: Case, *passes: GraphPass) -> Verdict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = examine(case, passes, LOWERED)
    assert verdict is not None
    return verdict


@pytest.mark.parametrize("name", OPS)
def test_an_op_does_what_it_does_in_eager_mode(name: str) -> None:
    """Its outputs, gradients and writes are eager's, unless they are not without passes either."""
    for case in _cases(name):
        verdict = _examined(case, *ALL)
        assert [] == verdict.undone
        if verdict.shared:
            assert name in KNOWN, verdict.problems
        else:
            assert [] == verdict.problems, case.variant


def _adds_instead_of_multiplying(graph: fx.Graph) -> int:
    found = graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    for node in found:
        node.target = torch.ops.aten.add.Tensor
    return len(found)


def _hands_out_what_was_cloned(graph: fx.Graph) -> int:
    found = graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
    for node in found:
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    return len(found)


def test_a_pass_with_wrong_values_is_found() -> None:
    """In outputs and in gradients, and nobody else is blamed for it."""
    verdict = _examined(_first("mul"), GraphPass("wrong", Stage.LOWERED, _adds_instead_of_multiplying))
    assert not verdict.shared
    assert {"output 0", "gradient of input 1"} <= {one.partition(":")[0] for one in verdict.problems}


def test_a_pass_that_hands_out_an_input_as_a_copy_is_found() -> None:
    """Values are the same until somebody writes to the output. Its being undone counts as well."""
    verdict = _examined(_first("clone", "no_grad"), GraphPass("wrong", Stage.LOWERED, _hands_out_what_was_cloned))
    assert not verdict.shared
    assert verdict.undone or any("after its outputs were written" in one for one in verdict.problems)


def test_what_differs_without_passes_too_is_shared() -> None:
    """A decomposition that rounds otherwise is no fault of a pass."""
    case = _first("exp")._replace(function=lambda x: x.exp() if torch.compiler.is_compiling() else x.exp() + 1)
    verdict = _examined(case, *ALL)
    assert verdict.shared
    assert verdict.problems


def test_a_fault_beside_a_shared_difference_is_found() -> None:
    """Otherwise an op that Inductor has wrong would hide what passes do to it."""
    case = _first("mul")._replace(function=lambda x, y: x * y if torch.compiler.is_compiling() else x * y + 1)
    assert not _examined(case, GraphPass("wrong", Stage.LOWERED, _adds_instead_of_multiplying)).shared


def test_copied_arguments_share_memory_where_the_originals_do() -> None:
    """With the strides and the offset that they had, so that an op takes the path that it took."""
    base = torch.arange(12.0)
    one, other = copied((base[2:8].view(2, 3).t(), base), gradients=False)
    assert ((3, 2), (1, 3), 2) == (tuple(one.shape), one.stride(), one.storage_offset())
    other.zero_()
    assert not one.any()
    assert base.any()


def _record(op: str, sample: int, *, shared: bool | None = None) -> dict[str, object]:
    problems = [] if shared is None else [{"variant": "op", "mode": "joint", "shared": shared, "what": ["output 0"]}]
    return {"op": op, "sample": sample, "counts": {"joint": 1}, "fired": {}, "problems": problems}


def test_only_what_is_shared_and_listed_is_excused() -> None:
    """A listed op that passes break fails, and so does one that Inductor breaks and nobody looked into."""
    records = [
        _record("a", 0, shared=True),
        _record("a", 1, shared=False),
        _record("b", 0, shared=True),
        {"op": "c", "complete": True},
    ]
    result = summary(records, {"a": "rounding", "c": "rounding"})
    assert {"a": "rounding", "b": None} == result["shared_with_inductor"]
    assert [("a", 1)] == [(one["op"], one["sample"]) for one in result["failures"]]
    assert ["b"] == [one["op"] for one in result["not_listed"]]
    assert ["c"] == result["stale"]


def test_a_campaign_goes_on_after_the_last_sample_that_it_kept() -> None:
    """What is complete is not asked again."""
    records = [_record("a", 0), _record("a", 1), {"op": "b", "complete": True}]
    assert [("a", 2), ("c", 0)] == remaining(["a", "b", "c"], records)
