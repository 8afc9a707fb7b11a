"""Finding works, compiling their candidates in several processes at once, and timing them in one.

What finds and compiles never touches the GPU (:mod:`opsmith.prewarm.compiling`), so it runs on all cores beside the
one process that times. A candidate that ends that process costs itself and the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from opsmith.prewarm.tasks import Task
from opsmith.prewarm.warming import compiler, compilers
from opsmith.tune.works import Tuned, TunedWork

if TYPE_CHECKING:
    import torch

    from opsmith.kernels.common.tuning import Family

#: Calls of a block that is timed, each on inputs of its own, and blocks; the fastest block counts.
CALLS, BLOCKS = 8, 5
#: A choice has to be so much faster than the rule's: less is within what a device's clock varies.
GAIN = 0.02
#: Values differ from those of float64, by roundings and the order of sums, by so much of the largest at most.
TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 4e-3, "float64": 1e-10}


def gpu() -> tuple[str, dict[str, str]]:
    """The first GPU's name, and the versions that a table is made with."""
    pool = _timer()
    try:
        return pool.submit(_gpu).result()
    finally:
        pool.shutdown()


def find_works(tasks: Sequence[Task], *, inputs: int, jobs: int, architecture: int | None) -> list[TunedWork]:
    """The works that the traced calls of the tasks' ops ask, each once, with the largest of its calls.

    Args:
        tasks: ops with their dtypes and kernels.
        inputs: how many different calls of an op at most.
        jobs: processes.
        architecture: of a GPU that is not there; None for the one that is.
    """
    found: dict[tuple[str, str], TunedWork] = {}
    with compilers(jobs, architecture) as pool:
        for works in pool.map(_find, tasks, [inputs] * len(tasks)):
            for work in works:
                found.setdefault((work.family, work.work), work)
    return list(found.values())


def compile_all(works: Sequence[TunedWork], *, jobs: int, architecture: int | None) -> Iterator[tuple[TunedWork, int]]:
    """Compile every candidate; yields each work with how many of them the device can run, as it is done."""
    with compilers(jobs, architecture) as pool:
        left = {id(work): len(work.candidates) for work in works}
        fit = dict.fromkeys(left, 0)
        running: dict[Future[bool], TunedWork] = {
            pool.submit(_compile, work, candidate): work for work in works for candidate in work.candidates
        }
        try:
            for one in as_completed(running):
                work = running[one]
                left[id(work)] -= 1
                fit[id(work)] += one.result()
                if not left[id(work)]:
                    yield work, fit[id(work)]
        finally:
            pool.shutdown(cancel_futures=True)


def time_all(works: Iterable[TunedWork]) -> Iterator[tuple[TunedWork, Tuned | None]]:
    """What was measured for each work, None where its process ended or no choice runs."""
    timer = _timer()
    try:
        for work in works:
            try:
                yield work, timer.submit(time_candidates, work).result()
            except (BrokenProcessPool, RuntimeError):
                timer.shutdown(cancel_futures=True)  # The device may be lost to its process.
                timer = _timer()
                yield work, None
    finally:
        timer.shutdown(cancel_futures=True)


def _timer() -> ProcessPoolExecutor:
    os.environ["TRITON_INTERPRET"] = "0"
    return ProcessPoolExecutor(1, get_context("spawn"))


# ---------------------------------------------------------------- in a process that compiles


def _find(task: Task, inputs: int) -> list[TunedWork]:
    from opsmith.kernels.common.tuning import FAMILIES, work_name
    from opsmith.prewarm.compiling import kernel_function
    from opsmith.prewarm.fake_calls import traced_calls

    function, works = kernel_function(task.entry), []
    for record in traced_calls(task.op, task.dtype, inputs):
        for name, family in FAMILIES.items():

            def ask(work: Any, rule: Any, name: str = name, family: Any = family, record: Any = record) -> None:
                others = [tuple(choice) for choice in family.candidates(work) if tuple(choice) != tuple(rule)]
                works.append(
                    TunedWork(
                        family=name,
                        work=work_name(work),
                        op=task.op,
                        dtype=task.dtype,
                        entry=task.entry,
                        record=record,
                        rule=tuple(rule),
                        candidates=tuple(others),
                    )
                )

            family.asked = ask
        try:
            compiler().call(function, record)
        except Exception:  # noqa: BLE001, S112 - A call that is declined asks nothing; `prewarm` tells of the others.
            continue
        finally:
            for family in FAMILIES.values():
                family.asked = None
    return [work for work in works if work.candidates]


def _compile(work: TunedWork, candidate: tuple[int, ...]) -> bool:
    from opsmith.prewarm.compiling import kernel_function

    function = kernel_function(work.entry)
    with _family(work).force(candidate):
        try:
            compiler().call(function, work.record)
        except Exception:  # noqa: BLE001 - Too much shared memory, or what Triton cannot compile: no candidate.
            return False
    return True


# ---------------------------------------------------------------- in the process that times


