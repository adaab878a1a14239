"""`bridle verify`: the table, the JSON, the exit codes, and the stored result."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.real.test_verify import BREAKAGES, KEPT_BY_BRIDLE
from tests.support.limits import SetLimits
from tests.support.steps import ReplaceSteps

from bridle import Agent, CliOptions
from bridle._engine.versions import TESTED, Version
from bridle._session import preflight
from bridle.cli import main as command
from bridle.cli import verify as cli_verify
from bridle.errors import UnverifiedCliError
from bridle.testing import verify
from bridle.testing._verify._running import runner
from bridle.testing._verify._running.promise_table import WIDTH, page
from bridle.testing._verify.promises import Broken, all_checks, expect, require
from bridle.testing.verifications import (
    Promise,
    Verification,
    bridle_version,
    cache_directory,
    identity,
    store_verification,
    stored_verification,
)


def promise(id: str = "guard.block", state: Any = "held", observed: str = "it held") -> Promise:
    return Promise(
        id=id, sentence="A guard stops the tool. " * 4, state=state, observed=observed, depends="x"
    )


def result(path: Path, *promises: Promise, **changes: Any) -> Verification:
    given = Verification(
        cli_path=str(path),
        cli_version="2.1.326",
        cli_sha256=identity(str(path)),
        bridle_version=bridle_version(),
        at=time.time(),
        seconds=12.0,
        promises=promises or (promise(),),
    )
    return msgspec.structs.replace(given, **changes)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def cli(tmp_path: Path) -> Path:
    path = tmp_path / "claude"
    path.write_text("#!/bin/sh\necho 2.1.326\n")
    path.chmod(0o755)
    return path


# ---------------------------------------------------------------- which CLI it is


def test_a_changed_program_has_another_identity(cli: Path, tmp_path: Path) -> None:
    before = identity(str(cli))
    link = tmp_path / "link"
    link.symlink_to(cli)
    assert identity(str(link)) == before
    cli.write_text("#!/bin/sh\necho 2.1.327\n")
    assert identity(str(cli)) != before


@pytest.mark.parametrize("name", ["{directory}/package/cli.js", "$here/package/cli.js"])
def test_the_identity_of_a_script_covers_the_files_that_it_names(
    cli: Path, tmp_path: Path, name: str
) -> None:
    program = tmp_path / "package" / "cli.js"
    program.parent.mkdir()
    program.write_text("one")
    cli.write_text(f'#!/bin/sh\nexec node "{name.format(directory=tmp_path)}" "$@"\n')
    before = identity(str(cli))
    program.write_text("two")
    assert identity(str(cli)) != before


@pytest.mark.parametrize("name", ["inner-cli", "~/inner-cli"])
def test_the_identity_of_a_script_covers_programs_in_path_and_in_the_home(
    cli: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path}/home:{os.environ['PATH']}")
    program = tmp_path / "home" / "inner-cli"
    program.parent.mkdir()
    program.write_text("one")
    program.chmod(0o755)
    cli.write_text(f'#!/bin/sh\nexec {name} "$@"\n')
    before = identity(str(cli))
    program.write_text("two")
    assert identity(str(cli)) != before


def test_the_result_of_a_script_that_names_no_file_is_not_stored(cli: Path) -> None:
    cli.write_text('#!/bin/sh\nexec "$CLAUDE" "$@"\n')
    store_verification(result(cli))
    assert stored_verification(str(cli)) is None


# ---------------------------------------------------------------- the stored result


def test_a_result_is_found_again_for_the_same_cli_and_bridle(cli: Path) -> None:
    assert stored_verification(str(cli)) is None
    stored = result(cli)
    store_verification(stored)
    assert stored_verification(str(cli)) == stored
    [file] = Path(cache_directory()).iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    store_verification(result(cli, bridle_version="0.0.1"))
    assert stored_verification(str(cli)) is None


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "writable", "link", "other", "future"])
def test_a_damaged_or_foreign_result_is_ignored(cli: Path, tmp_path: Path, damage: str) -> None:
    store_verification(result(cli))
    [file] = Path(cache_directory()).iterdir()
    content = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(content[:-20])
        case "empty":
            file.write_bytes(b"")
        case "text":
            file.write_bytes(b"\xff\xfe nothing")
        case "writable":
            file.chmod(0o666)
        case "link":
            elsewhere = tmp_path / "elsewhere.json"
            file.rename(elsewhere)
            file.symlink_to(elsewhere)
        case "other":
            file.write_bytes(msgspec.json.encode(result(cli, cli_sha256="0" * 64)))
        case _:
            file.write_bytes(msgspec.json.encode(result(cli, at=time.time() + 3600)))
    assert stored_verification(str(cli)) is None


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["held", "held"], 0),
        (["held", "broken"], 1),
        (["unsupported", "broken"], 1),
        (["held", "unsupported"], 3),
        ([], 1),
    ],
)
def test_the_exit_code_is_zero_only_if_all_promises_hold(
    cli: Path, states: list[str], code: int
) -> None:
    promises = tuple(promise(f"p.{number}", state) for number, state in enumerate(states))
    found = result(cli, promises=promises)
    assert cli_verify.exit_code(found) == code
    assert found.holds is (code == 0)


def test_the_table_fits_the_width_and_names_what_did_not_hold(cli: Path) -> None:
    found = result(
        cli,
        promise(),
        promise("limit.usd", "broken", "it ended as completed, " * 12),
        promise("approval.allow", "unsupported", "the CLI is too old"),
        cli_path="/usr/bin/claude",
    )
    lines = page(found).splitlines()
    assert max(map(len, lines)) <= WIDTH
    text = "\n".join(lines)
    assert "✓ held         guard.block" in text
    assert "✗ broken       limit.usd" in text
    assert "! unsupported  approval.allow" in text
    assert "observed: it ended as completed" in text
    assert lines[-1] == ("1 of 3 promises hold, 1 broken, 1 unsupported (CLI 2.1.326, 12 s).")


def test_a_cli_that_cannot_start_breaks_the_promises_and_leaves_nothing(
    cli: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], set_limits: SetLimits
) -> None:
    set_limits(temporary_directory=str(tmp_path))
    before = set(tmp_path.iterdir())
    assert command(["verify", "--cli", str(cli), "--json"]) == 1
    printed = msgspec.json.decode(capsys.readouterr().out)
    assert printed["holds"] is False
    first, *others, left = printed["promises"]
    assert (first["id"], first["state"], left["state"]) == ("start.session", "broken", "held")
    assert {one["observed"] for one in others} == {"not tried: no session can be started"}
    assert set(tmp_path.iterdir()) - before == {tmp_path / "cache"}
    stored = stored_verification(str(cli))
    assert stored is not None
    assert not stored.holds
    assert next(one.held for one in verify(cli)) is False


def test_a_promise_is_broken_if_no_process_can_be_started_for_it(
    cli: Path, replace_steps: ReplaceSteps
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "no descriptors")

    replace_steps(start_verifier=fail)
    [found] = runner.run_all(cli, only=["guard.block"]).promises
    assert (found.state, found.observed) == ("broken", "it could not be tried: OSError")


def test_a_cli_that_does_not_exist_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["verify", "--cli", str(tmp_path / "none")]) == 6
    assert "was not found" in capsys.readouterr().err


# ---------------------------------------------------------------- doctor, fleets and sessions


def test_the_doctor_shows_the_stored_result(cli: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def verified() -> dict[str, Any]:
        command(["doctor", "--cli", str(cli), "--json"])
        findings = msgspec.json.decode(capsys.readouterr().out)["findings"]
        return next(one for one in findings if one["check"] == "verified")

    assert "bridle verify" in verified()["text"]
    store_verification(result(cli))
    assert verified()["state"] == "ok"
    store_verification(result(cli, promise("limit.usd", "broken")))
    found = verified()
    assert found["state"] == "warning"
    assert "limit.usd" in found["details"][0]


def test_a_worker_refuses_a_cli_on_which_a_promise_is_broken(cli: Path, tmp_path: Path) -> None:
    fleet = pytest.importorskip("bridle.fleet", reason="needs the extra 'fleet' (dbos)")
    pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")
    store_verification(result(cli, promise("limit.usd", "broken")))  # tried again
    database = f"sqlite:///{tmp_path}/runs.db"
    made = fleet.Fleet(Agent(cli_path=str(cli)), database, verified=True)
    with pytest.raises(UnverifiedCliError) as caught:
        asyncio.run(made.work())
    assert caught.value.path == str(cli)
    assert "start.session" in caught.value.broken
    assert not os.path.exists(tmp_path / "runs.db")


def test_a_worker_tries_the_promises_if_no_result_is_stored(cli: Path, tmp_path: Path) -> None:
    fleet = pytest.importorskip("bridle.fleet", reason="needs the extra 'fleet' (dbos)")
    pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")
    made = fleet.Fleet(Agent(cli_path=str(cli)), f"sqlite:///{tmp_path}/runs.db", verified=True)
    with pytest.raises(UnverifiedCliError) as caught:
        asyncio.run(made.work())
    assert "start.session" in caught.value.broken
    assert stored_verification(str(cli)) is not None


def test_promises_that_are_not_tried_in_time_count_as_not_verified(
    cli: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits
) -> None:
    from bridle.fleet import _verified

    hanging = tmp_path / "hanging"
    hanging.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/pid\nsleep 1000\n")
    hanging.chmod(0o755)
    set_limits(python=str(hanging))
    set_limits(verifying=1.0, verifying_grace=0.5)
    with pytest.raises(UnverifiedCliError) as caught:
        asyncio.run(_verified.verified_cli(CliOptions(cli_path=str(cli))))
    assert caught.value.broken == ()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_worker_takes_runs_with_a_verified_cli(cli: Path, tmp_path: Path) -> None:
    fleet = pytest.importorskip("bridle.fleet", reason="needs the extra 'fleet' (dbos)")
    pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")
    store_verification(result(cli))
    made = fleet.Fleet(Agent(cli_path=str(cli)), f"sqlite:///{tmp_path}/runs.db", verified=True)
    stop = asyncio.Event()
    stop.set()
    await made.work(stop=stop)
    await made.aclose()


def test_a_newer_cli_is_reported_once_for_each_version(set_limits: SetLimits) -> None:
    set_limits(reported_versions=set())
    newer = Version(TESTED.major, TESTED.minor, TESTED.patch + 1)
    told = [preflight._untested(one) for one in (TESTED, newer, newer, Version(9, 0, 0))]
    assert [one is None for one in told] == [True, False, True, False]
    first = told[1]
    assert first is not None
    assert (first.kind.value, first.kind.level) == ("untested_version", "info")
    assert str(newer) in first.detail
    assert "`bridle verify`" in first.detail


def test_what_a_promise_requires_is_named() -> None:
    with pytest.raises(Broken, match="files: 2, expected 3"):
        expect("files", 2, 3)
    with pytest.raises(Broken, match="it ran"):
        require(condition=False, observed="it ran")


def test_every_promise_has_a_way_to_fail() -> None:
    assert set(BREAKAGES) | KEPT_BY_BRIDLE == set(all_checks())
    assert set(BREAKAGES) & KEPT_BY_BRIDLE == set()
    assert len(all_checks()) >= 30
