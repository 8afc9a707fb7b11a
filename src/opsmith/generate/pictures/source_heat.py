"""Heat over source lines: where the time of a call goes in the kernel's file."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from opsmith.core.evidence import LineTimes
from opsmith.generate.pictures.canvas import FAINT, INK, LINE, PAPER, Canvas, heat

_TOP, _ROW, _MOST_ROWS = 82, 18, 37
_CODE, _BAR = 210, 68
#: Lines around a hot one that are shown.
_AROUND = 2


class SourceHeat(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What is drawn.

    Attributes:
        title: of the picture.
        source: of the file.
        lines: what its lines took.
    """

    title: str
    source: str
    lines: LineTimes

    kind = "source"

    @property
    def caption(self) -> str:
        return f"{self.title}: the lines of its file, the darker the more time of the call they take."

    def draw(self) -> bytes:
        """The picture as PNG."""
        shown = list(self._shown())
        whole = sum(self.lines.us.values()) or 1.0
        most = max(self.lines.us.values(), default=1.0) or 1.0
        written = self.source.splitlines()
        subtitle = f"{self.lines.file}: {whole:.1f} us, line by line, the device waited for after each"
        canvas = Canvas(1024, _TOP + _ROW * len(shown) + 16, self.title, subtitle)
        before, y = 0, _TOP
        for number in shown:
            if number != before + 1 and before:
                canvas.line([(24, y), (1000, y)], LINE)
            us = self.lines.us.get(number, 0.0)
            colour = heat(us / most) if us else PAPER
            canvas.box((92, y, 1000, y + _ROW - 1), _paler(colour) if us else PAPER)
            canvas.box((92, y, 92 + _BAR * us / most, y + _ROW - 1), colour)
            canvas.text(-1, y, f"{us:.1f} us" if us else "", size=13, colour=INK, right=88)
            canvas.text(-1, y, str(number), size=13, colour=FAINT, right=_CODE - 10)
            canvas.code(_CODE, y, written[number - 1])
            before, y = number, y + _ROW
        return canvas.png()

    def _shown(self) -> Iterator[int]:
        """Line numbers: the hottest lines with those around them, as many as there is room for, in order."""
        count = len(self.source.splitlines())
        chosen: set[int] = set()
        for number in sorted(self.lines.us, key=lambda line: -self.lines.us[line]):
            around = {n for n in range(number - _AROUND, number + _AROUND + 1) if 1 <= n <= count}
            if 1 <= number <= count and len(chosen | around) <= _MOST_ROWS:
                chosen |= around
        yield from sorted(chosen) or range(1, min(count, _MOST_ROWS) + 1)


def _paler(colour: tuple[int, int, int]) -> tuple[int, int, int]:
    red, green, blue = (255 - (255 - part) // 4 for part in colour)
    return red, green, blue
