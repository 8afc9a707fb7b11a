"""A map of where a result is wrong: errors over the index space, in which tiles and tails are seen at a glance."""

from __future__ import annotations

import msgspec

from opsmith.core.evidence import ErrorMap
from opsmith.generate.pictures.canvas import FAINT, INK, LINE, Canvas, heat

_LEFT, _TOP, _WIDTH, _HEIGHT = 96, 118, 880, 500
_RIGHT_ONES = (226, 236, 230)
_STEPS = 5


class ErrorPlaces(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What is drawn.

    Attributes:
        title: of the picture.
        errors: of one result.
    """

    title: str
    errors: ErrorMap

    kind = "errors"

    @property
    def caption(self) -> str:
        return (
            f"{self.title}: where its result is off, over the indices; rows are all dimensions but the last one, "
            "columns the last one. Pale green is right, the darker the more elements of a cell are off."
        )

    def draw(self) -> bytes:
        """The picture as PNG."""
        errors = self.errors
        shape = ", ".join(map(str, errors.shape))
        wide, high = _WIDTH / errors.columns, _HEIGHT / errors.rows
        # A vector is no bar code.
        wide, high = min(wide, 8 * high), min(high, 8 * wide)
        subtitle = f"result {errors.result}, shape ({shape}); inputs {errors.inputs}"
        canvas = Canvas(1024, round(_TOP + errors.rows * high) + 112, self.title, subtitle)
        for place, share in enumerate(errors.wrong):
            row, column = divmod(place, errors.columns)
            left, top = _LEFT + column * wide, _TOP + row * high
            colour = _RIGHT_ONES if share == 0 else heat(0.25 + 0.75 * share)
            canvas.box((left, top, left + wide - (wide > 5), top + high - (high > 5)), colour)
        right, bottom = _LEFT + errors.columns * wide, _TOP + errors.rows * high
        canvas.box((_LEFT - 1, _TOP - 1, right, bottom), None, outline=LINE)
        for cell in _marks(errors.columns):
            canvas.centred(_LEFT + cell * wide, _TOP - 22, str(cell * errors.column_step))
        for cell in _marks(errors.rows):
            y = min(_TOP + cell * high, bottom) - 9
            canvas.text(-1, y, str(cell * errors.row_step), size=14, colour=FAINT, right=_LEFT - 8)
        canvas.text(24, 70, "down: all dimensions but the last; right: the last dimension", size=14, colour=FAINT)
        self._legend(canvas, bottom + 40)
        return canvas.png()

    def _legend(self, canvas: Canvas, y: float) -> None:
        canvas.box((_LEFT, y, _LEFT + 30, y + 18), _RIGHT_ONES, outline=LINE)
        canvas.text(_LEFT + 38, y, "right", colour=INK)
        for step in range(_STEPS):
            share = (step + 1) / _STEPS
            canvas.box((_LEFT + 110 + 40 * step, y, _LEFT + 150 + 40 * step, y + 18), heat(0.25 + 0.75 * share))
        canvas.text(_LEFT + 120 + 40 * _STEPS, y, "share of a cell's elements that are off, to 100 %", colour=INK)
        worst = self.errors.worst
        said = "NaN or infinite" if worst is None else f"{worst:.3g} times what is allowed"
        cells = sum(share > 0 for share in self.errors.wrong)
        canvas.text(
            _LEFT, y + 28, f"{cells} of {len(self.errors.wrong)} cells are off; the largest error: {said}", colour=INK
        )


def _marks(cells: int) -> list[int]:
    """Borders of cells that are named: at most nine, the last one included."""
    step = max(1, -(-cells // 8))
    marks = [cell for cell in range(0, cells + 1, step) if cells - cell >= step or cell == cells]
    return [*marks, cells] if marks[-1] != cells else marks
