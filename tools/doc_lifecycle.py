"""Draw the states of a session and list its transitions, from the transition table."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from bridle._engine.shutdown import HOLD, ShutdownStep
from bridle._engine.state import MOVES, Cause, Lifecycle
from doc_tables import code, table

_WIDTH, _HEIGHT = 760, 400
_BOX = 130, 44
# The centre of every state. The two final states are bars, so that every arrow is straight.
_ROW = {Lifecycle.STARTING: 110, Lifecycle.INIT_SENT: 370, Lifecycle.RUNNING: 630}
_ROW_Y = 200
_BARS = {Lifecycle.FAILED: 30, Lifecycle.STOPPED: 370}
_LINE = 16


def _edges() -> dict[tuple[Lifecycle, Lifecycle], list[Cause]]:
    """Return the causes of each transition between two states."""
    edges: dict[tuple[Lifecycle, Lifecycle], list[Cause]] = {}
    for (before, cause), after in MOVES.items():
        edges.setdefault((before, after), []).append(cause)
    return edges


def _words(name: str) -> str:
    return escape(name.replace("_", " "))


def _box(x: float, y: float, width: float, name: Lifecycle) -> Iterator[str]:
    height = _BOX[1]
    yield (
        f'<rect class="state {name.value}" x="{x - width / 2:g}" y="{y - height / 2:g}" '
        f'width="{width:g}" height="{height}" rx="8"/>'
    )
    yield f'<text class="state" x="{x:g}" y="{y + 5:g}">{_words(name.value)}</text>'


def _arrow(before: Lifecycle, after: Lifecycle, causes: list[Cause]) -> Iterator[str]:
    half_width, half_height = _BOX[0] / 2, _BOX[1] / 2
    x = _ROW[before]
    if after in _ROW:
        left, right = x + half_width, _ROW[after] - half_width
        yield f'<path class="move" d="M{left:g} {_ROW_Y}H{right - 7:g}"/>'
        yield from _label((left + right) / 2, _ROW_Y - 10 - _LINE * (len(causes) - 1), causes, "on")
        return
    up = _BARS[after] < _ROW_Y
    start = _ROW_Y + (-half_height if up else half_height)
    end = _BARS[after] + (half_height + 7 if up else -half_height - 7)
    yield f'<path class="move" d="M{x} {start:g}V{end:g}"/>'
    middle = (start + end) / 2 - _LINE * (len(causes) - 1) / 2 + 5
    yield from _label(x + 10, middle, causes, "beside")


def _label(x: float, y: float, causes: list[Cause], place: str) -> Iterator[str]:
    for number, cause in enumerate(causes):
        at = f'x="{x:g}" y="{y + number * _LINE:g}"'
        yield f'<text class="{place}" {at}>{_words(cause.value)}</text>'


def diagram() -> str:
    """Return the states and transitions as an SVG, in the colours of the page."""
    lines = [
        '<figure class="lifecycle">',
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="The states of a session">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for (before, after), causes in _edges().items():
        lines += _arrow(before, after, causes)
    for state, x in _ROW.items():
        lines += _box(x, _ROW_Y, _BOX[0], state)
    for state, y in _BARS.items():
        lines += _box(_WIDTH / 2, y, _WIDTH - 90, state)
    return "\n".join([*lines, "</svg>", "</figure>"])


def moves() -> str:
    """Return a table of all transitions."""
    return table(
        ["from", "upon", "to"],
        [[code(before), code(cause), code(after)] for (before, cause), after in MOVES.items()],
    )


def ladder() -> str:
    """Return a table of the steps that end a session, with the timeout of each."""
    meanings = {
        ShutdownStep.INTERRUPTING: "Bridle interrupts the running turn and rejects open requests",
        ShutdownStep.DRAINING: "Bridle closes stdin; the CLI writes its transcript and exits",
        ShutdownStep.TERMINATING: "SIGTERM to all processes of the tree; `stop()` begins here",
        ShutdownStep.KILLING: "SIGKILL to all processes of the tree, until none is left",
    }
    return table(
        ["step", "what happens", "timeout until the next step"],
        [
            [step.name.lower(), meaning, f"{HOLD[step]:g} s" if step in HOLD else ""]
            for step, meaning in meanings.items()
        ],
    )
