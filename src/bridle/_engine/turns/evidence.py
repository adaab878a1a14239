"""What is known of the running turn: which prompts it belongs to, and how it will end."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct, field

from bridle._engine.turns.classify import HookNotice
from bridle._engine.turns.usage import CallCount
from bridle.events import ApiRetry
from bridle.messages import AssistantMessage


class Certainty(Enum):
    """How certain it is which prompts the running turn belongs to."""

    #: No turn runs: between a result and the next start.
    IDLE = auto()
    #: Named by the CLI or by an echo, or known to be a turn of the CLI's own.
    KNOWN = auto()
    #: An older CLI does not name it. The order of sending decides.
    LIKELY = auto()
    #: An older CLI does not name it, and it may be the turn of a background task.
    OPEN = auto()


class Evidence(Struct):
    """What the messages of a running turn say about how it will end."""

    interrupt_sent: bool = False
    #: The last message of the main thread. The turn recovered from earlier errors.
    assistant: AssistantMessage | None = None
    #: Calls of the model and its tool calls.
    calls: CallCount = field(default_factory=CallCount)
    #: The last text block that the model wrote and that was not refused.
    text: str = ""
    compact_error: str | None = None
    hook_notice: HookNotice | None = None
    #: True after a compaction. The CLI then repeats earlier messages, also such notices.
    is_compacted: bool = False
    rate_limit_rejected: bool = False
    resets_at: float | None = None
    #: How often the CLI repeated an API request, and the last retry.
    retries: int = 0
    last_retry: ApiRetry | None = None
    #: The reason of a hook that ended the turn, if it takes an interrupt of ours to end it.
    ended_by_hook: str | None = None
    hook_reason: str = ""  #: reason of the last hook that ended the turn (`EndTurn`)
    stops_prompt: bool = False  #: that hook was one of UserPromptSubmit
    #: Reason of the last hook that blocked a prompt: the turn's own, or one sent while it ran.
    block_reason: str = ""
