"""Clients that submit until they are told to stop, and remember what was acknowledged."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

import httpx2
from benchmarks.chaos.kernels import Submitted, make_kernel

LOOK_S = 0.5
#: Every so many-th request is sent twice, and every so many-th submission is followed by its events.
TWICE, FOLLOWED = 7, 5


class Clients:
    """A number of clients, each with a thread; a context manager, at whose end all have what they asked for.

    Args:
        urls: of the servers, of which each request goes to any.
        secrets: a token for each client.
        seed: of what they submit.
        place: the folder of the servers.
        hostile_share: of the kernels.
        slow_share: of the hostile ones, those that cost their time limit.
        told: of each submission that was acknowledged.
        most_wait_s: until everything is final, once nothing more is submitted.

    Attributes:
        acknowledged: submission -> its kernel.
        answers: how many of which status or error came.
        problems: what contradicts the promises of the service, in words.
    """

    def __init__(
        self,
        urls: Sequence[str],
        secrets: Sequence[str],
        *,
        seed: int,
        place: str,
        hostile_share: float,
        slow_share: float,
        told: Callable[[str, Submitted], None],
        most_wait_s: float,
    ) -> None:
        self.acknowledged: dict[str, Submitted] = {}
        self.answers: Counter[str] = Counter()
        self.problems: list[str] = []
        self._urls, self._place, self._seed = urls, place, seed
        self._hostile_share, self._slow_share = hostile_share, slow_share
        self._told, self._most_wait_s = told, most_wait_s
        self._number = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._deadline = float("inf")
        self._threads = [
            threading.Thread(target=self._guarded, args=(number, secret)) for number, secret in enumerate(secrets)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._deadline = time.monotonic() + self._most_wait_s
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, client: int, secret: str) -> None:
        try:
            self._be_client(random.Random(self._seed * 1000 + client), secret)  # noqa: S311 - chaos that can be repeated
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is found in the record
            self._problem(f"client {client}: {type(exc).__name__}: {exc}")

    def _be_client(self, draw: random.Random, secret: str) -> None:
        with contextlib.ExitStack() as held:
            headers = {"Authorization": f"Bearer {secret}"}
            https = [
                held.enter_context(httpx2.Client(base_url=url, headers=headers, timeout=60.0)) for url in self._urls
            ]
            while not self._stopping.is_set():
                number, kernel = self._next(draw)
                submission = self._submit(https, draw, number, kernel)
                if number % FOLLOWED == 0:
                    self._follow(https, draw, submission)
                while not self._ask(https, draw, "GET", f"/api/submissions/{submission}")["final"]:
                    time.sleep(LOOK_S)

    def _next(self, draw: random.Random) -> tuple[int, Submitted]:
        with self._lock:
            self._number += 1
            number = self._number
        return number, make_kernel(
            number, draw, hostile_share=self._hostile_share, slow_share=self._slow_share, place=self._place
        )

    def _submit(self, https: Sequence[httpx2.Client], draw: random.Random, number: int, kernel: Submitted) -> str:
        body = {"tasks": ["relu.default"], "source": kernel.source, "run": "chaos", "provenance": {"note": kernel.kind}}
        key = {"Idempotency-Key": f"kernel-{number}"}
        ids = {
            str(self._ask(https, draw, "POST", "/api/submissions", json=body, headers=key)["id"])
            for _ in range(1 + (number % TWICE == 0))
        }
        with self._lock:
            for submission in ids:
                self.acknowledged[submission] = kernel
                self._told(submission, kernel)
        if len(ids) > 1:
            self._problem(f"one key, several submissions: {sorted(ids)}")
        return min(ids)

    def _follow(self, https: Sequence[httpx2.Client], draw: random.Random, submission: str) -> None:
        """Follow the events to their end, however often the line is cut; each verdict comes once for each try."""
        last, judged, ended = None, 0, 0
        while not ended:
            self._give_up_late()
            headers: dict[str, str] = {} if last is None else {"Last-Event-ID": last}
            path = f"/api/submissions/{submission}/events"
            try:
                with draw.choice(https).stream("GET", path, headers=headers, timeout=20.0) as answer:
                    self._count(str(answer.status_code))
                    for line in answer.iter_lines() if answer.status_code == 200 else ():
                        last = line.removeprefix("id: ") if line.startswith("id: ") else last
                        judged += line == "event: judged"
                        ended += line == "event: end"
            except httpx2.TransportError as exc:
                self._count(type(exc).__name__)
            time.sleep(0 if ended else LOOK_S)
        if (judged, ended) != (1, 1):
            self._problem(f"the events of {submission} told {judged} ends of judgements and {ended} of the submission")

    def _ask(
        self, https: Sequence[httpx2.Client], draw: random.Random, method: str, path: str, **more: Any
    ) -> dict[str, Any]:
        """Ask any server until one answers."""
        while True:
            self._give_up_late()
            try:
                answer = draw.choice(https).request(method, path, **more)
            except httpx2.TransportError as exc:
                self._count(type(exc).__name__)
                time.sleep(LOOK_S)
                continue
            self._count(str(answer.status_code))
            if answer.status_code in {429, 503}:
                time.sleep(float(answer.headers["Retry-After"]))
                continue
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
            return found

    def _give_up_late(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError("not everything was final in time")

    def _count(self, what: str) -> None:
        with self._lock:
            self.answers[what] += 1

    def _problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)
