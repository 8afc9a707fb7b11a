"""What executors make of ``--devices``, and what travels to a lane in another process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from tests.unit.runner.fleet_stand_ins import job

from opsmith.core.case import CaseAddress, CaseRef
from opsmith.core.run import Options, Selection
from opsmith.core.verdict import Status
from opsmith.errors import BadInput, InternalError, MissingDependency, RefereeFailed, UnknownName
from opsmith.runner.executors import local
from opsmith.runner.executors.lane_host import LaneHost, inputs_in, inputs_of, write_inputs
from opsmith.runner.executors.local import Local, chosen_devices
from opsmith.runner.executors.messages import (
    Done,
    EntryEnumerated,
    JudgeFamily,
    LaneProblem,
    LaneReply,
    ListLaneOps,
    OpenLane,
    VerdictsFound,
    decode_reply,
    decode_request,
    encode,
    error_of,
    pack_family,
    placed_jobs,
    problem_of,
)
from opsmith.runner.executors.ray import Node, Place, Ray, check_that_somebody_listens, joined, place_lanes
from opsmith.runner.judge.verdicts import make_verdict
from opsmith.runner.machine.cores import share_of_cores
from opsmith.runner.protocol.call_files import SentCalls, Spool, packed
from opsmith.runner.protocol.lane import LaneWork
from opsmith.runner.protocol.referee_messages import Enumerated

#: Nobody waits for so long unless something is wrong.
WAIT_S = 10.0

# ---------------------------------------------------------------- which devices


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("all", ["3", "GPU-a", "7"]),
        ("2", ["3", "GPU-a"]),
        ("cuda:2,cuda:0", ["7", "3"]),
        ("cuda:1", ["GPU-a"]),
    ],
)
def test_devices_are_those_that_the_process_may_use(
    asked: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers count what CUDA_VISIBLE_DEVICES lets through, as torch's do."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-a,7")
    assert expected == chosen_devices(asked, "cuda")


@pytest.mark.parametrize(("asked", "judges"), [("all", 1), ("3", 3), ("cpu", 1), ("cpu,cpu", 2)])
def test_the_cpu_is_shared_by_as_many_judges_as_asked(asked: str, judges: int) -> None:
    """It is one device, however many judge on it."""
    assert [None] * judges == chosen_devices(asked, "cpu")


@pytest.mark.parametrize(
    ("asked", "device", "message"),
    [
        ("4", "cuda", "--devices 4: this machine has 3 of them"),
        ("0", "cuda", "--devices 0: this machine has 3 of them"),
        ("cuda:3", "cuda", "name each device once; there is: cuda:0, cuda:1, cuda:2"),
        ("cuda:1,cuda:1", "cuda", "name each device once"),
        ("2", "cuda:1", "--device cuda:1 names one device and --devices others; write --device cuda --devices"),
        ("cuda:0", "cpu", "write how many judges are to share the CPU, as a number"),
        ("2", "xpu", "nothing lists the xpu devices; do so yourself, as in ZE_AFFINITY_MASK=0,1"),
        ("2", "mps", "no variable shows a process one mps device of several; leave it out"),
    ],
)
def test_devices_that_are_not_there_are_refused(
    asked: str, device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what there is."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with pytest.raises(BadInput, match=message):
        chosen_devices(asked, device)


def test_lanes_share_the_processors_without_sharing_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two logical processors of one core stay together: what runs on one disturbs what is timed on the other."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr("opsmith.runner.machine.cores.siblings_of", lambda core: {core % 4, core % 4 + 4})
    assert [{0, 4}, {1, 5}, {2, 3, 6, 7}] == [share_of_cores(0, 4), share_of_cores(1, 4), share_of_cores(1, 2)]
    assert set(range(8)) == share_of_cores(0, 5)


NODES = [Node("a", 8, 2), Node("b", 4, 0), Node("c", 8, 1)]


@pytest.mark.parametrize(
    ("device", "wanted", "expected"),
    [
        ("cuda", None, [Place("a", 4, 1, 0, 2), Place("a", 4, 1, 1, 2), Place("c", 8, 1, 0, 1)]),
        ("cuda", 2, [Place("a", 8, 1, 0, 1), Place("c", 8, 1, 0, 1)]),
        ("cpu", None, [Place("a", 8, 0, 0, 1), Place("b", 4, 0, 0, 1), Place("c", 8, 0, 0, 1)]),
        ("cpu", 4, [Place("a", 4, 0, 0, 2), Place("a", 4, 0, 1, 2), Place("b", 4, 0, 0, 1), Place("c", 8, 0, 0, 1)]),
    ],
)
def test_lanes_are_spread_over_a_cluster(device: str, wanted: int | None, expected: list[Place]) -> None:
    """Each reserves its share of the node's processors."""
    assert expected == place_lanes(NODES, device, wanted)


