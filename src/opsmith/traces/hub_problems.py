"""Sets of module problems on the Hugging Face hub: ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@COMMIT``.

Such a dataset has a Parquet file a level with the columns ``code``, ``level``, ``name`` and ``problem_id``. It
becomes a folder of problem files, ``level1/23_Softmax.py``, in the cache. The problems are code that referees run:
naming a dataset is trusting whoever can write to it, and a commit is what makes it the same tomorrow.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from opsmith.core.cache import cache_folder, written_folder
from opsmith.errors import BadInput
from opsmith.traces.hub import HubFile, download, endpoint

_DATASET = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([0-9a-f]{40}))?", re.ASCII)
_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


class HubProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One row of such a dataset."""

    code: str
    level: int
    name: str
    problem_id: int

    @property
    def path(self) -> str:
        """The problem's place in a folder, as the public harness has it.

        Raises:
            BadInput: the name is none for a file.
        """
        stem = self.name.removesuffix(".py")
        if not stem.startswith(f"{self.problem_id}_"):
            stem = f"{self.problem_id}_{stem}"
        if not _NAME.fullmatch(stem):
            raise BadInput(f"level {self.level} has a problem with the name {self.name!r}, which is no file's")
        return f"level{self.level}/{stem}.py"


class _Sibling(msgspec.Struct, frozen=True):
    rfilename: str


class _Listing(msgspec.Struct, frozen=True):
    """What the hub says of a dataset at a revision."""

    sha: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]
    siblings: tuple[_Sibling, ...]


def hub_problems(name: str) -> Path:
    """The folder with the problems of a dataset, made if it is not there yet.

    Raises:
        BadInput: the name has another form, or the hub does not have such a dataset, or cannot be reached.
    """
    match = _DATASET.fullmatch(name)
    if match is None or ".." in name:
        raise BadInput(f"{name} is no set of problems of the hub; write hf:OWNER/NAME or hf:OWNER/NAME@COMMIT")
    dataset, commit = match.groups()
    if commit is not None and (folder := _folder(dataset, commit)).is_dir():
        return folder
    listing = _listing(dataset, commit)
    folder = _folder(dataset, listing.sha)
    if not folder.is_dir():
        written_folder(folder, {problem.path: problem.code for problem in _problems(dataset, listing)})
    return folder


def _folder(dataset: str, commit: str) -> Path:
    return cache_folder() / "problems" / dataset / commit


def _listing(dataset: str, commit: str | None) -> _Listing:
    url = f"{endpoint()}/api/datasets/{dataset}/revision/{commit or 'main'}"
    try:
        return msgspec.json.decode(download(url), type=_Listing)
    except msgspec.DecodeError as exc:
        raise BadInput(f"{url} does not say which files there are: {exc}; give a folder of problem files") from exc


def _problems(dataset: str, listing: _Listing) -> Iterator[HubProblem]:
    files = [each.rfilename for each in listing.siblings if each.rfilename.endswith(".parquet")]
    if not files:
        raise BadInput(f"hf:{dataset} has no Parquet file, so it is no set of problems")
    for file in files:
        yield from _rows(dataset, file, download(HubFile(dataset=dataset, commit=listing.sha, file=file).url))


def _rows(dataset: str, file: str, data: bytes) -> list[HubProblem]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(data), columns=list(HubProblem.__struct_fields__))
        return msgspec.convert(table.to_pylist(), list[HubProblem])
    except (pa.ArrowException, msgspec.ValidationError) as exc:
        columns = ", ".join(HubProblem.__struct_fields__)
        reason = str(exc).partition("\n")[0]
        raise BadInput(f"{file} of hf:{dataset} holds no problems: {reason}; its columns should be {columns}") from exc
