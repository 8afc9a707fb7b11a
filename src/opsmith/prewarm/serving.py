"""A process that compiles what it is told to: ``python -m opsmith.prewarm.serving``, for a program that goes on.

It reads a :class:`~opsmith.core.compile_job.GPU` and then one :class:`~opsmith.core.compile_job.CompileJob` after the
other from standard input, and answers when one is done. It needs no GPU, and ends when standard input does.
"""

from __future__ import annotations

import contextlib
import os
import sys

import msgspec

from opsmith.core.compile_job import GPU, CompileJob, receive, send


def main() -> None:
    """Serve until nobody asks any more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # What a compiler prints is no answer.
    first = receive(sys.stdin.buffer)
    if first is None:
        return
    from opsmith.prewarm.compiling import Compiler, kernel_function

    compiler = Compiler(msgspec.msgpack.decode(first, type=GPU))
    while (message := receive(sys.stdin.buffer)) is not None:
        job = msgspec.msgpack.decode(message, type=CompileJob)
        with contextlib.suppress(Exception):  # The call itself will tell: its kernel declines, or does not compile.
            compiler.call(kernel_function(job.entry), job.call)
        send(answers, None)


if __name__ == "__main__":
    main()
