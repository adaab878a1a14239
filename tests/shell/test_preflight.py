"""What is checked about a CLI before and while it starts."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import bridle
from bridle import (
    BidirOptions,
    CliOptions,
    OptionsError,
    SdkOptions,
    UnsupportedCliVersionError,
    sync,
)
from bridle._engine.versions import Version
from bridle._process.locate import Failed, TimedOut, Unreadable
from bridle._session.preflight import (
    judge_version,
    settings_text,
    settle_options,
)
from bridle.testing import FakeCli, FakeTransport, ScriptedModel, text


def test_an_old_version_is_a_problem_and_a_new_one_is_none() -> None:
    """R141, R142, C21, C22: at or above the minimum goes on, below it fails with both versions."""
    with pytest.raises(UnsupportedCliVersionError) as caught:
        judge_version(Version(1, 0, 128))
    assert (caught.value.found, caught.value.minimum) == ("1.0.128", "2.0.0")
    assert judge_version(Version(2, 0, 0)) is None
    assert judge_version(Version(2, 1, 325)) is None


UNKNOWN: dict[str, Unreadable | TimedOut | Failed] = {
    "it answered --version with 'hello', which holds none": Unreadable("hello"),
    "it answered --version with nothing": Unreadable(""),
    "it did not answer --version within 2 s": TimedOut(2.0),
    "it failed at --version: no such file": Failed("no such file"),
}


@pytest.mark.parametrize("words", UNKNOWN)
def test_a_version_that_cannot_be_known_is_reported_in_words(words: str) -> None:
    """R143, R144, R145: or refused, where that is asked for."""
    assert judge_version(UNKNOWN[words]) == words
    with pytest.raises(UnsupportedCliVersionError, match="permissive_version_check") as caught:
        judge_version(UNKNOWN[words], strict=True)
    assert words in str(caught.value)
    assert "too old" not in str(caught.value)


async def _in_query() -> None:
    async with bridle.query("x"):
        pass


@pytest.mark.parametrize(
    "work",
    [lambda: bridle.run("x"), _in_query, lambda: bridle.Session().connect()],
    ids=["run", "query", "session"],
)
def test_under_another_framework_the_blocking_door_is_named(
    work: Callable[[], Awaitable[object]],
) -> None:
    with pytest.raises(RuntimeError, match=r"bridle\.sync"):
        trio.run(work)


@pytest.mark.parametrize("kind", [Unreadable, Failed])
def test_what_a_cli_says_of_its_version_is_reported_short_and_without_secrets(
    kind: type[Unreadable] | type[Failed],
) -> None:
    words = str(kind("password=aaaabbbb-ccccdddd-1234 " + "x" * 400))
    assert "aaaabbbb" not in words
    assert len(words) < 200


# ---------------------------------------------------------------- files that options name

FILES = ("settings", "mcp_config", "system_prompt_file")


def naming(path: str, *fields: str, **more: Any) -> CliOptions:
    """Options that name a file."""
    named: dict[str, Any] = dict.fromkeys(fields, path)
    return CliOptions(**named, **more)


async def _in_session(cli: CliOptions) -> None:
    async with bridle.start_session(cli):
        pass


def _in_sync_session(cli: CliOptions) -> None:
    with sync.start_session(cli):
        pass


DOORS: dict[str, Callable[[CliOptions], object]] = {
    "start_session": lambda cli: asyncio.run(_in_session(cli)),
    "run": lambda cli: asyncio.run(bridle.run("x", cli=cli)),
    "query": lambda cli: bridle.query("x", cli),
    "sync.start_session": _in_sync_session,
    "sync.run": lambda cli: sync.run("x", cli=cli),
    "sync.query": lambda cli: list(sync.query("x", cli)),
}


@pytest.mark.parametrize("field", FILES)
@pytest.mark.parametrize("door", DOORS)
def test_a_file_that_is_not_there_is_reported_before_anything_starts(
    door: str, field: str, tmp_path: Path
) -> None:
    with FakeCli.auto() as fake:
        cli = naming("nope.json", field, cwd=tmp_path, cli_path=fake.path)
        with pytest.raises(OptionsError) as refused:
            DOORS[door](cli)
        assert fake.runs == []
    assert refused.value.field == field
    assert refused.value.problem == f"names {tmp_path}/nope.json, which is not a file"
    assert "Name a file that exists" in refused.value.fix


@pytest.mark.parametrize("field", FILES)
@pytest.mark.parametrize("cwd", [None, "work"])
def test_a_relative_path_counts_from_where_the_cli_works(
    cwd: str | None, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    (tmp_path / (cwd or "") / "there.json").write_text("{}")
    (tmp_path / ("" if cwd else "work") / "elsewhere.json").write_text("{}")
    settle_options(naming("there.json", field, cwd=cwd), None, None, {})
    with pytest.raises(OptionsError, match="~ is not expanded"):
        settle_options(naming("elsewhere.json", field, cwd=cwd), None, None, {})


def test_the_cli_counts_from_there_as_well(
    real_cli: Path, scripted_model: Callable[..., ScriptedModel], tmp_path: Path
) -> None:
    model = scripted_model([[text("Neigh.")]])
    (tmp_path / "there.txt").write_text("You are a horse.")
    (tmp_path / "there.json").write_text("{}")
    (tmp_path / "servers.json").write_text('{"mcpServers": {}}')
    cli = CliOptions(
        cli_path=real_cli,
        env=model.env,
        cwd=tmp_path,
        settings="there.json",
        mcp_config="servers.json",
        system_prompt_file="there.txt",
    )
    assert sync.run("hello", cli=cli).text == "Neigh."
    assert "You are a horse." in str(model.requests[0].raw["system"])


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "names {}/, which is not a file"),
        ("file/deeper", "names {}/file/deeper, which is not a file"),
        ("dangling", "names {}/dangling, which is not a file"),
        ("\ud800", "names {}/\ud800, which is not a file"),
        ("circle", "names {}/circle, which cannot be read: Too many levels of symbolic links"),
    ],
)
def test_what_cannot_be_a_file_to_read_is_none(path: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OptionsError) as refused:
        settle_options(CliOptions(settings=f"{tmp_path}/{path}"), None, None, {})
    assert refused.value.problem == problem.format(tmp_path)


@contextmanager
def _as_somebody() -> Iterator[None]:
    """Without the rights of root, who may read everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("locked", ["file", "directory"])
