"""Files of the records in benchmarks/results, of which large ones are compressed."""

from __future__ import annotations

import gzip
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def read(path: Path) -> bytes:
    """The content of a file, or of ``NAME.gz`` in its place, which may be named as well.

    Raises:
        FileNotFoundError: there is neither.
    """
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    if plain.exists():
        return plain.read_bytes()
    return gzip.decompress(plain.with_name(f"{plain.name}.gz").read_bytes())
