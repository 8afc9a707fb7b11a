"""Text that strangers wrote, made safe to show.

Messages, tracebacks and file names come from judged kernels. In a terminal, control characters
could rewrite what stands above them; on a page, invisible ones could turn a command around.
Escaping for HTML is the template's and the page script's business.
"""

from __future__ import annotations

#: Characters of one text that a table or the page shows.
SHOWN_CHARACTERS = 1_000


def printable(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """Return ``text`` with every unprintable character but the newline as its escape.

    Text longer than ``limit`` keeps its beginning and its end and says how much is left out:
    a traceback's last line is the one that matters.
    """
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]} [… {len(text) - 2 * half:,} characters left out …] {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def one_line(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """As :func:`printable`, with newlines and runs of blanks made one space."""
    return printable(" ".join(text.split()), limit)
