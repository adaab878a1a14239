"""Start a session: ``async with start_session(...)``, or ``await`` it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NoReturn, Unpack

from bridle._engine.wire.codec import Unencodable, encode_user_message
from bridle._session.preflight import settle_keywords
from bridle._session.session import InnerSession, Session
from bridle.content import Content
from bridle.errors import OptionsError
from bridle.options import BidirOptions, CliOptions, SdkOptions
from bridle.options._keyword_types import Options


class SessionStart:
    """A session that is not started yet. Await it, or use it in ``async with``."""

    def __init__(self, session: Session, prompt: Content | None) -> None:
        self._session = session
        self._prompt = prompt

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the session is not started yet, so it has no {name}. Await it first: "
            "session = await start_session(...)"
        )

    def __repr__(self) -> str:
        return "<a session that is not started: await it, or use it in `async with`>"

    async def _start(self) -> Session:
        await self._session.connect()
        if self._prompt is not None:
            try:
                _ = await self._session.send_user_message(self._prompt)
            except BaseException:
                await self._session.stop()
                raise
        return self._session

    def __await__(self) -> Generator[Any, None, Session]:
        return self._start().__await__()

    async def __aenter__(self) -> Session:
        return await self._start()

    async def __aexit__(self, *_: object) -> None:
        await self._session.aclose()


def start_session(
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    *,
    prompt: Content | None = None,
    deps: Any = None,
    output_type: Any = None,
    output_retries: int = 1,
    **options: Unpack[Options],
) -> SessionStart:
    """Start a session: ``async with start_session(...) as session``, or ``await`` it.

    The session that you get is running. The end of ``async with`` shuts it down. If you await it,
    call ``aclose()`` yourself.

    Args:
        prompt: a prompt to send at once. Read its answer immediately, from ``session.messages()``
            or ``session.text_stream()``: until the first subscription, the session keeps only the
            newest 256 messages, at most 1 MiB. If you need more time, use ``send_user_message``
            and iterate the turn.
        deps: any object for the callbacks of the session.
        output_type: the type of ``outcome.output``, for every turn. See ``bridle.run``.
        output_retries: how often to send an answer that fails validation back to the model.
        options: the fields of the three records by name, such as ``model="sonnet"``.

    Raises:
        OptionsError: an option or the prompt is invalid. Raised by the call, before anything is
            started.
        StartError: the CLI did not start. Raised when you await or enter it. Its processes, files
            and tasks are removed.
    """
    settled = settle_keywords(cli, sdk, bidir, options)
    return start(InnerSession.make(settled, deps, output_type, output_retries), prompt)


def start(session: Session, prompt: Content | None) -> SessionStart:
    """Return the start of a session.

    Raises:
        OptionsError: the prompt is invalid.
    """
    if prompt is not None:
        check_prompt(prompt)
    return SessionStart(session, prompt)


def check_prompt(prompt: Content) -> None:
    """Check that a prompt can be sent.

    Raises:
        OptionsError: it is neither text nor a non-empty list of content blocks.
    """
    try:
        encode_user_message(prompt, "")
    except Unencodable as problem:
        fix = "Use text, or a list of content blocks."
        raise OptionsError("prompt", str(problem), fix=fix) from None
