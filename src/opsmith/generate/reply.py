"""From a reply's text to the source of a kernel."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from opsmith.core.syntax_tree import syntax_tree
from opsmith.generate.repairs import UNREADABLE, completed, defined, problem, repaired, without_tags

#: Languages of blocks that may hold a kernel, as models name them; and of those that hold a reply of their own.
_PYTHON = frozenset({"python", "py", "py3", "python3", "pycon", "triton", "tool_code", "diff", "patch", ""})
_MARKDOWN = frozenset({"markdown", "md"})
#: A tag such as ``<answer>`` on a line of its own would make HTML of the block behind it.
_PARSER = MarkdownIt("commonmark").disable("html_block")
_THOUGHTS = r"(?:\w+:)?(?:think|thinking|thought|reasoning|reflection|scratchpad)"
_REASONING = re.compile(rf"(?:<({_THOUGHTS})>.*?</\1>)|(?:\[THINK\].*?\[/THINK\])", re.DOTALL)
#: What ends it where the beginning is missing; the last one opens the answer in OpenAI's harmony format.
_REASONING_ENDS = re.compile(rf"</{_THOUGHTS}>|\[/THINK\]|<\|channel\|>final\s*<\|message\|>")
#: Marks of a chat template that a server has left in.
_MARKS = re.compile(r"<[|\uff5c][\w\u2581 ]+[|\uff5c]>")
_OPENING = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})[ \t]*[a-z]\w*[ \t]*\n", re.MULTILINE)
_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})[ \t]*$")
#: How a line of Python begins at the left margin.
_STATEMENT = re.compile(r"""(?:import|from|def|class|if|try|with|for)\b|[@#'"]|[A-Za-z_]\w*\s*(?::[^:\n]+)?=""")
#: Lines of prose around code that are cut off, one after another, before a reply is given up.
_MOST_CUTS = 64
#: Fences within a docstring before the one that ends a block.
_MOST_FENCES = 64


class NoCode(Exception):
    """There is no kernel in a reply; the message is a clause that says why."""


class _Block(NamedTuple):
    """A fenced block of code.

    Attributes:
        source: what is in it.
        line: where it begins, counted from 1.
        closed: the fence that ends it is there.
    """

    source: str
    line: int
    closed: bool


def kernel_source(text: str, name: str, *, complete: bool) -> str:
    """The Python source in a reply that defines ``name``.

    The reply is read as CommonMark. Of several code blocks that define ``name``, the last one counts: models correct
    themselves. What they thought before (``<think>``) does not count. A reply that ended by itself may leave out the
    last closing fence, or all of them.

    Args:
        text: the reply.
        name: the function or class that the file has to define.
        complete: the reply ended by itself.

    Raises:
        NoCode: no part of the reply defines ``name``.
    """
    answer = answer_of(text)
    blocks, lines = [*_blocks(answer)], answer.split("\n")
    for number in reversed(range(len(blocks))):
        for source in _readings(blocks[number], lines, complete=complete):
            if _defines(source, name):
                earlier = (block.source for block in reversed(blocks[:number]))
                return completed(source, earlier).strip("\n") + "\n"
    if complete and not any(block.closed and name in block.source for block in blocks):
        for shown in dict.fromkeys((without_tags(answer), answer)):
            found = _among_prose(shown.split("\n"), name)
            if found is not None:
                return found
    raise NoCode(_reason(answer, blocks, name, complete=complete))


def answer_of(text: str) -> str:
    """The reply without what the model thought before it, its lines ended by line feeds."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    text = _REASONING.sub("\n", text)
    # Some servers take away the tag that opens it.
    *_, answer = _REASONING_ENDS.split(text)
    return "\n".join(_texts(_MARKS.sub("\n", answer)))


def _texts(answer: str) -> list[str]:
    """The texts of an answer that is JSON, as of a tool's arguments; else the answer."""
    if not answer.lstrip().startswith(("{", "[")):
        return [answer]
    try:
        return [*_strings(json.loads(answer))] or [answer]
    except (ValueError, RecursionError):
        return [answer]


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from (text for each in value.values() for text in _strings(each))
        case list():
            yield from (text for each in value for text in _strings(each))


def _blocks(answer: str) -> Iterator[_Block]:
    lines = answer.split("\n")
    for token in _PARSER.parse(answer):
        if token.type == "code_block" and token.map is not None:  # An indented one, which what follows ends.
            yield _Block(token.content, token.map[0], closed=any(line.strip() for line in lines[token.map[1] :]))
        if token.type != "fence" or token.map is None:
            continue
        language = re.match(r"[{.\s]*([\w+-]*)", token.info.lower())
        spoken = language[1] if language else ""
        if spoken in _MARKDOWN:
            yield from _blocks(token.content)
        elif spoken == "json":
            yield from (_Block(text, token.map[0] + 1, closed=True) for text in _texts(token.content))
        elif spoken in _PYTHON:
            begin, end = token.map
            closed = end - begin > 1 and _closes(lines[end - 1], token.markup)
            yield _Block(token.content, begin + 1, closed)


def _closes(line: str, opening: str) -> bool:
    found = _FENCE.match(line)
    return found is not None and found[1].startswith(opening)


def _readings(block: _Block, lines: list[str], *, complete: bool) -> Iterator[str]:
    """What a block may be: what its fences hold, or more where a docstring holds fences, too, or less."""
    if block.closed:
        yield block.source
        if problem(block.source) is None:
            return
        fences = (end for end in range(block.line + 1, len(lines)) if _FENCE.match(lines[end]))
        for end in islice(fences, _MOST_FENCES):
            yield "\n".join(lines[block.line : end])
    elif complete:
        yield block.source
        yield from _cut(block.source.split("\n"))
    else:
        return
    # Where a block is opened in another one, the one before was given up.
    *_, begun = _OPENING.split(block.source)
    for source in dict.fromkeys((begun, block.source)):
        yield textwrap.dedent(source)
        yield from repaired(source)


def _among_prose(lines: list[str], name: str) -> str | None:
    """Source between paragraphs that no fence tells from it; the earliest line that can begin it does."""
    if not any(name in line for line in lines):
        return None
    starts = [number for number, line in enumerate(lines) if _STATEMENT.match(line)]
    for start in starts[:_MOST_CUTS]:
        for source in _cut(lines[start:]):
            if _defines(source, name):
                return source.strip("\n") + "\n"
    return None


def _cut(lines: list[str]) -> Iterator[str]:
    """The lines, without the paragraphs behind them: from a line at the left margin on that is no Python."""
    for _ in range(_MOST_CUTS):
        source = "\n".join(lines)
        found = problem(source)
        if found is None:
            yield source
        if not isinstance(found, SyntaxError) or found.lineno is None:
            return
        stop = min(found.lineno, len(lines)) - 1
        if stop < 0 or lines[stop][:1].isspace() or _STATEMENT.match(lines[stop]):
            return  # A mistake in the code: what stands before it is not all that was meant.
        lines = lines[:stop]


def _defines(source: str, name: str) -> bool:
    try:
        return name in source and name in defined(syntax_tree(source).body)
    except UNREADABLE:
        return False


def _reason(answer: str, blocks: list[_Block], name: str, *, complete: bool) -> str:
    """Why a reply has no kernel, as a clause."""
    unclosed = next((block for block in blocks if not block.closed), None)
    if not complete:
        return "the reply was cut off before its code ended; write less around the code"
    mentions = re.compile(rf"\b{re.escape(name)}\b")
    if unclosed is not None and mentions.search(unclosed.source):
        return (
            f"the code block in line {unclosed.line} has no closing fence (```), "
            f"and what follows is no Python: {_told(problem(unclosed.source))}"
        )
    for source in [*(block.source for block in reversed(blocks)), *([] if blocks else [answer])]:
        found = problem(source)
        if mentions.search(source) and found is not None:
            return f"the code is no Python: {_told(found)}"
    return f"it holds no Python code block that defines {name}"


def _told(found: Exception | None) -> str:
    if isinstance(found, SyntaxError):
        return f"line {found.lineno}: {found.msg}"
    return type(found).__name__
