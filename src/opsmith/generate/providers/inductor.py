"""Provider ``inductor``: torch's own compiler writes the kernels. No key, no price, and no GPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from opsmith.core.case import CallRecord
from opsmith.core.op import OpSchema, Variant
from opsmith.errors import BadInput
from opsmith.generate.chat import NoReply, Reply, Usage
from opsmith.generate.inductor import Compiler, Language, NothingWritten, write_kernel

_LANGUAGES = {str(language): language for language in Language}


class InductorAuthor:
    """torch's compiler as the author of kernels in C++, Triton and Metal.

    Args:
        model: nothing: there is one compiler.

    Raises:
        BadInput: a model is named.
    """

    name = "inductor"

    def __init__(self, model: str) -> None:
        if model:
            raise BadInput(f"the provider inductor has no models: write --provider inductor, not inductor:{model}")
        self._compiler = Compiler()
        self._lock = threading.Lock()

    def write(self, op: OpSchema, calls: Sequence[CallRecord], *, dsl: str, device: str, number: int) -> Reply:
        """See :meth:`opsmith.generate.chat.TaskAuthor.write`; further attempts would be the same."""
        if op.kind.of_problems or op.variant is not Variant.FUNCTIONAL:
            raise NoReply("the compiler writes functional overloads, which serve the others", may_have_cost=False)
        if dsl not in _LANGUAGES or (dsl == "cpp" and not device.startswith("cpu")):
            raise NoReply(
                f"the compiler writes cpp for the CPU, triton and metal, not {dsl} for {device}", may_have_cost=False
            )
        if number:
            raise NoReply("the compiler writes the same kernel again", may_have_cost=False)
        try:
            with self._lock:
                written = write_kernel(op, calls, compiler=self._compiler, language=_LANGUAGES[dsl])
        except NothingWritten as exc:
            raise NoReply(" ".join(str(exc).split()), may_have_cost=False) from exc
        return Reply(text=f"~~~~python\n{written.source}~~~~\n", usage=Usage(0, 0))

    def close(self) -> None:
        """End the compiler's process."""
        self._compiler.__exit__(None, None, None)
