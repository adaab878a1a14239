"""The hook vocabulary: events, contexts, and the checks of a registration."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any, get_args

import pytest

from bridle import BidirOptions
from bridle.errors import OptionsError
from bridle.hooks import (
    CONTEXTS,
    HOOK_EVENTS,
    Continue,
    Hook,
    HookContext,
    HookEvent,
    HookOutput,
    PostToolUseContext,
    SubagentStopContext,
    ToolHookContext,
)


def audit(context: HookContext) -> Continue:
    """A hook that lets everything pass."""
    return Continue(system_message=context.hook_event_name)


def test_every_event_has_a_name_in_the_type_a_place_in_the_set_and_a_context() -> None:
    assert frozenset(get_args(HookEvent)) == HOOK_EVENTS
    assert CONTEXTS.keys() == HOOK_EVENTS
    assert len(HOOK_EVENTS) == 33


@pytest.mark.parametrize("event", sorted(HOOK_EVENTS))
def test_the_context_of_an_event_is_named_after_it(event: str) -> None:
    assert CONTEXTS[event].__name__ == f"{event}Context"


@pytest.mark.parametrize("event", sorted(HOOK_EVENTS))
def test_a_context_can_be_built_from_its_key_field_alone(event: str) -> None:
    kind = CONTEXTS[event]
    key: dict[str, Any] = {"tool_name": "Bash"} if issubclass(kind, ToolHookContext) else {}
    if event == "UserPromptSubmit":
        key = {"prompt": "hi"}
    context = kind(**key)
    assert context.session_id == ""
    assert context.cancelled is False
    for name, value in key.items():
        assert context.raw[name] == value


def test_contexts_offer_the_familiar_names_of_some_fields() -> None:
    """R265, R268, C31."""
    post = PostToolUseContext(tool_name="Bash", tool_response={"stdout": "hi"})
    assert post.tool_output == {"stdout": "hi"}
    stop = SubagentStopContext(agent_id="a1")
    assert stop.subagent_id == "a1"
    assert stop.reason is None


def test_a_hook_needs_a_callback_only() -> None:
    """R282."""
    hook = Hook(audit)
    assert (hook.callback, hook.matcher, hook.timeout, hook.on_error) == (
        audit,
        None,
        None,
        "continue",
    )


def test_a_hook_keeps_its_conditions() -> None:
    """R282."""
    hook = Hook(audit, matcher="Write|Edit", timeout=5, on_error="block")
    assert (hook.matcher, hook.timeout, hook.on_error) == ("Write|Edit", 5, "block")


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("Hook.callback", {"callback": "audit"}),
        ("Hook.matcher", {"matcher": 3}),
        ("Hook.timeout", {"timeout": 0}),
        ("Hook.timeout", {"timeout": -1.0}),
        ("Hook.timeout", {"timeout": math.inf}),
        ("Hook.timeout", {"timeout": math.nan}),
        ("Hook.timeout", {"timeout": True}),
        ("Hook.timeout", {"timeout": "5"}),
        ("Hook.on_error", {"on_error": "explode"}),
        ("Hook.on_timeout", {"on_timeout": "wait"}),
        ("Hook.on_invalid", {"on_invalid": "continue"}),
    ],
    ids=str,
)
def test_a_hook_that_cannot_work_is_refused_with_a_fix(
    field: str, arguments: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"callback": audit, **arguments}
    with pytest.raises(OptionsError) as caught:
        Hook(**given)
    assert caught.value.field == field
    assert caught.value.fix


@pytest.mark.parametrize(
    "callback", [lambda given, tool_use_id, context: None, lambda: None], ids=["three", "none"]
)
def test_a_function_that_does_not_take_a_context_is_refused(callback: Any) -> None:
    with pytest.raises(OptionsError, match="cannot be called with one argument") as caught:
        Hook(callback)
    assert (caught.value.field, bool(caught.value.fix)) == ("Hook.callback", True)
    with pytest.raises(OptionsError, match="on_can_use_tool cannot be called with one argument"):
        BidirOptions(on_can_use_tool=callback)


def test_a_function_that_yields_is_refused() -> None:
    """It would be called, do nothing, and let everything pass."""

    def plain(context: object) -> Any:
        yield Continue()

    async def later(context: object) -> Any:
        yield Continue()

    class Guard:
        def __call__(self, context: object) -> Any:
            yield Continue()

    for callback in (plain, later, Guard(), functools.partial(plain)):
        with pytest.raises(OptionsError, match="is a generator function"):
            Hook(callback)


def test_what_can_be_called_with_a_context_is_taken_however_it_is_written() -> None:
    @functools.wraps(lambda context, database: None)
    def with_database(context: object) -> None: ...

    class Guard:
        def __call__(self, context: object, verbose: bool = False) -> None: ...
        def check(self, *args: object) -> None: ...

    class Static:
        @staticmethod
        def __call__(context: object) -> None: ...

    class Shy:
        def __call__(self, context: object) -> None: ...

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"no {name} outside of a request")

    class Armed:
        def __init__(self) -> None:
            vars(self)["__call__"] = lambda: None  # not what Python calls

        def __call__(self, context: object) -> None: ...

    def described(context: object) -> None: ...

    setattr(described, "__signature__", inspect.signature(lambda: None))  # noqa: B010
    both = functools.partial(lambda setting, context: None, "strict")
    objects = (Guard(), Guard().check, Static(), Shy(), Armed(), functools.partial(described))
    given: list[Any] = [with_database, both, print, *objects]
    for callback in given:
        assert Hook(callback).callback is not None


def test_an_output_says_nothing_by_default() -> None:
    fields = {name: getattr(HookOutput(), name) for name in HookOutput.__struct_fields__}
    assert fields.pop("specific") == {}
    assert set(fields.values()) == {None}


def test_bridle_rejects_a_matcher_that_python_cannot_read() -> None:
    hooks = {"PreToolUse": [Hook(audit, matcher="(?<name>Bash)")]}
    with pytest.raises(OptionsError, match=r"Hook\.matcher is invalid"):
        BidirOptions(hooks=hooks)
    BidirOptions(hooks=hooks, parallel_hooks=True)  # the CLI reads it


@pytest.mark.parametrize("name", ["on_can_use_tool", "on_question", "on_plan"])
def test_a_permission_callback_needs_matchers_of_permission_requests_that_bridle_can_read(
    name: str,
) -> None:
    """Bridle holds an allow for the hooks that the CLI calls, so it has to know them."""
    callback: dict[str, Any] = {name: lambda _: None}
    hooks = {"PermissionRequest": [Hook(audit, matcher="(?<tool>Bash)")]}
    with pytest.raises(OptionsError, match=r"Hook\.matcher .*Python") as caught:
        BidirOptions(hooks=hooks, parallel_hooks=True, **callback)
    assert caught.value.fix == "Write the matcher so that Python can read it too."
    BidirOptions(hooks=hooks, parallel_hooks=True)
    readable = {"PermissionRequest": [Hook(audit, matcher="^Ba")]}
    BidirOptions(hooks=readable, parallel_hooks=True, **callback)


def test_invalid_outputs_are_sent_only_if_they_need_not_be_combined_with_others() -> None:
    hook = Hook(audit, on_invalid="send")
    with pytest.raises(OptionsError, match="PreToolUse has 2 hooks"):
        BidirOptions(hooks={"PreToolUse": [hook, Hook(audit)]})
    BidirOptions(hooks={"PreToolUse": [hook]})
    BidirOptions(hooks={"PreToolUse": [hook, hook]}, parallel_hooks=True)
