"""An outcome as a process holds it: its form, and its content wherever that lies."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.calls.live import tensor_from_bytes
from opsmith.calls.transfer import Content, are_equal, as_bytes, size_of
from opsmith.core.case import Outcome, OutputOther, OutputTensor


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOutcome:
    """What one call returned and changed.

    Attributes:
        form: the outcome without its content.
        elements: of each leaf of the result; none of one that is no strided tensor.
        changed: input storage number -> its content after the call, where that differs.
    """

    form: Outcome
    elements: tuple[Content, ...]
    changed: dict[int, Content]

    @classmethod
    def of(cls, outcome: Outcome) -> HeldOutcome:
        """An outcome with all of its content."""
        elements = [output.data if isinstance(output, OutputTensor) else b"" for output in outcome.outputs]
        return cls(form=without_content(outcome), elements=tuple(elements), changed=dict(outcome.changed))

    @property
    def size_bytes(self) -> int:
        """Bytes of all content."""
        return sum(map(size_of, (*self.elements, *self.changed.values())))

    def outcome(self) -> Outcome:
        """The outcome with its content, all of which comes to the host."""
        outputs = [
            msgspec.structs.replace(output, data=as_bytes(content)) if isinstance(output, OutputTensor) else output
            for output, content in zip(self.form.outputs, self.elements, strict=True)
        ]
        changed = {number: as_bytes(content) for number, content in self.changed.items()}
        return msgspec.structs.replace(self.form, outputs=tuple(outputs), changed=changed)

    def has_results_of(self, other: HeldOutcome) -> bool:
        """Whether both returned the same, bit for bit."""
        return self.form.outputs == other.form.outputs and all(map(are_equal, self.elements, other.elements))

    def equals(self, other: HeldOutcome) -> bool:
        """Whether both are the same in form and, bit for bit, in content."""
        return (
            self.form == other.form
            and self.changed.keys() == other.changed.keys()
            and self.has_results_of(other)
            and all(are_equal(content, other.changed[number]) for number, content in self.changed.items())
        )


def without_content(outcome: Outcome) -> Outcome:
    """The form of an outcome."""
    return msgspec.structs.replace(outcome, outputs=tuple(map(_bare, outcome.outputs)), changed={})


def _bare(output: OutputTensor | OutputOther) -> OutputTensor | OutputOther:
    return msgspec.structs.replace(output, data=b"") if isinstance(output, OutputTensor) else output


def tensor_of(content: Content, output: OutputTensor) -> torch.Tensor:
    """The result with these elements: on the host if they are bytes, else where they lie.

    Raises:
        ValueError: the number of bytes does not fit dtype and shape.
    """
    if isinstance(content, bytes):
        return tensor_from_bytes(content, output.dtype, output.shape)
    return content.view(torch_dtype(output.dtype)).view(output.shape)


def elements_of(tensor: torch.Tensor) -> Content:
    """The inverse of :func:`tensor_of` for a tensor without conjugation and negation."""
    return tensor.contiguous().view(-1).view(torch.uint8)
