"""The source tree as the architecture tests see it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

# What may do I/O, keep time and own tasks. Everything else in the package is pure.
IMPURE = {
    "__main__",
    "_callbacks",
    "_observe",
    "_pool",
    "_process",
    "_runtime",
    "_session",
    "_spi",
    "agent",
    "cli",
    "compat",
    "fleet",
    "operations",
    "otel",
    "sessions",
    "sync",
    "terminal",
    "testing",
}

# The pure modules of these packages: what they decide, beside what carries it out.
DECISIONS = {
    "_observe.warning_rate",
    "_pool.table",
    "_process.launch.plan",
    "_process.launch.spellings",
    "_session.answers.attempt_plan",
    "_session.changes.settings_plan",
    "fleet._decisions",
    "sessions._backlog",
    "sessions._call_keys",
    "sessions._journal",
    "sessions._recovery",
    "sessions._recovery_texts",
    "sessions._transcripts.branches",
    "sessions._transcripts.changes",
    "sessions._transcripts.completion",
    "sessions._transcripts.export",
    "sessions._transcripts.new_messages",
    "sessions._transcripts.stored_position",
    "sessions._transcripts.stored_turns",
    "sessions._transcripts.summaries",
    "sessions._transcripts.texts",
    "sessions._transcripts.transcript",
}


@pytest.fixture(scope="session")
def package(repository: Path) -> Path:
    """The directory of the `bridle` package."""
    return repository / "src" / "bridle"


@pytest.fixture(scope="session")
def pure_modules(package: Path) -> dict[str, ast.Module]:
    """Every pure module, parsed, by its path inside the package."""
    found: dict[str, ast.Module] = {}
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        name = ".".join(inside.with_suffix("").parts)
        if name.partition(".")[0] not in {*IMPURE, "__init__"} or name in DECISIONS:
            found[inside.as_posix()] = ast.parse(path.read_text("utf-8"), filename=str(path))
    return found
