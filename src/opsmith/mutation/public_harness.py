"""The public harness's judgement of a kernel: BackendBench's own code where it is, else its published rule.

The rule: a sample of an OpInfo is asked if its function dispatches exactly one op and if that overload, called with
the function's own arguments, gives the same result; results are close within 1e-2, relative and absolute, NaN equal
to NaN; a kernel is right if every sample is. BackendBench leaves some overloads out; so does the rule here if told to.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import sys
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.core.dtypes import TORCH_NAMES
from opsmith.mutation.outcomes import Result
from opsmith.runner.plan.suite_index import SuiteIndex
from opsmith.suites.opinfo import op_infos

#: In outcomes: its own code, and the rule of it written anew.
OWN_CODE, RULE = "BackendBench", "BackendBench's rule"
_PACKAGE = "BackendBench"
_TOLERANCE = 1e-2


class Harness(NamedTuple):
    """A public harness with its tests.

    Attributes:
        name: OWN_CODE or RULE.
        judge: says what becomes of an op's kernel.
    """

    name: str
    judge: Callable[[str, Callable[..., Any]], tuple[Result, str]]


def open_harness(dtype: str, ops: Collection[str], folder: str | None) -> Harness:
    """The harness with its tests of some ops in a dtype on the CPU.

    Args:
        dtype: short name.
        ops: overloads; OpInfos that are known to call none of them are passed over.
        folder: holds the package, where that is not installed; the rule is used where neither is there.
    """
    if folder is not None:
        sys.path.insert(0, folder)
    found = importlib.util.find_spec(_PACKAGE)
    torch_dtype = getattr(torch, TORCH_NAMES[dtype])
    if found is None or not found.submodule_search_locations:
        return Harness(RULE, _rule(torch_dtype, _infos(dtype, ops)))
    package = Path(next(iter(found.submodule_search_locations)))
    return Harness(OWN_CODE, _own_code(package, torch_dtype, _infos(dtype, ops)))


def _infos(dtype: str, ops: Collection[str]) -> list[Any]:
    """Torch's OpInfos that call one of the ops, or of which that is not known, in torch's order."""
    known = SuiteIndex("opinfo", torch=torch.__version__, device="cpu", dtype=dtype).load() or {}
    infos = op_infos()
    elsewhere = {id(infos[entry]) for entry, called in known.items() if entry in infos and not set(called) & set(ops)}
    return [info for info in op_db if id(info) not in elsewhere]


def _own_code(
    package: Path, dtype: torch.dtype, infos: list[Any]
) -> Callable[[str, Callable[..., Any]], tuple[Result, str]]:
    # Its own __init__ files import language model clients and data sets, which no judgement needs.
    for name, folder in ((_PACKAGE, package), (f"{_PACKAGE}.suite", package / "suite")):
        module = types.ModuleType(name)
        module.__path__ = [str(folder)]
        sys.modules[name] = module
    opinfo = importlib.import_module(f"{_PACKAGE}.suite.opinfo")
    evaluation = importlib.import_module(f"{_PACKAGE}.eval")
    logging.getLogger(_PACKAGE).setLevel(logging.CRITICAL)
    vars(opinfo)["op_db"] = infos  # What the others call is no subject, and takes minutes.
    tests = defaultdict(list)
    with _quiet():
        for test in opinfo.build_op_tests("cpu", dtype):
            tests[_name(test.op)].append(test)

    def judge(op: str, kernel: Callable[..., Any]) -> tuple[Result, str]:
        if op not in tests:
            return Result.NOT_ASKED, ""
        with _quiet():
            for test in tests[op]:
                share, results = evaluation.eval_correctness(test.op, kernel, test.correctness_tests)
                if share != 1.0:
                    wrong = next(each for each in results if not each.is_correct)
                    return Result.KILLED, f"{wrong.error_type} on {wrong.args}"[:300]
        return Result.SURVIVED, ""

    return judge


class _Recorder(TorchDispatchMode):
    """Notes the overloads that are dispatched."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ops.append(func)
        return func(*args, **(kwargs or {}))


def _rule(dtype: torch.dtype, infos: list[Any]) -> Callable[[str, Callable[..., Any]], tuple[Result, str]]:
    tests: defaultdict[str, list[tuple[Any, Any]]] = defaultdict(list)
    with _quiet():
        for overload, sample in _samples(dtype, infos):
            tests[_name(overload)].append((overload, sample))

    def judge(op: str, kernel: Callable[..., Any]) -> tuple[Result, str]:
        if op not in tests:
            return Result.NOT_ASKED, ""
        with _quiet():
            for overload, sample in tests[op]:
                expected = overload(sample.input, *sample.args, **sample.kwargs)
                try:
                    close = _close(expected, kernel(sample.input, *sample.args, **sample.kwargs))
                except Exception as exc:  # noqa: BLE001 - a mutant may raise anything
                    return Result.KILLED, f"{type(exc).__name__}: {exc}"[:300]
                if not close:
                    return Result.KILLED, "not close"
        return Result.SURVIVED, ""

    return judge


def _samples(dtype: torch.dtype, infos: list[Any]) -> Iterator[tuple[Any, Any]]:
    for info in infos:
        if ("." in info.name and "nn.functional" not in info.name) or dtype not in info.supported_dtypes("cpu"):
            continue
        try:
            samples = list(info.sample_inputs("cpu", dtype))
        except Exception:  # noqa: BLE001, S112 - the harness passes over what fails
            continue
        for sample in samples:
            with contextlib.suppress(Exception):
                with _Recorder() as recorder:
                    result = info.op(sample.input, *sample.args, **sample.kwargs)
                if len(recorder.ops) == 1:
                    overload = recorder.ops[0]
                    if _close(result, overload(sample.input, *sample.args, **sample.kwargs)):
                        yield overload, sample


def _close(expected: Any, found: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        try:
            torch.testing.assert_close(expected, found, equal_nan=True, rtol=_TOLERANCE, atol=_TOLERANCE)
        except (AssertionError, TypeError, ValueError):
            return False
        return True
    if isinstance(expected, (list, tuple)):
        return len(expected) == len(found) and all(map(_close, expected, found))
    return bool(expected == found)


def _name(overload: Any) -> str:
    return str(overload).removeprefix("aten.")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield
