"""A timeline as a picture: a lane for each row, a box for each span. SVG that needs nothing but itself."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from html import escape

from foldbatch.timelines.spans import Span, rows_of, totals

MOST = 12  # names in the legend; the others are grey
GREY = "#b8b8b8"
TICKS = 10

# Lengths in pixels.
_WIDE, _LANE, _LEFT, _MARGIN, _LINE, _LEAST = 1200.0, 34.0, 90.0, 16.0, 18.0, 0.3


def svg(spans: Sequence[Span], note: str) -> str:
    """Return a picture of spans; the names that take most of the time have colours and are listed below."""
    rows, longest = rows_of(spans), totals(spans)
    first = min((span.start for span in spans), default=0.0)
    length = max((span.end for span in spans), default=1.0) - first or 1.0
    scale = _WIDE / length
    colours = {name: _colour(number) for number, (name, _, _) in enumerate(longest[:MOST])}
    bottom = _MARGIN + _LANE * len(rows)
    drawn = [
        _text(_MARGIN, _MARGIN + _LANE * (number + 0.6), row)
        + f'<line x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{_MARGIN + _LANE * (number + 1):.1f}" '
        f'y2="{_MARGIN + _LANE * (number + 1):.1f}" stroke="#ddd"/>'
        for number, row in enumerate(rows)
    ]
    for span in spans:
        x, y = _LEFT + (span.start - first) * scale, _MARGIN + _LANE * rows.index(span.row) + 4
        width, colour = max(_LEAST, span.seconds * scale), colours.get(span.name, GREY)
        box = f'x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{_LANE - 8}" fill="{colour}"'
        drawn.append(f"<rect {box}><title>{_escaped(_told(span))}</title></rect>")
    for tick in range(TICKS + 1):
        words = f"{length * tick / TICKS * 1e3:.4g}" + " ms" * (tick == TICKS)
        drawn.append(_text(_LEFT + _WIDE * tick / TICKS, bottom + _LINE, words))
    lines = [
        (f"{name}: {seconds * 1e3:.4g} ms", colours.get(name, GREY)) for name, seconds, _ in longest[:MOST]
    ]
    for number, (words, colour) in enumerate(lines, 2):
        y = bottom + _LINE * (number + 0.5)
        drawn.append(f'<rect x="{_LEFT}" y="{y - 10:.1f}" width="12" height="12" fill="{colour}"/>')
        drawn.append(_text(_LEFT + 20, y, words))
    height = bottom + _LINE * (len(lines) + 4)
    drawn.append(_text(_LEFT, height - _MARGIN, note))
    size = f'width="{_LEFT + _WIDE + 4 * _MARGIN:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *drawn, "</svg>\n"])


def _colour(number: int) -> str:
    """Return a colour unlike those of the numbers before.

    >>> _colour(0)
    '#db6e6e'
    """
    parts = colorsys.hls_to_rgb(number * 0.618 % 1, 0.645, 0.6)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}">{_escaped(words)}</text>'


def _escaped(words: str) -> str:
    r"""Return words as XML has them; what cannot be printed, which XML may not have, as Python writes it.

    >>> _escaped("a < b\x00")
    'a &lt; b\\x00'
    """
    return escape("".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in words))


def _told(span: Span) -> str:
    more = "".join(f", {name} {value}" for name, value in span.arguments.items())
    return f"{span.name}: {span.seconds * 1e3:.4g} ms{more}"
