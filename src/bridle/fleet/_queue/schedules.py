"""Names of schedules in the table of DBOS, which has those of all fleets and tenants."""

from __future__ import annotations

from typing import Any

from bridle.fleet._queue.claims import begin_writing
from bridle.fleet._queue.dbos_internals import table_of_schedules
from bridle.fleet._queue.rows import tenant_in


def stored_name(fleet: str, name: str, tenant: str | None) -> str:
    """Return the name of a schedule in the table.

    The name of a fleet has no colon, and the length of the tenant tells where its name begins.
    """
    return f"{fleet}/{name}" if tenant is None else f"{fleet}:{len(tenant)}:{tenant}/{name}"


def rename_schedules(engine: Any, fleet: str, application: str) -> None:
    """Rename the schedules of tenants that older versions have stored without their tenant.

    A schedule that has the name already is older, and is replaced.
    """
    from sqlalchemy import select

    table = table_of_schedules()
    column, old = table.c.schedule_name, f"{fleet}/"
    query = select(column, table.c.context).where(
        table.c.application_name == application, column.startswith(old, autoescape=True)
    )
    with engine.connect() as connection:
        found = connection.execute(query).fetchall()
    if not any(tenant_in(context) for _, context in found):
        return
    with engine.begin() as connection:
        begin_writing(connection)
        # Another program may rename them at the same time.
        for name, context in connection.execute(query.with_for_update()).fetchall():
            if tenant := tenant_in(context):
                new = stored_name(fleet, name.removeprefix(old), tenant)
                connection.execute(table.delete().where(column == new))
                connection.execute(table.update().where(column == name).values(schedule_name=new))
