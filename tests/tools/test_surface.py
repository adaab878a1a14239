"""`make surface`: nothing that the official packages offer is missing without a reason."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import claude_agent_sdk
import pytest
from claude_agent_sdk._cli_version import __cli_version__

import fetch_declarations
import surface
import surface_sources
from bridle.options import RECORDS
from bridle.options._keywords import HINTS
from surface import Comparison, compare
from surface_sources import KINDS, PythonSdk, TypeScriptSdk, flags_in, names
from typescript_types import Declarations, literals

LISTS = {
    "names": {"options": {"resume": "resume_session_id"}},
    "left_out": {"options": {"executable": "It is native."}},
    "to_do": {"options": {"user": "not built yet"}},
}
OFFICIAL = {
    "Python SDK": {"model", "resume", "user"},
    "TypeScript SDK": {"model", "executable"},
}
OURS = {"model", "resume_session_id", "recorder"}


@pytest.fixture(scope="module")
def found() -> list[Comparison]:
    """The comparison with the pinned packages."""
    try:
        return surface.comparisons()
    except surface.NotFetched as problem:
        pytest.skip(str(problem))


# ---------------------------------------------------------------- the pinned packages


def test_every_official_name_is_built_or_listed(found: list[Comparison]) -> None:
    assert {one.kind: sorted(one.unlisted) for one in found if one.unlisted} == {}


@pytest.mark.parametrize("source", ["Python", "TypeScript"])
def test_every_official_option_is_an_option_or_has_a_hint(source: str) -> None:
    if source == "Python":
        official = names(PythonSdk(claude_agent_sdk), "options")
    else:
        paths = {key: one.declarations() for key, one in fetch_declarations.packages().items()}
        if not all(path.exists() for path in paths.values()):
            pytest.skip("the TypeScript packages are not fetched: run make surface")
        official = names(TypeScriptSdk(paths["sdk"], paths["api"]), "options")
    ours = {name for record in RECORDS.values() for name in record.fields}
    assert official - ours - set(HINTS) == set()


def test_no_line_of_the_lists_is_out_of_date(found: list[Comparison]) -> None:
    """A listed name that Bridle has, or that no package has any more, must be deleted."""
    assert {one.kind: sorted(one.stale) for one in found if one.stale} == {}


def test_every_name_that_is_left_out_has_a_reason(found: list[Comparison]) -> None:
    for one in found:
        for name, reason in one.left_out.items():
            assert re.fullmatch(r"[A-Z].+\.", reason), name


def test_a_name_without_a_line_makes_the_program_fail(
    found: list[Comparison],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert found
    text = fetch_declarations.LISTS.read_text("utf-8")
    shorter = text.replace(next(row for row in text.splitlines() if "set_color" in row), "")
    lists = tmp_path / "surface.toml"
    lists.write_text(shorter)
    monkeypatch.setattr(surface, "LISTS", lists)
    monkeypatch.setattr("sys.argv", ["surface.py"])
    assert surface.main() == 1
    assert "NEW" in (printed := capsys.readouterr().out)
    assert printed.rstrip().endswith("control requests: set_color")


def test_the_pinned_typescript_package_belongs_to_the_cli_of_the_python_package() -> None:
    directory = fetch_declarations.packages()["sdk"].directory()
    if not directory.exists():
        pytest.skip("the package is not here: `make setup` downloads it, with npm")
    described = json.loads((directory / "package.json").read_text("utf-8"))
    assert described["claudeCodeVersion"] == __cli_version__


# ---------------------------------------------------------------- the comparison


def test_names_are_compared_in_the_spelling_of_bridle() -> None:
    one = compare("options", OURS, OFFICIAL, LISTS)
    assert one.official == {"model", "resume_session_id", "user", "executable"}
    assert one.missing == {"user"}
    assert one.unlisted == set()
    assert one.stale == set()


def test_an_unlisted_name_is_missing_and_unlisted() -> None:
    official = {**OFFICIAL, "`claude --help`": {"novelty"}}
    one = compare("options", OURS, official, LISTS)
    assert one.missing == {"user", "novelty"}
    assert one.unlisted == {"novelty"}


@pytest.mark.parametrize(
    ("ours", "gone", "stale"),
    [
        (OURS | {"user"}, set(), {"user"}),
        (OURS, {"user"}, {"user"}),
        (OURS, {"executable"}, {"executable"}),
        (OURS, {"resume"}, {"resume"}),
    ],
    ids=["built", "no longer wanted", "no longer offered", "no longer renamed"],
)
def test_a_line_that_no_longer_applies_is_stale(
    ours: set[str], gone: set[str], stale: set[str]
) -> None:
    official = {source: some - gone for source, some in OFFICIAL.items()}
    assert compare("options", ours, official, LISTS).stale == stale


def test_the_table_counts_the_names_of_each_source() -> None:
    official = {**OFFICIAL, "`claude --help`": set[str]()}
    row = surface.table([compare("options", OURS, official, LISTS)]).splitlines()[2]
    assert row == "| options | 4 | 2 | 3 | 2 |  | 1 | 1 |"


def test_lists_of_an_unknown_kind_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = tmp_path / "surface.toml"
    lists.write_text("[names]\n[left_out]\n[to_do.optoins]\nuser = 'not built yet'")
    monkeypatch.setattr(surface, "LISTS", lists)
    with pytest.raises(SystemExit, match="optoins"):
        surface.comparisons()


# ---------------------------------------------------------------- the sources


def test_every_kind_is_a_method_of_bridle_and_of_another_source() -> None:
    others = (PythonSdk, TypeScriptSdk, surface_sources.Cli)
    for kind in KINDS:
        assert hasattr(surface_sources.Bridle, kind)
        assert any(hasattr(source, kind) for source in others)


def test_a_field_whose_name_is_a_constant_of_the_module_counts() -> None:
    assert "sdkMcpServerManifests" in names(surface_sources.Bridle(), "initialize_fields")


def test_a_source_that_finds_nothing_is_an_error() -> None:
    """A package that moved its names must not look like one that has none."""

    class Empty:
        def options(self) -> Iterable[str]:
            return ()

    with pytest.raises(LookupError, match="options"):
        names(Empty(), "options")
    assert names(Empty(), "flags") == set()


def test_a_python_package_is_read_from_its_types_and_its_literals(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "client.py").write_text(
        '''
def _build_command(self):
    """--not-a-flag"""
    return ["--model", f"--resume={self.resume}"]

async def initialize(self):
    request = {"subtype": "initialize", "hooks": None}
    request["agents"] = 1

async def stop(self):
    self.send({"subtype": "stop_task", "task_id": 1})
    self.tell({"type": "system", "subtype": "no_request"})
    self.answer({"subtype": "success", "request_id": 1})

def _handle_control_request(self, subtype):
    if subtype == "can_use_tool":
        pass

def parse_message(data):
    if data.get("subtype") in ("hook_started", "hook_response"):
        pass
    match message_type:
        case "user":
            match block["type"]:
                case "text":
                    pass
        case "system":
            match subtype:
                case "task_started":
                    pass
'''
    )

    @dataclass
    class ClaudeAgentOptions:
        model: str

    @dataclass
    class AgentDefinition:
        maxTurns: int  # noqa: N815  # the official spelling

    package: Any = ModuleType("package")
    package.__file__ = str(tmp_path / "__init__.py")
    package.types = SimpleNamespace(
        ClaudeAgentOptions=ClaudeAgentOptions,
        AgentDefinition=AgentDefinition,
        HookEvent=Literal["Stop"] | Literal["PreToolUse"],
        PermissionMode=Literal["plan"],
        EffortLevel=Literal["low", "high"],
        SettingSource=Literal["user"],
    )
    sdk = PythonSdk(package)
    assert {kind: sorted(names(sdk, kind)) for kind in KINDS} == {
        "options": ["model"],
        "flags": ["--model", "--resume"],
        "initialize_fields": ["agents", "hooks"],
        "agent_fields": ["max_turns"],
        "control_requests": ["can_use_tool", "initialize", "stop_task"],
        "hook_events": ["PreToolUse", "Stop"],
        "messages": [
            "system/hook_response",
            "system/hook_started",
            "system/task_started",
            "user",
        ],
        "blocks": ["text"],
        "stream_events": [],
        "permission_modes": ["plan"],
        "efforts": ["high", "low"],
        "setting_sources": ["user"],
    }


def test_a_python_package_without_the_function_to_read_is_an_error() -> None:
    sdk = PythonSdk(claude_agent_sdk)
    with pytest.raises(LookupError, match="no_such_function"):
        sdk._functions("no_such_function")


def test_flags_are_read_from_a_help_text() -> None:
    text = """Usage: claude

