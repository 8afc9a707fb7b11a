"""Traits: what a suite says of itself to the judge, which never imports the suite.

A suite runs in a referee and may import torch. Its traits stand in a module that imports neither torch nor the suite,
and are offered under the suite's name in the entry points ``opsmith.suite_traits``::

    TRAITS = SuiteTraits(reads=Reads.DATASET, device_dtypes=("recorded",))

    [project.entry-points."opsmith.suites"]
    mine = "my_package.suite:Mine"
    [project.entry-points."opsmith.suite_traits"]
    mine = "my_package.traits:TRAITS"

A suite that offers none has the defaults of :class:`SuiteTraits`.
"""

from __future__ import annotations

import enum
import functools

import msgspec

from opsmith import plugins
from opsmith.core.dtypes import RECORDED
from opsmith.core.op import TaskKind
from opsmith.errors import BadInput


class Reads(enum.StrEnum):
    """What a suite reads. Each member has options of its own on the command line, which other suites refuse."""

    NOTHING = "nothing"  # Inputs are made by the suite. A run draws ``--sample`` from its cases.
    DATASET = "dataset"  # Inputs of real sizes: ``--dataset`` and what chooses among its inputs, ``--dtype recorded``.
    PROBLEMS = "problems"  # Files of module problems: ``--problems``, ``--trials``, ``--sizes``.


class SuiteTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge has to know of a suite before a referee loads it.

    Attributes:
        tasks: what is asked: ops, module problems, collectives or parallel problems (of ranks), or whole models (of
            columns).
        reads: what it reads.
        dtypes: asked unless ``--dtype`` says otherwise.
        device_dtypes: the same on anything but the CPU; None: as on the CPU.
        device_jobs: ops judged at a time on a device, at most; None: as many as ever pay there.
        imports_opinfo: it may use torch's OpInfo, which processes on the CPU then import once for all.
        redrawn_source: source of the cases that it can draw again, smaller (see
            :class:`~opsmith.suites.Shrinkable`); None: it can draw none.
    """

    tasks: TaskKind = TaskKind.OP
    reads: Reads = Reads.NOTHING
    dtypes: tuple[str, ...] = ("f32",)
    device_dtypes: tuple[str, ...] | None = None
    device_jobs: int | None = None
    imports_opinfo: bool = True
    redrawn_source: str | None = None

    def default_dtypes(self, device: str) -> tuple[str, ...]:
        """What is asked on a device where nobody says which dtypes."""
        return self.dtypes if device.startswith("cpu") or self.device_dtypes is None else self.device_dtypes


@functools.cache
def traits_of(suite: str) -> SuiteTraits:
    """The traits of the suite of that name; the defaults where none are offered.

    Raises:
        BadInput: what is offered does not load, or is something else; or opsmith's own are not offered.
    """
    if suite not in plugins.names(plugins.SUITE_TRAITS):
        if suite in plugins.names(plugins.SUITES) and plugins.is_ours(plugins.SUITES, suite):
            raise BadInput(
                f"opsmith was installed before its suite {suite!r} had traits: install it again (`make venv`)"
            )
        return SuiteTraits()
    traits = plugins.load(plugins.SUITE_TRAITS, suite)
    if not isinstance(traits, SuiteTraits):
        raise BadInput(f"{plugins.SUITE_TRAITS} {suite!r} is a {type(traits).__name__}; it has to be a SuiteTraits")
    return traits


DISTRIBUTED = SuiteTraits(tasks=TaskKind.COLLECTIVE, imports_opinfo=False)
FUZZ = SuiteTraits(imports_opinfo=False, redrawn_source="example")
MODELS = SuiteTraits(tasks=TaskKind.MODEL, imports_opinfo=False)
MODULES = SuiteTraits(tasks=TaskKind.MODULE, reads=Reads.PROBLEMS, imports_opinfo=False)
OPINFO = SuiteTraits()
PARALLEL = SuiteTraits(tasks=TaskKind.PARALLEL, reads=Reads.PROBLEMS, imports_opinfo=False)
SMOKE = SuiteTraits(imports_opinfo=False)
TRACES = SuiteTraits(
    reads=Reads.DATASET,
    # In float32 on the CPU, where half precision is slow and partly missing.
    device_dtypes=(RECORDED,),
    # Each holds a call's arguments and results several times over, and half of the machine's cores compare them.
    device_jobs=12,
    imports_opinfo=False,
)
