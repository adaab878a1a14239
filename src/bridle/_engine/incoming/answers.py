"""Define answers to incoming requests, and results of callbacks that are not valid answers."""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec

from bridle._records.raw_line import JsonObject

Warned: TypeAlias = tuple[str, str]
"""The kind and the detail of a warning."""


class Answer(msgspec.Struct, frozen=True):
    """The body of a successful response, as JSON, and the warnings to give with it."""

    body: bytes
    warnings: tuple[Warned, ...] = ()

    @property
    def payload(self) -> JsonObject:
        """The body as an object."""
        return cast("JsonObject", msgspec.json.decode(self.body))


class InvalidResult(Exception):
    """A callback's result that is not a valid answer. The text says why.

    `kind` is the kind of the warning. The default is the kind for a failed callback.
    """

    def __init__(self, problem: str, kind: str | None = None) -> None:
        super().__init__(problem)
        self.kind = kind


class InvalidReturn(msgspec.Struct, frozen=True):
    """Reported in place of a result that is not a valid answer. See `InvalidResult`."""

    problem: str
    kind: str | None = None
