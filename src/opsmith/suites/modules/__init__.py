"""Suite ``modules``: rewrite ``Model`` as ``ModelNew``.

Its entries are the problem files of a folder (:mod:`opsmith.core.problems`). A case is one call of
the Model: its inputs and its whole state as bytes. No two cases have the same inputs or the same
state. Of the cases :attr:`~opsmith.core.run.Selection.trials`, or those that the problem names
(:class:`~opsmith.tasks.problem.NamedCase`), draw the inputs as the problem does, further ones change their values
(:mod:`opsmith.suites.modules.variants`).

A problem that is degenerate (:mod:`opsmith.suites.modules.degenerate`) is void. Where one answers all of its own draws
trivially and some other magnitude not, that magnitude becomes a case: every problem that is not void has one that no
trivial kernel passes.

A run that is ``seeded` asks as the public harness does: no state travels, Model and solution are constructed under
one seed instead, and what they keep in their buffers they keep from case to case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_map

from opsmith.aten.low_precision import is_low
from opsmith.calls.recording import CannotRecord
from opsmith.core.audit import AuditFinding
from opsmith.core.case import CallRecord, CaseAddress, digest, storage_size
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.op import OpSchema
from opsmith.core.run import Selection
from opsmith.core.seeds import derive_seed
from opsmith.suites import Skipped, SuiteCall, Void
from opsmith.suites.modules import variants
from opsmith.suites.modules.degenerate import Alike, Suspicion
from opsmith.tasks import registry
from opsmith.tasks.module_state import State
from opsmith.tasks.problem import BrokenProblem, Problem, in_plain_words, record_call

#: What one case may take, and where no more cases are made for a problem that has two of them.
MOST_CASE_BYTES = 2 << 30
MOST_PROBLEM_BYTES = 4 << 30

#: Draws of a problem's inputs that have to agree before it is called degenerate.
DRAWS_OF_THE_SUSPECT = 6

#: f32 leaves a problem as it is; the others convert its floats.
DTYPES = ("f32", "f16", "bf16")


class Modules:
    """The suite; see the module's docstring."""

    name = "modules"

    def __init__(self) -> None:
        self._selection = Selection()
        self._alike: Alike | None = None

    def compare_by(self, alike: Alike | None) -> None:
        """See :class:`opsmith.suites.FindsVoid`."""
        self._alike = alike

    def select(self, selection: Selection, ops: Sequence[str] = ()) -> None:  # noqa: ARG002 - it draws no sample
        """See :class:`opsmith.suites.Selective`."""
        self._selection = selection

    def schemas(self) -> tuple[OpSchema, ...]:
        """See :class:`opsmith.suites.AsksOwnTasks`."""
        return tuple(registry.schema_of(task) for task in registry.problem_files())

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:  # noqa: ARG002 - problems run anywhere
        return tuple(registry.problem_files()) if dtype in DTYPES else ()

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall | Skipped | Void]:
        own_seed = derive_seed(seed, self.name, entry, dtype)
        try:
            problem = registry.problem(entry)
            cases = _Cases(problem, entry, dtype, torch.device(device), own_seed, self._selection, self._alike)
            content = digest(registry.problem_files()[entry].read_bytes())
            for source, sample, record in cases.records():
                signature = digest(f"{entry} {content} {dtype} {source} {sample}".encode())
                if wanted(entry, signature):
                    address = CaseAddress(self.name, entry, dtype, source, sample, 0)
                    yield SuiteCall(address=address, op=entry, signature=signature, record=record)
            for source, sample, reason in cases.left_out:
                yield Skipped(address=CaseAddress(self.name, entry, dtype, source, sample, 0), reason=reason)
            if cases.void is not None:
                yield Void(address=CaseAddress(self.name, entry, dtype, "inputs", 0, 0), op=entry, finding=cases.void)
        except (BrokenProblem, CannotRecord) as exc:
            yield Skipped(address=CaseAddress(self.name, entry, dtype, "inputs", 0, 0), reason=str(exc))


