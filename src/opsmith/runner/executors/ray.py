"""Executor ``ray`` (extra): the devices of a Ray cluster, one actor each.

An actor lives on the node of its device, and so do its referee and its workers. Kernels and cases go to it through the
object store; what it finds is streamed back. The judge who keeps the books is the process that was started: it holds
every case, so with a node nothing is lost that cannot be sent to another one.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opsmith.core.verdict import Verdict
from opsmith.errors import BadInput, InternalError, MissingDependency
from opsmith.runner.executors.lane_host import LaneHost, inputs_of
from opsmith.runner.executors.messages import (
    Done,
    JudgeFamily,
    KeepSource,
    LaneProblem,
    LaneReply,
    LaneRequest,
    OpenLane,
    VerdictsFound,
    decode_reply,
    decode_request,
    encode,
)
from opsmith.runner.executors.remote_lane import RemoteLane
from opsmith.runner.machine.cores import MAX_DEVICE_JOBS, jobs_on
from opsmith.runner.protocol.call_files import SentCalls
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import Lane, LaneLost, LaneWork, Waiting
from opsmith.runner.sandbox.kernel_calls import unreadable

ADDRESS_VARIABLE = "RAY_ADDRESS"
#: How long a lane of a node that is alive may take to end its processes.
END_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0


class Ray:
    """Makes a lane for each device of a cluster.

    Args:
        argument: address of a cluster, what ``RAY_ADDRESS`` says if empty, and without that one that is started here.
        devices: ``all``, or how many; empty for all: the GPUs, or for ``--device cpu`` one judge a node.

    Raises:
        MissingDependency: ray is not installed.
        BadInput: ``devices`` is something else.
    """

    def __init__(self, argument: str = "", devices: str = "") -> None:
        try:
            import ray  # noqa: F401
        except ImportError as exc:
            raise MissingDependency("ray", extra="ray") from exc
        if devices not in ("", "all") and not (devices.isdecimal() and int(devices)):
            raise BadInput(f"--devices {devices}: of a cluster's devices say how many, or all")
        self._address = argument or os.environ.get(ADDRESS_VARIABLE, "local")
        self._wanted = int(devices) if devices.isdecimal() else None

    @contextlib.contextmanager
    def lanes(self, work: LaneWork, waiting: Waiting | None = None) -> Iterator[Sequence[Lane]]:  # noqa: ARG002 - it is told on another machine
        with contextlib.ExitStack() as opened:
            opened.enter_context(_connected(self._address))
            opened.enter_context(unreadable())
            slots = place_lanes(_nodes(), work.options.device, self._wanted)
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="opsmith-cases-"))
            calls = opened.enter_context(contextlib.closing(SentCalls(Path(folder))))
            sources = _Sources()
            wires = [opened.enter_context(contextlib.closing(ActorWire(place, sources))) for place in slots]
            lanes = [RemoteLane(wire, calls) for wire in wires]
            inputs = inputs_of(work.options.selection)
            ours = msgspec.structs.replace(work, withheld=(*work.withheld, folder))
            requests = [
                OpenLane(
                    msgspec.structs.replace(
                        ours, jobs=work.jobs or jobs_on(place.cpus, work.options), share=(place.number, place.of)
                    ),
                    inputs,
                )
                for place in slots
            ]
            with ThreadPoolExecutor(len(lanes)) as pool:
                list(pool.map(RemoteLane.open, lanes, requests))
            yield lanes


# ---------------------------------------------------------------- where


class Node(NamedTuple):
    """A machine of the cluster."""

    node_id: str
    cpus: int
    gpus: int


class Place(NamedTuple):
    """Where a lane goes.

    Attributes:
        node_id: the node.
        cpus: processors that it reserves there.
        gpus: devices that it reserves there, none or one.
        number: which of the lanes on that node it is.
        of: how many there are.
    """

    node_id: str
    cpus: int
    gpus: int
    number: int
    of: int


def place_lanes(nodes: Sequence[Node], device: str, wanted: int | None) -> list[Place]:
    """Spread lanes over the nodes as evenly as they allow, the first node first.

    Args:
        nodes: of the cluster.
        device: torch device string of the run.
        wanted: so many lanes; None for one a GPU, or on the CPU one a node.

    Raises:
        BadInput: the cluster does not have so many devices.
    """
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or number:
        raise BadInput(f"--executor ray judges on --device cuda or cpu, not {device}; choose how many with --devices")
    room = [node.gpus if kind == "cuda" else node.cpus for node in nodes]
    if wanted is None:
        wanted = sum(room) if kind == "cuda" else sum(places > 0 for places in room)
    if not 0 < wanted <= sum(room):
        raise BadInput(f"the cluster has {sum(room)} {'GPUs' if kind == 'cuda' else 'CPUs'}; --devices asks for more")
    of = [0] * len(nodes)
    for _ in range(wanted):
        freest = min((n for n in range(len(nodes)) if of[n] < room[n]), key=lambda n: of[n])
        of[freest] += 1
    return [
        Place(node.node_id, max(1, node.cpus // count), int(kind == "cuda"), number, count)
        for node, count in zip(nodes, of, strict=True)
        for number in range(count)
    ]


def _nodes() -> list[Node]:
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    return [
        Node(node["NodeID"], int(node["Resources"].get("CPU", 0)), int(node["Resources"].get("GPU", 0)))
        for node in sorted(alive, key=lambda node: str(node["NodeID"]))
    ]


@contextlib.contextmanager
def _connected(address: str) -> Iterator[None]:
    """A connection to the cluster, unless this process has one already.

    Raises:
        BadInput: there is no cluster at the address.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    check_that_somebody_listens(address)
    own = {"include_dashboard": False} if address == "local" else {}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address, log_to_driver=False, logging_level="error", **own)
    except (ConnectionError, ValueError, RuntimeError) as exc:
        raise BadInput(f"no Ray cluster answers at {address}: {' '.join(str(exc).split())[:300]}") from exc
    try:
        yield
    finally:
        ray.shutdown()


