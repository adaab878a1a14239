"""Play ``bridle demo`` and keep what it shows as a picture for the documentation.

    python tools/capture_demo.py

The tour is played for real, on the CLI that is found, and drawn on a terminal that is a picture:
what stays is in it, what comes and goes is not. The picture names no font to be fetched.
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

from bridle.cli._demo.stage import AT_ONCE, Stage
from bridle.cli._demo.tour import Tour
from bridle.cli.demo import alone, play
from bridle.cli.live import LiveScreen

PICTURE = Path(__file__).parent.parent / "docs" / "assets" / "demo.svg"
COLUMNS = 80


class Still(LiveScreen):
    """A screen without the lines below what stays."""

    def _start(self) -> None:
        """Nothing is drawn to be erased."""


def main() -> str | None:
    """Play, and write the picture; a complaint if the tour did not go well."""
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
            return "the tour did not go well; the picture is as it was"
    svg = console.export_svg(title="bridle demo", theme=MONOKAI, unique_id="demo")
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), "utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main())
