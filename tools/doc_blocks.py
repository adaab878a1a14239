"""The fenced blocks of a Markdown page, with what the page says about running them.

A block may have a title (``title="agent.py"``), which makes it a file of the page's directory. The
comment ``<!-- model: [[text("4")]] -->`` above a Python block is the script the model plays for it,
in the words of `bridle.testing`. A text block titled "prints" is what the Python block above it
writes to standard output, with ``...`` for whatever differs between runs.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"(?P<indent> *)(?P<marks>```+)(?P<language>\w*)(?P<rest>.*)")
_COMMENT = re.compile(r"<!-- model:(?P<script>.*?)-->", re.DOTALL)
_TITLE = re.compile(r'title="(?P<title>[^"]*)"')

PRINTS = "prints"
"""The title of a block that holds what the one above it writes."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    code: str
    #: The line of the page on which the code begins, counted from 1.
    line: int
    title: str = ""
    #: What the model says while the block runs; None: whatever it says to everything.
    script: str | None = None

    @property
    def is_program(self) -> bool:
        """Python to be run here; a file that is shown is run where it belongs."""
        return self.language == "python" and not self.code.startswith("--8<--")


def read_blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    blocks: list[Block] = []
    lines = page.read_text("utf-8").splitlines()
    number = between = 0
    while number < len(lines):
        fence = _FENCE.fullmatch(lines[number])
        number += 1
        if fence is None:
            continue
        start = number
        while lines[number].strip() != fence["marks"]:  # an open fence is an IndexError: mend it
            number += 1
        comment = _COMMENT.search("\n".join(lines[between : start - 1]))
        title = _TITLE.search(fence["rest"])
        blocks.append(
            Block(
                language=fence["language"],
                code=textwrap.dedent("\n".join(lines[start:number])) + "\n",
                line=start + 1,
                title=title["title"] if title else "",
                script=comment["script"].strip() if comment else None,
            )
        )
        number += 1
        between = number
    return blocks
