"""A kernel directory in the layout of Hugging Face's kernel-builder, for the kernel hub.

::

    DIR/
      build.toml  CARD.md  LICENSE         for kernel-builder
      torch-ext/MODULE/                    the sources: __init__.py, layers.py, kernels/
      build/torch-cuda/                    the same as a build variant, with metadata.json

A variant is one that is not compiled ahead (``torch-noarch``): what a kernel builds it builds when it is used. Each
kernel is exported under its folder's name (``add__Tensor``), and one of a ``default`` overload under its packet's too.
``layers`` has a module for those that are an activation of ``torch.nn``.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec

from opsmith.core.op import folder_name
from opsmith.core.package import PackagedOp
from opsmith.errors import BadInput
from opsmith.packaging.kernels import Contents

#: Overload -> the class of torch.nn that calls it, and the arguments after its input.
LAYERS = {
    "gelu.default": ("GELU", ", approximate=self.approximate"),
    "hardsigmoid.default": ("Hardsigmoid", ""),
    "hardswish.default": ("Hardswish", ""),
    "mish.default": ("Mish", ""),
    "relu.default": ("ReLU", ""),
    "sigmoid.default": ("Sigmoid", ""),
    "silu.default": ("SiLU", ""),
    "tanh.default": ("Tanh", ""),
}
#: Languages whose kernels run on the CPU.
_CPU_DSLS = frozenset({"torch", "cpp", "numpy", "unknown"})
_EDITION = 5
#: Has to be one of the hub's, which are SPDX's in small letters or not.
_LICENSE = re.compile(r"[A-Za-z0-9.+-]+")


def hub_files(contents: Contents, kernel_files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Relative path -> content of the repository.

    Args:
        contents: what is packaged.
        kernel_files: path in the kernel directory -> content of the files of all kernels.

    Raises:
        BadInput: no licence is named, or a kernel's file cannot be imported by its name.
    """
    license_name = contents.package.license
    if license_name is None or not _LICENSE.fullmatch(license_name):
        raise BadInput(f"the hub takes one licence, not {license_name!r}; give one such as --license apache-2.0")
    name = contents.package.name.lower().replace("_", "-")
    module = re.sub(r"\W", "_", name)
    version = int(contents.package.version.rpartition("!")[2].partition(".")[0])
    ops = [op for op in contents.package.ops if op.kernel.derived_from is None]
    sources = {
        "__init__.py": _init(ops).encode(),
        "layers.py": _layers(ops).encode(),
        **{f"kernels/{path}": data for path, data in kernel_files.items()},
    }
    compute = "cpu" if all(op.kernel.dsl in _CPU_DSLS for op in ops) else "cuda"
    variant = {**sources, f"{module}/__init__.py": _FLATTENED.encode()}
    variant["metadata.json"] = _metadata(name, module, version, license_name, compute, variant)
    return {
        "build.toml": _build_toml(name, version, license_name, compute).encode(),
        "CARD.md": _card(name, license_name, ops).encode(),
        **contents.license_files,
        **{f"torch-ext/{module}/{path}": data for path, data in sources.items()},
        **{f"build/torch-{compute}/{path}": data for path, data in variant.items()},
    }


def write_hub(files: Mapping[str, bytes], folder: Path) -> None:
    """Write a repository; its folder may be there, but empty.

    Raises:
        BadInput: it holds something, or cannot be written.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            raise BadInput(f"{folder} is not empty; choose another --hub")
        for path, data in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    except OSError as exc:
        raise BadInput(f"{folder} cannot be written: {exc.strerror}; choose another --hub") from exc


def _init(ops: list[PackagedOp]) -> str:
    lines, exported = [], ["layers"]
    for op in ops:
        file, _, function = op.kernel.entry.rpartition(":")
        parts = (*PurePosixPath(op.kernel.root or "").parts, *PurePosixPath(file).with_suffix("").parts)
        if not all(part.isidentifier() for part in parts):
            raise BadInput(f"{'/'.join(parts)} of {op.schema.name} cannot be imported; rename it to Python names")
        known = folder_name(op.schema.name)
        lines.append(f"from .{'.'.join(parts)} import {function} as {known}")
        exported.append(known)
        packet, _, overload = op.schema.name.rpartition(".")
        if overload == "default" and packet.isidentifier() and packet != "layers":
            lines.append(f"{packet} = {known}")
            exported.append(packet)
    listed = "".join(f"    {name!r},\n" for name in exported)
    return "\n".join(lines) + f"\n\nfrom . import layers\n\n__all__ = [\n{listed}]\n"


def _layers(ops: list[PackagedOp]) -> str:
    text = "import torch\n"
    for op in ops:
        if op.schema.name in LAYERS:
            layer, arguments = LAYERS[op.schema.name]
            file, _, function = op.kernel.entry.rpartition(":")
            parts = (*PurePosixPath(op.kernel.root or "").parts, *PurePosixPath(file).with_suffix("").parts)
            default = '    approximate: str = "none"\n\n' if arguments else ""
            text += (
                f"\nfrom .{'.'.join(parts)} import {function} as _{layer.lower()}\n\n\n"
                f"class {layer}(torch.nn.Module):\n{default}"
                f"    def forward(self, input: torch.Tensor) -> torch.Tensor:\n"
                f"        return _{layer.lower()}(input{arguments})\n"
            )
    return text


#: Older versions of `kernels` look for the module in a folder of its name.
_FLATTENED = """import importlib.util
import sys
from pathlib import Path

_folder = Path(__file__).parents[1]
_name = f"_{_folder.parents[1].name}_{abs(hash(_folder))}"
_spec = importlib.util.spec_from_file_location(
    _name, _folder / "__init__.py", submodule_search_locations=[str(_folder)]
)
_module = importlib.util.module_from_spec(_spec)
sys.modules[_name] = _module
_spec.loader.exec_module(_module)
globals().update({name: getattr(_module, name) for name in _module.__all__})
__all__ = _module.__all__
"""


def _metadata(
    name: str, module: str, version: int, license_name: str, compute: str, files: Mapping[str, bytes]
) -> bytes:
    digests = {path: base64.b64encode(hashlib.sha256(data).digest()).decode() for path, data in sorted(files.items())}
    unique = hashlib.sha256(msgspec.json.encode(digests)).hexdigest()[:7]
    record = {
        "id": f"_{module}_{compute}_{unique}",
        "name": name,
        "version": version,
        "license": license_name,
        "python-depends": [],
        "backend": {"type": compute},
        "digest": {"algorithm": "sha256", "files": digests},
    }
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def _build_toml(name: str, version: int, license_name: str, compute: str) -> str:
    return (
        f'[general]\nname = "{name}"\nversion = {version}\nedition = {_EDITION}\nlicense = "{license_name}"\n'
        f'backends = ["{compute}"]\n\n[torch-noarch]\npyext = ["py", "json", "cpp", "cu", "h"]\n'
    )


def _card(name: str, license_name: str, ops: list[PackagedOp]) -> str:
    listed = "".join(f"- `{folder_name(op.schema.name)}`: `{op.schema.schema}`\n" for op in ops)
    return (
        f"---\nlibrary_name: kernels\nlicense: {license_name}\n---\n\n# {name}\n\n"
        f"Kernels for operators of PyTorch, with the arguments of these:\n\n{listed}"
    )
