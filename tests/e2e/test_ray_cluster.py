"""The same verdicts from a Ray cluster that loses a node half-way."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from benchmarks.executors.cluster import Cluster, HalfWay
from benchmarks.executors.comparison import differences
from tests.e2e.test_devices import write_kernels

from opsmith.core.run import Options, RunDirectory
from opsmith.pipeline import evaluate
from opsmith.runner.protocol.limits import Limits


@pytest.mark.corpus
@pytest.mark.filterwarnings("ignore::Warning")  # Ray's own.
def test_a_lost_node_changes_no_verdict(tmp_path: Path) -> None:
    """Kernels and cases reach nodes that share no folder with the run; nothing is judged twice."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    write_kernels(tmp_path / "kernels")
    options = Options(suite="smoke", backend=str(tmp_path / "kernels"), device="cpu", dtypes=("f32",), policy="any")
    limits = Limits(load_s=30.0, call_s=2.0)
    evaluate(options, tmp_path / "alone", seed=1, limits=limits)
    with contextlib.closing(Cluster(3)) as cluster:
        evaluate(
            options,
            tmp_path / "together",
            seed=1,
            limits=limits,
            executor=f"ray:{cluster.address}",
            progress=HalfWay(cluster.kill_one),
        )
    alone, together = (RunDirectory(tmp_path / name) for name in ("alone", "together"))
    assert [] == list(differences(alone, together))
    assert 1 == sum(device.lost for device in together.manifest().devices)
