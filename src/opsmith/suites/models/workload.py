"""A whole model with what one call of it needs, and the call itself, for referee and columns alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from opsmith.core.audit import AuditFinding, Check
from opsmith.tasks.module_call import ModuleCall, in_order
from opsmith.tasks.module_state import State, declared_state, perturbed

#: What a model is asked: a forward pass, or a training step without the optimizer.
INFER, TRAIN = "infer", "train"

Batch = dict[str, Any]


class Workload(NamedTuple):
    """A model and what is asked of it.

    Attributes:
        module: on the CPU, in float32, as it was constructed.
        draw: inputs by name, drawn from torch's generator; every batch has the shapes of the others unless the
            workload is of varying lengths.
        results: the tensors of what the module returns.
        loss: what training minimises, of those results and the batch.
        lengths: numbers of tokens of the batches, of a workload whose batches differ in them; ``draw`` takes one.
    """

    module: nn.Module
    draw: Callable[..., Batch]
    results: Callable[[Any], Any]
    loss: Callable[[Any, Batch], Tensor]
    lengths: tuple[int, ...] = ()

    def batches(self) -> list[Batch]:
        """The batches of one case: two of one shape, so that what remembers the first is found out, or all lengths."""
        return [self.draw(length) for length in self.lengths] or [self.draw(), self.draw()]

    def timed(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Of the batches those that one timed call runs."""
        return batches if self.lengths else batches[:1]


class WithLoss(nn.Module):
    """A model whose call returns its loss too, so that a compiler meets both.

    Args:
        workload: whose module and loss it takes.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.model = workload.module
        self._results, self._loss = workload.results, workload.loss

    def forward(self, **batch: Any) -> tuple[Tensor, Any]:
        results = self._results(self.model(**batch))
        return self._loss(results, batch), results


class ModelCall(ModuleCall):
    """A whole model as a function of its batches and its state.

    It returns the results of every batch and, of a training step, the losses and the gradients, summed over the
    batches: those of a layer's parameters as one tensor.

    Attributes:
        void: after a call of a model that is :attr:`examined`, why it asks nothing; None where it asks something.
        examined: whether that is looked at.

    Args:
        workload: the model; its module is put into training or evaluation mode.
        mode: :data:`INFER` or :data:`TRAIN`.
        autocast: the device type to compute on under autocast in bfloat16, or None.
        compiler: makes the module fast: ``torch.compile`` with a backend; None leaves it as it is.
    """

    def __init__(
        self,
        workload: Workload,
        mode: str,
        *,
        autocast: str | None = None,
        compiler: Callable[[nn.Module], Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__(WithLoss(workload) if mode == TRAIN else workload.module)
        self.module.train(mode == TRAIN)
        self._workload, self._is_training, self._autocast = workload, mode == TRAIN, autocast
        self._run = self.module if compiler is None else compiler(self.module)
        self._may_replay = compiler is not None and torch.cuda.is_available()

    examined = False
    void: AuditFinding | None = None

    def forward(self, *batches: Batch) -> Any:
        """Run every batch under the state that the module took last."""
        gradients: State = {}
        answers = []
        for batch in batches:
            # Cloned: a CUDA graph writes its results over those of the call before.
            answers.append(tree_map_only(Tensor, lambda leaf: leaf.detach().clone(), in_order(self._call(batch))))
            for name, parameter in self.module.named_parameters():
                if parameter.grad is not None:
                    gradients[name] = gradients[name] + parameter.grad if name in gradients else parameter.grad.clone()
            self._forget_gradients()
        if self.examined:
            self.void = void_finding(answers)
        return in_order({"results": answers, "gradients": _by_layer(gradients)} if self._is_training else answers)

    def timed(self, batches: Sequence[Batch]) -> None:
        """What stands between two looks at the clock: the calls alone, forward and backward."""
        for batch in self._workload.timed(batches):
            self._call(batch)
            self._forget_gradients()

    def _call(self, batch: Batch) -> Any:
        if self._workload.lengths:
            for tensor in tree_leaves(batch):
                torch._dynamo.maybe_mark_dynamic(tensor, 1)
        if self._may_replay:
            torch.compiler.cudagraph_mark_step_begin()
        enabled = self._autocast is not None
        with (
            torch.set_grad_enabled(self._is_training),
            torch.autocast(self._autocast or "cpu", dtype=torch.bfloat16, enabled=enabled),
        ):
            output = self._run(**batch)
        if not self._is_training:
            return self._workload.results(output)
        output[0].backward()
        return output

    def _forget_gradients(self) -> None:
        if self._is_training:
            self.module.zero_grad(set_to_none=True)


def void_finding(answers: Sequence[Any]) -> AuditFinding | None:
    """What shows that a model's answers to different batches ask nothing: no number in them, or no difference at all.

    To the bit: in a low precision the answers of a deep model with drawn weights are close to each other.
    """
    each = [[leaf for leaf in tree_leaves(answer) if isinstance(leaf, Tensor)] for answer in answers]
    floats = [leaf for leaves in each for leaf in leaves if leaf.is_floating_point() and leaf.numel()]
    if floats and not any(bool(leaf.isfinite().any()) for leaf in floats):
        return AuditFinding(check=Check.FINITE, detail="not one element of the answer is a finite number")
    first, *others = each
    if first and others and all(_equal(first, leaves) for leaves in others):
        return AuditFinding(check=Check.CONSTANT, detail=f"the answer is the same to {len(each)} different batches")
    return None


def _equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


def _by_layer(gradients: State) -> State:
    """The gradients of each layer's parameters, one after another in one tensor.

    Of some parameters the gradient is zero and what is computed is rounding alone: a bias that the next layer's
    normalisation takes out, a bias of attention's keys. It has to be small beside the gradient of the layer's weight;
    by itself it would have nothing to be small beside.
    """
    layers: dict[str, list[Tensor]] = {}
    for name, gradient in gradients.items():
        layers.setdefault(name.rpartition(".")[0], []).append(gradient.flatten())
    return {layer: torch.cat(parts) for layer, parts in layers.items()}


def other_state(module: nn.Module, generator: torch.Generator) -> State:
    """Other values for a module's parameters and buffers: no scale is 1 and no bias 0; tied tensors stay tied."""
    state = declared_state(module)
    others = {id(tensor): perturbed(tensor, generator) for tensor in state.values()}
    return {name: others[id(tensor)] for name, tensor in state.items()}


