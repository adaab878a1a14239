"""Run a session for ``bridle run``: connect it to the view and the screen, and handle signals.

Ctrl-C interrupts the turn. A second Ctrl-C, or one without a running turn, ends the run and
terminates the CLI. SIGTERM and SIGHUP do the same.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from bridle import Session
from bridle._spi import Run, settle_options
from bridle.cli._asking.gatekeeper import Gatekeeper, Otherwise
from bridle.cli._policy.policy import Policy
from bridle.cli._screens.endings import ending, summary
from bridle.cli._screens.printable import one_line
from bridle.cli._screens.screens import Screen
from bridle.cli._screens.shown import Note, Span
from bridle.cli._screens.user_terminal import Terminal
from bridle.cli._screens.view import View
from bridle.cli.exits import exit_code_for
from bridle.errors import BridleError, OptionsError, UnsupportedCliVersionError
from bridle.events import SessionEvent
from bridle.messages import Message, StreamEvent
from bridle.options import BidirOptions, CliOptions, SdkOptions
from bridle.outcomes import Outcome, OutcomeReason

_FRAME = 0.1
"""Seconds between two redraws of the status lines."""

_HOOK_EVENTS = "--include-hook-events"

_NO_HOOKS = "cannot be enforced, because the CLI runs no hooks. No tool was run"
_HOOKS_FIX = (
    "Hooks are disabled by managed settings (disableAllHooks, or CLAUDE_CODE_SIMPLE in env) or by "
    "extra_args (--bare). Enable hooks, or run without --policy."
)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of a run, and its options."""

    prompt: str
    cli: CliOptions
    sdk: SdkOptions
    policy: Policy
    otherwise: Otherwise


class Drive:
    """One run, shown on ``screen``. ``terminal`` is None if there is no user to ask."""

    def __init__(self, job: Job, screen: Screen, terminal: Terminal | None) -> None:
        self._job = job
        self._screen = screen
        self._terminal = terminal
        self._view = View(time.monotonic(), epoch=time.time() - time.monotonic())
        self._run: Run | None = None
        self._work: asyncio.Task[Outcome[Any]] | None = None
        self._asides: set[asyncio.Task[None]] = set()
        # The signal that ended the run.
        self._ended_by: int | None = None
        self._is_interrupting = False
        # Set when the turn has ended and only the session remains to be closed.
        self._outcome: Outcome[Any] | None = None

    async def run(self) -> int:
        """Run the prompt and return the exit code.

        Raises:
            BridleError: the session could not be started, so there is no outcome.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_ctrl_c)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, number)
        drawing = loop.create_task(self._draw())
        self._work = loop.create_task(self._start())
        try:
            outcome = await self._work
        except asyncio.CancelledError:
            if self._ended_by is None:
                raise
            outcome = await self._ended()
        finally:
            drawing.cancel()
        self._screen.show([*self._view.end_answer(), *ending(outcome)])
        code = exit_code_for(outcome.reason) if self._ended_by is None else 128 + self._ended_by
        self._screen.finish({**summary(outcome), "exit_code": int(code)})
        return code

    async def _draw(self) -> None:
        while self._screen.is_live:
            self._screen.draw(self._view.status(time.monotonic()))
            await asyncio.sleep(_FRAME)

    # -- signals -----------------------------------------------------------------------------------

    def _on_ctrl_c(self) -> None:
        if self._terminal is not None and self._terminal.is_lent:
            return  # the editor has the terminal and handles Ctrl-C
        run = self._run
        has_turn = run is not None and run.turn is not None and run.is_in_turn
        if run is None or not has_turn or self._is_interrupting:
            self._end(signal.SIGINT)
            return
        self._is_interrupting = True
        self._view.interrupt(time.monotonic())
        self._beside(_interrupt(run.session))

    def _end(self, number: int) -> None:
        if self._outcome is not None and self._run is not None:
            self._beside(self._run.session.stop())  # it is closing already; terminate the CLI now
        elif self._work is not None and self._ended_by is None:
            self._ended_by = number
            self._view.enter("ending", time.monotonic())
            self._work.cancel()

    def _beside(self, what: Coroutine[Any, Any, None]) -> None:
        aside = asyncio.get_running_loop().create_task(what)
        self._asides.add(aside)
        aside.add_done_callback(self._asides.discard)

    async def _ended(self) -> Outcome[Any]:
        if self._run is None or self._run.turn is None:
            return Outcome(reason=OutcomeReason.INTERRUPTED)
        outcome = await self._run.turn
        return msgspec.structs.replace(
            outcome,
            reason=OutcomeReason.INTERRUPTED,
            session_id=outcome.session_id or self._run.session.id,
        )

    # -- the session -------------------------------------------------------------------------------

    async def _start(self) -> Outcome[Any]:
        try:
            return await self._answer(self._job.cli.replace(include_hook_events=True))
        except UnsupportedCliVersionError as error:
            if _HOOK_EVENTS not in error.stderr_tail:
                raise
        return await self._answer(self._job.cli)  # an older CLI has no option for hook events

    async def _answer(self, cli: CliOptions) -> Outcome[Any]:
        gate = Gatekeeper(
            self._view,
            self._screen,
            time.monotonic,
            policy=self._job.policy,
            otherwise=self._job.otherwise,
        )
        bidir = BidirOptions(
            on_can_use_tool=gate.can_use_tool,
            on_question=gate.question,
            on_plan=gate.plan,
            on_elicitation=gate.elicitation,
            hooks=gate.hooks,
        )
        sdk = self._job.sdk.replace(on_stderr=self._on_stderr)
        self._run = Run(self._job.prompt, settle_options(cli, sdk, bidir))
        reading = asyncio.create_task(self._read(self._run.session.subscribe(), gate))
        try:
            async with self._run:
                self._outcome = await self._converse(self._run, reading)
                self._view.enter("closing the session", time.monotonic())
                await self._run.drop_rest(self._outcome)
            await reading
        finally:
            reading.cancel()
        return self._outcome

    async def _converse(self, run: Run, reading: asyncio.Task[None]) -> Outcome[Any]:
        self._view.enter("sending the prompt", time.monotonic())
        answer = asyncio.create_task(run.answer())
        try:
            await asyncio.wait({answer, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()  # raises the exception of the reader, if any
            return await answer
        except asyncio.CancelledError:
            answer.cancel()  # before the session closes and makes it fail
            await run.session.stop()
            raise
        finally:
            answer.cancel()

    async def _read(self, updates: AsyncIterable[Message | SessionEvent], gate: Gatekeeper) -> None:
        async for update in updates:
            if isinstance(update, StreamEvent) and gate.is_bypassed:
                assert self._run is not None, "only a session sends updates"
                await self._run.session.stop()
                raise OptionsError("--policy", _NO_HOOKS, fix=_HOOKS_FIX)
            if isinstance(update, Message):
                self._screen.hear(update)
            self._screen.show(self._view.see(update, time.monotonic()))

    async def _on_stderr(self, line: str) -> None:
        if line.strip():
            assert self._run is not None, "only a session reads stderr"
            said = one_line(self._run.redact(line), 500)
            self._screen.show([Note((Span(f"  claude: {said}", "dim"),))])


async def _interrupt(session: Session) -> None:
    with suppress(BridleError):  # the turn is over, or the CLI hangs: the user can press it again
        await session.interrupt()
