"""Define the configuration that the engine of one session starts with."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bridle._engine.delivery.unread import DeliveryConfig
from bridle._engine.incoming.dispatch import IncomingConfig
from bridle._engine.wire.framing import MAX_LINE, LineFramer
from bridle.options import Limits


class EngineConfig(Struct, frozen=True, kw_only=True):
    """The settings of one session after its options were resolved."""

    #: The fields of the initialize request.
    initialize: Mapping[str, object] = {}
    incoming: IncomingConfig = IncomingConfig()
    delivery: DeliveryConfig = DeliveryConfig()
    #: The id that we gave the session. Empty if the CLI chooses it (for a resumed session).
    session_id: str = ""
    control_timeout: float = 30.0
    init_timeout: float = 60.0
    max_line: int = MAX_LINE
    limits: Limits = Limits()
    #: True if a JSON schema was given: a result without structured output is not a success.
    wants_output: bool = False
    #: The tools of the CLI that the options ask for.
    tools: tuple[str, ...] = ()
    #: True if file checkpoints are on, so that files can be rewound.
    checkpointing: bool = False
    #: True if the CLI must not interpret slash commands and paths in prompts.
    verbatim_prompts: bool = False
    #: True if the session has a store, which gets what the CLI adds to its transcripts.
    has_store: bool = False
    #: True if the outcome of a turn waits for the background work that the turn started.
    awaits_follow_ups: bool = False
    #: True for a query: prompts do not wait for the handshake, requests of the CLI get no answers,
    #: and the messages belong to no turn.
    is_one_way: bool = False

    def framer(self) -> LineFramer:
        """Return a new framer. That of a query reports a line as soon as it is over the limit."""
        if self.is_one_way:
            return LineFramer(self.max_line + 1, warn_at=self.max_line)
        return LineFramer(self.max_line)
