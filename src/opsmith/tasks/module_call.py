"""A module as a function of its inputs and its state, for worker and referee alike.

``call(*inputs, state=state)`` copies the state into the module, runs forward and writes what forward
changed in the module back into the tensors of ``state``. So whatever watches the arguments of an
op's call also sees what a module did to its parameters and buffers. Without a state the module runs with what it
holds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.calls.observer import sorted_items
from opsmith.tasks.entry import enter
from opsmith.tasks.module_state import State, declared_state, differences, equal, hidden_state

#: A solution's own way to take the reference's state: ``load_reference_state(state)``.
OWN_WAY = "load_reference_state"
#: Model and ModelNew are constructed under it, as the public harness does; it is no secret.
CONSTRUCTION_SEED = 42
#: Mismatching names that a message lists.
MOST_NAMES = 8


class ModuleCall:
    """Calls a module under a given state; the caller has turned gradients off.

    A module that defines ``load_reference_state(state)`` takes the state in its own way. What it
    holds under the reference's name, shape and values is written back as for any other;
    what it holds otherwise it has to write into the tensors of ``state`` itself.

    Attributes:
        module: the module that is called.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._held: tuple[str, ...] = ()

    def __call__(self, *inputs: Any, state: State | None = None) -> Any:
        if state is None:
            return self.forward(*inputs)
        self.take(state)
        result = self.forward(*inputs)
        self.give_back(state)
        return result

    def take(self, state: State) -> None:
        """Copy the state into the module, whose tensors take on its dtypes and its device.

        Raises:
            NotImplementedError: names or shapes differ; the message names them.
        """
        if hasattr(self.module, OWN_WAY):
            getattr(self.module, OWN_WAY)(state)
            own = self._tensors()
            self._held = tuple(name for name in state if name in own and equal(own[name], state[name]))
            return
        declared, hidden = declared_state(self.module), hidden_state(self.module)
        problems = list(differences(state, declared, hidden))
        if problems:
            more = f" and {len(problems) - MOST_NAMES} more" if len(problems) > MOST_NAMES else ""
            raise NotImplementedError(
                f"the parameters and buffers are not those of Model: {', '.join(problems[:MOST_NAMES])}{more}; "
                f"declare them alike, or define {OWN_WAY}(state)"
            )
        own = hidden | declared
        for name, value in state.items():
            tensor = own[name]
            if tensor.dtype != value.dtype or tensor.device != value.device:
                tensor.data = tensor.data.to(value.device, value.dtype)
            tensor.copy_(value)
        self._held = tuple(state)

    def forward(self, *inputs: Any) -> Any:
        """Run the module under the state that it took last; see :func:`in_order`."""
        return in_order(enter(self.module, *inputs))

    def give_back(self, state: State) -> None:
        """Write what the module holds of the state into the tensors of ``state``."""
        own = self._tensors()
        for name in self._held:
            tensor = own.get(name)
            if tensor is not None and tensor is not state[name] and tensor.shape == state[name].shape:
                state[name].copy_(tensor)

    def _tensors(self) -> State:
        return hidden_state(self.module) | declared_state(self.module)


def in_order(result: Any) -> Any:
    """The result with dicts of any class as plain dicts, sorted by key: their order means nothing."""
    if isinstance(result, dict):
        return {key: in_order(value) for key, value in sorted_items(result)}
    if isinstance(result, (list, tuple)):
        return tuple([in_order(item) for item in result])
    return result


class ReferenceCall(ModuleCall):
    """A problem's own Model, which remembers what it called.

    Attributes:
        calls: the overloads that the last forward called at the top level, in order.
    """

    calls: tuple[str, ...] = ()

    def forward(self, *inputs: Any) -> Any:
        with CallSequence() as sequence:
            result = super().forward(*inputs)
        self.calls = tuple(sequence.names)
        return result


class CallSequence(TorchDispatchMode):
    """Writes down the names of the overloads that are dispatched while it is active.

    Names of other namespaces than ATen's keep theirs: ``mylib::op.default``.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        schema = func._schema
        self.names.append(f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}")
        return func(*args, **(kwargs or {}))
