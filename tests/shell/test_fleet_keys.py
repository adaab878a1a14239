"""Keys of runs: one run for each key of each tenant, also in databases of older versions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.shell.test_fleet import WAIT, Place, place, working
from tests.shell.test_fleet_kills import database_of
from tests.support.processes import run

from bridle import OptionsError
from bridle.cli import main as command
from bridle.fleet import Fleet, RunStatus
from bridle.fleet._decisions import Segment, ids_of_key

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

__all__ = ["place"]

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])
TENANTS = ("acme", "globex", None)


@pytest.mark.longer(after=1)
@KINDS
async def test_the_same_key_of_another_tenant_is_another_run(
    kind: str, request: pytest.FixtureRequest, place: Place
) -> None:
    database = database_of(kind, request, place.path)
    async with Fleet(place.agent(), database) as fleet:
        runs = {
            one: await fleet.submit(f"SAY For {one}.", key="invoice-1", tenant=one)
            for one in TENANTS
        }
        for one in TENANTS:
            again = await fleet.submit(f"SAY For {one}.", key="invoice-1", tenant=one)
            assert again.id == runs[one].id
        async with working(fleet):
            for one, submitted in runs.items():
                assert (await submitted.outcome(WAIT)).text == f"For {one}."
        found = [one.listed async for one in fleet.runs(key="invoice-1")]
        assert {one.tenant for one in found if one is not None} == {*TENANTS}
        times = [one.submitted_at for one in found if one is not None]
        assert times == sorted(times, reverse=True)
        for tenant in ("acme", "globex"):
            of = fleet.runs(key="invoice-1", tenant=tenant)
            assert [one.id async for one in of] == [runs[tenant].id]
        assert [one async for one in fleet.runs(key="invoice-1", tenant="initech")] == []
        assert [one async for one in fleet.runs(key="invoice")] == []
    assert len(place.prompts()) == 3


@pytest.mark.longer(after=1)
@KINDS
async def test_another_prompt_or_setting_under_a_key_is_refused(
    kind: str, request: pytest.FixtureRequest, place: Place
) -> None:
    database = database_of(kind, request, place.path)
    at = datetime.now(UTC) + timedelta(days=1)
    block = {"type": "text", "text": "SAY Fine."}
    given: list[dict[str, Any]] = [
        {"prompt": "SAY Fine.", "metadata": {"pr": [1, 2.5, None]}, "priority": 3},
        {"prompt": "SAY Fine.", "delay": 3600},
        {"prompt": "SAY Fine.", "at": at},
        {"prompt": [block]},
    ]
    async with Fleet(place.agent(), database) as fleet:
        for number, options in enumerate(given):
            key = f"key{number}"
            one = await fleet.submit(**options, key=key, tenant="acme")
            assert (await fleet.submit(**options, key=key, tenant="acme")).id == one.id
            for name, value in (
                ("prompt", "SAY Other."),
                ("metadata", {"pr": [1, 2]}),
                ("priority", 4),
                ("delay", 60.0),
                ("at", at + timedelta(seconds=1)),
            ):
                changed: dict[str, Any] = {**options, name: value}
                if name in ("delay", "at"):
                    changed.pop({"delay": "at", "at": "delay"}[name], None)
                with pytest.raises(OptionsError) as raised:
                    await fleet.submit(**changed, key=key, tenant="acme")
                assert raised.value.field == "key"
                for part in (key, "acme", name, one.id):
                    assert part in str(raised.value)
                assert "SAY" not in str(raised.value)
            info = await one.info()
            assert info.prompt == options["prompt"]
        assert len([one async for one in fleet.runs()]) == len(given)


@KINDS
async def test_one_of_several_prompts_under_a_key_wins(
    kind: str, request: pytest.FixtureRequest, place: Place
) -> None:
    database = database_of(kind, request, place.path)

    async def submit(number: int) -> str | None:
        async with Fleet(place.agent(), database) as fleet:
            with contextlib.suppress(OptionsError):
                return (await fleet.submit(f"SAY {number}.", key="one", tenant="acme")).id
        return None

    async with Fleet(place.agent(), database) as fleet:
        await fleet.submit("SAY First.")  # creates the tables
        found = await asyncio.gather(*(submit(number) for number in range(6)))
        [winner] = [one for one in found if one is not None]
        assert [one.id async for one in fleet.runs(key="one")] == [winner]


# ---------------------------------------------------------------- older versions


def add_as_before(fleet: Fleet, key: str, tenant: str | None, prompt: str) -> str:
    """Add a run as older versions did: the id depends on the key only."""
    run_id = ids_of_key(fleet.name, key, tenant)[0]
    fleet._queue.add(
        Segment(run_id=run_id, session_id=run_id, prompt=prompt, key=key, tenant=tenant)
    )
    return run_id


@pytest.mark.longer(after=1)
@KINDS
async def test_runs_of_an_older_version_keep_their_keys(
    kind: str, request: pytest.FixtureRequest, place: Place
) -> None:
    database = database_of(kind, request, place.path)
    async with Fleet(place.agent(), database) as fleet:
        old = await asyncio.to_thread(add_as_before, fleet, "k", "acme", "SAY Old.")
        plain = await asyncio.to_thread(add_as_before, fleet, "p", None, "SAY Plain.")
        same = await fleet.submit("SAY Old.", key="k", tenant="acme", delay=5.0)
        assert same.id == old, "the delay is not known any more"
        with pytest.raises(OptionsError, match="prompt"):
            await fleet.submit("SAY New.", key="k", tenant="acme")
        others = [await fleet.submit("SAY New.", key="k", tenant=one) for one in (None, "b")]
        assert len({old, *(one.id for one in others)}) == 3
        assert [one.id for one in others] == [
            (await fleet.submit("SAY New.", key="k", tenant=one)).id for one in (None, "b")
        ]
        assert (await fleet.submit("SAY Plain.", key="p")).id == plain
        assert [one.id async for one in fleet.runs(key="k", tenant="acme")] == [old]
        assert len([one async for one in fleet.runs(key="k")]) == 3
        async with working(fleet):
            assert (await fleet.run(old).outcome(WAIT)).text == "Old."


async def test_a_run_without_a_tenant_has_the_id_that_older_versions_find(place: Place) -> None:
    async with place.fleet() as fleet:
        one = await fleet.submit("SAY Fine.", key="k")
        assert one.id == ids_of_key("default", "k", None)[0]


async def test_delayed_runs_of_an_older_version_start_at_their_time(place: Place) -> None:
    async with place.fleet() as fleet:
        later = await fleet.submit("SAY Later.", delay=3600)
        soon = await fleet.submit("SAY Soon.", delay=3600)
    path = place.path / "runs.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for one, seconds in ((later, 3600), (soon, 0)):
            connection.execute(
                "UPDATE workflow_status SET delay_until_epoch_ms = ? WHERE workflow_uuid = ?",
                (int((time.time() + seconds) * 1000), one.id),
            )
    async with place.fleet() as fleet, working(fleet):
        assert (await fleet.run(soon.id).outcome(WAIT)).text == "Soon."
        info = await fleet.run(later.id).info()
        assert info.status is RunStatus.DELAYED
        assert 3000 < (info.delayed_until or 0) - time.time() < 3600


# ---------------------------------------------------------------- the command


def test_a_key_of_several_tenants_needs_a_tenant(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    ids: dict[str, str] = {}

    async def main() -> None:
        async with place.fleet() as fleet:
            for tenant in ("acme", "globex"):
                one = await fleet.submit(f"SAY {tenant}.", key="same", tenant=tenant)
                ids[tenant] = one.id

    run(main)
    where = ["--database", f"sqlite:///{place.path}/runs.db"]
    assert command(["runs", "show", "same", *where]) != 0
    assert "--tenant" in capsys.readouterr().err
    assert command(["runs", "show", "same", "--tenant", "globex", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["id"] == ids["globex"]


async def test_a_list_by_key_reads_only_the_runs_of_the_key(place: Place) -> None:
    """A key of an SQLite file is found in an index."""
    async with place.fleet() as fleet:
        await fleet.submit("SAY Fine.", key="k")
    with contextlib.closing(sqlite3.connect(Path(place.path) / "runs.db")) as connection:
        query = "SELECT * FROM workflow_status WHERE json_extract(attributes, '$.key') = ?"
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", ("k",)).fetchall()
    assert "USING INDEX bridle_fleet_key" in str(plan)
