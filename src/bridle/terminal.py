"""Ask the user on the terminal of this program, as ``bridle run`` does.

`ask` answers permission requests, questions of the model and plans:
``Agent(on_can_use_tool=terminal.ask, on_question=terminal.ask, on_plan=terminal.ask)``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import overload

from bridle.cli._asking.terminal_dialogs import ask_permission, ask_plan, ask_questions
from bridle.cli._screens.screens import PlainScreen
from bridle.cli._screens.user_terminal import Terminal, is_attended
from bridle.permissions import (
    CanUseToolContext,
    Deny,
    PermissionResult,
    PlanContext,
    PlanResult,
    QuestionContext,
    QuestionResult,
)

__all__ = ["ask", "ask_sync"]

_ABSENT = "No user is available to answer: the program has no terminal."
_WITHDRAWN = "The request was withdrawn."

_GLANCE = 0.05
"""Seconds between two looks at what another thread does."""

_TURN = threading.Lock()
"""Held by the request that has the terminal. Requests overlap, in one event loop or several."""


@overload
async def ask(request: QuestionContext) -> QuestionResult: ...  # type: ignore[overload-overlap]  # the first that fits counts
@overload
async def ask(request: PlanContext) -> PlanResult: ...
@overload
async def ask(request: CanUseToolContext) -> PermissionResult: ...
async def ask(
    request: CanUseToolContext | QuestionContext | PlanContext,
) -> PermissionResult | QuestionResult | PlanResult:
    """Ask the user on the terminal, and return the result for the callback.

    Use it as the callback itself, or await it in an ``async def`` callback. A plain function may
    return what this function returns. Several requests are asked one after another. Keys that were
    typed before a question do not answer it.

    The result is `Deny` if standard input is not a terminal or the user ends it (Ctrl-D). Ctrl-C
    ends the program as usual: the request is then withdrawn, and the call does not run.
    Cancelling removes the question and restores the terminal.
    """
    if not is_attended():
        return Deny(_ABSENT)
    async with _turn():
        asker = PlainScreen(Terminal())
        match request:
            case QuestionContext():
                return await ask_questions(asker, request)
            case PlanContext():
                return await ask_plan(asker, request, request.plan)
            case _:
                return await ask_permission(asker, request)


@overload
def ask_sync(request: QuestionContext) -> QuestionResult: ...  # type: ignore[overload-overlap]  # the first that fits counts
@overload
def ask_sync(request: PlanContext) -> PlanResult: ...
@overload
def ask_sync(request: CanUseToolContext) -> PermissionResult: ...
def ask_sync(
    request: CanUseToolContext | QuestionContext | PlanContext,
) -> PermissionResult | QuestionResult | PlanResult:
    """Ask as `ask` does, and block this thread until the user has answered.

    For plain functions that look at the answer. If the request is withdrawn meanwhile, the
    question is removed and the result is `Deny`.
    """
    return asyncio.run(_ask_until_withdrawn(request))


async def _ask_until_withdrawn(
    request: CanUseToolContext,
) -> PermissionResult | QuestionResult | PlanResult:
    asking = asyncio.ensure_future(ask(request))
    while not request.cancelled:
        done, _ = await asyncio.wait([asking], timeout=_GLANCE)
        if done:
            return asking.result()
    asking.cancel()
    await asyncio.wait([asking])
    return Deny(_WITHDRAWN)


@asynccontextmanager
async def _turn() -> AsyncGenerator[None]:
    while not _TURN.acquire(blocking=False):
        await asyncio.sleep(_GLANCE)
    try:
        yield
    finally:
        _TURN.release()
