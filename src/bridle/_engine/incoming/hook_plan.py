"""Plan the hooks of a session: which are registered with the CLI, and which a callback calls.

The CLI sees one callback per event, because it would run several callbacks of one event at the
same time. Bridle calls the hooks of the event one after another (:mod:`hook_run`), so that they
run in order and the first decision wins. With ``parallel`` the CLI sees every hook, with its
matcher, calls them at the same time and combines their results itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from bridle._engine.incoming.hook_rules import rule_of
from bridle._engine.incoming.hook_run import HookRun, PlannedHook, decode_context
from bridle._records.callables import name_of
from bridle._records.matchers import Matcher, checked_matcher, compile_matcher
from bridle._records.raw_line import JsonObject
from bridle.errors import OptionsError
from bridle.hooks import Hook, HookContext, ToolHookContext
from bridle.tools._cli_tools import names_of

TOOL_ENDED = "PostToolUse"
BATCH_ENDED = "PostToolBatch"
"""The event after all tool calls of a message. Needed with hooks of `TOOL_ENDED`.

CLI 2.1.197 ignores `continue: false` after a tool if the model is still sending its message, for
example with another tool call. It never ignores it after all of them.
"""

#: Seconds that the CLI waits beyond the deadlines of our hooks. A deadline starts when its hook
#: starts, and under load a hook may wait before it starts.
_CLI_MARGIN = 24 * 3600.0

#: The longest timer of a JavaScript runtime, in seconds. With a longer one the CLI would time out
#: at once and reject the tool call.
_LONGEST_TIMEOUT = (2**31 - 1) // 1000


class _PlannedEvent(msgspec.Struct, frozen=True):
    event: str
    hooks: tuple[PlannedHook, ...]
    has_matchers: bool = False
    label: str = ""
    #: The matcher that the CLI applies. None: it calls the hooks for every subject.
    matcher: str | None = None

    def cli_timeout(self) -> int:
        total = sum(planned.timeout for planned in self.hooks) + _CLI_MARGIN
        return math.ceil(min(total, _LONGEST_TIMEOUT))


class HookPlan(msgspec.Struct, frozen=True):
    """All hooks of a session, by the callback ids that the CLI uses."""

    by_callback_id: Mapping[str, _PlannedEvent]
    #: Called for each tool call that the hooks of PreToolUse let run. It can only refuse the call.
    last: PlannedHook | None = None

    @classmethod
    def from_options(
        cls,
        hooks: Mapping[str, Sequence[Hook]],
        callback_timeout: float,
        hook_timeouts: Mapping[str, float] | None = None,
        needed: str | None = None,
        last: Hook | None = None,
        *,
        parallel: bool = False,
    ) -> HookPlan:
        """Plan one callback id for each event that has hooks, in the order given.

        The timeout of a hook wins over that of its event, which wins over ``callback_timeout``.
        ``needed`` is an event that gets a callback id even without hooks. ``last`` is called after
        the hooks of PreToolUse, which is then needed. With ``parallel``, plan one callback id for
        each hook.

        Raises:
            OptionsError: ``parallel``, and the needed event has several hooks. Something has to
                follow all of them, and only the CLI would know when they have ended. Or the needed
                event has a hook with ``on_invalid="send"``: only the CLI would know what the call
                does after an output that Bridle cannot read.
        """
        needed = needed if last is None else "PreToolUse"
        timeouts = hook_timeouts or {}
        planned: dict[str, _PlannedEvent] = {}
        for event, listed in ({**({needed: ()} if needed else {}), **hooks}).items():
            if not listed and event != needed:
                continue
            default = timeouts.get(event, callback_timeout)
            by_cli = parallel and event != needed
            every = tuple(_planned(hook, default, by_cli=by_cli) for hook in listed)
            if parallel and event == needed and len(every) > 1:
                problem = f"cannot be used with {len(every)} hooks of {event} in this session"
                fix = (
                    "Bridle acts after all of them: it writes the call to the journal of a store "
                    "or a retry, or decides a resumed call. Leave out parallel_hooks."
                )
                raise OptionsError("parallel_hooks", problem, fix=fix)
            if event == needed and any(hook.on_invalid == "send" for hook in listed):
                problem = f'is "send", which this session does not support for {event}'
                fix = (
                    "Bridle needs to know the call that runs: it writes the call to the journal of "
                    'a store or a retry, or decides a resumed call. Use "block".'
                )
                raise OptionsError("Hook.on_invalid", problem, fix=fix)
            if by_cli:
                for one in every:
                    planned[f"hook_{len(planned)}"] = _PlannedEvent(
                        event, (one,), label=f"{event} hook", matcher=one.hook.matcher
                    )
                continue
            has_matchers = any(hook.matcher is not None for hook in every)
            planned[f"hook_{len(planned)}"] = _PlannedEvent(
                event, every, has_matchers, f"{event} hook"
            )
        events = {one.event for one in planned.values()}
        if TOOL_ENDED in events and BATCH_ENDED not in events:
            planned[f"hook_{len(planned)}"] = _PlannedEvent(
                BATCH_ENDED, (), label=f"{BATCH_ENDED} hook"
            )
        return cls(planned, None if last is None else _planned(last, callback_timeout))

    def initialize_payload(self) -> JsonObject | None:
        """Return the field `hooks` of the initialize request, or None to leave it out."""
        registered: JsonObject = {}
        for callback_id, planned in self.by_callback_id.items():
            matcher: JsonObject = {
                "matcher": planned.matcher,
                "hookCallbackIds": [callback_id],
                "timeout": planned.cli_timeout(),
            }
            sent = [one.hook for one in planned.hooks if one.hook.on_invalid == "send"]
            if sent:  # the CLI judges the output of the hook
                blocks = any(hook.on_error == "block" for hook in sent)
            else:
                blocks = rule_of(planned.event).is_gate
            if blocks:
                # Newer CLIs then block if our answer is invalid. Older ones ignore the field.
                matcher["onFailure"] = "block"
            registered.setdefault(planned.event, []).append(matcher)
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
        run = HookRun(planned.event, {}, tool_use_id, (), callback_id=callback_id)
        self.fill(run, callback_id, hook_input)
        return run

    def fill(self, run: HookRun, callback_id: str, hook_input: JsonObject) -> None:
        """Give a run the input and the hooks of its callback."""
        planned = self.by_callback_id[callback_id]
        run.wire, run.waiting, run.label = hook_input, planned.hooks, planned.label
        try:
            run.context = decode_context(planned.event, hook_input, run.tool_use_id)
        except msgspec.ValidationError as error:
            run.warn("hook_failed", f"the input of {planned.event} cannot be read: {error}")
            run.refuse()
            return
        if planned.has_matchers:
            subjects = _subjects(planned.event, run.context)
            run.waiting = tuple(hook for hook in run.waiting if _matches(hook.matcher, subjects))
        run.conclude()

    def event_of(self, callback_id: str) -> str | None:
        """Return the event of a callback, or None if the id is not ours."""
        planned = self.by_callback_id.get(callback_id)
        return None if planned is None else planned.event

    def callbacks_for(self, event: str, tool_name: str) -> frozenset[str]:
        """Return the ids of the callbacks that the CLI calls, or may call, for this tool."""
        names = names_of(tool_name)
        return frozenset(
            callback_id
            for callback_id, planned in self.by_callback_id.items()
            if planned.event == event and _is_called(planned.matcher, names)
        )

    def id_of(self, event: str) -> str:
        """Return the callback id of an event that has one."""
        return next(id for id, planned in self.by_callback_id.items() if planned.event == event)

    def unreadable(self, callback_id: str | None) -> HookRun | None:
        """Return the run of a callback with only its id readable. None if the id is not ours."""
        planned = self.by_callback_id.get(callback_id or "")
        if planned is None:
            return None
        run = HookRun(planned.event, {}, None, planned.hooks, planned.label)
        run.refuse()
        return run


def _planned(hook: Hook, timeout: float, *, by_cli: bool = False) -> PlannedHook:
    """Plan a hook. With ``by_cli``, the CLI applies its matcher, which may be JavaScript."""
    return PlannedHook(
        hook,
        timeout if hook.timeout is None else hook.timeout,
        None if by_cli else checked_matcher(hook.matcher),
        name_of(hook.callback),
    )


def _subjects(event: str, context: HookContext) -> tuple[str, ...]:
    """Return the names a matcher may match. Empty if the event ignores matchers."""
    field = rule_of(event).subject
    if field is None:
        return ()
    subject: str = getattr(context, field) or ""
    return names_of(subject) if isinstance(context, ToolHookContext) else (subject,)


def _is_called(matcher: str | None, names: tuple[str, ...]) -> bool:
    try:
        return _matches(compile_matcher(matcher), names)
    except ValueError:  # a JavaScript expression that only the CLI can apply
        return True


def _matches(matcher: Matcher, subjects: tuple[str, ...]) -> bool:
    if matcher is None or not subjects:
        return True
    if isinstance(matcher, frozenset):
        return not matcher.isdisjoint(subjects)
    return any(matcher.search(subject) for subject in subjects)
