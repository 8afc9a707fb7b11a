"""A canvas: Pillow's drawing in the few shapes that the pictures are made of. No display, no window, no browser.

Pillow is one wheel without dependencies, and has a font of its own; matplotlib would bring ten more packages, a second
of import and a global state that threads share, for axes that are a dozen lines here.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from opsmith.errors import MissingDependency

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont, ImageFont

#: What providers take without scaling it down.
MOST_WIDTH, MOST_HEIGHT = 1024, 768
Colour: TypeAlias = tuple[int, int, int]
Box: TypeAlias = tuple[float, float, float, float]

PAPER, INK, FAINT, LINE = (255, 255, 255), (28, 30, 36), (98, 104, 116), (218, 221, 227)
#: Told apart by colour-blind people too (Okabe and Ito), without yellow, which vanishes on white.
SERIES: tuple[Colour, ...] = (
    (0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0), (120, 120, 120),
)  # fmt: skip
#: From little to much.
_RAMP: tuple[Colour, ...] = ((255, 245, 214), (254, 196, 79), (236, 112, 20), (176, 42, 24), (92, 10, 38))
#: Of a column in fixed pitch, in pixels.
PITCH = 8


def require_pillow() -> None:
    """Say what to install.

    Raises:
        MissingDependency: Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401
    except ImportError as exc:
        raise MissingDependency("PIL", extra="pictures") from exc


def heat(share: float) -> Colour:
    """The colour of a share from 0 to 1."""
    place = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    part = place - low
    red, green, blue = (round(a + part * (b - a)) for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True))
    return red, green, blue


class Canvas:
    """A white sheet with a title; every text is cut to where it ends.

    Args:
        width: pixels.
        height: likewise.
        title: on top.
        subtitle: below it.
    """

    def __init__(self, width: int, height: int, title: str, subtitle: str = "") -> None:
        require_pillow()
        from PIL import Image, ImageDraw

        self.width, self.height = min(width, MOST_WIDTH), min(height, MOST_HEIGHT)
        self._image = Image.new("RGB", (self.width, self.height), PAPER)
        self._draw = ImageDraw.Draw(self._image)
        self.text(24, 16, title, size=22)
        self.text(24, 46, subtitle, size=15, colour=FAINT)

    def png(self) -> bytes:
        """The picture as a file."""
        data = io.BytesIO()
        # Few colours: a palette takes a third of the bytes.
        self._image.quantize(colors=256, method=2).save(data, "PNG", optimize=True)
        return data.getvalue()

    def text(
        self, x: float, y: float, text: str, *, size: int = 15, colour: Colour = INK, right: float | None = None
    ) -> None:
        """Text from a left upper corner, cut before ``right``; with a negative ``x`` it ends at ``right``."""
        font, shown = _font(size), _printable(text)
        if x < 0:
            assert right is not None
            self._draw.text((right - font.getlength(shown), y), shown, fill=colour, font=font)
            return
        room = (self.width - 12 if right is None else right) - x
        while shown and font.getlength(shown) > room:
            shown = f"{shown[:-4]}..." if len(shown) > 4 else ""
        self._draw.text((x, y), shown, fill=colour, font=font)

    def centred(self, x: float, y: float, text: str, *, size: int = 14, colour: Colour = FAINT) -> None:
        """Text around ``x``."""
        font, shown = _font(size), _printable(text)
        self._draw.text((x - font.getlength(shown) / 2, y), shown, fill=colour, font=font)

    def code(self, x: float, y: float, text: str, *, colour: Colour = INK) -> None:
        """Text in fixed pitch: the font has none, so each character is set by itself."""
        font = _font(13)
        for place, character in enumerate(_printable(text)):
            left = x + place * PITCH
            if left + PITCH > self.width - 8:
                return
            if character != " ":
                self._draw.text((left + (PITCH - font.getlength(character)) / 2, y), character, fill=colour, font=font)

    def box(self, box: Box, fill: Colour | None, *, outline: Colour | None = None) -> None:
        """A rectangle: left, top, right, bottom."""
        self._draw.rectangle(box, fill=fill, outline=outline)

    def line(self, points: Sequence[tuple[float, float]], colour: Colour = LINE, *, width: int = 1) -> None:
        """Lines from point to point."""
        self._draw.line(list(points), fill=colour, width=width)

    def dot(self, x: float, y: float, radius: float, fill: Colour | None, outline: Colour) -> None:
        """A disc; a ring without ``fill``."""
        self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill, outline=outline, width=2)

    def square(self, x: float, y: float, radius: float, fill: Colour) -> None:
        """A square around a point."""
        self._draw.rectangle((x - radius, y - radius, x + radius, y + radius), fill=fill)


def ticks(low: float, high: float, most: int = 8) -> Iterator[float]:
    """Round numbers from ``low`` to ``high``."""
    if high <= low:
        return
    raw = (high - low) / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
    number = math.ceil(low / step - 1e-9)
    while number * step <= high + 1e-9 * step:
        yield number * step
        number += 1


def decades(low: float, high: float) -> Iterator[float]:
    """1, 2 and 5 times the powers of ten from ``low`` to ``high``; powers alone where those are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    for power in range(first, last + 1):
        for factor in factors:
            value = factor * 10.0**power
            if low <= value <= high:
                yield value


@cache
def _font(size: int) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _printable(text: str) -> str:
    """The font has Latin letters; names of kernels may have others."""
    return "".join(character if " " <= character <= "~" else "?" for character in text)
