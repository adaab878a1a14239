"""The ways a session can be set up."""

from __future__ import annotations

import msgspec
from tests.simulation import callbacks

from bridle._engine.config import EngineConfig
from bridle._engine.delivery.unread import DeliveryConfig
from bridle._engine.incoming.dispatch import IncomingConfig
from bridle.options import Limits

CONTROL_TIMEOUT = 30.0

MAX_LINE = 2048
"""The usual limit, so that lines over it cost little."""

HUGE_LINE = 4 * 1024 * 1024
"""The limit in the few worlds where lines may be long enough for a warning."""


SMALL = DeliveryConfig(
    max_unread=4000, max_unbegun=1500, backlog_items=12, backlog_bytes=2000, max_events=4
)
"""Bounds of unread messages that sessions of a few hundred lines reach."""

PAUSING = msgspec.structs.replace(SMALL, pauses_reading=True)


class Setting(msgspec.Struct, frozen=True):
    """A way to set up a session."""

    incoming: IncomingConfig
    wants_output: bool = False
    checkpointing: bool = False
    init_timeout: float = 60.0
    max_line: int = MAX_LINE
    limits: Limits = Limits()
    delivery: DeliveryConfig = SMALL

    def config(self) -> EngineConfig:
        return EngineConfig(
            initialize={"hooks": self.incoming.hooks.initialize_payload()},
            incoming=self.incoming,
            control_timeout=CONTROL_TIMEOUT,
            init_timeout=self.init_timeout,
            max_line=self.max_line,
            wants_output=self.wants_output,
            checkpointing=self.checkpointing,
            limits=self.limits,
            delivery=self.delivery,
        )


SETTINGS: tuple[tuple[Setting, EngineConfig], ...] = tuple(
    (setting, setting.config())
    for setting in (
        Setting(callbacks.EVERYTHING),
        Setting(callbacks.EVERYTHING, checkpointing=True, init_timeout=5.0),
        Setting(callbacks.PATIENT),
        Setting(callbacks.PATIENT, wants_output=True),
        Setting(callbacks.NOTHING, checkpointing=True),
        Setting(callbacks.EVERYTHING, max_line=HUGE_LINE),
        Setting(callbacks.PATIENT, limits=Limits(total=20.0)),
        Setting(callbacks.EVERYTHING, limits=Limits(first_event=6.0, idle=9.0)),
        Setting(callbacks.PATIENT, limits=Limits(idle=4.0, total=60.0, turns=4)),
        Setting(callbacks.EVERYTHING, limits=Limits(turns=2)),
        Setting(callbacks.PATIENT, limits=Limits(usd=0.001)),
        Setting(callbacks.NOTHING, limits=Limits(first_event=3.0, total=10.0, usd=0.0005)),
        Setting(callbacks.NOTHING, delivery=PAUSING),
    )
)
SHARES = (0.2, 0.35, 0.45, 0.54, 0.63, 0.65, 0.72, 0.78, 0.84, 0.9, 0.95, 0.97, 1.0)
"""How many of the worlds have each setting, as a running total."""
