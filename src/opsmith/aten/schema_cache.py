"""The schemas of this torch, kept between processes: reading them takes more than a second.

Only what enables kernels uses them. What judges reads torch's own, since a file in the user's cache is no evidence.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib

import msgspec
import torch

import opsmith
from opsmith.aten.schemas import aten_schemas
from opsmith.core.cache import cache_folder
from opsmith.core.op import OpSchema
from opsmith.core.run import write_atomically


@functools.cache
def kept_schemas() -> dict[str, OpSchema]:
    """As :func:`~opsmith.aten.schemas.aten_schemas`; a file that is missing or damaged is made again."""
    texts = [str(schema) for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")]
    known_by = "\n".join([opsmith.__version__, str(torch.__version__), *texts])
    digest = hashlib.blake2b(known_by.encode(), digest_size=8).hexdigest()
    path = cache_folder() / "schemas" / f"{digest}.msgpack"
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.msgpack.decode(path.read_bytes(), type=dict[str, OpSchema])
    schemas = aten_schemas()
    with contextlib.suppress(OSError):  # A folder that cannot be written to costs the time, nothing else.
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.msgpack.encode(schemas))
    return schemas
