"""Split a docstring into the description of a function and the descriptions of its parameters.

Three conventions are supported, also mixed: Google (``Args:``), NumPy (``Parameters`` underlined)
and Sphinx (``:param name:``). All other text is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_GOOGLE = r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):"
_GOOGLE_ENTRY = r"\*{0,2}(\w+)(?:\s*\([^)]*\))?\s*:\s*(.*)"
_NUMPY = r"(?:Other )?Parameters"
_NUMPY_ENTRY = r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?"
_UNDERLINE = r"-{3,}|={3,}"
_SPHINX = r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)"
_SPHINX_TYPE = r":type\s+\w+\s*:.*"


class Docstring(Struct, frozen=True):
    """The text without its parameter sections, and the description of each parameter."""

    text: str
    parameters: dict[str, str]


def parse(docstring: str) -> Docstring:
    """Parse a docstring whose common indentation has been removed."""
    reader = _Reader(docstring.splitlines())
    reader.read()
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(reader.kept)).strip()
    described = {name: _joined(lines) for name, lines in reader.described.items()}
    return Docstring(text, {name: words for name, words in described.items() if words})


class _Reader:
    """Reads the lines once and sorts them into text and descriptions."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self.kept: list[str] = []
        self.described: dict[str, list[str]] = {}

    def read(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at].rstrip()
            self._at += 1
            if re.fullmatch(_GOOGLE, line):
                self._entries(_GOOGLE_ENTRY, list(self._indented()))
            elif re.fullmatch(_NUMPY, line) and self._underlined(self._at):
                self._at += 1
                self._entries(_NUMPY_ENTRY, list(self._until_next_heading()))
            elif found := re.fullmatch(_SPHINX, line):
                self.described[found[1]] = [found[2], *self._indented()]
            elif re.fullmatch(_SPHINX_TYPE, line):
                list(self._indented())
            else:
                self.kept.append(line)

    def _entries(self, pattern: str, block: list[str]) -> None:
        """Read the entries of a section. An entry begins at the indentation of the section."""
        margin = min((_indent(line) for line in block if line.strip()), default=0)
        names: list[str] = []
        for line in block:
            found = re.fullmatch(pattern, line.strip()) if _indent(line) == margin else None
            if found is not None:
                names = re.findall(r"\w+", found[1])
                said = found[2] if found.re.groups > 1 else ""
                self.described.update({name: [said] for name in names})
            else:
                for name in names:
                    self.described[name].append(line)

    def _indented(self) -> Iterator[str]:
        """Yield the lines that belong to the previous line: indented lines and blank lines."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and not _indent(line):
                return
            self._at += 1
            yield line

    def _until_next_heading(self) -> Iterator[str]:
        while self._at < len(self._lines) and not self._underlined(self._at + 1):
            yield self._lines[self._at]
            self._at += 1

    def _underlined(self, at: int) -> bool:
        return at < len(self._lines) and bool(re.fullmatch(_UNDERLINE, self._lines[at].strip()))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _joined(lines: list[str]) -> str:
    return " ".join(words for line in lines if (words := line.strip()))
