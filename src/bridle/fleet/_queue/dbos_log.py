"""The log of a fleet: what DBOS reports, explained, and the same line at most once a minute."""

from __future__ import annotations

import logging
import re
import time

_REPEAT = 60.0
"""Seconds in which the same line is logged once."""

_LONGEST = 300
"""Characters of a report of DBOS that are logged."""

_EXPECTED = (
    "Asyncio task cancelled",  # Bridle leaves a run to other workers in this way
    "Exception encountered in asynchronous workflow",  # Bridle logs the run that failed
    "Workflow already exists in queue",  # the run of this key has ended, and left the queue
)
"""How reports of DBOS begin that say nothing new to a user. They are logged at DEBUG."""

_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
"""The name of the exception, in the lines of a traceback that are not indented."""

log = logging.getLogger("bridle.fleet")


class SeldomLog:
    """Log lines, and leave repeated ones out."""

    def __init__(self) -> None:
        self._passed: dict[str, float] = {}

    def log(self, level: int, text: str) -> None:
        """Log a line, unless the same one was logged within the last minute."""
        now = time.monotonic()
        self._passed = {one: at for one, at in self._passed.items() if now - at < _REPEAT}
        if text not in self._passed:
            self._passed[text] = now
            log.log(level, "%s", text)


class ExplainDbos(logging.Handler):
    """Pass reports of DBOS on to the log of Bridle, with what they mean for the fleet."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seldom = SeldomLog()

    def emit(self, record: logging.LogRecord) -> None:
        """Log the first line of a report. Further lines may have values of the user."""
        line = _first_line(record.getMessage())[:_LONGEST]
        if line.startswith(_EXPECTED):
            log.debug("DBOS: %s", line)
            return
        self._seldom.log(
            record.levelno,
            f"DBOS, the library that keeps the queue, reports: {line!r}. No run is lost: Bridle "
            "tries again. If this goes on, check that the database answers.",
        )


def _first_line(text: str) -> str:
    """Return the first line, with the name of the exception in place of a traceback."""
    line, _, rest = text.partition("\n")
    before, traceback, _ = line.partition("Traceback (most recent call last)")
    names = _ERROR.findall(rest) if traceback else []
    return f"{before}{names[-1]}" if names else line


def explain_dbos() -> None:
    """Keep DBOS from printing its log, unless the program has handlers for it."""
    found = logging.getLogger("dbos")
    if not found.handlers:
        found.addHandler(ExplainDbos())
        found.propagate = False
