"""The capacity page: its figures are measured ones, its simulation says of measured points what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.capacity import books, queue_cycles, servers
from benchmarks.capacity.calibration import figures
from benchmarks.capacity.plot import draw
from benchmarks.capacity.simulation import Step, simulate
from benchmarks.capacity.study import MARK, PAGE, PLOT, RECORD, checks, curves, one_run, service, tables

#: As the page says.
MOST_ERROR = 0.25


@pytest.mark.parametrize("name", figures())
def test_a_figure_is_that_of_the_record_that_it_names(name: str) -> None:
    """Nothing that the simulation starts from is made up."""
    assert figures()[name].measured() == figures()[name].value


def test_the_simulation_reproduces_what_was_measured() -> None:
    """Of points that it was not calibrated on, within the error that the page states."""
    found = checks()
    assert 6 == len(found)
    assert [] == [check for check in found if abs(check["error"]) > MOST_ERROR]


def test_the_record_is_what_the_simulation_says() -> None:
    """As far as it is quick to say again."""
    record = json.loads(RECORD.read_bytes())
    assert {name: figure.value for name, figure in figures().items()} == record["calibration"]
    assert checks() == record["checks"]
    place = record["devices"].index(64)
    rates = record["kernels_per_s"]
    assert service(64, 2).kernels_per_s == rates["service, database of 2 cores"][place]
    assert one_run(64).kernels_per_s == rates["one run on a Ray cluster"][place]


def test_page_and_plot_are_made_from_the_record() -> None:
    """Otherwise: ``python -m benchmarks.capacity.study --tables``."""
    record = json.loads(RECORD.read_bytes())
    by_hand, _, generated = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert f"\n\n{tables(record)}" == generated
    assert draw(record["devices"], curves(record)) == PLOT.read_text(encoding="utf-8")
    assert f"{MOST_ERROR:.0%}".replace("%", " %") in by_hand


def test_one_server_takes_one_after_another() -> None:
    """Three kernels of a second each at a station that serves two: two seconds."""
    assert 2.0 == simulate([2], [[Step(0, 1.0, varies=False)]] * 3, kernels=3).seconds
    assert 1.0 == simulate([], [[Step(None, 1.0, varies=False)]] * 3, kernels=3).seconds


def test_a_station_that_is_asked_too_much_bounds_the_rate() -> None:
    """It works all the time; what is asked too little of works its share."""
    slots = [[Step(None, 1.0), Step(0, 0.1), Step(1, 0.01)]] * 50
    found = simulate([1, 1], slots, seconds=200.0, warm_up_s=20.0, seed=1)
    assert found.kernels_per_s == pytest.approx(10.0, rel=0.1)
    assert found.busy == pytest.approx((1.0, 0.1), rel=0.1)


def test_a_closed_network_has_the_rate_that_theory_gives() -> None:
    """Mean value analysis of three slots with a second's thinking and a station of half a second: 1.5789 a second."""
    found = simulate([1], [[Step(None, 1.0), Step(0, 0.5)]] * 3, seconds=20_000.0, warm_up_s=100.0)
    assert found.kernels_per_s == pytest.approx(1.5789, rel=0.02)


@pytest.mark.slow
def test_the_queue_is_measured_on_a_database(tmp_path: Path) -> None:
    """Every worker's cycles are counted, with what they cost."""
    url = f"sqlite:///{tmp_path / 'a.sqlite'}"
    found = queue_cycles.measured(url, 3, 0.2, workers=(2,), kernels=1500)
    assert ("sqlite", 3) == (found["database"], found["verdicts_a_kernel"])
    assert found["workers"]["2"]["cycles_per_s"] > 0
    assert found["workers"]["2"]["server_cpu_ms"] > 0
    assert 200 < found["bytes_a_verdict"] < 600


@pytest.mark.slow
def test_two_server_processes_judge_everything_once(database_url: str) -> None:
    """From one database: what both wrote together is one set of verdicts for each kernel."""
    found = servers.measured(database_url, 2, 2, 0.05, 3, work_s=1.0)
    assert (2, 2, 80) == (found["servers"], found["jobs"], found["kernels"])


def test_the_books_take_verdicts() -> None:
    """From several lanes; less than a millisecond each, or something is very wrong."""
    assert 0 < books.us_a_verdict(2, 20, 5) < 1000
