"""Which ATen ops a kernel may call: the policies ``native`` and ``any`` as data.

``native``: the result comes from the kernel's own code. Allocation, views and metadata are free;
so are copies and fills of inputs and workspaces, as long as none of them is what writes a result.
``any``: a kernel may compose torch's ops, but not delegate to the op that it implements, under
whatever name.

Both hold in every namespace, in those that an import registers later too; see :mod:`.namespaces`.

Creation and view ops have no policy: all that they do is what everybody may do.

What ranks do together is about talking: ``native`` forbids every collective of torch's and leaves what is between two
ranks (sends, receives, puts, gets, signals), barriers and arithmetic; ``any`` forbids nothing. Of a parallel problem on
a GPU, ``native`` leaves symmetric memory alone: nothing that goes through NCCL, gloo or c10d.
"""

from __future__ import annotations

import functools

import torch

from opsmith.aten.schemas import aten_schemas
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.evaluation.integrity import namespaces
from opsmith.evaluation.integrity.namespaces import TALKING

#: Packets that carry data from one tensor to another, unchanged but for its dtype.
COPIES = frozenset({"copy", "clone", "contiguous", "_to_copy", "_copy_from", "_copy_from_and_resize", "_to_dense"})
#: Packets that write one value everywhere.
FILLS = frozenset({"fill", "zero", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
#: Packets that make values after the model of a tensor of which they read no element.
_MAKERS = FILLS - {"fill", "zero"} | {"rand_like", "randn_like", "randint_like"}
#: Packets that look at a tensor, or make room for one.
_BOOKKEEPING = frozenset(
    {
        *("empty_like", "new_empty", "new_empty_strided", "resize", "resize_as", "set", "set_data"),
        *("_local_scalar_dense", "item", "is_nonzero", "is_same_size", "is_set_to", "is_pinned", "pin_memory"),
        *("_unsafe_view", "_reshape_alias", "resolve_conj", "resolve_neg", "lift", "lift_fresh", "lift_fresh_copy"),
        *("record_stream", "result_type", "_has_same_storage_numel", "_assert_async", "_assert_scalar"),
        *("_make_dual", "_fw_primal", "_is_zerotensor", "_resize_output", "_pin_memory", "q_scale", "qscheme"),
        *("dense_dim", "sparse_dim", "_dimI", "_dimV", "_indices", "_values", "indices", "values", "to_padded_tensor"),
    }
)


#: Of these, what concerns two ranks, or only waits.
_BETWEEN_TWO = frozenset(
    {
        *("c10d.send", "c10d.recv_", "c10d.recv_any_source_", "c10d.barrier", "c10d.monitored_barrier_"),
        *("c10d.check_for_nan", "_c10d_functional.isend", "_c10d_functional.irecv", "_c10d_functional.batch_p2p_ops"),
        *("_c10d_functional.wait_tensor", "_c10d_functional._wrap_tensor_autograd"),
        *("symm_mem._rendezvous", "symm_mem._barrier", "symm_mem.memset32_", "symm_mem.stream_write_value32_"),
        *("symm_mem.get_remote_tensors", "symm_mem._async_input_mm"),
        *(f"symm_mem.nccl_{name}" for name in ("put", "get", "put_signal", "wait_signal", "put_with_signal")),
        *("symm_mem.nccl_wait_for_signal", "symm_mem.nvshmem_put", "symm_mem.nvshmem_get"),
        *("symm_mem.nvshmem_put_with_signal", "symm_mem.nvshmem_wait_for_signal"),
    }
)


#: Of these, what symmetric memory is used with on a GPU: meeting, addresses, signals and one-sided copies.
_OF_SYMMETRIC_MEMORY = frozenset(
    {
        *("symm_mem._rendezvous", "symm_mem._barrier", "symm_mem.memset32_", "symm_mem.stream_write_value32_"),
        *("symm_mem.get_remote_tensors", "symm_mem._async_input_mm"),
        *(f"symm_mem.nvshmem_{name}" for name in ("put", "get", "put_with_signal", "wait_for_signal")),
    }
)


def stem(packet: str) -> str:
    """The packet that an in-place packet belongs to: ``add`` of ``add_``, ``_softmax`` of itself."""
    return packet[:-1] if packet.endswith("_") and not packet.endswith("__") else packet


def has_policy(schema: OpSchema) -> bool:
    """Whether there is anything in a task that a kernel could have ATen do for it."""
    if schema.kind is not TaskKind.OP:
        return True
    return schema.variant is not Variant.VIEW and _takes_tensors(schema)


def is_copying_task(schema: OpSchema) -> bool:
    """Whether the task itself is a copy or a fill, so that these are its computation."""
    return schema.kind is TaskKind.OP and stem(schema.packet) in COPIES | FILLS


def is_making_task(schema: OpSchema) -> bool:
    """Whether the caller says where values are to lie that come from no element of an argument's: on the host, too."""
    return schema.kind is TaskKind.OP and schema.packet in _MAKERS


@functools.cache
def computes(op: str) -> bool:
    """Whether an overload computes: whether ``native`` forbids it to a kernel whose task is no copy.

    Args:
        op: ``packet.overload``; an op outside ATen that torch does not describe counts as the kernel's own.
    """
    schema = aten_schemas().get(op)
    if schema is None or schema.variant is Variant.VIEW:
        return False
    name = stem(schema.packet)
    if name in COPIES or name in FILLS or name in _BOOKKEEPING:
        return False
    # What is made out of nothing is no result of somebody's inputs, unless it is made at random.
    return _takes_tensors(schema) or "nondeterministic_seeded" in schema.tags


@functools.cache
def same_task(op: str) -> frozenset[str]:
    """The overloads that are the same computation as ``op``: its own packet in every variant, and its aliases."""
    own = stem(op.rpartition(".")[0])
    names = {own, f"{own}_", f"special_{own}", own.removeprefix("special_")}
    return frozenset(name for name, schema in aten_schemas().items() if schema.packet in names)


def forbidden(schema: OpSchema, policy: str, device: str = "cpu") -> frozenset[str]:
    """The overloads whose call alone breaks the policy for a task.

    Copies and fills are not among them: whether one of them wrote a result is seen afterwards.

    Args:
        device: type of the device that the kernel runs on.
    """
    if not has_policy(schema):
        return frozenset()
    if schema.kind.on_ranks:
        if policy != "native":
            return frozenset()
        over_memory = schema.kind is TaskKind.PARALLEL and device != "cpu"
        return _forbidden_talk(_OF_SYMMETRIC_MEMORY) if over_memory else _forbidden_collectives(schema.name)
    if policy == "native":
        return forbidden_by_native()
    return _forbidden_by_any(schema.name) if schema.kind is TaskKind.OP else frozenset()


def forbidden_elsewhere(ops: frozenset[str], schema: OpSchema, policy: str) -> frozenset[str]:
    """Those of some computing ops outside ATen that the policy forbids for a task."""
    if not has_policy(schema) or schema.kind.on_ranks:
        return frozenset()
    if policy == "native":
        return ops
    of_op = schema.kind is TaskKind.OP
    return frozenset(op for op in ops if of_op and namespaces.does_task(op, schema.name))


@functools.lru_cache(256)
def _forbidden_by_any(task: str) -> frozenset[str]:
    elsewhere = frozenset(op for op in namespaces.computing() if namespaces.does_task(op, task))
    return same_task(task) | elsewhere


@functools.cache
def _forbidden_collectives(task: str) -> frozenset[str]:
    """Every collective of this torch, as a dispatch mode names it; and waiting, where that is the task."""
    own = {f"_c10d_functional.{task}"} if task.startswith("wait_tensor") else set()
    return _forbidden_talk(_BETWEEN_TWO) | own


@functools.cache
def _forbidden_talk(allowed: frozenset[str]) -> frozenset[str]:
    """The ops by which ranks talk, as a dispatch mode names them, but for some packets."""
    names = {
        f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith(tuple(f"{namespace}::" for namespace in TALKING))
    }
    return frozenset(name for name in names if name.rpartition(".")[0] not in allowed)


@functools.cache
def forbidden_by_native() -> frozenset[str]:
    """Everything that computes, of all that this torch can dispatch on a CPU or a GPU, in every namespace."""
    return frozenset(op for op in aten_schemas() if computes(op)) | namespaces.computing()


def forbids_fetching(schema: OpSchema, policy: str, name: str, device: str = "cpu") -> bool:
    """Whether calling an op past the dispatcher would break the policy: nobody sees whether it is called.

    Args:
        schema: the task.
        policy: ``native`` or ``any``.
        name: of the op as the dispatcher writes it, ``aten::relu`` or ``aten::add.out``.
        device: type of the device that the kernel runs on.
    """
    namespace, _, op = name.partition("::")
    op = op if "." in op else f"{op}.default"
    if schema.kind is TaskKind.MODULE:
        # Whether the calls are those of `Model` is not seen either.
        return computes(op) if namespace == "aten" else namespace in namespaces_of_torch()
    ops = forbidden(schema, policy, device)
    if namespace == "aten":
        return op in ops
    elsewhere = policy == "native" and schema.kind is TaskKind.OP and namespace in namespaces_of_torch()
    return elsewhere or f"{namespace}.{op}" in ops


@functools.cache
def namespaces_of_torch() -> frozenset[str]:
    """Where ops are before a kernel is loaded; a kernel's own are elsewhere."""
    return frozenset(schema.name.partition("::")[0] for schema in torch._C._jit_get_all_schemas())


def _takes_tensors(schema: OpSchema) -> bool:
    """Whether the overload reads tensors; an ``out=`` is written."""
    arguments = schema.schema.partition("(")[2].rpartition(" -> ")[0]
    inputs = arguments.partition("*, ")[0] if schema.variant is Variant.OUT else arguments
    return "Tensor" in inputs
