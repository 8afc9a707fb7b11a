"""Symbols of shared objects behind which torch or a vendor's library computes, where no dispatcher hears of it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from opsmith.core.op import OpSchema, TaskKind
from opsmith.evaluation.integrity.namespaces import does_task
from opsmith.evaluation.integrity.static.aten_names import base_name, is_allowed, is_aten

#: Namespaces below ``at`` whose functions call a backend's kernel directly.
_STATIC = frozenset(
    {
        *("native", "cpu", "cuda", "cudnn", "meta", "compositeexplicitautograd"),
        *("compositeexplicitautogradnonfunctional", "compositeimplicitautograd"),
    }
)
#: Of ``at::native`` and ``at::cuda``, what are no ops by their names and compute: products, and tables of kernels.
_INSIDE = frozenset({"cpublas", "blas", "mkldnn", "xnnpack", "nnpack", "DispatchStubImpl", "onednn"})
#: The C functions by which compiled graphs call a backend's kernels.
_SHIM = re.compile(r"aoti_torch_(?:cpu|cuda|xpu|mps)_(\w+)")
#: Of vendors' libraries all but what makes, describes and asks: array libraries call that while they are imported.
_VENDOR = re.compile(
    r"""
      (?:scipy_|openblas_)?(?:cblas|LAPACKE)_[a-z]\w*
    | (?:scipy_)?[sdczb](?:gemm|gemv|gemmt|ger|symm|symv|syrk|trmm|trsm|dot|axpy|nrm2|asum|scal)(?:_batch)?(?:_?64)?_?
    | (?:scipy_)?[sdcz](?:ge|po|sy|he|tr|or|un|gt|pt|st)[a-z]{2,4}\d?(?:_?64)?_
    | mkl_(?!set_|get_|free|malloc|serv)\w+ | v[msdcz]?[sdcz][A-Z]\w+ | (?:dnnl|onednn|xnn|nnp|qnnp|zendnn)_\w+
    | (?:cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|hipblas|rocblas|miopen|hipsparse|hipfft)
      (?!(?:Lt|Xt|Dn|Sp|Rf|Mg)?(?:Create|Destroy|Get|Set|Init|Logger|Query)(?:[A-Z_]|$)|_)[A-Z]\w*
    | p?nccl[A-Z]\w*
    """,
    re.VERBOSE,
)
#: Of C++ libraries, by the namespace.
_VENDOR_SPACES = frozenset({"dnnl", "ideep", "fbgemm", "xnnpack", "cudnn_frontend"})
#: A text without any of these holds no such symbol; for a quick look.
HINTS = re.compile(
    rb"_ZNK?2at(?:\d|3cpu)|aoti_torch_|cblas_|LAPACKE_|gem[mv]|mkl_|dnnl|xnn_|nnp_|fbgemm|ideep|zendnn"
    rb"|nccl[A-Z]|cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|hipblas|rocblas|miopen|\0v[msdcz]?[sdcz][A-Z]"
    rb"|\0[sdczb][a-z]{3,7}\d?(?:_?64)?_?\0|dlv?sym"
)


class Computation(NamedTuple):
    """What a symbol stands for.

    Attributes:
        name: as a person reads it, ``at::cpu::relu`` or ``cblas_sgemm``.
        op: the ATen op that it does, without underscores and variants; None of a vendor's.
    """

    name: str
    op: str | None


@functools.lru_cache(4096)
def computation(symbol: str) -> Computation | None:
    """What computes behind a symbol; None if nothing does, or only the dispatcher is asked to."""
    if shim := _SHIM.fullmatch(symbol):
        return _of_op(symbol, shim[1])
    if _VENDOR.fullmatch(symbol):
        return Computation(symbol, None)
    path = tuple(_path(symbol))
    if path[:1] and path[0] in _VENDOR_SPACES:
        return Computation("::".join(path), None)
    if len(path) < 3 or path[0] != "at" or path[1] not in _STATIC:
        return None
    if path[2] in _INSIDE:
        return Computation("::".join(path), None)
    return _of_op("::".join(path), path[2].removeprefix("structured_").removesuffix("_stub"))


def _of_op(name: str, op: str) -> Computation | None:
    plain = base_name(op)
    is_op = is_aten(plain) or is_aten(op) or is_aten(op.removesuffix("_out"))
    return Computation(name, plain) if is_op and not is_allowed(plain) else None


def _path(symbol: str) -> Iterator[str]:
    """The names that a mangled name of C++ is made of, up to its first template: ``at``, ``cpu``, ``relu``."""
    found = re.match(r"_ZNK?", symbol)
    place = found.end() if found else len(symbol)
    while (length := re.compile(r"\d+").match(symbol, place)) is not None:
        start = length.end()
        place = start + int(length[0])
        yield symbol[start:place]


def breaks(found: Computation, schema: OpSchema, policy: str) -> bool:
    """Whether calling it past the dispatcher breaks the policy for a task."""
    if "nccl" in found.name[:5]:
        return schema.kind is TaskKind.PARALLEL and policy == "native"
    if schema.kind.on_ranks:
        return False  # Arithmetic is free there.
    if policy == "native":
        return True
    if found.op is None:
        return False
    # Whether a module's calls are those of `Model` is not seen.
    return schema.kind is TaskKind.MODULE or does_task(f"past.{found.op}.default", schema.name)
