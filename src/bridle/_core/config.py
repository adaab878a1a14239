"""What the engine of one session is told before it starts."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bridle._core.delivery import DeliveryConfig
from bridle._core.framing import MAX_LINE
from bridle._core.incoming.handling import IncomingConfig
from bridle.options import Limits


class EngineConfig(Struct, frozen=True, kw_only=True):
    """What a session is, once its options are settled."""

    #: The members of the initialize request.
    initialize: Mapping[str, object] = {}
    incoming: IncomingConfig = IncomingConfig()
    delivery: DeliveryConfig = DeliveryConfig()
    #: The id we gave the session; empty where the CLI chooses (a resumed one).
    session_id: str = ""
    control_timeout: float = 30.0
    init_timeout: float = 60.0
    max_line: int = MAX_LINE
    limits: Limits = Limits()
    #: A JSON schema was given: a result without structured output is not a success.
    wants_output: bool = False
    #: File checkpoints are on, so files can be rewound.
    checkpointing: bool = False
    #: The outcome of a turn waits for the background work that the turn started.
    awaits_follow_ups: bool = False
