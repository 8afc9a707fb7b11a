"""How many attempts a second a campaign judges when replies take no time.

    python -m benchmarks.generate.throughput --device cpu -o FILE
    python -m benchmarks.generate.throughput --device cuda -o FILE

A model in this process answers at once with right kernels for small ops of suite ``smoke``, each of them another
source, so that each is judged: in a process of its own (or, with ``--isolation backend``, in the one of the attempts
before it, unless one of those failed), on every case, with other values and variants, against the
oracle. They are in plain PyTorch, so that nothing is compiled. Starting the processes and a first kernel of each
op are outside the measured time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.cli.generate import EXCHANGES_AT_A_TIME
from opsmith.core.op import folder_name
from opsmith.core.run import Options, write_atomically
from opsmith.generate.attempt import Attempt
from opsmith.generate.budget import Budget, Prices
from opsmith.generate.campaign import Campaign, CampaignOptions
from opsmith.generate.chat import Reply, Request, Usage
from opsmith.generate.journal import Journal
from opsmith.generate.results import attempt_kind
from opsmith.runner.machine.cores import default_jobs
from opsmith.session import AskedTask, Session

#: A kernel for each op, in terms of others.
KERNELS = {
    "add.Tensor": "(self, other, *, alpha=1):\n    return torch.sub(self, other, alpha=-alpha)",
    "exp.default": "(self):\n    return torch.pow(2.718281828459045, self)",
    "mul.Tensor": "(self, other):\n    return torch.addcmul(self.new_zeros(()), self, other)",
    "relu.default": "(self):\n    return torch.where(self < 0, torch.zeros_like(self), self)",
}
ATTEMPTS = 40


class Instant:
    """A model that needs no time."""

    name = "scripted:instant"

    def ask(self, request: Request) -> Reply:
        """A kernel for the op of the question, with the question's number in it."""
        question = request.messages[-1].text
        op = next(op for op in KERNELS if f"def {folder_name(op)}_kernel_impl(" in question)
        source = f"import torch\n\n# {request.number}\ndef {folder_name(op)}_kernel_impl{KERNELS[op]}\n"
        return Reply(text=f"```python\n{source}```\n", usage=Usage(0, 0))

    def close(self) -> None:
        """Nothing is held."""


def measure(device: str, *, attempts: int, isolation: str, jobs: int | None, place: Path) -> dict[str, Any]:
    """Run a campaign and count."""
    judging = Options(
        suite="smoke",
        backend="instant",
        device=device,
        dtypes=("f32",),
        ops=tuple(KERNELS),
        policy="any",
        isolation=isolation,
    )
    jobs = jobs or default_jobs(judging)
    started = time.monotonic()
    with Session(judging, place / "judged", jobs=jobs) as session:
        opened_s = time.monotonic() - started
        _campaign(session, judging, attempts=1, place=place / "warm-up", jobs=jobs)
        made, seconds = _campaign(session, judging, attempts=attempts, place=place / "measured", jobs=jobs)
        environment = session.environment
        cases = {name: task.cases for name, task in session.tasks.items()}
    return {
        "attempts_per_s": round(len(made) / seconds, 2),
        "attempts": len(made),
        "seconds": round(seconds, 2),
        "outcomes": Counter(map(attempt_kind, made)),
        "judging_s_of_an_attempt": round(sum(one.judged.device_s for one in made if one.judged) / len(made), 3),
        "isolation": isolation,
        "jobs": jobs,
        "cores": len(os.sched_getaffinity(0)),
        "load_of_the_machine": [round(load, 1) for load in os.getloadavg()],
        "cases": cases,
        "session_opened_in_s": round(opened_s, 1),
        "environment": msgspec.to_builtins(environment),
    }


def _campaign(
    session: Session, judging: Options, *, attempts: int, place: Path, jobs: int
) -> tuple[Sequence[Attempt], float]:
    """The attempts of one campaign, and how long they took."""
    model = Instant()
    options = CampaignOptions(
        judging=judging,
        models=(model.name,),
        strategy="best-of-n",
        attempts=attempts,
        dsl="torch",
        contexts=("cases",),
        references=None,
        temperature=None,
        max_tokens=1,
        budget=Budget(),
        most_judging_s=60.0,
    )
    place.mkdir()
    journal = Journal(place / "journal.sqlite")
    journal.open_campaign(options.identity, seed=1)
    campaign = Campaign(
        options,
        [model],
        session,
        journal,
        prices=Prices(),
        facts={},
        background={},
        out=place,
        told=_nobody,
    )
    started = time.monotonic()
    histories = campaign.run(tasks_at_a_time=2 * jobs, exchanges_at_a_time=EXCHANGES_AT_A_TIME)
    seconds = time.monotonic() - started
    journal.close()
    return [attempt for history in histories for attempt in history.attempts], seconds


def _nobody(_attempt: Attempt, _task: AskedTask) -> None:
    """Nobody watches."""


def main(words: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generate.throughput")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="of each op")
    parser.add_argument("--isolation", choices=["kernel", "backend"], default="kernel", help="as opsmith generate")
    parser.add_argument("--jobs", type=int, help="kernels judged at a time; default: as opsmith generate")
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        found = measure(
            options.device,
            attempts=options.attempts,
            isolation=options.isolation,
            jobs=options.jobs,
            place=Path(place),
        )
    command = ["python", "-m", "benchmarks.generate.throughput", *(sys.argv[1:] if words is None else words)]
    record = {"command": command, "date": dt.datetime.now(dt.UTC).date().isoformat(), **found}
    text = msgspec.json.format(msgspec.json.encode(record), indent=2)
    if options.out is not None:
        write_atomically(options.out, text + b"\n")
    print(text.decode())
    return record


if __name__ == "__main__":
    main()
