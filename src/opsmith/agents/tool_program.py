"""judge: asks the judge outside of this workspace about kernels.

    judge check FILE     is it right on every case, by its own code, honest? The kernel has to be right here first.
    judge time FILE      the same, and how fast it is
    judge profile        what PyTorch's own implementation spends its time on
    judge submit FILE    the last word, on values that nobody has seen; takes only what `judge check` accepted
    judge left           what may still be spent

Exit status 0: accepted, or told; 1: not accepted; 2: refused, with the reason.
"""

# The agent's workspace has a copy of this file, which runs without opsmith: the standard library only.
from __future__ import annotations

import json
import os
import socket
import sys

TOOLS_WITH_FILE, TOOLS_WITHOUT = ("check", "time", "submit"), ("profile", "left")


def main(words: list[str]) -> int:
    """Ask once, print the answer."""
    tool = words[0] if words else ""
    if tool in TOOLS_WITH_FILE and len(words) == 2:
        try:
            with open(words[1], encoding="utf-8") as stream:  # noqa: PTH123 - as short as can be
                source = stream.read()
        except (OSError, UnicodeDecodeError) as exc:
            sys.stderr.write(f"judge: {words[1]} cannot be read: {exc}\n")
            return 2
    elif tool in TOOLS_WITHOUT and len(words) == 1:
        source = ""
    else:
        sys.stderr.write(str(__doc__))
        return 2
    with socket.socket(socket.AF_UNIX) as judge:
        judge.connect(os.environ["OPSMITH_JUDGE"])
        judge.sendall(json.dumps({"tool": tool, "source": source}).encode() + b"\n")
        with judge.makefile("rb") as stream:
            answer = json.loads(stream.readline())
    (sys.stderr if answer["refused"] else sys.stdout).write(answer["text"].rstrip() + "\n")
    return 2 if answer["refused"] else 0 if answer["accepted"] is not False else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
