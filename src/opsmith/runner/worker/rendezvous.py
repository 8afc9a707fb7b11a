"""How ranks meet: a process group that is connected before anything of a stranger's runs.

What is connected stays usable when the sandbox refuses further sockets: gloo's pairs, NCCL's communicator and the
symmetric memory of the group's workspace. So everything that ranks may need is connected here, once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from opsmith.core.op import GROUP
from opsmith.runner.protocol.rank import RankInfo
from opsmith.runner.worker.symmetric_pool import BLOCKS_BYTES, GARBAGE_BYTE, SymmetricPool
from opsmith.tasks.collectives import WAIT, overload
from opsmith.tasks.rank_arguments import grids

#: The judge's limits end what hangs; the group's own only has to be longer.
TIMEOUT = timedelta(hours=1)
#: The loopback device, which is all that a nursery's network has.
INTERFACE = "lo"
#: Symmetric memory of a group that kernels find connected, bytes: ``get_symm_mem_workspace(group_name, min_size)``.
WORKSPACE_BYTES = 256 << 20
#: The pool that this rank's kernel allocates from, where there is one.
_pool: list[SymmetricPool] = []


def meet(rank_info: RankInfo, device: torch.device) -> None:
    """Make the default process group of these ranks: gloo's for the CPU, NCCL's for CUDA.

    Returns when every rank is connected with every other one.
    """
    os.environ |= {"GLOO_SOCKET_IFNAME": INTERFACE, "NCCL_SOCKET_IFNAME": INTERFACE, "NCCL_RUNTIME_CONNECT": "0"}
    store = FileStore(str(Path(rank_info.rendezvous) / "store"), rank_info.ranks)
    on_cuda = device.type == "cuda"
    if on_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if on_cuda else "gloo",
        store=store,
        rank=rank_info.rank,
        world_size=rank_info.ranks,
        timeout=TIMEOUT,
        device_id=device if on_cuda else None,
    )
    assert dist.group.WORLD is not None
    assert dist.group.WORLD.group_name == GROUP, "a case names the group"
    if on_cuda:
        _connect_all(rank_info, device)
    for ranks in grids(rank_info.ranks) if rank_info.in_groups else ():
        group = dist.new_group(list(ranks), timeout=TIMEOUT)
        if on_cuda and rank_info.rank in ranks:
            dist.all_reduce(torch.ones(1, device=device), group=group)


def spoil_workspace() -> None:
    """Fill this rank's symmetric memory with garbage, and wait until every rank has; signals are left alone."""
    # Devices without access to each other's memory have none.
    with contextlib.suppress(RuntimeError):
        memory = _workspace()
        memory.get_buffer(memory.rank, (WORKSPACE_BYTES,), torch.uint8).fill_(GARBAGE_BYTE)
    for pool in _pool:
        pool.spoil()
    dist.barrier()


def _connected_pool(device: torch.device) -> SymmetricPool:
    """Blocks of symmetric memory in which all ranks have met, given out by torch's own functions from now on."""
    import torch.distributed._symmetric_memory as symm_mem

    blocks = []
    for size_bytes in BLOCKS_BYTES:
        content = symm_mem.empty(size_bytes, dtype=torch.uint8, device=device)
        blocks.append((content, symm_mem.rendezvous(content, dist.group.WORLD)))  # type: ignore[arg-type]
    pool = SymmetricPool(blocks)
    pool.offer(symm_mem)
    return pool


def _workspace() -> Any:
    from torch.distributed._symmetric_memory import get_symm_mem_workspace

    group: Any = GROUP  # Some versions of torch have a type of their own for it.
    return get_symm_mem_workspace(group, WORKSPACE_BYTES)


def _connect_all(rank_info: RankInfo, device: torch.device) -> None:
    """Use every kind of connection once: NCCL makes those of a kind, or to a peer, when they are first used."""
    ranks = rank_info.ranks
    one, each, even = torch.ones(1, device=device), torch.ones(ranks, device=device), [1] * ranks
    for task, arguments in (
        ("all_reduce.default", (one, "sum", GROUP)),
        ("broadcast.default", (one, 0, GROUP)),
        ("all_gather_into_tensor.default", (one, ranks, GROUP)),
        ("reduce_scatter_tensor.default", (each, "sum", ranks, GROUP)),
        ("all_to_all_single.default", (each, even, even, GROUP)),
    ):
        overload(WAIT)(overload(task)(*arguments))
    for peer in range(ranks):
        if peer != rank_info.rank:
            sent, received = torch.ones(1, device=device), torch.empty(1, device=device)
            both = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, peer)]
            for work in dist.batch_isend_irecv(both):
                work.wait()
    dist.barrier()
    # Devices without access to each other's memory have no symmetric memory; what needs it fails there.
    with contextlib.suppress(RuntimeError), _temporary_folder(rank_info.rendezvous):
        _workspace().barrier()
        if rank_info.in_groups:
            _pool.append(_connected_pool(device))
    torch.cuda.synchronize(device)


@contextlib.contextmanager
def _temporary_folder(folder: str) -> Iterator[None]:
    """Ranks hand each other their memory through sockets in the temporary folder, which has to be the same."""
    before = os.environ["TMPDIR"]
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        os.environ["TMPDIR"] = before
