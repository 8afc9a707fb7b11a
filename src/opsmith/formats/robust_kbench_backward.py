"""Backward tasks of robust-kbench: the gradients of ``forward_fn``, as the task's ``AutogradFunction`` asks for them.

A case is ``(grad_output, *arguments of forward_fn)``; right are autograd's gradients to the arguments for which
``AutogradFunction.backward`` returns one. In a solution that method itself calls ``backward_fn``, with what
``AutogradFunction.forward`` keeps for it. That is found out on meta tensors, so a solution computes no forward pass; it
has to be arguments of the call, and what follows from their shapes and from numbers.
"""

from __future__ import annotations

import ast

import msgspec

from opsmith.formats.problem_text import ADAPTER, class_text
from opsmith.formats.sources import functions

_CLASS, _MODULE = "AutogradFunction", "func_backward"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What solutions need to know of a task.

    Attributes:
        source: the text of ``func_backward.py``.
        gradients: positions of the arguments of ``forward_fn`` whose gradients are asked.
    """

    source: str
    gradients: list[int]


def gradients_of(tree: ast.Module) -> list[int] | str:
    """Positions of the arguments for which ``AutogradFunction.backward`` returns a gradient, not a literal None.

    Returns:
        ``LINE: what is wrong`` where its text does not tell.
    """
    kind = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == _CLASS), None)
    if kind is None:
        return f"1: {_CLASS} is no class"
    methods = functions(ast.Module(kind.body, []))
    missing = [name for name in ("forward", "backward") if name not in methods]
    if missing:
        return f"{kind.lineno}: {_CLASS} defines no {' and no '.join(missing)}"
    arguments = len(methods["forward"].args.posonlyargs + methods["forward"].args.args) - 1
    returns = [node for node in methods["backward"].body if isinstance(node, ast.Return)]
    if not returns:
        return f"{methods['backward'].lineno}: {_CLASS}.backward does not end with a return"
    value = returns[-1].value
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    if len(parts) != arguments:
        return (
            f"{returns[-1].lineno}: {_CLASS}.backward returns {len(parts)} gradients, and {_CLASS}.forward takes "
            f"{arguments} arguments; return a tuple with a gradient or None for each"
        )
    return [number for number, part in enumerate(parts) if not (isinstance(part, ast.Constant) and part.value is None)]


#: ``_kept(arguments)``: how to make autograd's context of a call, and the result of its forward as a meta tensor.
_CONTEXT = """
class _Context(FunctionCtx):
    @property
    def saved_tensors(self):
        return self.to_save


def _kept(arguments):
    stand_ins = [
        torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device="meta")
        if isinstance(each, torch.Tensor)
        else each
        for each in arguments
    ]
    context = _Context()
    context.needs_input_grad = tuple(position in _POSITIONS for position in range(len(arguments)))
    result = AutogradFunction.forward(context, *stand_ins)
    places = {id(each): place for place, each in enumerate(stand_ins) if isinstance(each, torch.Tensor)}
    saved = [None if each is None else places.get(id(each), -1) for each in vars(context).pop("to_save", ())]
    tensors = {name: places.get(id(each), -1) for name, each in vars(context).items() if isinstance(each, torch.Tensor)}
    if -1 in (*saved, *tensors.values()):
        raise NotImplementedError("AutogradFunction.forward keeps a tensor that is none of its arguments")
    others = {name: each for name, each in vars(context).items() if name not in tensors}
    return (saved, tensors, others), result
"""


def problem_model(gradients: list[int]) -> str:
    """The end of a problem's text: ``Model``, and ``get_inputs`` which makes its arguments with ``_arguments``."""
    return f"""

import torch
from torch.autograd.function import FunctionCtx

from opsmith.tasks.gradients import Gradients as _Gradients

_POSITIONS = {tuple(gradients)!r}
_gradients = _Gradients(forward_fn, _POSITIONS)


class Model(torch.nn.Module):
    def forward(self, grad_output, *arguments):
        return _gradients(grad_output, *arguments)


def get_inputs(setting):
    arguments = _arguments(setting)
    _, result = _kept(arguments)
    return [torch.randn(result.shape, dtype=result.dtype), *arguments]

{_CONTEXT}"""


def adapter(doc: str, head: str, record: Record) -> dict[str, str]:
    """The files of a ``ModelNew`` that has the task's ``AutogradFunction.backward`` call a function.

    Args:
        doc: what it does, in a line.
        head: statements that bind the function to ``_function``.
        record: of the task.
    """
    head = f"""from torch.autograd.function import FunctionCtx

{head}
from .{_MODULE} import AutogradFunction

_POSITIONS = {tuple(record.gradients)!r}
AutogradFunction.backward_fn = _function

#: Signature of a call -> what its context is made of.
_contexts = {{}}

{_CONTEXT}
"""
    body = """grad_output, *arguments = inputs
signature = tuple([(x.shape, x.stride(), x.dtype) if isinstance(x, torch.Tensor) else x for x in arguments])
if signature not in _contexts:
    _contexts[signature], _ = _kept(arguments)
saved, tensors, others = _contexts[signature]
context = _Context()
vars(context).update(others)
vars(context).update({name: arguments[place] for name, place in tensors.items()})
context.save_for_backward(*[None if place is None else arguments[place] for place in saved])
found = AutogradFunction.backward(context, grad_output)
found = found if isinstance(found, tuple) else (found,)
return found[0] if len(_POSITIONS) == 1 else tuple([found[position] for position in _POSITIONS])"""
    return {f"{_MODULE}.py": record.source, ADAPTER: class_text(doc, head, body)}
