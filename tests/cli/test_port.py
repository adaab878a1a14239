"""The native name of each use of the official SDK."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path

import claude_agent_sdk as official
import claude_agent_sdk.types as official_types
import pytest

import bridle
from bridle import BidirOptions, CliOptions, SdkOptions, Session, cli
from bridle.cli._port.names import ARGUMENTS, DIFFERENCES, METHODS, NAMES, OPTIONS
from bridle.cli._port.uses import Use, uses

PROGRAMS = sorted((Path(__file__).parents[1] / "compat" / "programs").glob("*.py"))


# ---------------------------------------------------------------- the tables


def test_every_public_name_of_the_official_sdk_has_a_native_name_or_a_note() -> None:
    assert set(official.__all__) <= NAMES.keys()
    assert [name for name, one in NAMES.items() if not one.name and not one.note] == []


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_native_name_exists(name: str) -> None:
    one = NAMES[name]
    if one.name:
        assert hasattr(importlib.import_module(one.module), one.name)


def test_every_option_of_the_official_sdk_is_an_option_of_bridle_or_has_a_note() -> None:
    ours = {*CliOptions.fields, *SdkOptions.fields, *BidirOptions.fields}
    for one in dataclasses.fields(official.ClaudeAgentOptions):
        option = OPTIONS.get(one.name)
        name = one.name if option is None else option.name
        assert name in ours or (option is not None and option.note), one.name


def test_every_method_of_a_client_has_a_native_method() -> None:
    public = {name for name in vars(official.ClaudeSDKClient) if not name.startswith("_")}
    assert public == METHODS.keys()
    session = Session.__new__(Session)
    for path in METHODS.values():
        if path == "turn":  # what send_user_message returned
            continue
        _, first, *rest = path.split(".")
        assert hasattr(type(session), first), path
        assert not rest or rest[0] in inspect.getsource(bridle.operations), path


def test_every_kind_of_permission_update_has_a_class() -> None:
    hint = official_types.PermissionUpdate.__annotations__["type"]
    kinds = set(re.findall(r'["\'](\w+)["\']', str(hint)))
    note = NAMES["PermissionUpdate"].note
    for kind in kinds:
        name = kind[0].upper() + kind[1:]
        assert hasattr(bridle.permissions, name)
        assert name in note


@pytest.mark.parametrize("taker", sorted(ARGUMENTS))
def test_the_arguments_of_the_official_sdk_exist(taker: str) -> None:
    assert ARGUMENTS[taker].keys() <= inspect.signature(getattr(official, taker)).parameters.keys()


# ---------------------------------------------------------------- uses


def named(program: str) -> list[tuple[int, str, str]]:
    """Return the line, the official name and the native name of each use."""
    return [(use.line, use.official, use.native) for use in uses(program)]


@pytest.mark.parametrize(
    ("head", "prefix"),
    [
        ("import claude_agent_sdk as sdk", "sdk."),
        ("import claude_agent_sdk", "claude_agent_sdk."),
        ("import claude_agent_sdk.types", "claude_agent_sdk.types."),
        ("from claude_agent_sdk import types", "types."),
        ("from claude_agent_sdk import *", ""),
    ],
)
def test_a_name_is_found_however_it_is_imported(head: str, prefix: str) -> None:
    program = f"{head}\nx = {prefix}TextBlock\ny = other.TextBlock\n"
    assert named(program) == [(2, "TextBlock", "bridle.TextBlock")]


def test_a_renamed_import_is_found() -> None:
    program = "from claude_agent_sdk import TextBlock as Text\nx = Text, TextBlock\n"
    expected = [(1, "TextBlock", "bridle.TextBlock"), (2, "TextBlock", "bridle.TextBlock")]
    assert named(program) == expected


def test_a_name_that_is_not_known_is_listed() -> None:
    [use] = uses("from claude_agent_sdk import Newest\n")
    assert use == Use(1, "Newest", "", "No native name.")


def test_options_that_differ_are_found_where_they_are_given_set_and_replaced() -> None:
    program = """\
import dataclasses
from claude_agent_sdk import ClaudeAgentOptions

