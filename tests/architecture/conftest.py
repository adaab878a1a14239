"""The source tree as the architecture tests see it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

# What may do I/O, keep time and own tasks. Everything else in the package is pure.
IMPURE = {
    "_shell",
    "_doors",
    "_stores",
    "agent",
    "operations",
    "_sync_agent",
    "_sync_pool",
    "_sync_sessions",
    "fleet",
    "sessions",
    "sync",
    "terminal",
    "cli",
    "compat",
    "testing",
    "otel",
    "__main__",
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
        if inside.parts[0].removesuffix(".py") not in {*IMPURE, "__init__"}:
            found[inside.as_posix()] = ast.parse(path.read_text("utf-8"), filename=str(path))
    return found
