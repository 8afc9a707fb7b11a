"""Measuring inputs with eager in a process that may die."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsmith.errors import BadInput
from opsmith.runner.clock.eager_times import EagerMeasurer, eager_measurer
from opsmith.runner.processes.children import Processes
from opsmith.traces.grammar import parse_call
from opsmith.traces.measurements import Input, Measurement

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measurer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EagerMeasurer]:
    """One process for all tests here."""
    builds = tmp_path_factory.mktemp("builds")
    with (
        Processes("cpu", memory_limit_bytes=1 << 30, output_limit_bytes=1 << 20) as processes,
        eager_measurer(processes, "cpu", builds=builds) as running,
    ):
        yield running


def an_input(op: str, args: str) -> Input:
    """An input under a uuid of its own."""
    return f"{op} {args}", parse_call(op, args, source="test")


RELU = an_input("relu.default", "((T([1000], f32),), {})")


def only(measurements: Iterator[Measurement]) -> Measurement:
    """The one that there is."""
    (measurement,) = measurements
    return measurement


def test_an_input_that_runs_has_a_time(measurer: EagerMeasurer) -> None:
    """And that of an empty launch, whose multiple the dataset states."""
    measurement = only(measurer([RELU]))
    assert RELU[0] == measurement.uuid
    assert measurement.problem is None
    assert measurement.runtime_ms is not None
    assert measurement.launch_ms is not None
    assert 0 < measurement.launch_ms < measurement.runtime_ms < 1000


def test_more_work_takes_longer(measurer: EagerMeasurer) -> None:
    """A thousand times the elements, several times the time."""
    large = an_input("relu.default", "((T([4000000], f32),), {})")
    small_ms, large_ms = (measurement.runtime_ms for measurement in measurer([RELU, large]))
    assert small_ms is not None
    assert large_ms is not None
    assert large_ms > 5 * small_ms


@pytest.mark.parametrize(
    ("op", "args", "says"),
    [
        ("mm.default", "((T([2, 3], f32), T([4, 5], f32)), {})", "RuntimeError: .*cannot be multiplied"),
        ("no_such_op.default", "((T([2], f32),), {})", "no_such_op"),
        ("_cudnn_rnn_flatten_weight.default", "(([T([2], f32)], 1, 1, 2, 1, 0, 1, False, False), {})", "CPU"),
    ],
)
def test_an_input_that_does_not_run_has_a_problem(measurer: EagerMeasurer, op: str, args: str, says: str) -> None:
    """In one line, which becomes the reason why the row is excluded."""
    measurement = only(measurer([an_input(op, args)]))
    assert measurement.runtime_ms is None
    assert measurement.launch_ms is None
    assert measurement.problem is not None
    assert "\n" not in measurement.problem
    assert re.search(says, measurement.problem)


def test_an_input_that_kills_eager_costs_that_input(measurer: EagerMeasurer) -> None:
    """On a GPU a device assert takes the whole process along."""
    measurements = measurer([RELU, RELU, RELU])
    assert next(measurements).problem is None
    child = measurer._referee._child
    assert child is not None
    os.kill(child.pid, signal.SIGSEGV)
    assert "the process was ended by SIGSEGV" == next(measurements).problem
    assert next(measurements).problem is None


def test_a_device_that_is_not_there_is_told(tmp_path: Path) -> None:
    """In one line, before anything is measured."""
    with (
        Processes("cpu", memory_limit_bytes=1 << 30, output_limit_bytes=1 << 20) as processes,
        pytest.raises(BadInput, match="device meta cannot be used"),
        eager_measurer(processes, "meta", builds=tmp_path),
    ):
        pass