@pytest.mark.parametrize(
    ("device", "wanted", "message"),
    [
        ("cuda", 4, "the cluster has 3 GPUs; --devices asks for more"),
        ("cuda:1", None, "judges on --device cuda or cpu, not cuda:1"),
    ],
)
def test_a_cluster_that_is_too_small_is_refused(device: str, wanted: int, message: str) -> None:
    """Nothing waits for devices that will never be there."""
    with pytest.raises(BadInput, match=message):
        place_lanes(NODES, device, wanted)


class StandInWire:
    """A process of a lane; notes when it is told to end, and when somebody waits for that."""

    events: ClassVar[list[str]] = []

    def __init__(self, device: str | None, slots: int) -> None:
        pass

    def hang_up(self) -> None:
        self.events.append("told")

    def close(self) -> None:
        self.events.append("awaited")


class StandInRemoteLane:
    """Opens at once."""

    def __init__(self, wire: StandInWire, calls: object) -> None:
        pass

    def open(self, request: OpenLane) -> None:
        pass


def test_all_lanes_are_told_to_end_before_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of a device take a second and more to end."""
    monkeypatch.setattr(StandInWire, "events", [])
    monkeypatch.setattr(local, "ProcessWire", StandInWire)
    monkeypatch.setattr(local, "RemoteLane", StandInRemoteLane)
    options = Options(suite="smoke", backend="aten", device="cpu", dtypes=("f32",))
    with Local(devices="3").lanes(LaneWork(options=options, seed=1)) as lanes:
        assert len(lanes) == 3
        assert [] == StandInWire.events
    assert ["told"] * 3 + ["awaited"] * 3 == StandInWire.events


def test_what_an_executor_does_not_understand_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started; without Ray there is one line that says how to get it."""
    with pytest.raises(BadInput, match="--executor local takes no argument"):
        Local("10.0.0.1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"ray is not installed; run: pip install 'opsmith\[ray\]'"):
        Ray()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1: .*refused"),
        ("ray://10.0.0.1:10001", "write the address of the head node, as in ray:10.0.0.1:6379"),
        ("10.0.0.1", "write the address of the head node"),
    ],
)
def test_an_address_where_nobody_listens_is_refused_at_once(address: str, message: str) -> None:
    """Ray would try for minutes."""
    with pytest.raises(BadInput, match=message):
        check_that_somebody_listens(address)


# ---------------------------------------------------------------- what travels


def recorded(spool: Spool, number: int, call: bytes, again: bytes | None) -> CaseRef:
    """A case whose call lies in a spool."""
    place = spool.add(b"before" + call + (again or b""))
    return CaseRef(
        address=CaseAddress("opinfo", "relu", "f32", "sample", number, 0),
        op="relu.default",
        signature=str(number),
        content_hash=str(number),
        size_bytes=4,
        spool=place,
        offset=6,
        length=len(call),
        again=None if again is None else (6 + len(call), len(again)),
    )


def test_a_case_arrives_with_its_calls(tmp_path: Path) -> None:
    """From the referee that recorded it to the judge, and from there to the lane that judges it."""
    folders = [tmp_path / name for name in ("referee", "judge", "lane")]
    for folder in folders:
        folder.mkdir()
    referee, lane = Spool(folders[0]), Spool(folders[2])
    sent = SentCalls(folders[1])
    sent.add([], b"of another entry")
    cases = [recorded(referee, 0, b"first", b"other"), recorded(referee, 1, b"second!", None)]

    places, calls = packed(cases, referee)
    message = EntryEnumerated(Enumerated(tuple(places.values()), {}, (), {}), calls)
    told = decode_reply(encode(message))
    assert isinstance(told, EntryEnumerated)
    kept = sent.add(told.enumerated.cases, told.calls)

    asked = msgspec.structs.replace(
        job("relu.default", 0),
        cases=kept[:1],
        all_cases=kept,
        integrity=True,
        counts={"0": 3, "of another op": 5},
        root=Path("kernels/relu"),
    )
    request = decode_request(encode(JudgeFamily(pack_family([asked], sent), 1)))
    assert isinstance(request, JudgeFamily)
    [arrived] = placed_jobs(request.family, lane.add(request.family.calls))
    assert [b"first", b"second!"] == [lane.read(case) for case in arrived.all_cases]
    assert [b"other", None] == [lane.read_again(case) for case in arrived.all_cases]
    assert (arrived.all_cases[0],) == arrived.cases
    assert ({"0": 3}, Path("kernels/relu")) == (arrived.counts, arrived.root)
    sent.close()


