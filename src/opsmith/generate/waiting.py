"""``waiting.json``: the kernels of a campaign that wait for a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from opsmith.core.kernel import Kernel
from opsmith.core.run import write_atomically
from opsmith.errors import BadInput, DamagedRun

NAME, _JOURNAL = "waiting.json", "journal.sqlite"


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that waits for a review.

    Attributes:
        kernel: its record; the root is relative to the campaign's directory.
        why: what happened, in a clause.
        findings: what the judge found, as its writer reads it.
    """

    kernel: Kernel
    why: str
    findings: str


def write_waiting(out: Path, waiting: Sequence[Waiting]) -> None:
    """Write what waits in a campaign; an empty list where nothing does."""
    write_atomically(out / NAME, msgspec.json.format(msgspec.json.encode(waiting), indent=1))


def read_waiting(out: Path) -> list[Waiting]:
    """What waits; raises as :func:`waiting_kernels`."""
    try:
        return msgspec.json.decode((out / NAME).read_bytes(), type=list[Waiting])
    except FileNotFoundError:
        return []
    except msgspec.DecodeError as exc:
        raise DamagedRun(f"{out / NAME} is damaged: {exc}; `opsmith generate --resume` writes it again") from exc


def waiting_kernels(out: Path) -> list[Kernel] | None:
    """The kernels that wait, with the folders of their files; None where ``out`` is no campaign.

    Raises:
        BadInput: nothing waits.
        DamagedRun: the file is damaged.
    """
    if not (out / _JOURNAL).is_file():
        return None
    waiting = read_waiting(out)
    if not waiting:
        raise BadInput(f"nothing of {out} waits for a review; its accepted kernels are in {out / 'kernels'}")
    return [msgspec.structs.replace(each.kernel, root=str(out / (each.kernel.root or ""))) for each in waiting]
