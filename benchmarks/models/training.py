"""A hundred steps of a small GPT on this repository's documentation, in eager mode and with kernels.

::

    python -m benchmarks.models.training --device cpu --kernels examples/cpp_backend -o training.json

All runs start from the same weights. A run's seed decides the order of its data, and nothing else does.

**Band.** Eager runs, one for each of ``--seeds`` seeds, have a mean and a standard deviation at each step. The band
goes :data:`DEVIATIONS` of them up and down. The runs with kernels, forward and backward, take the first of these seeds;
every loss of theirs has to lie in the band.

**Drift.** The band is wide, because the order of the data matters. So a second figure compares runs of one seed: how
far the loss with kernels is from eager's at most. Rounding alone makes such a distance grow from step to step. How
much is measured as well: by eager runs of that seed whose weights are moved by one rounding each, up or down, before
every step, since kernels round differently in every step. With kernels it may be :data:`DRIFT_FACTOR` times that.

The record holds every loss; beside it goes a plot with the same name. The exit
status is 1 if a loss is outside or the drift too large.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from benchmarks.models import records
from benchmarks.models.loss_plot import draw
from torch import Tensor, nn

import opsmith
from opsmith.core.environment import Environment
from opsmith.suites.models.gpt import GPT

REPOSITORY = Path(__file__).parents[2]

#: A byte is a token.
VOCABULARY = 256

#: Of eight numbers none is further than 2.5 standard deviations from their mean.
DEVIATIONS = 3.0
DRIFT_FACTOR = 3.0


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The model, its batches, and the usual care for a GPT: a warm-up, and gradients of a limited norm."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    length: int = 64
    batch: int = 8
    steps: int = 100
    learning_rate: float = 1e-3
    warm_up: int = 10
    betas: tuple[float, float] = (0.9, 0.95)
    gradient_norm: float = 1.0


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the seed of its data's order, whether its initial weights were moved, and the loss of each step."""

    seed: int
    moved: bool
    losses: tuple[float, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed.

    Attributes:
        text_sha256: of the documentation that was trained on.
        text_bytes: its length.
        eager: runs that make the band, and runs from moved weights.
        kernels_runs: runs with kernels.
        outside: steps of runs with kernels whose loss is not in the band.
        drift: the largest distance of a loss with kernels from eager's at the same step of the same seed.
        rounding_drift: the same for eager runs from moved weights.
        calls: what kernels answered in the first run with them, by op.
        fallbacks: what they did not answer, by op and reason.
    """

    command: tuple[str, ...]
    environment: Environment
    made_utc: str
    kernels: str
    threads: int
    recipe: Recipe
    text_sha256: str
    text_bytes: int
    eager: tuple[Losses, ...]
    kernels_runs: tuple[Losses, ...]
    outside: int
    drift: float
    rounding_drift: float
    calls: dict[str, int]
    fallbacks: dict[str, dict[str, int]]

    def band(self) -> list[tuple[float, float]]:
        """The limits of each step's loss."""
        return band(self.eager)

    @property
    def right(self) -> bool:
        """Whether training with kernels is training as in eager mode."""
        return self.outside == 0 and self.drift <= DRIFT_FACTOR * self.rounding_drift


def text() -> bytes:
    """The documentation of this repository."""
    return b"\n".join(path.read_bytes() for path in sorted((REPOSITORY / "docs").rglob("*.md")))


class Trainer:
    """Makes runs that differ in nothing but what they are asked to differ in."""

    def __init__(self, corpus: bytes, device: str, recipe: Recipe) -> None:
        self._tokens = torch.frombuffer(bytearray(corpus), dtype=torch.uint8).long()
        self._device, self._recipe = device, recipe

    def run(self, seed: int, *, moved_by: int | None = None) -> Losses:
        """Train a model from the same weights as every other.

        Args:
            seed: of the data's order.
            moved_by: the seed of the directions in which each weight is moved by one rounding before each step; None
                for no move.
        """
        torch.manual_seed(0)
        recipe = self._recipe
        model = GPT(
            vocabulary=VOCABULARY, length=recipe.length, layers=recipe.layers, heads=recipe.heads, width=recipe.width
        )
        model.to(self._device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=recipe.betas)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / recipe.warm_up, total_iters=recipe.warm_up)
        order = torch.Generator().manual_seed(seed)
        directions = None if moved_by is None else torch.Generator(self._device).manual_seed(moved_by)
        losses = []
        for _ in range(recipe.steps):
            if directions is not None:
                _move(model, directions)
            ids, targets = self._batch(order)
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_norm)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        return Losses(seed=seed, moved=moved_by is not None, losses=tuple(losses))

    def _batch(self, order: torch.Generator) -> tuple[Tensor, Tensor]:
        """Token ids, and for each the next one."""
        length = self._recipe.length
        starts = torch.randint(len(self._tokens) - length, (self._recipe.batch, 1), generator=order)
        samples = self._tokens[starts + torch.arange(length + 1)].to(self._device)
        return samples[:, :-1], samples[:, 1:]


