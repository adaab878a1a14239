"""The limits of tenants, and what the attributes of a segment say of its cost."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bridle.fleet._decisions import Ledger, seconds_until_affordable

if TYPE_CHECKING:
    from bridle.fleet._queue.dbos_queue import Queue

COST_UNKNOWN = "cost_unknown"
"""The attribute of a segment that has cost more than its workers could write down."""


class TenantLimits(Struct, frozen=True, kw_only=True):
    """Limits of each tenant of a fleet.

    A run of a tenant that has reached a limit waits. Runs without a tenant share the limits of one
    more tenant.
    """

    #: How many runs of a tenant run at the same time. None for any number.
    at_once: int | None = None
    #: US dollars that the runs of a tenant may cost in a window of time. None for any amount. The
    #: runs that are in progress when the limit is reached go on. A run whose cost is unknown uses
    #: up the limit.
    usd: float | None = None
    #: The window in seconds. A day by default.
    per: float = 86400.0


def noted_cost(attributes: Mapping[str, Any]) -> float | None:
    """Return the US dollars that a segment has cost, as far as its workers wrote it down.

    ``running_usd`` is the cost in the worker that has the segment, or had it last, and
    ``lost_usd`` the cost in those before. At the end, ``cost_usd`` is the sum.
    """
    if (cost := attributes.get("cost_usd")) is not None:
        return float(cost)
    parts = [attributes.get(name) for name in ("lost_usd", "running_usd")]
    return sum(map(float, filter(None, parts))) if any(parts) else None


class Budgets:
    """The dollars that the tenants of a fleet may still spend, as a worker knows them.

    Args:
        limits: the limits of each tenant.
        queue: has the costs of the runs, and the time.
        ask: calls a method of the queue until the database answers.
    """

    def __init__(
        self, limits: TenantLimits, queue: Queue, ask: Callable[..., Awaitable[Any]]
    ) -> None:
        self._limits = limits
        self._queue = queue
        self._ask = ask
        self._ledgers: dict[str | None, Ledger] = {}

    async def pause(self, tenant: str | None) -> tuple[float, str]:
        """Return for how many seconds the runs of a tenant wait, and why. 0.0 if they need not."""
        usd, per = self._limits.usd, self._limits.per
        if usd is None:
            return 0.0, ""
        ledger = self._ledgers.setdefault(tenant, Ledger(per))
        now: float = await self._ask(self._queue.now)
        ledger.add(await self._ask(self._queue.costs, tenant, ledger.after(now)), now)
        if any(cost == math.inf for _, cost in ledger.costs):
            reason = f"the cost of a run of the tenant in the last {per:g} s is unknown"
        else:
            reason = f"the tenant has spent ${usd:g} in {per:g} s"
        return seconds_until_affordable(ledger.costs, usd, per, now), reason
