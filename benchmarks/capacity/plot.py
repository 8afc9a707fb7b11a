"""Curves on logarithmic axes, as an SVG that a page can show and a diff can read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 116, 30, 20, 50
#: Colours that stay apart for colour-blind readers, and dashes that do so in print.
STYLES = (("#000000", "none"), ("#d55e00", "6 3"), ("#0072b2", "2 2"), ("#009e73", "8 3 2 3"))


def draw(devices: Sequence[int], curves: Mapping[str, Sequence[float]]) -> str:
    """An SVG of kernels an hour over devices."""
    highest = max(max(rates) for rates in curves.values())
    lowest = min(min(rates) for rates in curves.values())
    axes = _Axes(devices[-1], lowest / 2, highest * 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        'font-family="sans-serif" font-size="13">',
        "<title>Kernels judged in an hour over the number of H200s</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *axes.grid(),
    ]
    for number, ((name, rates), (colour, dashes)) in enumerate(zip(curves.items(), STYLES, strict=True)):
        stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        points = " ".join(f"{axes.x(count):.1f},{axes.y(rate):.1f}" for count, rate in zip(devices, rates, strict=True))
        y = TOP + 20 + 20 * number
        lines += [
            f'<polyline points="{points}" fill="none" {stroke}/>',
            f'<line x1="{LEFT + 12}" y1="{y}" x2="{LEFT + 48}" y2="{y}" {stroke}/>',
            f'<text x="{LEFT + 56}" y="{y + 4}">{name}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


class _Axes:
    def __init__(self, most: int, lowest: float, highest: float) -> None:
        self._most, self._lowest, self._highest = most, lowest, highest

    def x(self, devices: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(devices) / math.log(self._most)

    def y(self, rate: float) -> float:
        share = math.log(rate / self._lowest) / math.log(self._highest / self._lowest)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def grid(self) -> Iterator[str]:
        """A line and a label for each power of ten."""
        for power in range(math.ceil(math.log10(self._lowest)), math.floor(math.log10(self._highest)) + 1):
            y = self.y(10**power)
            yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>'
        for power in range(math.floor(math.log10(self._most)) + 1):
            x = self.x(10**power)
            yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>'
            yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{10**power:,}</text>'
        yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">H200s</text>'
        yield (
            f'<text x="14" y="{HEIGHT / 2}" transform="rotate(-90 14 {HEIGHT / 2})" text-anchor="middle">'
            "kernels an hour</text>"
        )
