"""The limits of tenants, and what the attributes of a segment say of its cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

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
