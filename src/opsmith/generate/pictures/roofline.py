"""The roofline: what share of the device's bound eager and the attempts reach, over the work of the calls."""

from __future__ import annotations

import math

import msgspec

from opsmith.generate.pictures.canvas import FAINT, INK, LINE, SERIES, Canvas, Colour, decades, ticks

_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 992, 90, 560
_ROOF: Colour = (176, 42, 24)


class RoofPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One side of one timed call.

    Attributes:
        by: whose time it is: ``PyTorch``, ``compiler``, ``attempt 2``.
        least_us: that the device needs for the call, microseconds.
        took_us: that it took.
    """

    by: str
    least_us: float
    took_us: float

    @property
    def percent(self) -> float:
        """Of what the device can do."""
        return 100 * self.least_us / self.took_us


class Roofline(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What is drawn.

    Attributes:
        title: of the picture.
        points: of all sides; the sides are drawn in the order in which they come first, the last one filled.
    """

    title: str
    points: tuple[RoofPoint, ...]

    kind = "roofline"

    @property
    def caption(self) -> str:
        return (
            f"{self.title}: the share of the device's bound that each reaches in each timed call, small calls to the "
            "left; the line at 100 % is the roof."
        )

    def draw(self) -> bytes:
        """The picture as PNG."""
        sides = list(dict.fromkeys(point.by for point in self.points))
        canvas = Canvas(1024, 700, self.title, "of each timed call: the bound (bytes or products) over the time")
        # A decade at least, or there is nothing to read off.
        middle = math.sqrt(min(p.least_us for p in self.points) * max(p.least_us for p in self.points))
        low = min(*(point.least_us / 1.5 for point in self.points), middle / 3.5)
        high = max(*(point.least_us * 1.5 for point in self.points), middle * 3.5)
        most = max(110.0, 1.1 * max(point.percent for point in self.points))

        def x(us: float) -> float:
            return _LEFT + math.log(us / low) / math.log(high / low) * (_RIGHT - _LEFT)

        def y(percent: float) -> float:
            return _BOTTOM - percent / most * (_BOTTOM - _TOP)

        for tick in ticks(0.0, most):
            canvas.line([(_LEFT, y(tick)), (_RIGHT, y(tick))])
            canvas.text(-1, y(tick) - 9, f"{tick:g} %", size=14, colour=FAINT, right=_LEFT - 8)
        for tick in decades(low, high):
            canvas.line([(x(tick), _TOP), (x(tick), _BOTTOM)])
            canvas.centred(x(tick), _BOTTOM + 6, f"{tick:g}")
        canvas.text(-1, _BOTTOM + 26, "least time that the device needs, us", size=14, colour=FAINT, right=_RIGHT)
        canvas.line([(_LEFT, y(100)), (_RIGHT, y(100))], _ROOF, width=3)
        canvas.text(_LEFT + 8, y(100) - 22, "what the device can do", size=14, colour=_ROOF)
        for place, side in enumerate(sides):
            colour, is_last = SERIES[place % len(SERIES)], place == len(sides) - 1
            own = [point for point in self.points if point.by == side]
            for point in own:
                if side == sides[0]:
                    canvas.square(x(point.least_us), y(point.percent), 6, colour)
                else:
                    canvas.dot(x(point.least_us), y(point.percent), 7, colour if is_last else None, colour)
            self._named(canvas, place, side, own, colour)
        return canvas.png()

    def _named(self, canvas: Canvas, place: int, side: str, own: list[RoofPoint], colour: Colour) -> None:
        left, top = _LEFT + (place % 4) * 230, _BOTTOM + 54 + (place // 4) * 24
        middle = math.exp(sum(math.log(point.percent) for point in own) / len(own))
        canvas.box((left, top + 3, left + 14, top + 17), colour, outline=LINE)
        canvas.text(left + 22, top, f"{side}: {middle:.0f} %", colour=INK, right=left + 225)