def without_dropout(module: nn.Module) -> nn.Module:
    """The same module with nothing dropped: compilers draw other random numbers than eager does."""
    for child in module.modules():
        if isinstance(child, nn.modules.dropout._DropoutNd):
            child.p = 0.0
    return module


def plain(output: Any) -> Any:
    """The results of a model that returns tensors."""
    return output


def logits(output: Any) -> Tensor:
    """The results of a model of transformers."""
    found: Tensor = output.logits
    return found


def mean_square(results: Any, _batch: Mapping[str, Any]) -> Tensor:
    """A loss that depends on every element of every result."""
    leaves = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor) and leaf.requires_grad]
    return torch.stack([leaf.float().square().mean() for leaf in leaves]).sum()


def classes(results: Tensor, _batch: Mapping[str, Any]) -> Tensor:
    """Cross entropy of ``(N, classes)``; the samples are of one class after another."""
    samples, count = results.shape
    return nn.functional.cross_entropy(results, torch.arange(samples, device=results.device) % count)


def next_token(results: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """Cross entropy of ``(N, length, vocabulary)`` with the ids that follow."""
    ids = batch["decoder_input_ids"] if "decoder_input_ids" in batch else batch["input_ids"]
    return nn.functional.cross_entropy(results[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def same_token(results: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """Cross entropy of ``(N, length, vocabulary)`` with the ids in their places."""
    return nn.functional.cross_entropy(results.flatten(0, 1), batch["input_ids"].flatten())
