"""Provider ``command``: any program that reads a question on its standard input and prints the reply.

``command:./my-model --fast`` is run once for each question, without a shell. It reads one JSON object::

    {"messages": [{"role": "system", "content": "..."}, {"role": "user", "content": "..."}],
     "max_tokens": 8192, "temperature": 0.7, "seed": 0}

What it prints is the reply, as text. If the whole output is a JSON object with a key ``text``, it may say more:
``{"text": "...", "usage": {"input_tokens": 900, "output_tokens": 300}}``.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from typing import Annotated

import msgspec

from opsmith.errors import BadInput
from opsmith.generate.chat import MOST_TOKENS, NoReply, Reply, Request, Usage

TIME_LIMIT_S = 900.0
#: With these a shell, or ``env``, says that it could not run what it was to run.
_CANNOT_RUN, _NOT_FOUND = 126, 127


class _Counted(msgspec.Struct, frozen=True):
    input_tokens: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
    output_tokens: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class _Told(msgspec.Struct, frozen=True):
    text: str
    usage: _Counted | None = None
    complete: bool = True


class CommandChat:
    """A program as a model.

    Args:
        command: the program and its arguments, as in a shell.

    Raises:
        BadInput: there is no such program.
    """

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
        question = json.dumps(
            {
                "messages": [{"role": message.role, "content": message.text} for message in request.messages],
                "max_tokens": request.max_tokens,
                "temperature": request.temperature,
                "seed": request.number,
            }
        )
        try:
            ended = subprocess.run(  # noqa: S603 - the user's own program
                self._words, input=question.encode(), capture_output=True, timeout=TIME_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as exc:
            raise NoReply(f"the program did not end within {TIME_LIMIT_S:.0f} s", may_have_cost=True) from exc
        except OSError as exc:
            raise BadInput(f"{self.name} cannot be run: {exc.strerror}") from exc
        if ended.returncode in (_CANNOT_RUN, _NOT_FOUND):
            raise BadInput(f"{self.name} cannot be run: it ended with status {ended.returncode}{_last_line(ended)}")
        if ended.returncode:
            raise NoReply(f"the program ended with status {ended.returncode}{_last_line(ended)}", may_have_cost=True)
        return _reply(ended.stdout.decode(errors="replace"))

    def close(self) -> None:
        """Nothing is held between questions."""


def _last_line(ended: subprocess.CompletedProcess[bytes]) -> str:
    last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
    return f": {last[0][:300]}" if last else ""


def _reply(output: str) -> Reply:
    if output.lstrip().startswith("{"):
        try:
            told = msgspec.json.decode(output, type=_Told)
        except (msgspec.MsgspecError, RecursionError):
            return Reply(text=output)
        used = None if told.usage is None else Usage(told.usage.input_tokens, told.usage.output_tokens)
        return Reply(text=told.text, usage=used, complete=told.complete)
    return Reply(text=output)
