"""How people spell an op: ``aten::relu``, ``torch.relu``, ``F.relu``, and names that are nearly right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from opsmith.aten.native_functions import native_names
from opsmith.core.op import matches
from opsmith.errors import BadInput, UnknownName

#: What may stand before a name, the longest first.
_PREFIXES = (
    "torch.ops.aten.",
    "ops.aten.",
    "torch.nn.functional.",
    "nn.functional.",
    "torch._C._nn.",
    "torch.special.",
    "torch.linalg.",
    "torch.Tensor.",
    "torch.",
    "th.",
    "aten::",
    "aten.",
    "Tensor.",
    "F.",
)
#: Of these namespaces torch's own names begin with another word.
_RENAMED = {"torch.special.": "special_", "torch.linalg.": "linalg_"}
#: Functions that PyTorch composes of other ops -> the op among these that a kernel answers instead.
COMPOSED = {
    "batch_norm": "native_batch_norm.default",
    "conv1d": "convolution.default",
    "conv2d": "convolution.default",
    "conv3d": "convolution.default",
    "conv_transpose1d": "convolution.default",
    "conv_transpose2d": "convolution.default",
    "conv_transpose3d": "convolution.default",
    "cross_entropy": "_log_softmax.default",
    "cross_entropy_loss": "_log_softmax.default",
    "group_norm": "native_group_norm.default",
    "instance_norm": "native_batch_norm.default",
    "interpolate": "upsample_nearest2d.default",
    "layer_norm": "native_layer_norm.default",
    "linear": "addmm.default",
    "log_softmax": "_log_softmax.default",
    "matmul": "mm.default",
    "max_pool1d": "max_pool2d_with_indices.default",
    "max_pool2d": "max_pool2d_with_indices.default",
    "max_pool3d": "max_pool3d_with_indices.default",
    "nll_loss": "nll_loss_forward.default",
    "softmax": "_softmax.default",
}


def op_pattern(text: str) -> str:
    """A pattern of ops without what people write before a name.

    ``aten::relu`` -> ``relu``; ``torch.ops.aten.add.Tensor`` -> ``add.Tensor``; ``F.gelu`` -> ``gelu``. What is no
    such spelling stays as it is.
    """
    for prefix in _PREFIXES:
        if text.startswith(prefix) and len(text) > len(prefix):
            return _RENAMED.get(prefix, "") + text.removeprefix(prefix)
    return text


def check_ops(patterns: Collection[str]) -> None:
    """Look every pattern up in torch's own list of names.

    Raises:
        UnknownName: one names no overload; says which are near.
        BadInput: one names a function that is no op, such as ``cross_entropy``.
    """
    known = native_names()
    for pattern in patterns:
        if known and not any(matches(name, pattern) for name in known):
            if pattern in COMPOSED:
                raise BadInput(composed(pattern))
            raise UnknownName("op", pattern, hint=_hint(pattern))


def composed(packet: str) -> str:
    """Why no kernel answers a function of :data:`COMPOSED`, and what to ask instead."""
    instead = COMPOSED[packet]
    return f"PyTorch composes {packet} of other ops, so no kernel answers it; its work is done by {instead}: ask that"


def _hint(name: str) -> str:
    packet, _, overload = name.partition(".")
    names = native_names()
    of_packet = sorted(known for known in names if known.rpartition(".")[0] == packet)
    if of_packet:
        close = difflib.get_close_matches(name, of_packet, n=3, cutoff=0.75)
        return f"did you mean {' or '.join(close)}?" if close else f"there is: {', '.join(of_packet)}"
    near = near_packets(packet)
    if overload:
        near = [next((full for full in (f"{one}.{overload}", f"{one}.default") if full in names), one) for one in near]
    return f"did you mean {' or '.join(near)}?" if near else "list the ops with `opsmith ops`"


def near_packets(word: str, *, most: int = 3) -> list[str]:
    """The packets that are spelled most like ``word``, nearest first: ``reul`` -> ``relu``.

    In-place and private packets come after the plain one of the same stem, which is what people mean.
    """
    packets = {name.rpartition(".")[0] for name in native_names()}
    folded = re.sub(r"[^a-z0-9]", "", word.lower())
    same = [packet for packet in packets if re.sub(r"[^a-z0-9]", "", packet.lower()) == folded]
    close = difflib.get_close_matches(word.lower(), packets, n=8, cutoff=0.6)
    swapped = [packet for packet in close if sorted(packet) == sorted(word)]
    ordered = [*sorted(same, key=lambda name: (name.startswith("_"), name.endswith("_"))), *swapped, *close]
    kept: list[str] = []
    for packet in dict.fromkeys(ordered):
        if packet.rstrip("_") not in kept:
            kept.append(packet)
    return kept[:most]