@torch.no_grad()
def _move(model: nn.Module, directions: torch.Generator) -> None:
    for parameter in model.parameters():
        up = torch.rand(parameter.shape, generator=directions, device=parameter.device) < 0.5
        parameter.copy_(torch.nextafter(parameter, torch.where(up, torch.inf, -torch.inf)))


def band(runs: Sequence[Losses]) -> list[tuple[float, float]]:
    """The limits of each step's loss, from the runs whose weights were not moved."""
    steps = zip(*[run.losses for run in runs if not run.moved], strict=True)
    centres = [(statistics.mean(losses), DEVIATIONS * statistics.stdev(losses)) for losses in steps]
    return [(mean - reach, mean + reach) for mean, reach in centres]


def outside(runs: Sequence[Losses], limits: Sequence[tuple[float, float]]) -> int:
    """How many losses of the runs are not within the limits of their step; NaN is within none."""
    return sum(not low <= loss <= high for run in runs for loss, (low, high) in zip(run.losses, limits, strict=True))


def drift(runs: Sequence[Losses], eager: Sequence[Losses]) -> float:
    """The largest distance of a loss from eager's at the same step of the same seed."""
    by_seed = {run.seed: run.losses for run in eager if not run.moved}
    pairs = [pair for run in runs for pair in zip(run.losses, by_seed[run.seed], strict=True)]
    return max(abs(loss - other) for loss, other in pairs)


def record(options: argparse.Namespace) -> Record:
    """Make all runs."""
    recipe, corpus = Recipe(steps=options.steps), text()
    trainer = Trainer(corpus, options.device, recipe)
    eager = [trainer.run(seed) for seed in range(options.seeds)]
    moved = [trainer.run(0, moved_by=number) for number in range(options.moved)]
    print(f"{len(eager) + len(moved)} runs in eager mode are done", file=sys.stderr)
    with opsmith.enabled(options.kernels, device=torch.device(options.device).type, choose="all"):
        with_kernels = [trainer.run(0)]
        active = opsmith.active()
        with_kernels += [trainer.run(seed) for seed in range(1, options.kernel_runs)]
    return Record(
        command=records.command_of("benchmarks.models.training"),
        environment=records.environment_of(options.device),
        made_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        kernels=options.kernels,
        threads=options.threads,
        recipe=recipe,
        text_sha256=hashlib.sha256(corpus).hexdigest(),
        text_bytes=len(corpus),
        eager=(*eager, *moved),
        kernels_runs=tuple(with_kernels),
        outside=outside(with_kernels, band(eager)),
        drift=drift(with_kernels, eager),
        rounding_drift=drift(moved, eager),
        calls={op.op: op.calls for op in active.ops if op.calls},
        fallbacks={op.op: {str(r): n for r, n in op.fallbacks.items()} for op in active.ops if op.fallbacks},
    )


def main() -> int:
    """Train, print a summary, write the record and the plot; 1 if training differs."""
    options = _options()
    torch.set_num_threads(options.threads)
    made = record(options)
    if options.out:
        records.write(options.out, made)
        title = f"Loss of a small GPT on {made.environment.device_name}"
        runs = [run.losses for run in made.kernels_runs]
        options.out.with_suffix(".svg").write_text(draw(title, made.band(), runs), encoding="utf-8")
    first, last = made.kernels_runs[0].losses[0], made.kernels_runs[0].losses[-1]
    print(f"loss with {made.kernels}: {first:.4f} at the first step, {last:.4f} at the last")
    print(f"outside of eager's band: {made.outside} of {len(made.kernels_runs) * made.recipe.steps} losses")
    print(f"drift from eager's run of the same seed: {made.drift:.1e}; by one rounding: {made.rounding_drift:.1e}")
    print(f"calls answered: {sum(made.calls.values())}; fallbacks: {made.fallbacks or 'none'}")
    return 0 if made.right else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="a torch device string")
    parser.add_argument("--kernels", default="opsmith", help="what opsmith.enable takes")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=8, help="eager runs that make the band")
    parser.add_argument("--moved", type=int, default=3, help="eager runs from moved weights")
    parser.add_argument("--kernel-runs", type=int, default=2, help="runs with kernels")
    parser.add_argument("--threads", type=int, default=1, help="of torch, on the CPU")
    parser.add_argument("-o", "--out", type=Path, help="write the record here as JSON, and the plot beside it")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
