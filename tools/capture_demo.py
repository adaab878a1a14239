"""Run ``bridle demo`` and save its output as a picture for the documentation.

    python tools/capture_demo.py

The tour runs on the CLI that is found. The picture contains the printed lines, without the status
lines. It refers to no font that would have to be downloaded.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from bridle.cli._demo.tour import Tour
from bridle.cli._demo.tour_output import AT_ONCE, Stage
from bridle.cli._screens.live import LiveScreen
from bridle.cli.demo import alone, play

PICTURE = Path(__file__).parent.parent / "docs" / "assets" / "demo.svg"
COLUMNS = 80


class Still(LiveScreen):
    """A screen without status lines."""

    def _start(self) -> None:
        """Do nothing: there are no status lines."""


def main() -> str | None:
    """Run the tour and write the picture. Return an error text if the tour fails."""
    console = Console(
        file=StringIO(),
        record=True,
        force_terminal=True,
        color_system="truecolor",
        width=COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with (
        alone(),
        tempfile.TemporaryDirectory(prefix="bridle-") as work,
        Still(None, console) as screen,
    ):
        stage = Stage(screen, AT_ONCE)
        if asyncio.run(play(Tour(stage, Path(work), ()), stage)):
            return "the tour failed; the picture was not changed"
    svg = console.export_svg(title="bridle demo", theme=MONOKAI, unique_id="demo")
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), "utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main())