def _gpu() -> tuple[str, dict[str, str]]:
    import torch
    import triton

    versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": str(torch.version.cuda)}
    return torch.cuda.get_device_name(), versions


def time_candidates(work: TunedWork) -> Tuned | None:
    """Time the rule's choice and all candidates that run and give the call's result; None where none does."""
    import torch

    from opsmith.calls.live import rebuild
    from opsmith.prewarm.compiling import kernel_function

    function, family = kernel_function(work.entry), _family(work)
    live = rebuild(work.record, torch.device("cuda"))
    expected = exact_results(work.op, live.args, live.kwargs)
    tolerance = TOLERANCE[str(live.args[0].dtype).removeprefix("torch.")]

    def is_right(choice: tuple[int, ...]) -> bool:
        with family.force(choice), torch.no_grad():
            results = _tensors(function(*live.args, **live.kwargs))
        torch.cuda.synchronize()
        return all(_is_near(one, exact, tolerance) for one, exact in zip(results, expected, strict=False))

    times = times_of(work, is_right, lambda choice: _device_us(work, choice))
    if not times:
        return None
    fastest = min(times, key=times.__getitem__)
    rule_us = times.get(work.rule)
    if rule_us is not None and times[fastest] > rule_us * (1 - GAIN):
        fastest = work.rule
    return Tuned(
        choice=fastest,
        us=round(times[fastest], 3),
        rule_us=None if rule_us is None else round(rule_us, 3),
        timed=len(times.keys() - {work.rule}),
        call=f"{work.op} {work.dtype} {' '.join(str([*x.shape]) for x in live.args if isinstance(x, torch.Tensor))}",
    )


def exact_results(op: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """What eager answers to a call in float64, or the textbook where eager cannot; the first results that are known.

    Raises:
        RuntimeError: nobody has them: of attention with a dropout or of a ragged batch.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    from opsmith.aten.arguments import bind
    from opsmith.aten.schemas import overload
    from opsmith.evaluation.oracle.attention import BACKWARDS, FORWARDS, attention, gradients
    from opsmith.tasks.registry import schema_of

    packet = op.partition(".")[0]
    if packet in FORWARDS | BACKWARDS:
        bound = bind(schema_of(op), args, kwargs)
        found = gradients(bound) if packet in BACKWARDS else attention(bound)
        if found is None:
            raise RuntimeError(f"{op}: nothing is known of its result in float64")
        opinions = found if isinstance(found, list) else [found]
        return [opinion.value.to(args[0].device) for opinion in opinions]

    def widened(x: torch.Tensor) -> torch.Tensor:
        return x.double() if x.is_floating_point() else x

    wide_args, wide_kwargs = tree_map_only(torch.Tensor, widened, (tuple(args), kwargs))
    with torch.no_grad():
        return _tensors(overload(op)(*wide_args, **wide_kwargs))[:1]


def times_of(
    work: TunedWork, is_right: Callable[[tuple[int, ...]], bool], device_us: Callable[[tuple[int, ...]], float]
) -> dict[tuple[int, ...], float]:
    """What each choice takes, the rule's first; without those that do not run on the device, or are not right."""
    import torch
    from triton.errors import TritonError

    times = {}
    for choice in (work.rule, *work.candidates):
        try:
            if is_right(choice):
                times[choice] = device_us(choice)
        except (RuntimeError, ValueError, TritonError):  # The latter: more shared memory than there is, for one.
            torch.cuda.synchronize()  # Raises where the device is lost, which ends this process's use.
    return times


def _tensors(result: Any) -> list[torch.Tensor]:
    import torch

    return [one for one in ([result] if isinstance(result, torch.Tensor) else result) if isinstance(one, torch.Tensor)]


def _is_near(result: torch.Tensor, exact: torch.Tensor, tolerance: float) -> bool:
    difference = (result.double() - exact).abs().max().item()
    return bool(difference <= tolerance * exact.abs().max().item())  # NaN is not near.


def _device_us(work: TunedWork, choice: Sequence[int]) -> float:
    """K of the whole call, as the judge measures it."""
    import torch

    from opsmith.evaluation.timing.blocks import TimedCall
    from opsmith.evaluation.timing.inputs import TimedInputs
    from opsmith.prewarm.compiling import kernel_function

    device = torch.device("cuda")
    with _family(work).force(choice):
        inputs = TimedInputs(work.record, device, CALLS)
        timed = TimedCall(kernel_function(work.entry), inputs, device)
        blocks = [timed.device_block(CALLS, round_number=number)[0] for number in range(BLOCKS)]
    measured = [one for one in blocks if one is not None]
    if not measured:
        raise RuntimeError("the call waits for the device")
    return min(measured)


def _family(work: TunedWork) -> Family[Any]:
    from opsmith.kernels.common.tuning import FAMILIES
    from opsmith.prewarm.compiling import kernel_module

    kernel_module(work.entry.partition(":")[0])
    return FAMILIES[work.family]
