"""The base class of messages, in its own module because several modules define messages."""

from __future__ import annotations

from msgspec import Struct

from bridle._raw_line import WholeLine, tag_of


# gc=False: decoded JSON has no reference cycles. A program that creates one, by putting a message
# into its own dict or list, must break the cycle itself.
class Message(WholeLine, Struct, frozen=True, gc=False, kw_only=True, repr_omit_defaults=True):
    """Base class of all messages. Lines of the control protocol are not messages."""

    session_id: str | None = None
    uuid: str | None = None

    @property
    def type(self) -> str:
        """Return the `type` of the message on the wire."""
        return tag_of(self)
