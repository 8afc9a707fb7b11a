"""The judge's side of the compiling process: time limits, restarts and a cache of what was written before."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import TracebackType
from typing import Self

import msgspec

from opsmith.core.cache import cache_folder
from opsmith.core.case import digest
from opsmith.core.run import write_atomically
from opsmith.errors import InternalError
from opsmith.generate.inductor.messages import Answer, Facts, Question, Refused
from opsmith.runner.protocol.channel import Channel

#: Goes up when the same question gets another answer from the same torch.
_EDITION = 9
#: A row takes a third of a second; what takes this long does not end.
ROW_LIMIT_S = 60.0
START_LIMIT_S = 180.0
#: One call may be too much for the compiler; this many are a mistake of ours.
MOST_DEATHS = 3


class CompilerDied(InternalError):
    """The process that holds torch's compiler does not start, or dies again and again."""


class Compiler:
    """Asks torch's compiler for one row at a time; a context manager.

    The process starts with the first question that the cache does not answer. One that does not
    answer in time is killed, the call is refused, and the next question starts another.

    Args:
        row_limit_s: for one question.
    """

    def __init__(self, *, row_limit_s: float = ROW_LIMIT_S) -> None:
        self._row_limit_s = row_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._facts: Facts | None = None
        self._deaths = 0
        self._decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop()

    @property
    def facts(self) -> Facts:
        """About the compiler.

        Raises:
            CompilerDied: it does not start.
        """
        if self._facts is None:
            self._start()
        assert self._facts is not None
        return self._facts

    def ask(self, question: Question) -> Answer:
        """Have a row or a module written.

        Raises:
            CompilerDied: see there.
        """
        kept = cache_folder() / "inductor" / f"{self._key(question)}.msgpack"
        try:
            return self._decoder.decode(kept.read_bytes())
        except (OSError, msgspec.DecodeError):
            pass  # Not asked before, or damaged: ask again.
        if self._channel is None:
            self._start()
        assert self._channel is not None
        try:
            self._channel.send(question)
            reply: Answer = self._channel.receive(Answer, self._row_limit_s)
        except TimeoutError:
            self._stop()
            return Refused(f"the compiler did not finish within {self._row_limit_s:g} s")
        except (EOFError, OSError) as exc:
            self._stop()
            self._deaths += 1
            if self._deaths >= MOST_DEATHS:
                raise CompilerDied(f"torch's compiler died {MOST_DEATHS} times; the lines above say why") from exc
            return Refused("the compiler died of this call")
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, msgspec.msgpack.encode(reply))
        return reply

    def _key(self, question: Question) -> str:
        return digest(msgspec.msgpack.encode((_EDITION, self.facts, question)))

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # Kernels are looked at, not run; in Triton's interpreter they would be other objects.
            own = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "0"}
            environment = {**os.environ, **own}
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "opsmith.generate.inductor.process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._channel = Channel(ours)
        try:
            self._facts = self._channel.receive(Facts, START_LIMIT_S)
        except (EOFError, TimeoutError) as exc:
            self._stop()
            raise CompilerDied("torch's compiler does not start; the lines above say why") from exc

    def _stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
