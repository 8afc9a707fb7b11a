"""A package of kernels: which ones go in, under which licence, and what else the wheel holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import torch

import opsmith
from opsmith import plugins
from opsmith.backends import manifest
from opsmith.backends.directory import KernelDirectory
from opsmith.core import package
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.core.package import Package, PackagedOp
from opsmith.devices.kind import ACCELERATOR_DSLS
from opsmith.dispatch.exclusions import REASONS, why_excluded
from opsmith.dispatch.selection import offered
from opsmith.errors import BadInput
from opsmith.packaging import judged
from opsmith.packaging.judged import Judged, JudgedRun
from opsmith.packaging.wheel import Metadata, wheel
from opsmith.reviews.book import NAME as REVIEWS
from opsmith.reviews.book import ReviewBook, why_not_approved
from opsmith.reviews.records import Review

#: The folder of the kernel directory inside the package.
_KERNELS = "kernels"
_LICENSE_FILES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*")

_INIT = '''"""Kernels that ``import torch`` enables and ``opsmith.active()`` shows; packaged by opsmith."""

from __future__ import annotations

import os
from pathlib import Path

#: The folder that ``opsmith run --backend {name}`` judges.
KERNELS = "{kernels}"


def activate() -> None:
    """Enable the kernels. torch calls this while it is imported, and an exception would end that."""
    if os.environ.get("{off}") == "1":
        return
    try:
        from opsmith.dispatch import deferred
    except ImportError as exc:
        import logging

        logging.getLogger("opsmith").warning("the kernels of the package {name} are off: %s", exc)
        return
    deferred.activate(Path(__file__).parent, name="{name}", on_gpu_only={on_gpu_only})
'''


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into a package.

    Attributes:
        package: what it serves.
        left_out: overloads that the directory answers and the package does not serve, with the reason.
        judged: the run that accepted the kernels, or None.
        license_files: name -> content.
        directory: the kernel directory.
        reviews: those that approved the kernels, where only approved ones were asked for.
    """

    package: Package
    left_out: dict[str, str]
    judged: Judged | None
    license_files: dict[str, bytes]
    directory: Path
    reviews: tuple[Review, ...] = ()

    @property
    def metadata(self) -> Metadata:
        """What installers read."""
        name = self.package.name
        module = _module(name)
        return Metadata(
            name=name,
            version=self.package.version,
            summary=f"Kernels for {len(self.package.ops)} operators of PyTorch",
            description=_description(self.package, self.judged),
            license=self.package.license,
            license_files=self.license_files,
            requires=(f"opsmith>={opsmith.__version__}",),
            entry_points={
                "torch.backends": {name: f"{module}:activate"},
                plugins.KERNELS: {name: f"{module}:KERNELS"},
            },
        )

    def wheel(self) -> bytes:
        """The archive.

        Raises:
            BadInput: a file cannot be read.
        """
        module = _module(self.package.name)
        files = {
            "__init__.py": self._init(),
            package.NAME: _document(self.package),
            **{f"{_KERNELS}/{path}": data for path, data in self.kernel_files().items()},
        }
        if self.reviews:
            lines = (msgspec.json.encode(review) + b"\n" for review in self.reviews)
            files[f"{_KERNELS}/{REVIEWS}"] = b"".join(lines)
        if self.judged is not None:
            files[judged.NAME] = _document(self.judged)
        return wheel(self.metadata, {f"{module}/{path}": data for path, data in files.items()})

    def _init(self) -> bytes:
        names = {"name": self.package.name, "kernels": _KERNELS, "off": package.OFF_VARIABLE}
        on_gpu_only = all(op.kernel.dsl in ACCELERATOR_DSLS for op in self.package.ops)
        return _INIT.format(**names, on_gpu_only=on_gpu_only).encode()

    def kernel_files(self) -> dict[str, bytes]:
        """The files that belong to a kernel that is served, and the manifest.

        Raises:
            BadInput: a file cannot be read.
        """
        kernels = (op.kernel for op in self.package.ops)
        paths = {Path(kernel.root or "").relative_to(_KERNELS) / file for kernel in kernels for file in kernel.files}
        if (self.directory / manifest.NAME).exists():
            paths.add(Path(manifest.NAME))
        return {path.as_posix(): _content(self.directory / path) for path in sorted(paths)}