def check_that_somebody_listens(address: str) -> None:
    """Ray itself tries for minutes.

    Raises:
        BadInput: nobody does, or the address is none.
    """
    if address in ("local", "auto"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise BadInput(f"--executor ray:{address}: write the address of the head node, as in ray:10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as exc:
        raise BadInput(f"no Ray cluster answers at {address}: {exc}") from exc


# ---------------------------------------------------------------- the wire


class LaneActor:
    """A lane on a node of the cluster; the actor's methods may run at the same time."""

    def __init__(self) -> None:
        self._host = LaneHost()

    def answer(self, slot: int, request: bytes) -> Iterator[bytes]:
        """Carry out a request; see :meth:`~opsmith.runner.executors.lane_host.LaneHost.answer`."""
        asked = decode_request(request)
        replies = self._host.answer(slot, asked)
        for reply in joined(replies) if isinstance(asked, JudgeFamily) else replies:
            yield encode(reply)

    def close(self) -> None:
        """End its processes."""
        self._host.close()


class _Sources:
    """Kernels' files in the object store, each kernel once for all lanes."""

    def __init__(self) -> None:
        self._refs: dict[Path, Any] = {}
        self._lock = threading.Lock()

    def ref(self, root: Path) -> Any:
        """The request to keep what lies in a folder of the run's snapshot."""
        import ray

        with self._lock:
            if root not in self._refs:
                files = sorted(path for path in root.rglob("*") if path.is_file())
                content = {str(path.relative_to(root)): path.read_bytes() for path in files}
                self._refs[root] = ray.put(encode(KeepSource(root.name, content)))
            return self._refs[root]


class ActorWire:
    """A lane's actor.

    Args:
        place: where it goes.
        sources: of all lanes.
    """

    def __init__(self, place: Place, sources: _Sources) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._actor = (
            ray.remote(LaneActor)
            .options(
                num_cpus=place.cpus,
                num_gpus=place.gpus,
                max_concurrency=2 * max(MAX_DEVICE_JOBS, place.cpus),
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.node_id, soft=False),
            )
            .remote()
        )
        self._sources = sources
        self._brought: set[Path] = set()
        self._bringing = threading.Lock()

    def ask(self, slot: int, request: LaneRequest) -> Iterator[LaneReply]:
        """See :meth:`opsmith.runner.executors.remote_lane.Wire.ask`."""
        return self._stream(slot, encode(request))

    def bring(self, jobs: Sequence[Job]) -> list[Job]:
        """Send what the node does not have yet, and name it by its folder there."""
        with self._bringing:
            for root in {job.root for job in jobs if job.root is not None} - self._brought:
                for _ in self._stream(0, self._sources.ref(root)):
                    pass
                self._brought.add(root)
        return [msgspec.structs.replace(job, root=None if job.root is None else Path(job.root.name)) for job in jobs]

    def _stream(self, slot: int, request: Any) -> Iterator[LaneReply]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            # What is large goes to the node through the object store, whether it is put there here or by Ray.
            for ref in self._actor.answer.options(num_returns="streaming").remote(slot, request):
                yield decode_reply(ray.get(ref))
        except RayTaskError as exc:
            raise InternalError(f"the judge of a device failed: {exc}") from exc
        except RayError as exc:
            raise LaneLost(f"a node of the cluster was lost ({type(exc).__name__})") from exc

    def close(self) -> None:
        """Let the actor end its processes, and end it."""
        import ray
        from ray.exceptions import RayError

        with contextlib.suppress(RayError):  # Lost before.
            ray.get(self._actor.close.remote(), timeout=END_TIMEOUT_S)
        ray.kill(self._actor)


def joined(replies: Iterable[LaneReply]) -> Iterator[LaneReply]:
    """The same replies as they come; verdicts that came while nobody took any are in one.

    Each object that is streamed costs about a millisecond, and the verdicts of a chunk come together.
    """
    came: queue.SimpleQueue[LaneReply | BaseException] = queue.SimpleQueue()

    def pump() -> None:
        try:
            for reply in replies:
                came.put(reply)
        except BaseException as exc:  # noqa: BLE001 - raised where the replies are taken
            came.put(exc)

    threading.Thread(target=pump, daemon=True).start()
    verdicts: list[Verdict] = []
    while True:
        try:
            reply = came.get(block=not verdicts)
        except queue.Empty:
            reply = None
        if isinstance(reply, VerdictsFound):
            verdicts += reply.verdicts
            continue
        if verdicts:
            yield VerdictsFound(tuple(verdicts))
            verdicts = []
        if isinstance(reply, BaseException):
            raise reply
        if reply is not None:
            yield reply
        if isinstance(reply, (Done, LaneProblem)):
            return
