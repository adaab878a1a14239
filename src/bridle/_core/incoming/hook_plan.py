"""The hooks of a session: what is registered with the CLI, and which hooks a callback is for.

The CLI sees one callback per event. Bridle calls the hooks behind it one after another
(:mod:`hook_run`), so that they run in their order and the first decision wins; the CLI would run
several callbacks of one event at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from bridle._callables import name_of
from bridle._core.incoming.hook_rules import rule_of
from bridle._core.incoming.hook_run import HookRun, PlannedHook, decode_context
from bridle._core.tool_names import names_of
from bridle._raw_line import JsonObject
from bridle.hooks import Hook, HookContext, Matcher, ToolHookContext, compile_matcher

#: Seconds that the CLI waits beyond the deadlines of our hooks. A deadline starts when its hook
#: starts, and under load a hook may have to wait for that.
_CLI_MARGIN = 24 * 3600.0

#: The longest timer of a JavaScript runtime, in seconds. The CLI would take a longer one as over
#: at once, and refuse the tool.
_LONGEST_TIMEOUT = (2**31 - 1) // 1000


class _PlannedEvent(msgspec.Struct, frozen=True):
    event: str
    hooks: tuple[PlannedHook, ...]
    has_matchers: bool
    label: str

    def cli_timeout(self) -> int:
        total = sum(planned.timeout for planned in self.hooks) + _CLI_MARGIN
        return math.ceil(min(total, _LONGEST_TIMEOUT))


class HookPlan(msgspec.Struct, frozen=True):
    """All hooks of a session under the ids the CLI calls them by."""

    by_callback_id: Mapping[str, _PlannedEvent]

    @classmethod
    def from_options(
        cls,
        hooks: Mapping[str, Sequence[Hook]],
        callback_timeout: float,
        hook_timeouts: Mapping[str, float] | None = None,
    ) -> HookPlan:
        """One callback id per event that has hooks, counted in the order given.

        A hook's own timeout wins over its event's, and that over the general one.
        """
        timeouts = hook_timeouts or {}
        planned: dict[str, _PlannedEvent] = {}
        for event, listed in hooks.items():
            if not listed:
                continue
            default = timeouts.get(event, callback_timeout)
            every = tuple(
                PlannedHook(
                    hook,
                    default if hook.timeout is None else hook.timeout,
                    compile_matcher(hook.matcher),
                    name_of(hook.callback),
                )
                for hook in listed
            )
            has_matchers = any(hook.matcher is not None for hook in every)
            planned[f"hook_{len(planned)}"] = _PlannedEvent(
                event, every, has_matchers, f"{event} hook"
            )
        return cls(planned)

    def initialize_payload(self) -> JsonObject | None:
        """Return the member `hooks` of the initialize request; None: leave it out."""
        registered: JsonObject = {}
        for callback_id, planned in self.by_callback_id.items():
            matcher: JsonObject = {
                "matcher": None,
                "hookCallbackIds": [callback_id],
                "timeout": planned.cli_timeout(),
            }
            if rule_of(planned.event).is_gate:
                # Newer CLIs then block if our answer is an error; older ones ignore the member.
                matcher["onFailure"] = "block"
            registered[planned.event] = [matcher]
        return registered or None

    def begin(self, callback_id: str, hook_input: JsonObject, tool_use_id: str | None) -> HookRun:
        """Start answering one hook callback of the CLI."""
        planned = self.by_callback_id.get(callback_id)
        if planned is None:
            event = hook_input.get("hook_event_name")
            run = HookRun(event if isinstance(event, str) else "", {}, None, ())
            run.warn("unknown_callback", f"no hook is registered as {callback_id!r:.80}")
            run.refuse()
            return run
        run = HookRun(planned.event, hook_input, tool_use_id, planned.hooks, planned.label)
        try:
            run.context = decode_context(planned.event, hook_input, tool_use_id)
        except msgspec.ValidationError as error:
            run.warn("hook_failed", f"the input of {planned.event} cannot be read: {error}")
            run.refuse()
            return run
        if planned.has_matchers:
            subjects = _subjects(planned.event, run.context)
            run.waiting = tuple(hook for hook in run.waiting if _matches(hook.matcher, subjects))
        run.conclude()
        return run

    def unreadable(self, callback_id: str | None) -> HookRun | None:
        """Return the run of a callback of which only the id could be read; None if not ours."""
        planned = self.by_callback_id.get(callback_id or "")
        if planned is None:
            return None
        run = HookRun(planned.event, {}, None, planned.hooks, planned.label)
        run.refuse()
        return run


def _subjects(event: str, context: HookContext) -> tuple[str, ...]:
    """The names a matcher may match; empty where the event ignores matchers."""
    field = rule_of(event).subject
    if field is None:
        return ()
    subject: str = getattr(context, field) or ""
    return names_of(subject) if isinstance(context, ToolHookContext) else (subject,)


def _matches(matcher: Matcher, subjects: tuple[str, ...]) -> bool:
    if matcher is None or not subjects:
        return True
    if isinstance(matcher, frozenset):
        return not matcher.isdisjoint(subjects)
    return any(matcher.search(subject) for subject in subjects)