Options:
  -d, --debug [filter]        Enable debug mode (e.g.,
                              --debug=api)
  --allowedTools, --allowed-tools <tools...>
      Comma-separated list, like --tools

Commands:
  --not-a-flag
"""
    assert list(flags_in(text)) == ["--debug", "--allowedTools", "--allowed-tools"]


# ---------------------------------------------------------------- declaration files

DECLARED = """
import { X } from 'x';
/** A comment with 'quotes' and { brackets. */
export declare type Mode = 'a' | 'b';
declare type Ask = Get | space.Put;
declare type Get = { subtype: 'get'; };
declare type Put = Base & {
    subtype: 'put';   // another comment
    readonly value?: Record<string, { deep: number; }>;
    [key: string]: unknown;
    done(): void;
};
declare type Base = { id: string; };
export declare class Thing { field: string; }
declare type Call = (name: string) => Promise<void>;
export declare interface Query extends Other<Base> {
    stop(): Promise<void>;
}
declare type Last = Mode;
"""


def test_declarations_are_read_with_their_fields_and_unions() -> None:
    declared = Declarations(DECLARED)
    assert declared.names() == ["Mode", "Ask", "Get", "Put", "Base", "Call", "Query", "Last"]
    assert declared.union("Mode") == ["a", "b"]
    assert declared.union("Ask") == ["Get", "Put"]
    assert declared.union("Last") == ["a", "b"]
    fields = declared.fields("Put")
    assert list(fields) == ["id", "subtype", "value", "done"]
    assert literals(fields["subtype"].type) == ["put"]
    assert [name for name, field in fields.items() if field.optional] == ["value"]
    assert list(declared.fields("Query")) == ["stop"]
    assert declared.fields_in(fields["value"].type) == {}
    with pytest.raises(LookupError, match="Missing"):
        declared.type_of("Missing")


# ---------------------------------------------------------------- downloads


def test_only_an_archive_with_the_pinned_checksum_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tmp_path / "package"
    content.mkdir()
    (content / "sdk.d.ts").write_text("declare type A = 'a';")
    (content / "package.json").write_text("{}")
    archive = tmp_path / "it.tgz"
    with tarfile.open(archive, "w:gz") as made:
        made.add(content, "package")

    def pack(package: str, scratch: str) -> Path:
        assert package == "@x/sdk@1.0.0"
        return Path(shutil.copy(archive, scratch))

    monkeypatch.setattr(fetch_declarations, "pack", pack)
    monkeypatch.setattr(fetch_declarations, "KEPT_IN", tmp_path)
    wrong = fetch_declarations.Package("@x/sdk", "1.0.0", "sha512-other", "sdk.d.ts")
    with pytest.raises(SystemExit, match="checksum"):
        fetch_declarations.fetch(wrong)
    assert not wrong.declarations().exists()
    pinned = fetch_declarations.Package(
        "@x/sdk", "1.0.0", fetch_declarations.integrity_of(archive), "sdk.d.ts"
    )
    path = fetch_declarations.fetch(pinned)
    assert path.read_text() == "declare type A = 'a';"
    monkeypatch.setattr(fetch_declarations, "pack", None)  # not needed a second time
    assert fetch_declarations.fetch(pinned) == path
