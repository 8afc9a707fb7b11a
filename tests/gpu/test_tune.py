"""Timing tiles on a GPU: the choice that is kept gives the rule's result and is at least as fast."""

from __future__ import annotations

import msgspec
import pytest
import torch

from opsmith.prewarm.tasks import Task
from opsmith.tune.measuring import find_works, gpu, time_all

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def test_a_product_is_measured() -> None:
    """A candidate with more shared memory than there is costs itself; a choice is never slower than the rule's."""
    assert torch.cuda.get_device_name() == gpu()[0]
    (work,) = find_works([Task("mm.default", "bf16", "matmul/matmul.py:mm")], inputs=1, jobs=1, architecture=None)
    works = [msgspec.structs.replace(work, candidates=((128, 128, 64, 8, 3, 1), (256, 256, 128, 8, 4, 1)))]
    ((_, tuned),) = time_all(works)
    assert tuned is not None
    assert 1 == tuned.timed
    assert tuned.rule_us is not None
    assert 0 < tuned.us <= tuned.rule_us
    assert tuned.choice in {work.rule, (128, 128, 64, 8, 3, 1)}


def test_a_rule_that_does_not_run_is_no_choice() -> None:
    """Neither its time nor its result is needed for the others."""
    (work,) = find_works([Task("mm.default", "bf16", "matmul/matmul.py:mm")], inputs=1, jobs=1, architecture=None)
    fits, too_large = (128, 128, 64, 8, 3, 1), (256, 256, 128, 8, 4, 1)
    ((_, tuned),) = time_all([msgspec.structs.replace(work, rule=too_large, candidates=(fits,))])
    assert tuned is not None
    assert (fits, None, 1) == (tuned.choice, tuned.rule_us, tuned.timed)
