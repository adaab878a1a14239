"""Run an agent's prompts on any number of workers and machines: durable, with take-over.

Needs ``pip install 'bridle[fleet]'``. The work is in a queue in SQLite or PostgreSQL, on DBOS.
"""

from bridle.fleet._costs import TenantLimits
from bridle.fleet._decisions import RunStatus
from bridle.fleet._fleet import Fleet, Prepare
from bridle.fleet._fleet_run import Run, RunChanged, RunEnded, RunEvent, RunInfo, RunMessage

__all__ = [
    "Fleet",
    "Prepare",
    "Run",
    "RunChanged",
    "RunEnded",
    "RunEvent",
    "RunInfo",
    "RunMessage",
    "RunStatus",
    "TenantLimits",
]
