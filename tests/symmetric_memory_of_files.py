"""Kernel directories whose symmetric memory is files in ``/dev/shm``, for a judge without GPUs.

The judge runs each rank as a process on the CPU, and Triton's interpreter runs the kernels: everything is as on GPUs
but the memory that ranks meet in.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from opsmith import pipeline

SHIPPED = Path(pipeline.__file__).parent / "kernels"

#: Written behind the module that looks for symmetric memory. Few blocks of short steps: small inputs have several.
REPLACED = """

BUFFER_BYTES, PAD_BYTES = 8 << 20, 2048
MOST_BLOCKS, STEP_BYTES = 3, 512
_met = []


def memory_of(_group_name, size_bytes):
    from types import SimpleNamespace

    assert size_bytes <= BUFFER_BYTES, size_bytes
    if _met:
        return _met[0]
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts, tables = [], []
    for size in (BUFFER_BYTES, PAD_BYTES):
        whole = torch.from_file(f"/dev/shm/of-{ranks}-{size}", shared=True, size=ranks * size, dtype=torch.uint8)
        parts.append(list(whole.view(ranks, size)))
        tables.append(torch.tensor([part.data_ptr() for part in parts[-1]]))

    def get_buffer(of, shape, dtype, storage_offset=0):
        elements = torch.Size(shape).numel()
        return parts[0][of].view(dtype)[storage_offset : storage_offset + elements].view(shape)

    addresses = {"buffer_ptrs_dev": tables[0].data_ptr(), "signal_pad_ptrs_dev": tables[1].data_ptr()}
    kept = {"kept": (parts, tables)}
    _met.append(SimpleNamespace(rank=rank, world_size=ranks, get_buffer=get_buffer, **addresses, **kept))
    return _met[0]
"""


def kernels_over_files(folder: Path) -> Path:
    """A copy of the shipped kernels that runs on CPUs; the directory."""
    directory = folder / "kernels_over_files"
    shutil.copytree(SHIPPED, directory, ignore=shutil.ignore_patterns("__pycache__"))
    with (directory / "communication" / "symmetric.py").open("a") as module:
        module.write(REPLACED)
    return directory
