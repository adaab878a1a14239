"""Read the fenced blocks of a Markdown page, and how to run them.

A block with a title (``title="agent.py"``) is a file in the directory of the page. The comment
``<!-- model: [[text("4")]] -->`` above a Python block is the script of its model, written with the
functions of `bridle.testing`. A text block with the title "prints" is the expected output of the
Python block above it. ``...`` stands for text that differs between runs.
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
"""The title of a block with the expected output of the block above it."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    code: str
    #: The line of the page on which the code begins, counted from 1.
    line: int
    title: str = ""
    #: The script of the model for this block; None uses the default reply.
    script: str | None = None

    @property
    def is_program(self) -> bool:
        """True for Python code to run. A block with a title is a file and is not run here."""
        return self.language == "python" and not self.code.startswith("--8<--")


def read_blocks(page: Path) -> list[Block]:
    """Return all fenced blocks of a page, in order."""
    blocks: list[Block] = []
    lines = page.read_text("utf-8").splitlines()
    number = between = 0
    while number < len(lines):
        fence = _FENCE.fullmatch(lines[number])
        number += 1
        if fence is None:
            continue
        start = number
        while lines[number].strip() != fence["marks"]:  # IndexError if a fence is not closed
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
