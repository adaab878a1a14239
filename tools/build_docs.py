"""Update the generated parts of the documentation: ``python tools/build_docs.py``.

They are between ``<!-- begin generated: name arguments -->`` and ``<!-- end generated -->``. The
rest of a page is written by hand. With ``--check``, the program writes nothing and fails if a page
is out of date.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import bench_figures
import compat_table
import doc_lifecycle
import doc_tables
import surface

REPOSITORY = doc_tables.REPOSITORY

_PART = re.compile(
    r"(?P<begin><!-- begin generated: (?P<what>[^\n]*?) -->\n).*?(?P<end><!-- end generated -->)",
    re.DOTALL,
)

PARTS: dict[str, Callable[..., str]] = {
    part.__name__: part
    for part in (
        doc_tables.agent_config,
        doc_tables.bidir_options,
        doc_tables.bounds,
        doc_tables.cli_options,
        doc_tables.command,
        doc_tables.control_operations,
        doc_tables.doctor_codes,
        doc_tables.examples,
        doc_tables.exit_codes,
        doc_tables.frame,
        doc_tables.hook_events,
        doc_tables.limits,
        doc_tables.retry,
        doc_tables.gate_options,
        doc_tables.merged_options,
        doc_tables.modules,
        doc_tables.names,
        doc_tables.operations,
        doc_tables.outcomes,
        doc_tables.prompt_words,
        doc_tables.sdk_options,
        doc_tables.variables,
        doc_tables.warnings,
        doc_lifecycle.diagram,
        doc_lifecycle.ladder,
        doc_lifecycle.moves,
        surface.official_surface,
        compat_table.compat_names,
        bench_figures.bench_figures,
    )
}


def rebuilt(text: str) -> str:
    """Return a page with its generated parts updated."""

    def make(found: re.Match[str]) -> str:
        name, *arguments = shlex.split(found["what"])
        try:
            part = PARTS[name](*arguments)
        except surface.NotFetched:
            return found[0]  # this machine cannot make it anew
        return f"{found['begin']}\n{part}\n\n{found['end']}"

    return _PART.sub(make, text)


def pages(repository: Path = REPOSITORY) -> list[Path]:
    """Return all pages of the documentation, and the README."""
    return [repository / "README.md", *sorted((repository / "docs").rglob("*.md"))]


def main(arguments: list[str]) -> str | None:
    """Update every page. Return the problem for `sys.exit`, or None."""
    stale = []
    for page in pages():
        text = page.read_text("utf-8")
        fresh = rebuilt(text)
        if fresh != text:
            stale.append(page.relative_to(REPOSITORY).as_posix())
            if "--check" not in arguments:
                page.write_text(fresh, "utf-8")
    if stale and "--check" in arguments:
        return f"out of date, run `make docs`: {', '.join(stale)}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
