"""Apply settings to a running session, one change at a time, and check that the CLI uses them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from bridle._engine.outgoing.operations import APPLY_FLAG_SETTINGS, GET_SETTINGS
from bridle._observe.user_values import plain_fields
from bridle._process.launch.real_api import check_applied
from bridle._records.fields import is_mapping
from bridle._session.changes.settings_plan import (
    AppliedSettings,
    SettingsChange,
    are_used,
    with_rules,
)
from bridle.errors import ControlError, ControlRejected, ControlTimeout

Payload = Mapping[str, object] | None

Submit = Callable[[str, Mapping[str, object], float | None], Awaitable[Payload]]
"""Sends a control request with these fields and timeout. Returns the payload of the response."""

Rejected = Callable[[str, str], ControlRejected]
"""Makes the error for an operation from its text."""

_APPLY = APPLY_FLAG_SETTINGS.subtype


class FlagSettings:
    """The settings that were applied to a session, and its rules for tools with ``ask=True``.

    Args:
        rules: the rules that the CLI was started with.
        submit: sends a control request.
        rejected: makes the error for settings that the CLI ignores.
        timeout: the default for a change, in seconds.
    """

    def __init__(
        self, rules: Iterable[str], submit: Submit, rejected: Rejected, timeout: float
    ) -> None:
        self._state = AppliedSettings(rules)
        self._submit = submit
        self._rejected = rejected
        self._timeout = timeout
        self._changing = asyncio.Lock()
        self._undoing: set[asyncio.Task[None]] = set()

    async def apply(self, fields: Mapping[str, object], timeout: float | None = None) -> Payload:
        """Send a request of the program that applies settings. Keep Bridle's rules in force.

        Raises:
            OptionsError: the permissions are invalid, or BRIDLE_FORBID_REAL_API is set and the
                settings lead to a real API. Nothing was sent.
            ControlRejected: the CLI rejected the settings, or it ignores Bridle's rules because of
                them. Bridle has restored the earlier settings.
            ControlTimeout: the change took longer than ``timeout`` seconds. If the session has
                rules of Bridle, the earlier settings are restored in the background.

        Cancellation: withdraws a change that waits for another one. A change that was sent counts
        as one that timed out.
        """
        if not is_mapping(fields.get("settings")):
            return await self._submit(_APPLY, fields, timeout)  # reports the problem
        plain = plain_fields(_APPLY, fields)
        settings: Any = plain["settings"]
        with_rules(settings.get("permissions"), ())
        check_applied(settings, os.environ)
        return await self._change(plain, settings, (), timeout)

    async def add_rules(self, rules: Iterable[str], timeout: float | None = None) -> None:
        """Make the CLI ask about more tools. Keep the rules of the program in force.

        The rules stay when their server is removed: a rule without a tool has no effect. Raises as
        :meth:`apply` does.
        """
        await self._change({}, None, rules, timeout)

    async def _change(
        self,
        fields: Mapping[str, object],
        settings: Mapping[str, Any] | None,
        new_rules: Iterable[str],
        timeout: float | None,
    ) -> Payload:
        limit = self._timeout if timeout is None else timeout
        deadline = asyncio.get_running_loop().time() + limit
        try:
            async with asyncio.timeout_at(deadline):
                await self._changing.acquire()  # at once if no other change is under way
        except TimeoutError:
            raise ControlTimeout(_APPLY, None, limit) from None
        undoing: asyncio.Task[None] | None = None
        try:
            change = self._state.change(settings, new_rules)
            try:
                payload = await self._send(fields, change, deadline)
            except (ControlTimeout, asyncio.CancelledError):
                undoing = self._doubt(change)
                raise
            try:
                is_used = not change.rules or are_used(change.rules, await self._read(deadline))
            except BaseException:
                undoing = self._doubt(change)
                raise
            if is_used:
                self._state.confirm(change)
                return payload
            undoing = self._undo(change)
            await asyncio.shield(undoing)
            raise self._rejected(
                _APPLY,
                "the CLI ignores the settings, because one of them is invalid. It may be from an "
                "earlier call: remove it with None",
            )
        finally:
            if undoing is None:
                self._changing.release()

    def _doubt(self, change: SettingsChange) -> asyncio.Task[None] | None:
        self._state.doubt(change)
        return self._undo(change) if change.rules else None

    async def _send(
        self, fields: Mapping[str, object], change: SettingsChange, deadline: float
    ) -> Payload:
        sent = {**fields, "settings": change.to_send}
        return await self._submit(_APPLY, sent, self._left(deadline))

    async def _read(self, deadline: float) -> Payload:
        return await self._submit(GET_SETTINGS.subtype, {}, self._left(deadline))

    def _left(self, deadline: float) -> float:
        # At least a moment, so that the request is sent and its own timeout is the error.
        return max(0.001, deadline - asyncio.get_running_loop().time())

    def _undo(self, change: SettingsChange) -> asyncio.Task[None]:
        """Restore the settings before a change, in a task. Then the next change may begin."""
        task = asyncio.create_task(self._send_back(change))
        self._undoing.add(task)
        task.add_done_callback(self._undone)
        return task

    def _undone(self, task: asyncio.Task[None]) -> None:
        self._undoing.discard(task)
        self._changing.release()

    async def _send_back(self, change: SettingsChange) -> None:
        back = self._state.undo(change)
        deadline = asyncio.get_running_loop().time() + self._timeout
        with contextlib.suppress(ControlError):
            await self._send({}, back, deadline)
