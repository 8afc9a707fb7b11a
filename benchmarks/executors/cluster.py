"""The same question asked of one device, of several, and of a Ray cluster that loses a node: are the answers the same?

::

    python -m benchmarks.executors.cluster --ops 'add.*,mm.*' --dtype bf16 --nodes 3 -o cluster.json

The cluster is one of local nodes, each with its own Ray processes and one judge; the last run loses a node when half
of its verdicts are in the record. Exit status 1 if anything differs, was judged twice or was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime as dt
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.executors.comparison import asked, described, differences

from opsmith.core.dtypes import parse_dtypes
from opsmith.core.run import Options, RunDirectory
from opsmith.pipeline import Silent, evaluate

#: Of everything that the suite asks, elementwise ops, reductions, views, matrix products and what OpInfo derives.
OPS = "relu.default,gelu.default,sum.dim_IntList,mm.default,cat.default,gather.default,_softmax.default,sort.default"
OBJECT_STORE_BYTES = 100 << 20


class Cluster:
    """Nodes on this machine, of which one can be killed."""

    def __init__(self, nodes: int) -> None:
        from ray.cluster_utils import Cluster as LocalCluster

        self._cluster = LocalCluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False},
        )
        self._others = [
            self._cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE_BYTES) for _ in range(nodes - 1)
        ]
        self.address: str = self._cluster.address

    def kill_one(self) -> None:
        """Kill the processes of a node, as losing its machine would."""
        self._cluster.remove_node(self._others.pop(), allow_graceful=False)

    def close(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


@dataclasses.dataclass
class HalfWay(Silent):
    """Progress that does something once half of the cases are judged."""

    then: Callable[[], None]
    _total: int = 0
    _judging: bool = False
    _met: bool = False

    def stage(self, name: str, total: int) -> None:
        self._judging, self._total = name == "judging", total

    def advance(self, done: int, note: str = "") -> None:  # noqa: ARG002 - the pipeline's
        if self._judging and not self._met and 2 * done >= self._total:
            self._met = True
            self.then()


def ask(arguments: argparse.Namespace, out: Path, **how: Any) -> RunDirectory:
    """One run of the question."""
    options = Options(
        suite=arguments.suite,
        backend=arguments.backend,
        device="cpu",
        dtypes=parse_dtypes(arguments.dtype),
        ops=tuple(arguments.ops.split(",")),
        integrity=arguments.integrity,
    )
    evaluate(options, out, seed=arguments.seed, command=tuple(sys.argv), **how)
    return RunDirectory(out)


def runs(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[str, RunDirectory]]:
    """Name -> run; the first is what the others are compared with."""
    yield "local, one device", ask(arguments, folder / "one", jobs=1)
    yield f"local, {arguments.nodes} judges", ask(arguments, folder / "several", jobs=1, devices=str(arguments.nodes))
    with contextlib.closing(Cluster(arguments.nodes)) as cluster:
        where = f"ray:{cluster.address}"
        yield f"ray, {arguments.nodes} nodes", ask(arguments, folder / "ray", executor=where)
        losing = HalfWay(cluster.kill_one)
        yield (
            f"ray, {arguments.nodes} nodes, one killed half-way",
            ask(arguments, folder / "killed", executor=where, progress=losing),
        )


def main() -> int:
    """Run, compare, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="opinfo")
    parser.add_argument("--backend", default="aten")
    parser.add_argument("--ops", default=OPS)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--integrity", default="auto")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    record: dict[str, Any] = {
        "asked": asked(arguments),
        "utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        first: RunDirectory | None = None
        for name, run in runs(arguments, Path(folder)):
            lines = [] if first is None else list(differences(first, run))
            if first is None:
                first = run
                record["environment"] = msgspec.to_builtins(run.manifest().environment)
                record["summary"] = json.loads((run.path / "summary.json").read_bytes()) | {"per_op": "left out"}
            record[name] = described(run, lines)
            failed = failed or bool(lines) or record[name]["devices_lost"] != ("killed" in name)
            print(name, json.dumps(record[name]), flush=True)
    arguments.out.write_text(json.dumps(record, indent=2) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
