"""Compare what Bridle offers with the official packages: ``python tools/surface.py``.

The program prints a table with one row per kind of name (options, flags, control requests, …), then
what Bridle lacks. `tools/surface.toml` lists the names that Bridle calls differently, those left
out on purpose, each with its reason, and those not built yet. A name that an official package has,
and that is neither in Bridle nor in this list, makes the program fail.

The versions of the packages are pinned. ``--newest`` downloads and compares the newest ones.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import doc_tables
import fetch_declarations
from fetch_declarations import KEPT_IN, LISTS, REPOSITORY
from surface_sources import KINDS, Bridle, Cli, PythonSdk, TypeScriptSdk, names

OLDER_CLI = KEPT_IN / "2.1.197" / "claude"
SOURCES = ("Python SDK", "TypeScript SDK", "`claude --help`")


class NotFetched(Exception):
    """A package or CLI to compare with is not on this machine."""


@dataclass(frozen=True)
class Comparison:
    """One kind of name: what the official packages offer, and what Bridle does about it.

    Every name is spelled as Bridle spells it.
    """

    kind: str
    ours: set[str]
    theirs: Mapping[str, set[str]]  # by source
    left_out: Mapping[str, str]
    to_do: Mapping[str, str]
    unused: set[str]  # official names with another spelling in Bridle, which no source has

    @property
    def official(self) -> set[str]:
        """Return every name that an official source has."""
        return set().union(*self.theirs.values())

    @property
    def missing(self) -> set[str]:
        """Return the names that Bridle lacks without a reason: unlisted, or not built yet."""
        return self.official - self.ours - set(self.left_out)

    @property
    def unlisted(self) -> set[str]:
        """Return the missing names that `tools/surface.toml` does not mention."""
        return self.missing - set(self.to_do)

    @property
    def stale(self) -> set[str]:
        """Return the listed names that Bridle has, or that no official source has."""
        listed = {*self.left_out, *self.to_do}
        return (listed & self.ours) | (listed - self.official) | self.unused


def compare(
    kind: str, ours: set[str], theirs: Mapping[str, set[str]], lists: Mapping[str, Any]
) -> Comparison:
    """Compare one kind of name, with the lists of `tools/surface.toml`."""
    renamed: dict[str, str] = lists["names"].get(kind, {})
    unused = set(renamed).difference(*theirs.values())
    spelled = {
        source: {renamed.get(name, name) for name in found} for source, found in theirs.items()
    }
    left_out, to_do = (lists[part].get(kind, {}) for part in ("left_out", "to_do"))
    return Comparison(kind, ours, spelled, left_out, to_do, unused)


def comparisons(*, newest: bool = False) -> list[Comparison]:
    """Compare every kind of name.

    Raises:
        NotFetched: a pinned package or the older CLI is missing, because `make` had no npm.
    """
    lists = tomllib.loads(LISTS.read_text("utf-8"))
    unknown = {kind for part in ("names", "left_out", "to_do") for kind in lists[part]} - {*KINDS}
    if unknown:
        raise SystemExit(f"{LISTS.name}: unknown kinds {sorted(unknown)}, use {list(KINDS)}")
    python = PythonSdk(_newest_python() if newest else importlib.import_module("claude_agent_sdk"))
    sources = (python, _typescript(newest=newest), _cli(python))
    bridle = Bridle()
    return [
        compare(
            kind,
            names(bridle, kind),
            {title: names(source, kind) for title, source in zip(SOURCES, sources, strict=True)},
            lists,
        )
        for kind in KINDS
    ]


def table(found: list[Comparison]) -> str:
    """Return the comparison as a Markdown table."""
    rows = [
        [
            KINDS[one.kind],
            str(len(one.official)),
            str(len(one.official & one.ours)),
            *(str(len(one.theirs[source]) or "") for source in SOURCES),
            str(len(one.left_out) or ""),
            str(len(one.missing) or ""),
        ]
        for one in found
    ]
    head = ["", "all", "Bridle", *SOURCES, "left out on purpose", "missing"]
    return doc_tables.table(head, rows)


def official_surface() -> str:
    """Return the table for the documentation."""
    return table(comparisons())


def report(found: list[Comparison]) -> str:
    """Return the table, and the names that need attention."""
    sections: dict[str, list[tuple[str, Collection[str]]]] = {
        "Left out on purpose (tools/surface.toml has the reasons)": [
            (one.kind, one.left_out) for one in found
        ],
        "Not built yet": [(one.kind, one.missing - one.unlisted) for one in found],
        "In tools/surface.toml, but built or gone: delete these lines": [
            (one.kind, one.stale) for one in found
        ],
        "NEW: build these, or list them in tools/surface.toml": [
            (one.kind, one.unlisted) for one in found
        ],
    }
    parts = [table(found)]
    for title, listed in sections.items():
        lines = [f"  {KINDS[kind]}: {', '.join(sorted(some))}" for kind, some in listed if some]
        if lines:
            parts.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join(parts)


def _typescript(*, newest: bool) -> TypeScriptSdk:
    pinned = fetch_declarations.packages()
    if newest:
        paths = {key: fetch_declarations.fetch(one, "latest") for key, one in pinned.items()}
    else:
        paths = {key: one.declarations() for key, one in pinned.items()}
    for path in paths.values():
        _require(path)
    return TypeScriptSdk(paths["sdk"], paths["api"])


def _cli(python: PythonSdk) -> Cli:
    _require(python.cli)
    _require(OLDER_CLI)
    return Cli(python.cli, OLDER_CLI)


def _require(path: Path) -> None:
    if not path.exists():
        shown = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path.name
        raise NotFetched(f"{shown} is missing. `make setup` downloads it, with npm.")


def _newest_python() -> Any:
    """Download the newest Python package into a directory of its own, and import it."""
    directory = KEPT_IN / "newest-python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    wanted = ["--upgrade", "--no-deps", "--target", str(directory), "claude-agent-sdk"]
    subprocess.run([*pip, *wanted], check=True)
    sys.path.insert(0, str(directory))
    return importlib.import_module("claude_agent_sdk")


def main() -> int:
    """Print the comparison. Return 1 if a name is neither built nor listed."""
    parser = argparse.ArgumentParser(description="Compare Bridle with the official packages.")
    parser.add_argument("--newest", action="store_true", help="compare the newest packages")
    options = parser.parse_args()
    try:
        found = comparisons(newest=options.newest)
    except NotFetched as problem:
        print(problem, file=sys.stderr)
        return 2
    print(report(found))
    return int(any(one.unlisted for one in found))


if __name__ == "__main__":
    sys.exit(main())
