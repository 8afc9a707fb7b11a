"""Ops outside ATen: which of them compute, what an import registers later, and which do a task's work.

An op of any namespace computes if it takes a tensor, unless the namespace is on the list of those that hold, name or
send things. So a namespace that nobody here has heard of counts as torch's work, and not as a kernel's own: a kernel's
own are those that its own files register.
"""

from __future__ import annotations

import functools
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from opsmith.evaluation.integrity.shared_objects import Tables, loaded
from opsmith.evaluation.integrity.static.aten_names import MATRIX_PRODUCTS, base_name, canonical, task_op

#: Namespaces by which ranks talk; a task that is a collective has its own rules about them.
TALKING = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")
#: Namespaces of what computes nothing: scripted Python, marks for profilers, and streams.
FREE = frozenset({"prim", "profiler", "streams", "debug_mode_ops", "export", "c10d_functional", *TALKING})
#: What compiled code uses for memory that it has.
_BOOKKEEPING = frozenset(
    {"inductor._alloc_from_pool", "inductor._reinterpret_tensor", "inductor.resize_storage_bytes_"}
)
_REGISTERED_AT = re.compile(r"^debug: registered at (.*):\d+$", re.MULTILINE)
_TORCH = str(Path(torch.__file__).parent)
#: In the symbols that a shared object of C++ imports if it registers ops.
_REGISTERS = b"5torch7Library"


def parts(name: str) -> tuple[str, str, str]:
    """Namespace, packet and overload of an op as a policy writes it: those of ATen lack the namespace."""
    namespace, _, op = name.rpartition(".")[0].rpartition(".")
    return namespace or "aten", op, name.rpartition(".")[2]


def written(name: str) -> str:
    """An op as a policy writes it, of what the dispatcher calls it: ``mkldnn._linear_pointwise.default``."""
    namespace, _, op = name.partition("::")
    op = op if "." in op else f"{op}.default"
    return op if namespace == "aten" else f"{namespace}.{op}"


def registered_name(name: str) -> str:
    """The same op as the dispatcher calls it: ``mkldnn::_linear_pointwise``."""
    namespace, packet, overload = parts(name)
    return f"{namespace}::{packet}" if overload == "default" else f"{namespace}::{packet}.{overload}"


def overload_of(name: str) -> torch._ops.OpOverload:
    """The callable of an op of any namespace.

    Raises:
        AttributeError: this torch has no such op.
    """
    namespace, packet, overload = parts(name)
    found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    assert isinstance(found, torch._ops.OpOverload)
    return found


@functools.cache
def known() -> frozenset[str]:
    """The dispatcher's names of all ops, as this was first asked: before a kernel is loaded."""
    return frozenset(torch._C._dispatch_get_all_op_names())


@functools.cache
def computing() -> frozenset[str]:
    """The ops of torch's own namespaces but ATen that compute, before a kernel is loaded."""
    return frozenset(written(name) for name in known() if not name.startswith("aten::") and _computes(name))


def _computes(name: str) -> bool:
    namespace = name.partition("::")[0]
    if namespace in FREE or written(name).rpartition(".")[0] in _BOOKKEEPING:
        return False
    arguments, _, returned = _schema(name).rpartition(" -> ")
    is_view = "Tensor(a" in returned and "!" not in returned
    return "Tensor" in arguments and not is_view


def _schema(name: str) -> str:
    op, _, overload = name.partition(".")
    return str(torch._C._get_schema(op, overload))


def registered_since() -> frozenset[str]:
    """Computing ops that installed packages have registered since :func:`known`: a kernel's own are not among them."""
    new = [name for name in torch._C._dispatch_get_all_op_names() if name not in known()]
    if not new:
        return frozenset()
    libraries = _registering_libraries()
    packaged = {name for name in new if _is_packaged(name, libraries)}
    return frozenset(written(name) for name in packaged if _computes(name))


def _is_packaged(name: str, libraries: list[bytes]) -> bool:
    namespace = name.partition("::")[0]
    if any(f"{namespace}\0".encode() in content for content in libraries):
        return True
    definition: Any = torch._library.custom_ops.OPDEFS.get(name)
    if definition is not None:
        return _is_installed(definition._init_fn.__code__.co_filename)
    found = _REGISTERED_AT.search(torch._C._dispatch_dump(name))
    return found is not None and _is_installed(found[1]) and not found[1].startswith(_TORCH)


def _registering_libraries() -> list[bytes]:
    """The contents of the installed shared objects, torch's aside, that this process has loaded and that register.

    What an object imports is in its own table of names: CUDA's libraries, gigabytes of them, are not read.
    """
    others = [item for item in loaded() if _is_installed(item.path) and not item.path.startswith(_TORCH)]
    return [Path(item.path).read_bytes() for item in others if _REGISTERS in Tables(item).strings]


@functools.cache
def installed_folders() -> tuple[str, ...]:
    """Where packages are."""
    places = {*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sys.base_prefix}
    return tuple({str(Path(place).resolve()) + "/" for place in places} | {f"{place}/" for place in places})


def _is_installed(path: str) -> bool:
    return path.startswith(installed_folders())


@functools.lru_cache(4096)
def does_task(name: str, task: str) -> bool:
    """Whether an op outside ATen does an op's work, by its name: ``mkldnn::_linear_pointwise`` that of ``linear``.

    Args:
        name: as a policy writes it.
        task: an overload of ATen.
    """
    own = task_op(task)
    if own is None:
        return False
    words = list(_words(parts(name)[1]))
    if own in MATRIX_PRODUCTS and not MATRIX_PRODUCTS.isdisjoint(words):
        return True
    wanted = own.split("_")
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words)))


def _words(packet: str) -> Iterator[str]:
    """What an op's name is made of; ``qlinear`` is ``linear`` on quantized tensors."""
    for word in base_name(packet).split("_"):
        plain = canonical(word)
        yield canonical(word[1:]) if plain == word and word[:1] == "q" else plain
