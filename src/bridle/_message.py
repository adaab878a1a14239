"""The base class of every message, below the modules that define the kinds of messages."""

from __future__ import annotations

from msgspec import Struct

from bridle._source import WholeLine, tag_of


# JSON has no cycles, so the garbage collector is spared what was read from it (gc=False). Whoever
# ties one, by putting a message into a dict or list of its own, has to untie it.
class Message(WholeLine, Struct, frozen=True, gc=False, kw_only=True, repr_omit_defaults=True):
    """Anything the CLI says that is not part of the control protocol."""

    session_id: str | None = None
    uuid: str | None = None

    @property
    def type(self) -> str:
        """The wire's name of this kind of message."""
        return tag_of(self)
