"""The picture for the documentation: a bar chart of how much less CPU Bridle needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH = 720
LEFT = 190
RIGHT = 70
ROW = 28
BAR = 16
TOP = 64
TICKS = (1, 2, 5, 10, 20, 50, 100, 200)

_TITLE = "How many times the CPU of Bridle the official SDK takes"
_TIMES = "\N{MULTIPLICATION SIGN}"

_STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #24292f; }
    .title { font-size: 15px; font-weight: 600; }
    .faint { fill: #6e7781; font-size: 11px; }
    .grid { stroke: #d0d7de; }
    .bar { fill: #2f6f4f; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .faint { fill: #8d96a0; }
      .grid { stroke: #3d444d; }
      .bar { fill: #56b783; }
    }
"""


def chart(bars: Sequence[tuple[str, float]], note: str) -> str:
    """Return an SVG with one bar for each (name, times), on a logarithmic scale."""
    height = TOP + ROW * len(bars) + 40
    most = max(times for _, times in bars)
    last = next((tick for tick in TICKS if tick >= most), TICKS[-1])

    def x(times: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(max(times, 1)) / math.log(max(last, 2))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(note)}</title>",
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="12" y="24">{_TITLE}</text>',
        f'<text class="faint" x="12" y="42">{escape(note)}</text>',
    ]
    for tick in (each for each in TICKS if each <= last):
        bottom = TOP + ROW * len(bars)
        parts.append(
            f'<line class="grid" x1="{x(tick):.1f}" y1="{TOP - 8}" x2="{x(tick):.1f}" '
            f'y2="{bottom}"/>'
            f'<text class="faint" x="{x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">'
            f"{tick}{_TIMES}</text>"
        )
    for number, (name, times) in enumerate(bars):
        y = TOP + ROW * number
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="bar" x="{LEFT}" y="{y}" rx="2" width="{x(times) - LEFT:.1f}" '
            f'height="{BAR}"/>'
            f'<text x="{x(times) + 6:.1f}" y="{y + 13}">{times:.1f}{_TIMES}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
