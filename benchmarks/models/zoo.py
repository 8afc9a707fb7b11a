"""Eight models of the suite ``models`` with random weights, in inference: see :mod:`opsmith.suites.models`.

``full`` is the published configuration, or the smallest of a family; ``small`` has the same layers in the
same order, fewer and narrower, so that it runs in a fraction of a second on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
import transformers
from torch import Tensor, nn

from opsmith.suites.models import Models

Size = Literal["small", "full"]

MODELS = ("resnet50", "vit_b", "bert_base", "gpt2", "llama", "whisper_tiny", "unet", "mamba")

#: Tokens that a greedy decoder writes, each from what the cache holds of those before.
GREEDY_TOKENS = 64


class Workload(NamedTuple):
    """A model and what is asked of it.

    Attributes:
        module: in evaluation mode, in float32, on the CPU.
        inputs: by name.
        outputs: the floating-point results of one call of a module like this one.
        decode: the tokens that it writes, or None for a model that writes none.
    """

    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: Callable[[nn.Module, dict[str, Tensor]], Sequence[Tensor]]
    decode: Callable[[nn.Module, dict[str, Tensor]], Tensor] | None = None


def build(name: str, size: Size) -> Workload:
    """One of :data:`MODELS`, with the same weights and inputs each time."""
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    torch.manual_seed(0)
    made = Models().workload(name, small=size == "small")
    inputs = {key: value for key, value in made.draw().items() if isinstance(value, Tensor)}
    decode = _greedy if name == "llama" else None
    return Workload(made.module.eval(), inputs, lambda module, given: [made.results(module(**given))], decode)


def _greedy(module: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    generate: Any = module.generate
    tokens: Tensor = generate(
        **inputs,
        attention_mask=torch.ones_like(inputs["input_ids"]),
        do_sample=False,
        eos_token_id=None,
        max_new_tokens=GREEDY_TOKENS,
        pad_token_id=0,
        use_cache=True,
    )
    return tokens