options = ClaudeAgentOptions(model="m", can_use_tool=ask, **more)
options.resume = "x"
other = dataclasses.replace(options, stderr=print)
dataclasses.replace(something, stderr=print)
"""
    assert named(program)[1:] == [
        (4, "**more", ""),
        (4, "ClaudeAgentOptions", "bridle.Agent"),
        (4, "can_use_tool=", "on_can_use_tool="),
        (5, "resume=", "resume_session_id="),
        (6, "stderr=", "on_stderr="),
    ]


@pytest.mark.parametrize(
    "program",
    [
        "async def f():\n    async with ClaudeSDKClient() as c:\n        await c.interrupt()\n",
        "async def f():\n    c = ClaudeSDKClient()\n\n    await c.interrupt()\n",
        "class A:\n    c: ClaudeSDKClient | None\nasync def f():\n    await c.interrupt()\n",
        "async def f(\n    c: ClaudeSDKClient\n):\n    await c.interrupt()\n",
    ],
    ids=["with", "assignment", "annotation", "parameter"],
)
def test_methods_of_a_client_are_found(program: str) -> None:
    *_, last = named(f"from claude_agent_sdk import *\n{program}")
    assert last[1:] == ("c.interrupt", "session.interrupt")


def test_a_method_of_a_client_without_a_name_is_found() -> None:
    *_, last = named("from claude_agent_sdk import *\nx = ClaudeSDKClient(o).interrupt()\n")
    assert last == (2, "ClaudeSDKClient(o).interrupt", "session.interrupt")


def test_methods_of_other_objects_are_left_out() -> None:
    assert named("import claude_agent_sdk\nc = Other()\nc.interrupt()\n") == []


def test_a_program_without_the_sdk_has_no_uses() -> None:
    assert uses("from bridle import query\nquery('hi')\n") == []


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_name_that_a_real_program_imports_is_listed(path: Path) -> None:
    text = path.read_text("utf-8")
    found = {use.official for use in uses(text)}
    imported = re.findall(r"^from claude_agent_sdk import (?:\(([^)]*)\)|([^(\n]+))", text, re.M)
    names = {word for one in imported for word in re.findall(r"\w+(?= as |,|$|\s)", " ".join(one))}
    assert names & set(official.__all__) <= found
    assert all(use.native or use.note for use in uses(text))


# ---------------------------------------------------------------- the command


def test_the_command_prints_each_use_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "agent.py"
    text = 'from claude_agent_sdk import query\n\nstream = query(prompt="hi", options=o)\n'
    program.write_text(text)
    assert cli.main(["port", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        f"{program}:1: query -> bridle.query\n"
        "    query(prompt, model=..., ...), or agent.query(prompt).\n"
        f"{program}:3: options= -> (The options are arguments of query, or of Agent.)\n"
        f"{program}:3: query -> bridle.query\n"
        "\n"
        "3 uses in 1 program.\n"
        "\n"
        "What differs beside the names:\n"
        + "".join(f"  {topic}: {text}\n" for topic, text in DIFFERENCES.items())
    )
    assert list(DIFFERENCES) == ["system prompt", "hooks", "results"]
    assert program.read_text() == text


def test_the_command_says_that_there_is_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("print(1)\n")
    assert cli.main(["port", str(tmp_path / "a.py")]) == 0
    assert capsys.readouterr().out == "No use of claude_agent_sdk found.\n"


@pytest.mark.parametrize("content", [b"def (:\n", b"\xff\xfe\x00"])
def test_the_command_names_a_file_that_is_not_a_program(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_bytes(content)
    assert cli.main(["port", str(tmp_path / "a.py")]) == 2
    assert "a.py" in capsys.readouterr().err


def test_the_report_covers_the_other_files_if_one_is_not_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("def (:\n")
    (tmp_path / "b.py").write_text("from claude_agent_sdk import query\n")
    assert cli.main(["port", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert "1 use in 1 program" in shown.out
    assert "a.py" in shown.err


def test_the_command_reads_a_file_with_a_byte_order_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbffrom claude_agent_sdk import query\n")
    assert cli.main(["port", str(tmp_path / "a.py")]) == 0
    assert "1 use in 1 program" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["a" + ".b" * 3000, "-" * 50000 + "1"], ids=["RecursionError", "MemoryError"]
)
def test_a_program_that_is_nested_too_deeply_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep, good = tmp_path / "deep.py", tmp_path / "good.py"
    deep.write_text(f"import claude_agent_sdk\nx = {text}\n")
    good.write_text("from claude_agent_sdk import TextBlock\n")
    assert cli.main(["port", str(deep), str(good)]) == 2
    out, err = capsys.readouterr()
    assert "TextBlock -> bridle.TextBlock" in out
    assert f"cannot read {deep}: it is nested too deeply" in err.replace("\n", " ")
