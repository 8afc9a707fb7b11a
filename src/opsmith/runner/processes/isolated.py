"""One question to a process of its own, which may die or hang without anybody else."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any

#: That a process gets to end by itself once it has answered.
ENDING_TIMEOUT_S = 10.0


class NoAnswer(Exception):
    """The process gave none; the message says why, in one line."""


def too_long(timeout_s: float) -> NoAnswer:
    """Of a process that had no answer in time."""
    return NoAnswer(f"it took longer than {timeout_s:g} s; --timeout gives it more")


def answer_of(context: ForkServerContext, serve: Callable[..., None], *arguments: Any, timeout_s: float) -> bytes:
    """Run ``serve(sender, *arguments)`` in a new process, and return the bytes that it sends; it does not outlive this.

    Raises:
        NoAnswer: it took too long, or died.
    """
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(sender, *arguments), daemon=True)
    process.start()
    sender.close()
    try:
        if receiver.poll(timeout_s):
            answer = receiver.recv_bytes()
            process.join(ENDING_TIMEOUT_S)
            return answer
        raise too_long(timeout_s)
    except EOFError as exc:
        process.join()
        raise NoAnswer(f"its process ended with status {process.exitcode}") from exc
    finally:
        process.kill()
        process.join()
        receiver.close()