class _Cases:
    """Makes the cases of one problem in one dtype.

    Attributes:
        void: why the problem asks nothing, when its cases are made; None where it asks something, and where nobody
            says what passes for an answer.
        left_out: (source, number, reason) of the cases that the problem names and that are too large.
    """

    def __init__(
        self,
        problem: Problem,
        task: str,
        dtype: str,
        device: torch.device,
        seed: int,
        selection: Selection,
        alike: Alike | None = None,
    ) -> None:
        self.void: AuditFinding | None = None
        self.left_out: list[tuple[str, int, str]] = []
        self._alike = alike
        self._problem, self._task, self._device, self._seed = problem, task, device, seed
        self._trials, self._seeded = selection.trials, selection.seeded
        self._dtype = None if dtype == "f32" else getattr(torch, TORCH_NAMES[dtype])
        self._taken_bytes = 0
        self._previous: list[Any] | None = None
        self._is_fixed = False
        self._base = 0

    def records(self) -> Iterator[tuple[str, int, CallRecord]]:
        """Yield (source, number, call) of each case.

        Raises:
            BrokenProblem: the Model does not answer the problem's own inputs.
            CannotRecord: an argument has no serialized form, or there is too much of them.
        """
        suspicion: Suspicion | None = None
        plain: Any = None
        self._see_whether_fixed()
        for number, (source, sample) in enumerate(self._asked()):
            inputs = self._inputs(number)
            state = self._state(source, sample)
            try:
                record = self._record(inputs, state)
            except CannotRecord as exc:
                if len(self.left_out) + 1 >= len(self._problem.cases):
                    raise  # There is no case at all.
                self.left_out.append((source, sample, f"{self._task}: {exc}"))
                continue
            answer, after = self._answer(inputs, state)
            yield source, sample, record
            if plain is None:
                plain = answer
                self._check_own_answer(inputs, answer)
                if self._alike is not None:
                    suspicion = Suspicion(self._called, self._alike, inputs, state, (answer, after))
                    self._base = number
            elif suspicion is not None and not self._problem.cases:
                suspicion = self._still(suspicion, inputs)
            if number and self._taken_bytes > MOST_PROBLEM_BYTES and not self._problem.cases:
                break
        varied = variants.BOUNDED.isdisjoint(self._problem.call.calls)
        if suspicion is not None:
            yield from self._confirmed(suspicion, plain, varied=varied)
        if varied and not self._seeded and self._taken_bytes <= MOST_PROBLEM_BYTES:
            yield from self._variants(plain)

    def _asked(self) -> list[tuple[str, int]]:
        """(source, number) of each case that draws its inputs as the problem does."""
        named = [(case.source, case.sample) for case in self._problem.cases]
        return named or [("inputs", number) for number in range(self._trials)]

    def _see_whether_fixed(self) -> None:
        """Find out whether a problem that names its cases, of which each is drawn once, draws them at random."""
        if self._problem.cases:
            one, other = (self._problem.inputs(derive_seed(self._seed, "fixed", draw)) for draw in range(2))
            self._is_fixed = variants.same_values(one, other)

    def _check_own_answer(self, inputs: list[Any], answer: Any) -> None:
        """Refuse a problem whose own check refuses what its Model answers."""
        if self._problem.has_own_check and (refusal := self._problem.refusal(_copies(inputs), answer)) is not None:
            raise BrokenProblem(f"{self._task}: of Model's own answer, {refusal}")

    def _still(self, suspicion: Suspicion, inputs: list[Any]) -> Suspicion | None:
        """What is left of a suspicion after another draw."""
        suspicion.see(inputs, lambda: self._state("void", suspicion.draws))
        return suspicion if suspicion.holds else None

    def _confirmed(self, suspicion: Suspicion, plain: Any, *, varied: bool) -> Iterator[tuple[str, int, CallRecord]]:
        """Find out whether a suspicious problem is void; where another magnitude shows that it is not, ask that.

        Args:
            plain: an answer to inputs of its own.
            varied: whether it takes other values than it draws.
        """
        start = len(self._asked()) + len(variants.VARIANTS)
        for number in range(start, start + max(DRAWS_OF_THE_SUSPECT - suspicion.draws, 1)):
            if self._still(suspicion, self._inputs(number)) is None:
                return
        answer = partial(self._call, self._state("inputs", 0))
        confirmed, refuted = 0, False
        for number, change in enumerate(variants.MAGNITUDES if varied else ()):
            generator = self._generator("magnitude", number)
            inputs = variants.varied(suspicion.inputs, change, generator)
            if inputs is None or not variants.is_finite(answer, inputs, plain):
                continue
            if suspicion.is_confirmed_by(inputs):
                confirmed += 1
                continue
            refuted = True
            if self._seeded:
                break  # It is asked nothing but its own draws.
            if variants.is_sound(answer, inputs, plain, generator):
                yield "magnitude", number, self._record(inputs, self._state("magnitude", number))
                return
        # What shows only where eager is not sure of itself no kernel can be asked.
        if not (refuted and self._seeded):
            self.void = suspicion.finding(f" and at {confirmed} other magnitudes" if confirmed else "")

    def _variants(self, plain: Any) -> Iterator[tuple[str, int, CallRecord]]:
        for number, (source, change) in enumerate(variants.VARIANTS.items()):
            generator = self._generator(source)
            inputs = variants.varied(self._inputs(len(self._asked()) + number), change, generator)
            if inputs is None or self._taken_bytes > MOST_PROBLEM_BYTES:
                return
            state = self._state(source, 0)
            record = self._record(inputs, state)
            if variants.is_sound(partial(self._call, state), inputs, plain, generator):
                yield source, 0, record

    def _inputs(self, number: int) -> list[Any]:
        """Draw the inputs of a case that the problem names, or one more draw of the first that could be asked."""
        case = number if number < len(self._problem.cases) else self._base
        drawn = self._problem.inputs(derive_seed(self._seed, "inputs", number), case)
        moved: list[Any] = tree_map(self._placed, drawn)
        if self._is_fixed:
            return variants.redrawn(moved, self._generator("inputs", number))
        if self._previous is not None and variants.same_values(self._previous, moved):
            return variants.redrawn(moved, self._generator("inputs", number))
        self._previous = moved
        return moved

    def _placed(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        converted = self._converted(leaf.detach())
        return converted if converted.device == self._device else converted.to(self._device)

    def _converted(self, tensor: torch.Tensor) -> torch.Tensor:
        stays = self._dtype is None or not tensor.is_floating_point() or is_low(tensor)
        return tensor if stays else tensor.to(self._dtype)

    def _state(self, *case: object) -> State | None:
        """Another state for a case; tied tensors stay tied. None where no state travels."""
        if self._seeded:
            return None
        state = self._problem.other_state(self._generator("state", *case))
        converted = {id(tensor): self._converted(tensor) for tensor in state.values()}
        return {name: converted[id(tensor)] for name, tensor in state.items()}

    def _record(self, inputs: list[Any], state: State | None) -> CallRecord:
        record = record_call(self._task, inputs, {} if state is None else {"state": state})
        size_bytes = sum(map(storage_size, record.storages))
        if self._problem.cases and self._taken_bytes + size_bytes > 2 * MOST_PROBLEM_BYTES:
            raise CannotRecord(f"its cases take more than {2 * MOST_PROBLEM_BYTES >> 30} GiB together")
        if size_bytes > MOST_CASE_BYTES:
            raise CannotRecord(
                f"inputs and state take {size_bytes / 2**30:.1f} GiB; {MOST_CASE_BYTES >> 30} are the most"
            )
        self._taken_bytes += size_bytes
        return record

    def _answer(self, inputs: list[Any], state: State | None) -> tuple[Any, State]:
        try:
            return self._called(inputs, state)
        except torch.AcceleratorError:
            raise  # The device context is lost.
        except Exception as exc:
            raise BrokenProblem(f"{self._task}: Model does not answer its own inputs: {in_plain_words(exc)}") from exc

    def _call(self, state: State | None, inputs: Sequence[Any]) -> Any:
        return self._on_copies(inputs, state)[0]

    def _called(self, inputs: Sequence[Any], state: State | None) -> tuple[Any, State]:
        """The answer, and the state after it, always with the same random numbers."""
        torch.manual_seed(derive_seed(self._seed, "forward"))
        return self._on_copies(inputs, state)

    @torch.no_grad()
    def _on_copies(self, inputs: Sequence[Any], state: State | None) -> tuple[Any, State]:
        """Run the Model on copies, since it may change what it is given: its result, and the state after it."""
        copied = _copies(inputs)
        own = None if state is None else {name: tensor.clone() for name, tensor in state.items()}
        return self._problem.call(*copied, state=own), own or {}

    def _generator(self, *parts: object) -> torch.Generator:
        return torch.Generator().manual_seed(derive_seed(self._seed, *parts))


def _copies(inputs: Sequence[Any]) -> list[Any]:
    copied: list[Any] = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, list(inputs))
    return copied
