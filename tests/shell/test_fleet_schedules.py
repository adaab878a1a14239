"""Schedules of a fleet: one for each name of each tenant, also in databases of older versions."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.shell.test_fleet import Place, place, working
from tests.shell.test_fleet_kills import database_of
from tests.support.processes import until

from bridle import OptionsError
from bridle.fleet import Fleet
from bridle.fleet._decisions import Segment
from bridle.fleet._queue.claims import begin_writing
from bridle.fleet._queue.schedules import rename_schedules

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

__all__ = ["place"]

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])
TENANTS = ("acme", "globex", None)


def schedules(fleet: Fleet) -> dict[str, str]:
    """The cron expressions of the schedules in the database, by their prompts."""
    found = fleet._queue._client.list_schedules()
    segments = [msgspec.json.decode(one["context"], type=Segment) for one in found]
    assert len({str(one.prompt) for one in segments}) == len(found)
    return {str(one.prompt): row["schedule"] for one, row in zip(segments, found, strict=True)}


@pytest.mark.longer(after=1)
@KINDS
async def test_the_same_name_of_another_tenant_is_another_schedule(
    kind: str, request: pytest.FixtureRequest, place: Place
) -> None:
    database = database_of(kind, request, place.path)
    async with Fleet(place.agent(), database) as fleet:
        for cron in ("0 3 * * *", "* * * * * *"):
            for one in TENANTS:
                await fleet.schedule("tick", cron, f"SAY For {one}.", tenant=one)
        assert len(schedules(fleet)) == len(TENANTS)
        async with working(fleet):

            async def completed() -> bool:
                done = [one.listed async for one in fleet.runs(status="completed")]
                return {one.tenant for one in done if one is not None} == {*TENANTS}

            await until(completed)
        for count, one in enumerate(TENANTS, 1):
            await fleet.unschedule("tick", tenant=one)
            left = {f"SAY For {other}." for other in TENANTS[count:]}
            assert schedules(fleet).keys() == left
        runs = [one.listed async for one in fleet.runs()]
        for info in runs:
            assert info is not None
            assert info.prompt == f"SAY For {info.tenant}."
            assert (info.key or "").startswith("tick@")


async def test_names_with_signs_of_the_table_are_kept_apart(place: Place) -> None:
    names: list[tuple[str | None, str]] = [
        (None, "a/b/c"),
        (None, "1:a/b"),
        ("a", "b/c"),
        ("a/b", "c"),
        ("1:a", "b"),
        ("A/B", "c"),
        ("ä", "b/c"),
    ]
    async with place.fleet() as fleet:
        for number, (tenant, name) in enumerate(names):
            await fleet.schedule(name, "0 3 * * *", str(number), tenant=tenant)
        assert schedules(fleet).keys() == {str(number) for number in range(len(names))}
    async with place.fleet() as fleet:
        for number, (tenant, name) in enumerate(names):
            await fleet.unschedule(name, tenant=tenant)
            assert str(number) not in schedules(fleet)
        assert schedules(fleet) == {}


@pytest.mark.parametrize("value", ["", "a\0", "\ud800", 5])
async def test_a_name_or_tenant_that_is_not_a_text_is_refused(place: Place, value: Any) -> None:
    async with place.fleet() as fleet:
        refused: list[dict[str, Any]] = [
            {"name": value},
            {"name": "nightly", "tenant": value},
            {"name": None},
        ]
        for given in refused:
            field = [*given][-1]
            with pytest.raises(OptionsError) as raised:
                await fleet.schedule(cron="0 3 * * *", prompt="SAY Fine.", **given)
            assert raised.value.field == field
            with pytest.raises(OptionsError) as raised:
                await fleet.unschedule(**given)
            assert raised.value.field == field
        assert schedules(fleet) == {}


# ---------------------------------------------------------------- older versions


def schedule_as_before(fleet: Fleet, cron: str, prompt: str, tenant: str | None) -> None:
    """Add a schedule as older versions did: its name in the table does not have the tenant."""
    segment = Segment(run_id="r", session_id="s", prompt=prompt, key="tick", tenant=tenant)
    schedule = {
        "schedule_name": f"{fleet.name}/tick",
        "workflow_name": "bridle_scheduled",
        "schedule": cron,
        "context": msgspec.json.encode(segment).decode(),
        "cron_timezone": None,
    }
    fleet._queue._client.apply_schedules([schedule])


@pytest.mark.longer(after=1)
@KINDS
async def test_a_schedule_of_an_older_version_belongs_to_its_tenant(
    kind: str, request: pytest.FixtureRequest, place: Place
) -> None:
    database = database_of(kind, request, place.path)
    async with Fleet(place.agent(), database) as fleet:
        schedule_as_before(fleet, "* * * * * *", "SAY Old.", "acme")
    async with Fleet(place.agent(), database) as fleet:
        await fleet.schedule("tick", "0 3 * * *", "SAY Plain.")
        await fleet.unschedule("tick", tenant="globex")
        assert schedules(fleet) == {"SAY Old.": "* * * * * *", "SAY Plain.": "0 3 * * *"}
        async with working(fleet):

            async def completed() -> list[Any]:
                return [one async for one in fleet.runs(status="completed", tenant="acme")]

            assert await until(completed)
        await fleet.schedule("tick", "0 4 * * *", "SAY New.", tenant="acme")
        assert schedules(fleet) == {"SAY New.": "0 4 * * *", "SAY Plain.": "0 3 * * *"}
        await fleet.unschedule("tick")
        # A program of the older version goes on, and replaces its schedule.
        schedule_as_before(fleet, "0 5 * * *", "SAY Again.", "acme")
    async with Fleet(place.agent(), database) as fleet:
        assert schedules(fleet) == {"SAY Again.": "0 5 * * *"}
        await fleet.unschedule("tick", tenant="acme")
        assert schedules(fleet) == {}


@KINDS
async def test_programs_that_open_an_old_database_at_the_same_time_keep_its_schedule(
    kind: str, request: pytest.FixtureRequest, place: Place
) -> None:
    database = database_of(kind, request, place.path)

    async def opened() -> None:
        async with Fleet(place.agent(), database) as fleet:
            assert [one async for one in fleet.runs()] == []

    async with Fleet(place.agent(), database) as fleet:
        for number in range(3):
            await asyncio.to_thread(
                schedule_as_before, fleet, f"0 {number} * * *", "SAY Old.", "acme"
            )
            await asyncio.gather(*(opened() for _ in range(6)))
            assert schedules(fleet) == {"SAY Old.": f"0 {number} * * *"}
        await fleet.unschedule("tick", tenant="acme")
        assert schedules(fleet) == {}


@KINDS
async def test_a_program_that_is_overtaken_does_not_delete_the_schedule(
    kind: str, request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program renames the schedule after this one has seen that it is to be renamed."""
    database = database_of(kind, request, place.path)
    overtaken: list[bool] = []
    async with Fleet(place.agent(), database) as fleet:
        schedule_as_before(fleet, "0 3 * * *", "SAY Old.", "acme")
        work = (fleet._queue._client._sys_db.engine, fleet.name, fleet._queue.name)

        def begin(connection: Any) -> None:
            if not overtaken:
                overtaken.append(True)
                rename_schedules(*work)
            begin_writing(connection)

        monkeypatch.setattr("bridle.fleet._queue.schedules.begin_writing", begin)
        rename_schedules(*work)
        assert overtaken
        assert schedules(fleet) == {"SAY Old.": "0 3 * * *"}
        await fleet.unschedule("tick", tenant="acme")
        assert schedules(fleet) == {}


async def test_a_schedule_that_cannot_be_read_does_not_stop_the_fleet(place: Place) -> None:
    async with place.fleet() as fleet:
        schedule_as_before(fleet, "0 3 * * *", "SAY Old.", "acme")
        engine = fleet._queue._client._sys_db.engine
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE workflow_schedules SET context = '\"{\"'")
    async with place.fleet() as fleet:
        assert [one async for one in fleet.runs()] == []
        [found] = fleet._queue._client.list_schedules()
        assert found["schedule_name"] == "default/tick"
