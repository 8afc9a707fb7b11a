"""The function that torch's dispatcher calls for one overload on one device type.

It hands a call to the kernel, or to the kernel that torch had before (the *original*). What a kernel calls itself goes
to the originals too, so that a kernel may use the op that it implements.

A kernel that allows it is called once or twice with a signature and then repeated from a launch plan
(:mod:`opsmith.dispatch.plans.plan`), before any guard: a signature that has a plan has passed them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from opsmith.aten.arguments import written_by
from opsmith.aten.derivation import DoesNotFit
from opsmith.aten.numbers import has_number, tensor_positions, with_tensors
from opsmith.aten.schemas import overload
from opsmith.core.op import OpSchema
from opsmith.dispatch.backups import Restored
from opsmith.dispatch.choice.choosing import EAGER, KERNEL, Decision
from opsmith.dispatch.choice.trial import try_out
from opsmith.dispatch.guards import LASTING, Fallback, gradient_needed, obstacle, special_guard
from opsmith.dispatch.plans.cache import PlanCache
from opsmith.dispatch.plans.cuda_driver import Driver
from opsmith.dispatch.plans.encoding import FOR_GOOD
from opsmith.dispatch.plans.front import Front
from opsmith.dispatch.plans.inline_cache import MISS, fast_path_of
from opsmith.dispatch.plans.native import as_if_called_by_torch
from opsmith.dispatch.plans.signature import Addresses, Signature, Tensors, signature_of
from opsmith.dispatch.serving import DoesNotLoad, Serving
from opsmith.trials.book import Trial

if TYPE_CHECKING:
    from opsmith.dispatch.plans.recorder import LaunchRecorder

Call = Callable[..., Any]
#: Has a kernel in use answer a call by a function, or PyTorch.
Answer = Callable[[Serving, Call, tuple[Any, ...], dict[str, Any]], Any]


class _Thread(threading.local):
    """Whether this thread is inside a kernel, and whose calls it is trying out."""

    in_kernel = False
    trying: Serving | None = None


THREAD = _Thread()
#: How long calls are left to PyTorch whose kernel cannot be tried now: asking each time costs some 20 us.
PATIENCE_MS = 100
#: Held while a plan is recorded: torch keeps in one place for all threads whether a dispatch mode is active, and
#: would take two that overlap for one that never ends. Triton's launches are watched in one place, too.
_recording = threading.Lock()


class Override:
    """The place of one overload on one device type in torch's tables.

    Attributes:
        serving: the kernel that answers, or None while the op is switched off.
        front: what stands before the Python function in torch's table, or None.
    """

    __slots__ = ("device_type", "front", "schema", "serving")

    def __init__(self, schema: OpSchema, device_type: str) -> None:
        self.schema, self.device_type = schema, device_type
        self.serving: Serving | None = None
        self.front: Front | None = None

    def serve(self, serving: Serving | None) -> None:
        """Let a kernel answer from now on; None switches the op off."""
        self.serving = serving
        if self.front is None:
            return
        if serving is None:
            self.front.switch_off()
        else:
            self.front.use(serving.table_in(self.front.library))


def backend_function(override: Override, original: Call) -> Call:
    """The function to register under the device's own key.

    Args:
        override: says which kernel answers, if any.
        original: the kernel that torch had, see :func:`original_kernel`.
    """
    thread, answer, chosen = THREAD, _guarded(override, original), _chosen(override)
    planned = _planned(answer, written_by(overload(override.schema.name)))

    def call(*args: Any, **kwargs: Any) -> Any:
        serving = override.serving
        if serving is None or thread.in_kernel:
            return original(*args, **kwargs)
        plans = serving.plans
        if plans is None and serving.choices is None:
            return answer(serving, serving.kernel, args, kwargs)
        if plans is not None and plans.fast_path is not None:
            result = plans.fast_path(args, kwargs)
            if result is not MISS:
                plans.replayed += 1
                return result
        tensors: list[torch.Tensor] = []
        addresses: list[int] = []
        signature = signature_of(args, kwargs, tensors, addresses)
        if not chosen(serving, signature, args, kwargs):
            return original(*args, **kwargs)
        if plans is None:
            return answer(serving, serving.kernel, args, kwargs)
        return planned(serving, plans, signature, tensors, addresses, args, kwargs)

    return call


def _planned(answer: Answer, written: Callable[[tuple[Any, ...], dict[str, Any]], list[torch.Tensor]]) -> Call:
    """The function that repeats a call from its plan, or answers it, and records it where its signature comes again."""

    def planned(
        serving: Serving,
        plans: PlanCache,
        signature: Signature | None,
        tensors: Tensors,
        addresses: Addresses,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if plans.bypass is not None and plans.bypass(tensors):
            signature = None
        home = None if tensors else _home((*args, *kwargs.values()), plans.driver)
        if not tensors and home is None:
            signature = None  # Where the result is to be, torch's default device says.
        replay = plans.find(signature, addresses)
        if replay is not None:
            plans.replayed += 1
            if plans.table is None and plans.bypass is None:
                plans.fast_path = fast_path_of(replay, args, kwargs)
            return replay.run(tensors, addresses)
        if signature is None or not plans.wants(signature) or not _recording.acquire(blocking=False):
            return answer(serving, serving.kernel, args, kwargs)
        try:
            recorder = launch_recorder()(
                tensors, written(args, kwargs), elementwise=serving.record.elementwise, device=home
            )
            result = answer(serving, recorder.watching(serving.kernel), args, kwargs)
            plans.keep(signature, recorder.plan(result))
        finally:
            _recording.release()
        return result

    return planned


@contextlib.contextmanager
def _trying(serving: Serving) -> Iterator[None]:
    """In a trial, which is as if in a kernel: the kernel answers calls, as it would answer those of a program."""
    THREAD.in_kernel, THREAD.trying = False, serving
    try:
        with as_if_called_by_torch():
            yield
    finally:
        THREAD.in_kernel, THREAD.trying = True, None


@contextlib.contextmanager
def _leaving(override: Override, serving: Serving) -> Iterator[None]:
    """In a trial, where calls reach PyTorch's own kernel as those do that are left to it."""
    front = override.front
    if front is None:  # The Python function hands on what a kernel calls, and this thread passes for being in one.
        yield
        return
    front.switch_off()
    try:
        with _trying(serving):
            yield
    finally:
        if override.serving is serving:
            front.use(serving.table_in(front.library))


