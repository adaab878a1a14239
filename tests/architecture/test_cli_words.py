"""Every module that reads texts of the CLI is in the table of what Bridle relies on.

So is every field that the core reads although the official packages do not declare it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import fetch_declarations
from bridle import messages
from bridle.messages import _stream_objects as _api
from bridle.messages import _system
from bridle.options import option_rows
from bridle.tools._cli_tools import BUILT_IN_TOOLS

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "bridle"
PAGE = REPOSITORY / "docs" / "explanation" / "protocol.md"

OWN = {
    "__init__.py",
    "options/_cli_options.py",
    "_engine/incoming/unknown.py",
    "_process/launch/plan.py",
    "_engine/wire/oversized.py",
    "_process/launch/spellings.py",
    "sessions/_transcripts/completion.py",
    "options/_unknown_values.py",
    "_engine/wire/codec.py",
    "_session/one_way/query_session.py",
    "_records/fields.py",
    "_records/matchers.py",
    "options/_checks.py",
    "errors/_redaction.py",
    "_process/launch/real_api.py",
    "_process/watchdog.py",
    "approvals/_shell_reading.py",
    "approvals/_shell_words.py",
    "tools/_signatures.py",
    "messages/_system.py",
    "agent.py",
    "cli/_timeline/frame_summaries.py",
    "cli/_timeline/spans.py",
    "cli/_policy/command_patterns.py",
    "cli/_policy/path_patterns.py",
    "cli/run.py",
    "cli/_screens/screens.py",
    "cli/_policy/url_patterns.py",
    "cli/_screens/view.py",
    "cli/_policy/wildcards.py",
    "controls.py",
    "permissions.py",
}
"""Modules that read texts of Bridle, of the program or of the operating system, or show them."""

ELSEWHERE = ("cli/_demo/", "cli/_port/", "compat/", "fleet/", "testing/")
"""Folders that read texts of other programs, or stand for a CLI."""

FOLDERS = (
    "_callbacks",
    "_engine",
    "_observe",
    "_pool",
    "_process",
    "_session",
    "sessions",
)
"""Folders that read what the CLI writes."""

OWN_FIELDS = {
    "agent_path",
    "ask_user_question",
    "env_variables",
    "has_schedule",
    "hook_timed_out",
    "is_partial",
    "keep_messages",
    "logical_parent_uuid",  # of a message; the core reads that of a transcript
    "maxmemory_policy",  # of Redis
    "output_retries",
    "output_type",
    "pool_key",
    "preview_format",
    *(row.name for _, row in option_rows()),
}
"""Names that Bridle gives, in its records, its files or the options of a program."""

_TOOLS = "|".join(sorted(BUILT_IN_TOOLS))
READS_TEXT = re.compile(
    r"re\.compile\(|\.(?:startswith|endswith)\((?:\(?\"|_?[A-Z])"
    rf"|[\"'] in [\w.]*(?:text|tail|message)\b|\"(?:{_TOOLS})\""
)


def table() -> list[list[str]]:
    """The rows of the table: what, from, in, depends, if it changes, test."""
    lines = relied_on().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line[:1] == "|"]
    return rows[2:]


def relied_on() -> str:
    return PAGE.read_text("utf-8").split("## What Bridle relies on")[1].split("\n## ")[0]


def names_read(tree: ast.AST) -> Iterator[str]:
    """The texts that code uses as keys, or compares with."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                yield name
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Call(func=ast.Name(id="text_of"), args=[_, ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Compare(left=left, comparators=others):
                constants = [one for one in (left, *others) if isinstance(one, ast.Constant)]
                yield from (one.value for one in constants if isinstance(one.value, str))
            case _:
                pass


def fields_read(code: str) -> Iterator[str]:
    """The fields of messages whose attributes are used in the code, as the CLI writes them."""
    read = set(re.findall(r"\.(\w+)\b", code))
    for module in (messages, _api, _system):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
                yield from (wire for own, wire in names if own in read)


def test_every_row_names_modules_and_tests_that_exist() -> None:
    assert len(table()) >= 20
    for row in table():
        assert len(row) == 6, row
        for module in re.findall(r"`([\w/]+\.py)`", row[2]):
            assert (SOURCE / module).is_file(), module
        assert len(list(files_in(row))) >= 1


def test_the_tests_of_a_row_have_its_texts_or_fields() -> None:
    missing = {
        row[0]: [path.name for path in files_in(row)]
        for row in table()
        if (names := re.findall(r"`([^`]+)`", row[1]))
        and not any(name in path.read_text("utf-8") for path in files_in(row) for name in names)
    }
    assert missing == {}


def files_in(row: list[str]) -> Iterator[Path]:
    """The files in the last column. A name alone is in the folder of the file before it."""
    folder = Path()
    for name in re.findall(r"`([\w/]+\.py)`", row[5]):
        path = folder / name if "/" not in name else REPOSITORY / name
        folder = path.parent
        assert path.is_file(), path
        yield path


def test_modules_that_read_texts_are_in_the_table() -> None:
    named = {module for row in table() for module in re.findall(r"`([\w/]+\.py)`", row[2])}
    reading = {
        module
        for path in SOURCE.rglob("*.py")
        if not (module := path.relative_to(SOURCE).as_posix()).startswith(ELSEWHERE)
        and READS_TEXT.search(path.read_text("utf-8"))
    }
    assert sorted(reading - named - OWN) == []
    assert sorted(OWN - reading) == []


@pytest.mark.skipif(
    not all(one.declarations().exists() for one in fetch_declarations.packages().values()),
    reason="no declarations: `make setup` downloads them",
)
def test_fields_that_no_official_package_declares_are_in_the_table() -> None:
    declarations = [one.declarations() for one in fetch_declarations.packages().values()]
    known = {
        word
        for text in (*(path.read_text("utf-8") for path in declarations), relied_on())
        for word in re.findall(r"\w+", text)
    }
    code = {
        path: path.read_text("utf-8")
        for folder in FOLDERS
        for path in (SOURCE / folder).rglob("*.py")
    }
    core = "".join(
        text
        for path, text in code.items()
        if {SOURCE / "_engine", SOURCE / "sessions" / "_transcripts"} & set(path.parents)
    )
    found = {name for text in code.values() for name in names_read(ast.parse(text))}
    found |= set(fields_read(core))
    fields = {name for name in found if re.fullmatch(r"[a-z]+(?:_[a-z]+|[A-Z][a-z]+)+", name)}
    assert sorted(fields - known - OWN_FIELDS) == []
    assert fields >= OWN_FIELDS - {row.name for _, row in option_rows()}
