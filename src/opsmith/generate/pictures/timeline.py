"""The timeline of one call: what ran when, and the gaps in between."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import msgspec

from opsmith.core.evidence import CallProfile
from opsmith.generate.pictures.canvas import FAINT, INK, LINE, SERIES, Canvas, ticks

_LEFT, _RIGHT, _TOP, _BAR = 24, 1000, 96, 84
_GAP = (244, 245, 248)
#: Gaps that are named in the picture, and the least share of the call that one has.
_NAMED_GAPS, _LEAST_GAP = 6, 0.055


class Timeline(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What is drawn.

    Attributes:
        title: of the picture.
        profile: of the call.
    """

    title: str
    profile: CallProfile

    kind = "timeline"

    @property
    def caption(self) -> str:
        what = "kernels" if self.profile.device.startswith("cuda") else "ops"
        return f"{self.title}: its {what} over time, a colour for each; what is pale is {self._gap_word}."

    @property
    def _gap_word(self) -> str:
        return "idle" if self.profile.device.startswith("cuda") else "outside of torch's ops"

    def draw(self) -> bytes:
        """The picture as PNG."""
        profile, begin = self.profile, self.profile.spans[0].start_us
        whole = max(profile.whole_us, 1e-3)
        idle = whole - profile.busy_us
        more = f", {profile.left_out} more spans after these" if profile.left_out else ""
        subtitle = f"{whole:.1f} us on {profile.device}, {100 * idle / whole:.0f} % of it {self._gap_word}{more}"
        times: defaultdict[str, float] = defaultdict(float)
        for span in profile.spans:
            times[span.name] += span.duration_us
        top = sorted(times, key=lambda name: -times[name])[: len(SERIES) - 1]
        colours = {name: SERIES[place] for place, name in enumerate(top)}
        rows = len(top) + (len(times) > len(top))
        canvas = Canvas(1024, _TOP + _BAR + 80 + 24 * rows, self.title, subtitle)

        def x(us: float) -> float:
            return _LEFT + (us - begin) / whole * (_RIGHT - _LEFT)

        canvas.box((_LEFT, _TOP, _RIGHT, _TOP + _BAR), _GAP)
        for span in profile.spans:
            left, right = x(span.start_us), x(span.start_us + span.duration_us)
            # A pixel of its own for each: what is too short to be seen is there all the same.
            canvas.box((left, _TOP, max(right - 1, left), _TOP + _BAR), colours.get(span.name, SERIES[-1]))
        for start, length in self._gaps():
            if length >= _LEAST_GAP * whole:
                canvas.centred(x(start + length / 2), _TOP + _BAR / 2 - 8, f"{length:.1f} us", size=12, colour=INK)
        for tick in ticks(0.0, whole):
            canvas.line([(x(begin + tick), _TOP + _BAR), (x(begin + tick), _TOP + _BAR + 6)], FAINT)
            canvas.centred(x(begin + tick), _TOP + _BAR + 8, f"{tick:g}")
        canvas.text(-1, _TOP + _BAR + 28, "microseconds", size=14, colour=FAINT, right=_RIGHT)
        self._legend(canvas, times, top)
        return canvas.png()

    def _legend(self, canvas: Canvas, times: Mapping[str, float], top: list[str]) -> None:
        counts = Counter(span.name for span in self.profile.spans)
        whole = max(self.profile.whole_us, 1e-3)
        rows = [(SERIES[place], name, times[name], counts[name]) for place, name in enumerate(top)]
        if rest := [name for name in times if name not in top]:
            rows.append((SERIES[-1], f"{len(rest)} others", sum(times[n] for n in rest), sum(counts[n] for n in rest)))
        y = _TOP + _BAR + 56
        canvas.line([(_LEFT, y - 6), (_RIGHT, y - 6)], LINE)
        for colour, name, us, count in rows:
            canvas.box((_LEFT, y + 3, _LEFT + 14, y + 17), colour)
            canvas.text(_LEFT + 24, y, f"{us:.1f} us", right=_LEFT + 130)
            canvas.text(_LEFT + 130, y, f"{100 * us / whole:.0f} %", colour=FAINT)
            canvas.text(_LEFT + 190, y, f"{count} x", colour=FAINT)
            canvas.text(_LEFT + 250, y, name, right=_RIGHT)
            y += 24

    def _gaps(self) -> list[tuple[float, float]]:
        """The longest ones, as beginning and length."""
        gaps, until = [], self.profile.spans[0].start_us
        for span in self.profile.spans:
            if span.start_us > until:
                gaps.append((until, span.start_us - until))
            until = max(until, span.start_us + span.duration_us)
        return sorted(gaps, key=lambda gap: -gap[1])[:_NAMED_GAPS]
