"""The decoders of lines. `wire` imports this module to decode the first line: building them takes
milliseconds.

msgspec crashes the process if one thread decodes a class while another one builds its decoder.
While one thread imports a module, the others wait, so that they get complete decoders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

import msgspec

from bridle.controls import ControlFrame
from bridle.messages import Message, SystemMessage, UnknownMessage, UnknownSystemMessage
from bridle.messages._system import SYSTEM_KINDS

KINDS: dict[str, type[Message | ControlFrame]] = {
    str(kind.__struct_config__.tag): kind
    for family in (Message, ControlFrame)
    for kind in family.__subclasses__()
    if kind is not UnknownMessage
}
"""Map from the type of a line to its class."""

_union: Any = Union[tuple(KINDS.values())]  # noqa: UP007  # the arms come from a table

decode = msgspec.json.Decoder(_union).decode

_system: tuple[type[SystemMessage], ...] = (*SYSTEM_KINDS.values(), UnknownSystemMessage)

decode_system: dict[type[SystemMessage], Callable[[bytes], SystemMessage]] = {
    kind: msgspec.json.Decoder(kind).decode for kind in _system
}
"""Map from the class of a system line to the function that decodes it."""
