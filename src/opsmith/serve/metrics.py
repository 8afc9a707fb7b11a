"""Figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy import func, select

from opsmith.report.outcome import outcome
from opsmith.serve.store.database import Database
from opsmith.serve.store.queue import Found
from opsmith.serve.store.schema import State, judgements

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """What is counted while the server runs, and the queue as it is when somebody looks."""

    def __init__(self, database: Database) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "opsmith_requests", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self._request_s = Histogram(
            "opsmith_request_seconds", "Until the answer begins.", ("route",), registry=self.registry, buckets=_SECONDS
        )
        self._judged = Counter("opsmith_judgements", "Kernels judged.", ("suite", "outcome"), registry=self.registry)
        self._judging_s = Histogram(
            "opsmith_judging_seconds",
            "Judging and timing one kernel.",
            ("suite",),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.registry.register(_Queue(database))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered.

        Args:
            method: of HTTP.
            route: the path as declared, with names instead of values.
            status: of HTTP.
            seconds: until the answer began.
        """
        self._requests.labels(method, route, str(status)).inc()
        self._request_s.labels(route).observe(seconds)

    def judged(self, suite: str, found: Found) -> None:
        """A kernel was judged."""
        self._judged.labels(suite, outcome(found.summary)).inc()
        self._judging_s.labels(suite).observe(found.device_s)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)


class _Queue:
    """Judgements by state."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Look at the queue."""
        family = GaugeMetricFamily("opsmith_queue", "Judgements that are not final.", labels=("suite", "state"))
        waiting = (State.QUEUED, State.JUDGING)
        with self._database.reading() as connection:
            found = connection.execute(
                select(judgements.c.suite, judgements.c.state, func.count())
                .where(judgements.c.state.in_(waiting))
                .group_by(judgements.c.suite, judgements.c.state)
            )
            for suite, state, count in found:
                family.add_metric((suite, state), count)
        yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing is asked of the database before it is needed."""
        return iter(())