def _chosen(
    override: Override,
) -> Callable[[Serving, Signature | None, tuple[Any, ...], dict[str, Any]], bool]:
    """The function that says whether a kernel is asked to answer a call, which may be tried out for that."""
    op, obstacle_of = overload(override.schema.name), _obstacles(override)
    positions, written = tensor_positions(op), written_by(op)

    def chosen(serving: Serving, signature: Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        choices = serving.choices
        if choices is None or THREAD.trying is serving:
            return True
        known = choices.known(signature)
        if known:
            return True
        decision = Decision.OPEN if known is None else Decision.EAGER

        def hold(text: str) -> Trial | None:
            before, THREAD.in_kernel = serving.counts(), True
            try:
                trial = try_out(
                    *(text, choices.book, op),
                    args=with_tensors(args, positions),
                    kwargs=kwargs,
                    written=written(args, kwargs),
                    around=lambda way: _leaving(override, serving) if way == EAGER else _trying(serving),
                )
            finally:
                THREAD.in_kernel = False
                reason = serving.uncount(before)
            if trial is None or reason is None:
                return trial
            return Trial(call=text, us={EAGER: trial.us[EAGER]} if trial.us else {}, notes={KERNEL: str(reason)})

        if known is None and THREAD.trying is None:  # A trial waits for trials elsewhere, so it holds none itself.
            reason = obstacle_of(serving, args, kwargs)
            if reason is not None:
                if serving.table is not None and reason in LASTING:
                    serving.table.leave()
                return True  # It is counted where the kernel would be called.
            decision = choices.decide(signature, args, kwargs, hold)
        if decision is Decision.KERNEL:
            return True
        choices.left += 1
        if serving.table is not None and decision is not Decision.OPEN:
            serving.table.leave(FOR_GOOD if decision is Decision.EAGER else PATIENCE_MS)
        return False

    return chosen


def _guarded(override: Override, original: Call) -> Answer:
    """The function that answers a call by a kernel, or by the original where the kernel does not serve it."""
    thread, found = THREAD, _obstacles(override)

    def answer(serving: Serving, kernel: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reason = found(serving, args, kwargs)
        if reason is None:
            thread.in_kernel = True
            try:
                result = kernel(*args, **kwargs)
                layout = serving.layout
                if layout is not None and not layout.is_plain(result, args):
                    result = layout.as_eager(result, args, kwargs, original)
                serving.calls += 1
            except NotImplementedError:
                reason = Fallback.DECLINED
            except DoesNotLoad:
                reason = Fallback.UNLOADABLE
            except DoesNotFit:
                reason = Fallback.DESTINATION
            except Exception as exc:
                if not (serving.retryable or isinstance(exc, Restored)):
                    raise
                thread.in_kernel = False
                return _second_try(serving, original, exc, args, kwargs)
            else:
                return result
            finally:
                thread.in_kernel = False
        serving.fall_back(reason)
        return original(*args, **kwargs)

    return answer


def _obstacles(override: Override) -> Callable[[Serving, tuple[Any, ...], dict[str, Any]], Fallback | None]:
    """The function that says why no kernel is asked to answer a call, or None."""
    special = special_guard(override.schema, override.device_type)
    positions = tensor_positions(overload(override.schema.name))

    def found(serving: Serving, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fallback | None:
        reason = (
            obstacle(args) or (obstacle(kwargs.values()) if kwargs else None) or (special and special(args, kwargs))
        )
        if reason is None and not serving.takes_numbers and has_number(args, positions):
            return Fallback.NUMBER
        return reason

    return found


def autograd_function(override: Override, original: Call) -> Call:
    """The function to register under the device's autograd key for an op that torch decomposes.

    Such an op has no gradient formula: its gradient comes from the ops that it decomposes into, and a
    kernel below autograd would lose it. Takes the dispatcher's keys as its first argument.
    """
    op, below_autograd = overload(override.schema.name), torch._C._after_autograd_keyset
    python, positions = torch._C.DispatchKey.Python, tensor_positions(op)

    def call(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        # Modes and subclasses that watch ops, such as export's, are to see what they would without kernels.
        serving = override.serving
        if serving is None or THREAD.in_kernel or keys.has(python):
            return original(*args, **kwargs)
        if gradient_needed(args) or gradient_needed(kwargs.values()):
            serving.fall_back(Fallback.NEEDS_GRADIENT)
            serving.warn(
                "a gradient is needed, which the kernel of a composite op would lose, so PyTorch's own "
                "decomposition runs; kernels for the ops that it consists of are used"
            )
            return original(*args, **kwargs)
        return op.redispatch(keys & below_autograd, *with_tensors(args, positions), **kwargs)

    return call


def original_kernel(op: OpOverload, key: str) -> Call:
    """What torch's table holds for an op under a dispatch key, callable as the op is.

    It stays callable when the table changes. The keys that it is told are the plain ones of a backend:
    kernels of backends do not read them.
    """
    kernel = torch.library.get_kernel(op, key)
    call_boxed, keys = kernel.call_boxed, torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    positions = tensor_positions(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        return call_boxed(keys, *with_tensors(args, positions), **kwargs)

    return call


@functools.cache
def launch_recorder() -> type[LaunchRecorder]:
    """What records the launches of a call; imported when it is first asked for.

    It imports Triton, which many programs do without.
    """
    from opsmith.dispatch.plans.recorder import LaunchRecorder

    return LaunchRecorder


def _home(values: Iterable[Any], driver: Driver) -> torch.device | None:
    """Where a call without tensors asks its result to be, if it says so and plans are carried out there."""
    for value in values:
        if type(value) is torch.device and value.type == driver.device_type:
            index = driver.current_device() if value.index is None else value.index
            return value if index < 0 else torch.device(value.type, index)
    return None


def _second_try(serving: Serving, original: Call, exc: Exception, args: Any, kwargs: Any) -> Any:
    """Ask torch after a kernel raised: a bad call raises as eager does, a good one is the kernel's fault."""
    try:
        result = original(*args, **kwargs)
    except Exception as eager:
        raise eager from None
    serving.fall_back(Fallback.RAISED)
    raised = exc.__cause__ if isinstance(exc, Restored) else exc
    serving.warn(f"the kernel raised {type(raised).__name__}: {raised}; PyTorch's own kernel answered")
    return result
