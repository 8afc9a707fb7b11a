"""Provider ``command``: any program that reads a question on its standard input and prints the reply.

``command:./my-model --fast`` is run once for each question, without a shell. It reads one JSON object::

    {"messages": [{"role": "system", "content": "..."}, {"role": "user", "content": "..."}],
     "max_tokens": 8192, "temperature": 0.7, "seed": 0}

Of a question with pictures the object has a key ``pictures``: a list of ``{"caption": "...", "png": "..."}``, the file
in base64. They go with the last message.

What it prints is the reply, as text. If the whole output is a JSON object with a key ``text``, it may say more:
``{"text": "...", "usage": {"input_tokens": 900, "output_tokens": 300}}``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections import deque
from typing import IO, Annotated, Any

import msgspec

from opsmith.errors import BadInput
from opsmith.generate.chat import MOST_TOKENS, NoReply, Reply, Request, Usage

TIME_LIMIT_S = 900.0
#: With these a shell, or ``env``, says that it could not run what it was to run.
_CANNOT_RUN, _NOT_FOUND = 126, 127
#: What a program may print.
MOST_BYTES = 16 << 20
#: Of what it says on its standard error, the end is kept.
_BLOCK_BYTES, _KEPT_BLOCKS = 1 << 16, 4


class _Counted(msgspec.Struct, frozen=True):
    input_tokens: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
    output_tokens: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class _Told(msgspec.Struct, frozen=True):
    text: str
    usage: _Counted | None = None
    complete: bool = True


class CommandChat:
    """A program as a model.

    Attributes:
        takes_pictures: they are in what it reads.

    Args:
        command: the program and its arguments, as in a shell.

    Raises:
        BadInput: there is no such program.
    """

    takes_pictures = True

    def __init__(self, command: str) -> None:
        self.name = f"command:{command}"
        try:
            self._words = shlex.split(command)
        except ValueError as exc:
            raise BadInput(f"command:{command} cannot be split into words: {exc}") from exc
        if not self._words or shutil.which(self._words[0]) is None:
            raise BadInput(f"command:{command}: there is no program {self._words[0] if self._words else ''!r}")

    def ask(self, request: Request) -> Reply:
        """See :meth:`opsmith.generate.chat.ChatModel.ask`; a program is run once."""
        told: dict[str, Any] = {
            "messages": [{"role": message.role, "content": message.text} for message in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.number,
        }
        if request.pictures:
            told["pictures"] = [
                {"caption": each.caption, "png": base64.b64encode(each.png).decode()} for each in request.pictures
            ]
        question = json.dumps(told)
        try:
            program = subprocess.Popen(  # noqa: S603 - the user's own program
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as exc:
            raise BadInput(f"{self.name} cannot be run: {exc.strerror}") from exc
        return _reply(_output(self.name, program, question.encode()).decode(errors="replace"))

    def close(self) -> None:
        """Nothing is held between questions."""


def _output(name: str, program: subprocess.Popen[bytes], question: bytes) -> bytes:
    """What a program prints; ends it, and what it started, where that takes too long or is too much.

    Raises:
        BadInput: a shell could not run it.
        NoReply: it takes too long, prints too much, or fails.
    """
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stderr is not None
    said: deque[bytes] = deque(maxlen=_KEPT_BLOCKS)
    late = threading.Event()

    def end_it() -> None:
        late.set()
        _kill(program)

    clock = threading.Timer(TIME_LIMIT_S, end_it)
    helpers = [
        threading.Thread(target=_write, args=(program.stdin, question), daemon=True),
        threading.Thread(target=_drain, args=(program.stderr, said), daemon=True),
    ]
    try:
        clock.start()
        for helper in helpers:
            helper.start()
        output = program.stdout.read(MOST_BYTES + 1)
        if len(output) > MOST_BYTES:
            raise NoReply(f"the program printed more than {MOST_BYTES >> 20} MiB", may_have_cost=True)
        status = program.wait()
        if late.is_set():
            raise NoReply(f"the program did not end within {TIME_LIMIT_S:.0f} s", may_have_cost=True)
    finally:
        clock.cancel()
        _kill(program)
        program.wait()
        for helper in helpers:
            helper.join()
        for stream in (program.stdout, program.stderr):
            stream.close()
    if status:
        last = b"".join(said).decode(errors="replace").strip().splitlines()[-1:]
        why = f": {last[0][:300]}" if last else ""
        if status in (_CANNOT_RUN, _NOT_FOUND):
            raise BadInput(f"{name} cannot be run: it ended with status {status}{why}")
        raise NoReply(f"the program ended with status {status}{why}", may_have_cost=True)
    return output


def _kill(program: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, signal.SIGKILL)


def _write(stream: IO[bytes], question: bytes) -> None:
    with contextlib.suppress(OSError), stream:  # A program need not read what it is asked.
        stream.write(question)


def _drain(stream: IO[bytes], kept: deque[bytes]) -> None:
    while block := stream.read(_BLOCK_BYTES):
        kept.append(block)


def _reply(output: str) -> Reply:
    if output.lstrip().startswith("{"):
        try:
            told = msgspec.json.decode(output, type=_Told)
        except (msgspec.MsgspecError, RecursionError):
            return Reply(text=output)
        used = None if told.usage is None else Usage(told.usage.input_tokens, told.usage.output_tokens)
        return Reply(text=told.text, usage=used, complete=told.complete)
    return Reply(text=output)
