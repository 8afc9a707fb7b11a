"""Where compilers keep what they build: a folder of its own for each kernel, and one for eager."""

from __future__ import annotations

import os
from pathlib import Path

from opsmith.runner.child.triton_start import place_driver_module

#: Name of eager's own folder.
EAGER = "eager"

#: The variables by which compilers are told, and the folders that they get.
_FOLDERS = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "PYTORCH_KERNEL_CACHE_PATH": "jiterator",  # Eager's own: some CUDA kernels are compiled at their first call.
}

#: These are not made by who uses them.
_MUST_EXIST = ("extensions", "jiterator")


def use_build_cache(folder: Path) -> None:
    """Point every compiler of this process at a cache below ``folder``, which begins with what all kernels need."""
    for variable, name in _FOLDERS.items():
        os.environ[variable] = str(folder / name)
    for name in _MUST_EXIST:
        (folder / name).mkdir(parents=True, exist_ok=True)
    place_driver_module(folder / _FOLDERS["TRITON_CACHE_DIR"])