def collect(
    directory: Path,
    *,
    name: str | None = None,
    version: str = "1.0",
    license: str | None = None,  # noqa: A002 - what the field is called everywhere
    ops: Iterable[str] | None = None,
    run: Path | None = None,
    approved: bool = False,
) -> Contents:
    """Choose what goes into a package of the kernels in ``directory``; nothing is imported or run.

    Args:
        directory: a kernel directory.
        name: of the package; by default the directory's.
        version: of the package.
        license: SPDX expression of all kernels; by default what the manifest says of each.
        ops: patterns of overloads; all by default.
        run: a run that judged the directory: only what it accepted goes in.
        approved: only what people approved, as it is now, goes in; reviews are read beside the directory's kernels
            and in the run.

    Raises:
        BadInput: there is no kernel to package, no licence is known, a kernel is not the one that was judged, or
            the name or version is none of a package.
        UnknownName: a pattern that matches no overload.
    """
    directory = directory.resolve()
    name = directory.name if name is None else name
    if name in plugins.names(plugins.BACKENDS) and plugins.is_ours(plugins.BACKENDS, name):
        raise BadInput(f"{name!r} is a backend of opsmith's own; give another --name")
    judged_run = None if run is None else JudgedRun(run)
    found = offered(KernelDirectory(directory, name=name), None if ops is None else tuple(ops), ())
    reviews = tuple(_reviews(directory, run)) if approved else None
    left_out = {
        schema.name: reason
        for schema, kernel in found
        if (reason := _why_left_out(schema, kernel, judged_run, reviews)) is not None
    }
    served = [_packaged(schema, kernel, directory) for schema, kernel in found if schema.name not in left_out]
    if not served:
        raise BadInput(_nothing_to_package(directory, left_out))
    license_files = _license_files(directory)
    return Contents(
        package=Package(
            name=name,
            version=version,
            opsmith=opsmith.__version__,
            torch=str(torch.__version__),
            license=license or _license(directory, served, license_files),
            ops=tuple(served),
        ),
        left_out=left_out,
        judged=None if judged_run is None else judged_run.record(op.schema.name for op in served),
        license_files=license_files,
        directory=directory,
        reviews=() if reviews is None else tuple(each for each in reviews if each.task in _reviewed_ops(served)),
    )


def _reviewed_ops(served: Iterable[PackagedOp]) -> set[str]:
    return {op.kernel.derived_from or op.kernel.task for op in served}


def _reviews(directory: Path, run: Path | None) -> Iterator[Review]:
    """What people said, each review once."""
    books = [ReviewBook(folder).reviews() for folder in (directory, *([run] if run is not None else []))]
    yield from {review.id: review for book in books for review in book}.values()


def _why_left_out(
    schema: OpSchema, kernel: Kernel, run: JudgedRun | None, reviews: Iterable[Review] | None
) -> str | None:
    if (excluded := why_excluded(schema)) is not None:
        return f"left to PyTorch: {REASONS[excluded]}"
    if kernel.entry.rpartition(":")[0] not in kernel.files:
        return f"its file {kernel.entry.rpartition(':')[0]} is missing"
    if run is not None and (reason := run.why_refused(kernel)) is not None:
        return reason
    return None if reviews is None else why_not_approved(reviews, kernel)


def _packaged(schema: OpSchema, kernel: Kernel, directory: Path) -> PackagedOp:
    root = _KERNELS / Path(kernel.root or directory).relative_to(directory)
    return PackagedOp(
        schema=schema,
        kernel=msgspec.structs.replace(kernel, root=root.as_posix()),
        content_hash=kernel.content_hash,
    )


def _nothing_to_package(directory: Path, left_out: dict[str, str]) -> str:
    if not left_out:
        return f"{directory} has no such kernel; `opsmith ops --backend {directory}` lists what it answers"
    op, reason = next(iter(left_out.items()))
    return f"no kernel of {directory} can be packaged; of {len(left_out)} ops the first is {op}: {reason}"


def _license_files(directory: Path) -> dict[str, bytes]:
    paths = {path for pattern in _LICENSE_FILES for path in directory.glob(pattern) if path.is_file()}
    return {path.name: _content(path) for path in sorted(paths)}


def _license(directory: Path, served: Iterable[PackagedOp], files: dict[str, bytes]) -> str | None:
    """The SPDX expression that the manifest's entries make together, or None where a file tells.

    Raises:
        BadInput: no licence is known of some kernel.
    """
    told = {op.schema.name: op.kernel.provenance.license for op in served}
    unknown = [op for op, one in told.items() if one is None]
    if not unknown:
        distinct = sorted({one for one in told.values() if one is not None})
        if len(distinct) == 1:
            return distinct[0]
        return " AND ".join(f"({one})" if " " in one else one for one in distinct)
    if files:
        return None
    raise BadInput(
        f"no licence is known of the kernel of {unknown[0]}; put a LICENSE file into {directory}, a license into its "
        "provenance, or give --license SPDX"
    )


def _module(name: str) -> str:
    """The import name: one of its own, so that a package called ``numpy`` hides nothing."""
    return "opsmith_kernels_" + "".join(character if character.isalnum() else "_" for character in name.lower())


def _description(contents: Package, verdicts: Judged | None) -> str:
    authors = sorted({op.kernel.provenance.author for op in contents.ops if op.kernel.provenance.author})
    lines = [
        f"# {contents.name}",
        "",
        f"Kernels that PyTorch uses once this package is installed. `{package.OFF_VARIABLE}=1` turns them off,",
        "`python -c 'import torch, opsmith; print(opsmith.active())'` shows them.",
        *([f"\nWritten by {', '.join(authors)}."] if authors else []),
        *([] if verdicts is None else [f"\nJudged with `{' '.join(verdicts.run.command)}`."]),
        "",
        *(f"- `{op.schema.name}`: {op.kernel.dsl}, {op.content_hash}" for op in contents.ops),
    ]
    return "\n".join(lines) + "\n"


def _document(record: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
