"""Launch plans as C++ reads them: 64-bit words, and the table of a kernel's plans that ``launcher.cpp`` keeps."""

from __future__ import annotations

import ctypes
import weakref

import torch

from opsmith.dispatch.plans.plan import Form, HostScalar, Launch, LaunchPlan, Number, Precision, Result

Words = ctypes.Array[ctypes.c_int64]
#: As milliseconds, for ever.
FOR_GOOD = -1


class Table:
    """The plans of one kernel, as C++ finds them."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.handle: int = library.opsmith_plans()
        weakref.finalize(self, library.opsmith_free_plans, self.handle)

    def words(self, plan: LaunchPlan) -> Words:
        """A plan as ``launcher.cpp`` reads it: lists follow their lengths."""
        words = [len(plan.allocations)]
        for shape, strides, dtype in plan.allocations:
            words += [self._dtype(dtype), len(shape), *shape, len(strides), *strides]
        words.append(len(plan.steps))
        for step in plan.steps:
            # A copy has no function.
            words += _launch_words(step) if isinstance(step, Launch) else [0, *step]
        words.append(plan.form is Form.LIST)
        words += [len(plan.results), *(number for result in plan.results for number in self._result(result))]
        words += [len(plan.reaches), *(number for reach in plan.reaches for number in reach)]
        words += [len(plan.precisions), *map(self._precision, plan.precisions)]
        return (ctypes.c_int64 * len(words))(*words)

    def learn(self, words: Words) -> None:
        """Keep a plan for the call that a front has handed to Python in this thread, if there is such a call."""
        self._library.opsmith_learn(self.handle, words, 0)

    def leave(self, milliseconds: int = FOR_GOOD) -> None:
        """Leave the call that a front has handed to Python in this thread, if there is one, to torch's own kernel.

        Args:
            milliseconds: for how long calls like it are left, too, before Python is asked again.
        """
        self._library.opsmith_learn(self.handle, None, milliseconds)

    @property
    def left(self) -> int:
        """How many calls C++ has left to torch's own kernels."""
        count: int = self._library.opsmith_left(self.handle)
        return count

    def clear(self) -> None:
        """Forget all plans."""
        self._library.opsmith_clear(self.handle)

    @property
    def replayed(self) -> int:
        """How many calls were answered by plans in C++."""
        count: int = self._library.opsmith_replayed(self.handle)
        return count

    def _result(self, result: Result) -> tuple[int, int]:
        """0 and a tensor's number, or -1 for none; 1 and a number; 2 and the dtype of a tensor on the host."""
        if isinstance(result, Number):
            return 1, result.value
        if isinstance(result, HostScalar):
            return 2, self._dtype(result.dtype)
        return 0, -1 if result is None else result

    def _precision(self, precision: Precision) -> int:
        word: int = self._library.opsmith_precision(*(text.encode() for text in precision))
        return word

    def _dtype(self, dtype: torch.dtype) -> int:
        number: int = self._library.opsmith_dtype(str(dtype).removeprefix("torch.").encode())
        return number


def _launch_words(launch: Launch) -> list[int]:
    return [
        *(launch.function, *launch.grid, 32 * launch.warps, launch.shared_bytes, launch.overlaps),
        *(len(launch.slots), *launch.slots),
        *(len(launch.pointers), *(number for pointer in launch.pointers for number in pointer)),
    ]
