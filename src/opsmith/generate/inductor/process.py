"""``python -m opsmith.generate.inductor.process SOCKET``: holds torch's compiler and answers one call after another.

It is a process of its own because the judge's imports no torch, and because a compiler can hang or die.
"""

from __future__ import annotations

import ast
import os
import socket
import sys
from collections.abc import Callable, Sequence

import torch
import triton

from opsmith.aten.schemas import overload
from opsmith.core.syntax_tree import syntax_tree
from opsmith.generate.inductor.conditions import Unreadable
from opsmith.generate.inductor.emission import Declined, Emission, emit, triton_kernels, vector_flags
from opsmith.generate.inductor.host_code import HostCode, Unsupported, read_module
from opsmith.generate.inductor.messages import Answer, Ask, AskModule, Facts, Language, Question, Refused, Wrote
from opsmith.generate.inductor.modules import write_module
from opsmith.generate.inductor.rows import Row, TensorPattern, condition, leaf_patterns
from opsmith.generate.inductor.triton_text import NotPortable
from opsmith.runner.protocol.channel import Channel

_DEVICES = {Language.CPP: "cpu", Language.TRITON: "cuda", Language.METAL: "mps"}


def answer(asked: Question) -> Answer:
    """Write what is asked for, or say why not."""
    if isinstance(asked, AskModule):
        return _written(lambda: write_module(asked))
    # The most general row first, with numbers as arguments of the kernel; else they are written into it.
    general = _written(lambda: Wrote(_row(asked, numbers=True)))
    return general if isinstance(general, Wrote) else _written(lambda: Wrote(_row(asked, numbers=False)))


def _written(write: Callable[[], Answer]) -> Answer:
    try:
        return write()
    except Declined as exc:
        return Refused(str(exc))
    except Unsupported as exc:
        return Refused(f"the compiler answers with {exc}, which is no kernel of its own")
    except NotPortable as exc:
        return Refused(f"the compiler's kernel needs {exc}, which cannot stand in a file of its own")
    except Unreadable as exc:
        return Refused(f"the compiler assumes what no guard can ask: {exc}")


def _row(asked: Ask, *, numbers: bool) -> Row:
    device = _DEVICES[asked.language]
    emission = emit(overload(asked.op), asked.call, asked.keyword_only, device=device, numbers=numbers)
    for text in emission.conditions:
        condition(text)
    host = _host_code(emission, asked.language)
    if host.shares_memory:
        raise Declined("a result shares memory with an input")
    if not host.kernels and not emission.nothing_to_write:
        raise Declined("the compiler writes nothing to the results")
    return Row(
        patterns=emission.patterns,
        conditions=emission.conditions,
        leaves=emission.leaves,
        host=(*host.statements[:-1], _with_absent(host.statements[-1], emission.absent)),
        kernels=host.kernels,
        returns=emission.returns,
    )


def _with_absent(statement: str, places: Sequence[int]) -> str:
    """A ``return`` of a tuple with None in some places."""
    returned = syntax_tree(statement).body[0]
    assert isinstance(returned, ast.Return)
    assert isinstance(returned.value, ast.Tuple)
    for place in places:
        returned.value.elts.insert(place, ast.Constant(None))
    return ast.unparse(returned)


def _host_code(emission: Emission, language: Language) -> HostCode:
    if language is Language.CPP:
        return read_module(emission.code, inputs=emission.inputs, symbols=emission.symbols)
    tensors = [name for name, pattern in leaf_patterns(emission.patterns.items()) if isinstance(pattern, TensorPattern)]
    if not tensors:
        raise Declined("no tensor says on which device the result is wanted")
    kernels = triton_kernels(emission.code, any_size=True) if language is Language.TRITON else None
    host = read_module(emission.code, inputs=emission.inputs, symbols=emission.symbols, triton=kernels)
    if any(kernel.arguments for kernel in host.kernels):
        raise Declined("a part of it is C++ for the CPU")
    return host._replace(statements=(f"device = {tensors[0]}.device", *host.statements))


def main() -> None:
    """Serve until the other side closes the socket."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Compilers print.
    channel.send(Facts(torch=str(torch.__version__), triton=triton.__version__, vector_flags=vector_flags()))
    while True:
        try:
            asked = channel.receive(Question)
        except EOFError:
            return
        channel.send(answer(asked))


if __name__ == "__main__":
    main()
