"""A typed conversation with a referee, which is replaced when it dies."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.run import Selection
from opsmith.errors import ProtocolError, RefereeFailed
from opsmith.runner.processes.children import Child, Processes
from opsmith.runner.processes.failures import (
    RefereeDied,
    RefereeHung,
    describe_end,
)
from opsmith.runner.processes.zygote_link import ZygoteGone
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.referee_messages import Compare, MakeVariants, Prepare, RefereeError, RefereeReply, Shrink
from opsmith.runner.protocol.timing_messages import GiveMemoryBack, MemoryGivenBack, answer_spin_s, waits_awake

#: Arguments of a request's cases that eager is asked about under its shorter limit.
SMALL_CALLS_BYTES = 8 << 20


class RefereeLink:
    """A referee that is replaced when it dies.

    Attributes:
        waits_awake: whether the judge does, for the reply to a block.
        wall_us: microseconds from the last request to its reply.
    """

    _numbers = itertools.count()

    def __init__(
        self,
        processes: Processes,
        spool: Path,
        *,
        device: str,
        builds: Path,
        threads: int,
        limits: Limits,
        selection: Selection | None = None,
        ops: Sequence[str] = (),
    ) -> None:
        self._processes = processes
        self._config = {
            "device": device,
            "spool": str(spool),
            "builds": str(builds),
            "threads": threads,
            "selection": msgspec.to_builtins(selection or Selection()),
            "ops": tuple(ops),
        }
        self._limits = limits
        self._limit_s = self._prepared_limit_s = limits.referee_s
        self.waits_awake = waits_awake(device)
        self.wall_us = 0.0
        self._child: Child | None = None

    def _start(self) -> None:
        self._child = self._processes.fork("referee", {**self._config, "number": next(self._numbers)})

    def ask(self, request: msgspec.Struct, reply_type: type[Any] | tuple[type[Any], ...]) -> Any:
        """Send a request and wait for its reply; :meth:`send`, then :meth:`receive`."""
        self.send(request)
        return self.receive(reply_type)

    @property
    def is_running(self) -> bool:
        """Whether there is a process, which the first request starts."""
        return self._child is not None

    @property
    def pid(self) -> int:
        """The process that answered last."""
        assert self._child is not None
        return self._child.pid

    def send(self, request: msgspec.Struct) -> None:
        """Send a request; its reply has to be received before the next one is sent.

        Raises:
            RefereeDied: the process died or hung; the next request goes to a new one.
        """
        if self._child is None:
            self._start()
        assert self._child is not None
        self._child.channel.spin_s = answer_spin_s(request) if self.waits_awake else 0.0
        with self._watching(self._child):
            self._limit_s = self._limit_of(request)
            self._child.channel.send(request, self._limit_s)

    def has_answered(self, timeout_s: float) -> bool:
        """Wait a while for the reply to the last request, or for the end of the process."""
        assert self._child is not None
        return self._child.has_spoken(timeout_s)

    def receive(self, reply_type: type[Any] | tuple[type[Any], ...]) -> Any:
        """Wait for the reply to the last request.

        Raises:
            RefereeDied: the process died or hung; the next request goes to a new one.
            RefereeFailed: the referee's own code raised; it lives on, unless it has lost its device.
        """
        assert self._child is not None
        with self._watching(self._child):
            reply = self._child.channel.receive(RefereeReply, self._limit_s)
            self.wall_us = self._child.channel.wall_us
        if isinstance(reply, RefereeError):
            if reply.ends:
                self.close()
            raise RefereeFailed(f"{reply.message}\n{reply.traceback}")
        assert isinstance(reply, reply_type), reply
        return reply

    def give_memory_back(self) -> None:
        """Give the device what is kept for the next case; what was prepared is gone."""
        if self._child is not None:
            with contextlib.suppress(RefereeDied, RefereeFailed):
                self.ask(GiveMemoryBack(), MemoryGivenBack)

    def _limit_of(self, request: msgspec.Struct) -> float:
        """Seconds that a request may take. What is compared was prepared before, with the same limit."""
        if isinstance(request, Prepare):
            size_bytes = sum(item.case.size_bytes for item in request.cases)
            self._prepared_limit_s = self._limits.eager_s if size_bytes <= SMALL_CALLS_BYTES else self._limits.referee_s
        if isinstance(request, Prepare | Compare):
            return self._prepared_limit_s
        # Variants are made from small calls alone.
        has_less = isinstance(request, MakeVariants | Shrink | GiveMemoryBack)
        return self._limits.eager_s if has_less else self._limits.referee_s

    @contextlib.contextmanager
    def _watching(self, child: Child) -> Iterator[None]:
        try:
            yield
        except TimeoutError as exc:
            self.close()
            raise RefereeHung(f"no answer within {self._limit_s:g} s") from exc
        except (OSError, EOFError, ProtocolError) as exc:
            lines = child.last_output().strip().splitlines()
            detail = f"{describe_end(child, exc)}{f' ({lines[-1]})' if lines else ''}"
            self.close()
            if self._processes.is_lost(child):
                raise ZygoteGone from exc
            raise RefereeDied(detail) from exc

    def close(self) -> None:
        if self._child is not None:
            self._processes.discard(self._child)
            self._child = None
