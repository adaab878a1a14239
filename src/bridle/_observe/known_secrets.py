"""The secrets that one session or query knows, and their removal from errors and recordings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

import msgspec
from msgspec import structs

from bridle._process.launch.plan import Launch, named_documents, secrets
from bridle._process.locate import Failed, Unreadable, VersionAnswer
from bridle._records.fields import is_mapping
from bridle.errors import (
    ControlRejected,
    OutcomeError,
    SessionNotInitialized,
    SessionStopped,
    StartError,
    TransportError,
)
from bridle.errors._redaction import Redactor, secret_variables, secrets_in
from bridle.outcomes import Outcome

_T = TypeVar("_T")

# Errors that contain text of the CLI, or that may quote such an error.
_QUOTING = (
    StartError,
    ControlRejected,
    TransportError,
    SessionNotInitialized,
    SessionStopped,
    OutcomeError,
)


def clean(error: BaseException | None, redact: Callable[[str], str]) -> None:
    """Mask the secrets in an error that quotes the CLI."""
    if isinstance(error, OutcomeError):
        error.outcome = clean_outcome(error.outcome, redact)
    if isinstance(error, _QUOTING):
        error.args = tuple(redact(one) if isinstance(one, str) else one for one in error.args)
        words = {name: value for name, value in vars(error).items() if isinstance(value, str)}
        vars(error).update({name: redact(value) for name, value in words.items()})


def clean_outcome(outcome: Outcome[_T], redact: Callable[[str], str]) -> Outcome[_T]:
    """Return the outcome with the secrets masked in its detail and errors."""
    if not outcome.detail and not outcome.errors:
        return outcome
    errors = tuple(map(redact, outcome.errors))
    return structs.replace(outcome, detail=redact(outcome.detail), errors=errors)


def clean_problems(
    reply: Mapping[str, object] | None, redact: Callable[[str], str]
) -> Mapping[str, object] | None:
    """Return the reply with the secrets masked in its ``errors``, which are text by name."""
    errors = (reply or {}).get("errors")
    if reply is None or not is_mapping(errors):
        return reply
    masked = {name: redact(one) if isinstance(one, str) else one for name, one in errors.items()}
    return {**reply, "errors": masked}


def clean_answer(answer: VersionAnswer, redact: Callable[[str], str]) -> VersionAnswer:
    """Return the answer to a version check with the secrets masked."""
    match answer:
        case Failed(reason):
            return Failed(redact(reason))
        case Unreadable(text):
            return Unreadable(redact(text))
        case _:
            return answer


class KnownSecrets:
    """The secrets of a launch, of the files that it names, and of the environment.

    They are collected at the first use, because most sessions never need them.
    """

    def __init__(self, launch: Launch, environ: Mapping[str, str] = os.environ) -> None:
        self._launch = launch
        self._environ = environ
        self._learned: set[str] = set()

    def learn(self, document: object) -> None:
        """Add the secrets of a configuration that the CLI gets at run time."""
        self._learned.update(secrets_in(document))
        for name in ("values", "_redactor"):
            self.__dict__.pop(name, None)

    @cached_property
    def values(self) -> frozenset[str]:
        """The known secret values."""
        return frozenset(
            [
                *secrets(self._launch),
                *secret_variables(self._environ, given=False),
                *self._in_files(),
                *self._learned,
            ]
        )

    def redact(self, text: str) -> str:
        """Return an excerpt of a text with known secrets, and text that looks like one, masked."""
        return self._redactor.excerpt(text) if text else text

    @cached_property
    def _redactor(self) -> Redactor:
        return Redactor(self.values)

    def _in_files(self) -> Iterator[str]:
        for path in named_documents(self._launch).values():
            try:
                with open(path, "rb") as file:
                    document = msgspec.json.decode(file.read())
            except (OSError, ValueError, RecursionError):
                continue  # the CLI reports what is wrong with the file
            yield from secrets_in(document)
