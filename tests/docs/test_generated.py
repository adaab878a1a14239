"""What is generated is fresh, whole and made from the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import build_docs
import doc_lifecycle
import doc_tables
import surface
from bridle._engine.state import MOVES
from bridle._records.fields import always
from bridle.events import WarningKind
from bridle.hooks import HOOK_EVENTS
from bridle.options import option_rows
from bridle.options._precedence import variable_of
from bridle.outcomes import OUTCOME_ERRORS, OutcomeReason

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Every page, by its path."""
    return {
        page.relative_to(REPOSITORY).as_posix(): page.read_text("utf-8")
        for page in build_docs.pages()
    }


def test_no_page_is_out_of_date() -> None:
    """R445: the committed pages are what the tables of the code make of them."""
    assert build_docs.main(["--check"]) is None


def test_a_page_that_is_out_of_date_is_found() -> None:
    stale = "<!-- begin generated: limits -->\nold\n<!-- end generated -->"
    fresh = build_docs.rebuilt(stale)
    assert fresh != stale
    assert build_docs.rebuilt(fresh) == fresh


def test_a_part_that_this_machine_cannot_make_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without npm there are no official packages to compare with."""

    def missing() -> str:
        raise surface.NotFetched

    monkeypatch.setitem(build_docs.PARTS, "official_surface", missing)
    page = "<!-- begin generated: official_surface -->\nold\n<!-- end generated -->"
    assert build_docs.rebuilt(page) == page


def test_the_options_page_has_every_option_with_its_channel(texts: dict[str, str]) -> None:
    """R445: each option, the flag or field it becomes, and its variable."""
    page = texts["docs/reference/options.md"]
    rows = {
        match["id"]: line
        for line in page.splitlines()
        if (match := re.search(r'<span id="(?P<id>[^"]+)">', line))
    }
    for record, row in option_rows():
        line = rows[f"{record}.{row.name}"]
        assert row.doc in line
        assert row.channel.name in line
        assert (variable_of(row) in line) is (row.env is not None and row.weakens is not always)
        depends = row.weakens not in (None, always, bool)  # on the value
        assert ("file (with restrictions)" in line) is depends
        named = row.weakens is not None and not depends
        assert ("file that the program names" in line) is named


def test_the_precedence_of_sources_is_explained(texts: dict[str, str]) -> None:
    """R445: which source wins, and how the exceptions combine."""
    page = texts["docs/howto/configuration.md"]
    order = ["your program sets", "`CLAUDE_<FIELD>`", "`bridle.toml`", "the default"]
    places = [page.index(words) for words in order]
    assert places == sorted(places)
    for record, row in option_rows():
        if row.merge != "replace":
            assert f"`{record}.{row.name}`" in page
        if row.env is not None and row.weakens is not always:
            assert f"`{variable_of(row)}`" in page
        if row.weakens is not None:
            assert f"- `{record}.{row.name}`" in page


def test_every_outcome_warning_hook_event_and_move_is_in_its_table() -> None:
    outcomes = doc_tables.outcomes()
    for reason in OutcomeReason:
        assert f"`{reason}`" in outcomes
    for error in OUTCOME_ERRORS.values():
        assert f"`{error.__name__}`" in outcomes
        assert error.advice in outcomes
    assert all(f"`{kind}`" in doc_tables.warnings() for kind in WarningKind)
    assert all(f"`{event}`" in doc_tables.hook_events() for event in HOOK_EVENTS)
    assert len(doc_lifecycle.moves().splitlines()) == len(MOVES) + 2


def test_the_picture_has_every_state_and_every_move() -> None:
    picture = doc_lifecycle.diagram()
    for (before, cause), after in MOVES.items():
        for name in (before, cause, after):
            assert f">{name.value.replace('_', ' ')}</text>" in picture
    edges = {(before, after) for (before, _), after in MOVES.items()}
    assert picture.count('class="move"') == len(edges)


def test_every_public_name_is_in_the_reference(texts: dict[str, str]) -> None:
    """What can be imported can be looked up, once."""
    entries = [
        name
        for page, text in texts.items()
        if page.startswith("docs/reference/")
        for name in re.findall(r"^::: (bridle\.\S+)$", text, re.MULTILINE)
    ]
    public = {
        doc_tables.public_path(module, name)
        for module in doc_tables.PUBLIC_MODULES
        for name in import_module(module).__all__
    }
    assert sorted(public - set(entries)) == []
    assert sorted({name for name in entries if entries.count(name) > 1}) == []


def test_every_public_module_is_in_the_table_of_modules() -> None:
    package = REPOSITORY / "src/bridle"
    paths = {path.relative_to(package).with_suffix(""): path for path in package.rglob("*.py")}
    modules = {
        ".".join(("bridle", *(part for part in name.parts if part != "__init__"))): path
        for name, path in paths.items()
    }
    public = {
        name
        for name, path in modules.items()
        # The fleet needs an extra, and has a page of its own.
        if "\n__all__" in path.read_text("utf-8") and "._" not in name and name != "bridle.fleet"
    }
    # The drop-in has a page of its own: its names are those of the official SDK.
    public = {name for name in public if not name.startswith("bridle.compat.")}
    packages = {"bridle", "bridle.compat", "bridle.testing"}
    assert packages | public == set(doc_tables.PUBLIC_MODULES)


def test_a_table_cell_cannot_end_its_table() -> None:
    with pytest.raises(AssertionError):
        doc_tables.table(["a"], [["x | y"]])


def test_a_frame_that_is_not_in_the_recording_is_an_error() -> None:
    with pytest.raises(LookupError):
        doc_tables.frame("2.1.326/text_turn", "out", "control_request", "can_use_tool")
