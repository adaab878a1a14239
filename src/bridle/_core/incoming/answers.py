"""Answers to requests of the CLI, and results of callbacks that are not valid answers."""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec

from bridle._raw_line import JsonObject

Warned: TypeAlias = tuple[str, str]
"""The kind and the detail of a warning."""


class Answer(msgspec.Struct, frozen=True):
    """The body of a successful response, as JSON, and the warnings that go with it."""

    body: bytes
    warnings: tuple[Warned, ...] = ()

    @property
    def payload(self) -> JsonObject:
        """The body as an object."""
        return cast("JsonObject", msgspec.json.decode(self.body))


class InvalidResult(Exception):
    """A result of a callback that is not a valid answer; the text says why.

    `kind` is the kind of the warning; by default the one for a failed callback of its sort.
    """

    def __init__(self, problem: str, kind: str | None = None) -> None:
        super().__init__(problem)
        self.kind = kind


class InvalidReturn(msgspec.Struct, frozen=True):
    """Reported in place of a result that is not a valid answer; see `InvalidResult`."""

    problem: str
    kind: str | None = None
