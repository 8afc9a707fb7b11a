"""Which programs a worker may start: compilers, linkers, what builds with them, and the shell that these run in.

A program is told by where it lies and not only by its name: one that a worker could have written is no compiler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

#: Of the name that symbolic links lead to; what a wrapper starts may have a suffix of its own.
_NAMES = re.compile(
    r"""(?x)
      \.? (?:[\w.+]+-)*? (?:gcc|g\+\+|c\+\+|cc|cpp|clang|clang\+\+|clang-cl|gfortran|flang|tcc|icx|icpx|icc|icpc|nvcc
        |nvc|nvc\+\+|nvfortran|hipcc|amdclang|amdclang\+\+|dpcpp|acpp|rustc|rustup|cargo|go|zig|nim|ldc2|dmd|ghc|fpc|nasm|yasm
        |ispc|ccache|sccache|distcc) (?:-?[\d.]+)? (?:[-.](?:bin|real|orig|wrapped|unwrapped))?
    | cc1|cc1plus|cc1obj|f951|go1|d21|gnat1|lto1|lto-wrapper|collect2|g\+\+-mapper-server
    | \.? (?:[\w.+]+-)*? (?:as|ld|ld\.\w+|gold|lld|ld64\.lld|wasm-ld|lld-link|mold|ar|ranlib|nm|strip|objcopy|objdump
        |readelf|c\+\+filt|addr2line|size|strings|elfedit|dwp|llc|opt|llvm-[\w-]+|gcc-(?:ar|nm|ranlib)) (?:-?[\d.]+)?
        (?:[-.](?:bin|real|orig|wrapped|unwrapped))?
    | cicc|ptxas[\w-]*|fatbinary|nvlink|cudafe\+\+|bin2c|cuobjdump|nvdisasm|nvprune|tileiras|crt|__nvcc_device_query
    | clang-offload-[\w-]+|clang-linker-wrapper|clang-nvlink-wrapper|hipconfig[\w.]*|amdgpu-arch|nvptx-arch
    | rocm_agent_enumerator|rocminfo
    | ninja|samu|make|gmake|cmake|ctest|pkg-config|pkgconf|libtool
    | sh|dash|ash|bash|busybox|env|which[\w.]*|ldconfig[\w.]*|uname|arch|getconf|lscpu|nproc|nvidia-smi|hostname|date|id
    | cat|cp|mv|rm|mkdir|rmdir|ln|ls|chmod|touch|mktemp|install|true|false|echo|printf|test|expr|basename|dirname
    | readlink|realpath|sed|grep|egrep|tr|cut|head|tail|sort|uniq|wc|file|xxd|tee|coreutils|stat|sleep|cmp|diff
    """
)


def refusal(path: str, written: Sequence[Path], since_ns: int) -> str | None:
    """Why a worker may not start a program; None if it may.

    Args:
        path: without symbolic links.
        written: folders that workers write to, or wrote to in earlier runs.
        since_ns: when the first process of this run began; what was changed later may be a worker's.
    """
    name = os.path.basename(path)  # noqa: PTH119 - done for every process that a compilation starts
    if not _NAMES.fullmatch(name):
        return f"{name} is no compiler"
    if any(Path(path).is_relative_to(folder) for folder in written):
        return f"{name} lies where a kernel can write"
    try:
        changed_ns = os.stat(path).st_ctime_ns  # noqa: PTH116 - as above
    except OSError:
        return f"{name} is not there"
    return f"{name} was changed during the run" if changed_ns >= since_ns else None