def test_a_file_that_may_not_be_read_is_reported_as_such(locked: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "directory"
        place.mkdir()
        (place / "file").write_text("{}")
        Path(name).chmod(0o755)
        (place / "file" if locked == "file" else place).chmod(0)
        try:
            with _as_somebody(), pytest.raises(OptionsError) as refused:
                settle_options(CliOptions(mcp_config=place / "file"), None, None, {})
        finally:
            place.chmod(0o755)
    assert refused.value.field == "mcp_config"
    assert refused.value.problem == f"names {place}/file, which cannot be read: Permission denied"


def test_the_error_of_a_file_names_the_configuration_that_names_it(tmp_path: Path) -> None:
    config = tmp_path / "bridle.toml"
    config.write_text('[cli]\nmcp_config = "/nowhere/servers.json"\n')
    with pytest.raises(OptionsError) as refused:
        settle_options(None, SdkOptions(config_file=config), None, {})
    assert refused.value.field == "config: cli.mcp_config"


def test_a_pipe_is_left_to_its_reader(tmp_path: Path) -> None:
    """To open it would wait for its writer, or make the writer believe that it was read."""
    os.mkfifo(tmp_path / "pipe")
    settle_options(CliOptions(mcp_config=tmp_path / "pipe"), None, None, {})


@pytest.mark.parametrize("said", ['{"a": 1}', ' \n{"a": 1}', {"a": 1}])
def test_text_given_in_full_is_not_a_path(said: Any) -> None:
    settle_options(CliOptions(settings=said), None, None, {})


def test_the_error_of_a_missing_directory_names_the_directory() -> None:
    settle_options(CliOptions(cwd="/nowhere", settings="a.json"), None, None, {})


@pytest.mark.parametrize(
    "doubles",
    [(None, BidirOptions(transport_factory=FakeTransport())), (SdkOptions(runner=id), None)],
    ids=["transport", "runner"],
)
def test_where_no_cli_is_started_no_file_is_needed(
    doubles: tuple[SdkOptions | None, BidirOptions | None],
) -> None:
    settle_options(naming("/nowhere", *FILES), *doubles, {})


def test_settings_beside_a_sandbox_are_read_where_the_cli_would(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text('{"a": 1}')
    cli = CliOptions(cwd=tmp_path, settings="there.json", sandbox={})
    assert settings_text(cli) == b'{"a": 1}'
    with pytest.raises(OptionsError, match="is not a file"):
        settings_text(cli.replace(settings="nope.json"))