def test_what_was_sent_is_deleted_after_use(tmp_path: Path) -> None:
    """A lane that judges for days does not fill its disk."""
    spool = Spool(tmp_path)
    case = recorded(spool, 0, b"call", None)
    assert b"call" == spool.read(case)
    spool.remove(case.spool)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [BadInput("no such device"), RefereeFailed("did not start")])
def test_an_error_of_a_lane_is_the_runs(error: BadInput | RefereeFailed) -> None:
    """With its kind, which decides the exit status, and its sentence."""
    raised = error_of(problem_of(error))
    assert (type(error), str(error)) == (type(raised), str(raised))


def test_a_wrong_name_is_wrong_usage_wherever_it_is_noticed() -> None:
    """Its sentence travels, not its parts."""
    assert isinstance(error_of(problem_of(UnknownName("suite", "x", ["y"]))), BadInput)


def test_whatever_goes_wrong_in_a_lane_it_answers() -> None:
    """Somebody waits for the last reply."""
    [reply] = LaneHost().answer(0, ListLaneOps())  # It was never opened.
    assert isinstance(reply, LaneProblem)
    assert isinstance(error_of(reply), InternalError)
    assert "AttributeError" in reply.message


def test_a_seed_travels_with_the_work() -> None:
    """And everything else that a lane's verdicts follow from."""
    options = Options(suite="opinfo", backend="./mine", device="cuda", dtypes=("bf16",), ops=("relu.default",))
    work = LaneWork(options=options, seed=7, jobs=3, withheld=("/run",), again=True, share=(1, 4))
    assert OpenLane(work, {"a.py": b"1"}) == decode_request(encode(OpenLane(work, {"a.py": b"1"})))


@pytest.mark.parametrize("asked", ["problems", "problems/level1/1_Relu.py"])
def test_problems_travel_to_where_they_are_not(tmp_path: Path, asked: str) -> None:
    """A folder with its levels, or one file."""
    here, there = tmp_path / "here", tmp_path / "there"
    file = here / "problems" / "level1" / "1_Relu.py"
    file.parent.mkdir(parents=True)
    file.write_text("class Model: ...")
    selection = Selection(problems=str(here / asked))
    files = inputs_of(selection)
    assert files is not None
    write_inputs(files, there)
    problems = Path(inputs_in(selection, there).problems or "")
    assert (here / asked).name == problems.name
    [copy] = [problems] if problems.is_file() else problems.rglob("*.py")
    assert "class Model: ..." == copy.read_text()


def test_what_comes_with_opsmith_does_not_travel() -> None:
    """Every machine has its own."""
    assert inputs_of(Selection(top_inputs=2)) is None
    assert inputs_of(Selection(spread_inputs=2)) is None


def test_verdicts_that_nobody_waited_for_come_together() -> None:
    """And one that somebody waits for comes at once."""
    asked = job("op", 4)
    first, *others = [make_verdict(asked, case, Status.PASSED) for case in asked.cases]
    waited_for, all_there = threading.Event(), threading.Event()

    def found() -> Iterator[LaneReply]:
        yield VerdictsFound((first,))
        waited_for.wait(WAIT_S)
        for verdict in others:
            yield VerdictsFound((verdict,))
        yield Done()
        all_there.set()

    replies = joined(found())
    assert VerdictsFound((first,)) == next(replies)
    waited_for.set()
    all_there.wait(WAIT_S)
    assert [VerdictsFound(tuple(others)), Done()] == list(replies)


def test_an_error_comes_after_the_verdicts_before_it() -> None:
    """They count."""
    asked = job("op", 1)
    verdict = VerdictsFound((make_verdict(asked, asked.cases[0], Status.PASSED),))

    def found() -> Iterator[LaneReply]:
        yield verdict
        raise RuntimeError("a bug")

    replies = joined(found())
    assert verdict == next(replies)
    with pytest.raises(RuntimeError, match="a bug"):
        next(replies)
