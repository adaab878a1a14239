"""The scenarios from which the golden transcripts are recorded.

Each scenario is a short coroutine that uses a :class:`cli_session.Session`. The decorator
sets the script of the API and, if needed, flags, environment and responses.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from cli_session import (
    Json,
    Responder,
    Scenario,
    Session,
    allow,
    assistant_has,
    frame_is,
    no_output,
    prompt_uuid,
    request_is,
)
from scripted_api import Reply, Script, Text, Thinking, ToolUse, call, fail, say

Play = Callable[[Session], Awaitable[None]]

SCENARIOS: dict[str, Scenario] = {}

STARTED = frame_is("system", "init")
TOOL_CALL = assistant_has("tool_use")


def scenario(
    script: Script,
    *args: str,
    env: Mapping[str, str | None] | None = None,
    hooks: Mapping[str, Responder] | None = None,
    permission: Responder = allow,
) -> Callable[[Play], Play]:
    """Register the decorated coroutine as a scenario under its own name."""

    def register(play: Play) -> Play:
        name = getattr(play, "__name__", "unnamed")
        SCENARIOS[name] = Scenario(name, play, script, args, env or {}, hooks or {}, permission)
        return play

    return register


def slow(text: str, seconds: float = 2.0) -> Reply:
    """Return a slow reply, with one delta every quarter of a second."""
    pieces = max(1, int(seconds * 4))
    return Reply(blocks=(Text(text * pieces, pieces=pieces, gap=0.25),))


def bash(tool_id: str, command: str, **options: Any) -> Reply:
    """A call of the Bash tool."""
    return call(tool_id, "Bash", command=command, description="run a command", **options)


def agent(tool_id: str, prompt: str, **options: Any) -> Reply:
    """A call of the Task tool."""
    kind = {"description": "a helper", "subagent_type": "general-purpose"}
    return call(tool_id, "Task", prompt=prompt, **kind, **options)


# -- plain turns ---------------------------------------------------------------------


@scenario({"HELLO": [say("Hello there.")]})
async def text_turn(s: Session) -> None:
    """One prompt, one text answer."""
    await s.initialize()
    s.prompt("HELLO")
    await s.result()
    await s.quiet()


@scenario({"ALPHA": [say("alpha done")], "BETA": [say("beta done")]})
async def two_turns(s: Session) -> None:
    """Two prompts one after the other."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    s.prompt("BETA")
    await s.result()
    await s.quiet()


@scenario(
    {"PONDER": [Reply(blocks=(Thinking("Let me think."), Text("A thought-out answer.")))]},
    "--include-partial-messages",
)
async def thinking_partial(s: Session) -> None:
    """Thinking and text with partial messages."""
    await s.initialize()
    s.prompt("PONDER")
    await s.result()
    await s.quiet()


# -- a: several prompts at once --------------------------------------------------------


@scenario(
    {"ALPHA": [slow("alpha ", 1.5)], "BETA": [say("beta done")], "GAMMA": [say("gamma done")]}
)
async def queue_three_at_once(s: Session) -> None:
    """Three prompts in one write."""
    await s.initialize()
    s.prompt("ALPHA", "BETA", "GAMMA")
    await s.result(2)
    await s.quiet(2.0)


@scenario(
    {"ALPHA": [slow("alpha ", 2.0)], "BETA": [say("beta done")], "GAMMA": [say("gamma done")]}
)
async def queue_three_spaced(s: Session) -> None:
    """Two more prompts, one after the other, while the first is being answered."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(STARTED)
    await s.pause(0.5)
    s.prompt("BETA")
    await s.pause(0.3)
    s.prompt("GAMMA")
    await s.result(2)
    await s.quiet(2.0)


@scenario({"ALPHA": [slow("alpha ", 1.5)], "BETA": [say("all done")]})
async def queue_four_at_once(s: Session) -> None:
    """Four prompts in one write."""
    await s.initialize()
    s.prompt("ALPHA", "BETA", "GAMMA", "DELTA")
    await s.result(2)
    await s.quiet(2.0)


# -- b: folding --------------------------------------------------------------------------


@scenario(
    {
        "toolu_fold": [say("both answered")],
        "ALPHA": [bash("toolu_fold", "sleep 1.5; echo x")],
        "BETA": [say("beta alone")],
    }
)
async def fold_one(s: Session) -> None:
    """A prompt sent while a tool runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(TOOL_CALL)
    await s.pause(0.5)
    s.prompt("BETA")
    await s.result()
    await s.quiet(2.0)


@scenario(
    {
        "toolu_fold": [say("all answered")],
        "ALPHA": [bash("toolu_fold", "sleep 1.5; echo x")],
        "BETA": [say("beta alone")],
    }
)
async def fold_two(s: Session) -> None:
    """Two prompts sent while a tool runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(TOOL_CALL)
    await s.pause(0.5)
    s.prompt("BETA", "GAMMA")
    await s.result()
    await s.quiet(2.0)


# -- c: interrupts -----------------------------------------------------------------------


@scenario({"ALPHA": [slow("alpha ", 8.0)], "BETA": [say("beta done")]})
async def interrupt_stream(s: Session) -> None:
    """Interrupt in the middle of an answer; a later prompt works."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(STARTED)
    await s.pause(1.0)
    await s.control("interrupt")
    await s.result()
    s.prompt("BETA")
    await s.result()
    await s.quiet()


@scenario({"toolu_stop": [say("unreached")], "ALPHA": [bash("toolu_stop", "sleep 8; echo x")]})
async def interrupt_tool(s: Session) -> None:
    """Interrupt while a tool runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(TOOL_CALL)
    await s.pause(0.7)
    await s.control("interrupt")
    await s.result()
    await s.quiet()


@scenario({"BETA": [say("beta done")], "ALPHA": [slow("alpha ", 8.0)]})
async def interrupt_queue_one(s: Session) -> None:
    """Interrupt with one prompt in the queue."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(STARTED)
    await s.pause(0.5)
    s.prompt("BETA")
    await s.pause(0.5)
    await s.control("interrupt")
    await s.result(2)
    await s.quiet(1.5)


@scenario({"BETA": [say("beta done")], "GAMMA": [say("gamma")], "ALPHA": [slow("alpha ", 8.0)]})
async def interrupt_queue_two(s: Session) -> None:
    """Interrupt with two prompts in the queue."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(STARTED)
    await s.pause(0.5)
    s.prompt("BETA", "GAMMA")
    await s.pause(0.5)
    await s.control("interrupt")
    await s.result(2)
    await s.quiet(1.5)


@scenario({"BETA": [say("beta done")], "ALPHA": [slow("alpha ", 8.0)], "DELTA": [say("delta")]})
async def interrupt_cancel_queued(s: Session) -> None:
    """Interrupt with ``cancel_queued`` and two prompts in the queue, then a new prompt."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(STARTED)
    await s.pause(0.5)
    s.prompt("BETA", "GAMMA")
    await s.pause(0.5)
    await s.control("interrupt", cancel_queued=True)
    await s.result()
    await s.quiet(2.0)
    s.prompt("DELTA")
    await s.result()
    await s.quiet()


@scenario({"BETA": [say("beta done")], "ALPHA": [slow("alpha ", 4.0)]})
async def interrupt_at_once(s: Session) -> None:
    """Interrupt written right behind the prompt."""
    await s.initialize()
    s.write(s.user("ALPHA"), s.request("interrupt"))
    await s.result()
    await s.quiet(1.5)
    s.prompt("BETA")
    await s.result()
    await s.quiet()


@scenario({"BETA": [say("beta done")], "ALPHA": [slow("alpha ", 4.0)]})
async def interrupt_at_once_queue(s: Session) -> None:
    """Two prompts and an interrupt in one write."""
    await s.initialize()
    s.write(s.user("ALPHA"), s.user("BETA"), s.request("interrupt"))
    await s.result()
    await s.quiet(2.0)


@scenario({"toolu_stop": [say("beta done")], "ALPHA": [bash("toolu_stop", "sleep 8; echo x")]})
async def interrupt_tool_queue(s: Session) -> None:
    """Interrupt while a tool runs and a prompt waits to be folded in."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(TOOL_CALL)
    await s.pause(0.5)
    s.prompt("BETA")
    await s.pause(0.5)
    await s.control("interrupt")
    await s.result(2)
    await s.quiet(1.5)


# -- d: background work --------------------------------------------------------------------

BACKGROUND_SHELL: Script = {
    "<task-notification>": [say("noticed the shell")],
    "toolu_shell": [say("shell launched")],
    "ALPHA": [bash("toolu_shell", "sleep 1.5; echo finished", run_in_background=True)],
    "BETA": [say("beta done")],
}


@scenario(BACKGROUND_SHELL)
async def background_shell(s: Session) -> None:
    """A background command and the turn that follows its end."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result(2)
    await s.quiet(1.5)


@scenario({**BACKGROUND_SHELL, "<task-notification>": [slow("noticed ", 2.5)]})
async def background_prompt_during(s: Session) -> None:
    """A prompt sent while the follow-up turn runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.wait(STARTED)
    await s.pause(0.7)
    s.prompt("BETA")
    await s.result(2)
    await s.quiet(2.0)


@scenario({**BACKGROUND_SHELL, "BETA": [slow("beta ", 3.0)]})
async def background_ends_in_turn(s: Session) -> None:
    """The command ends while a user's turn without tools runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    s.prompt("BETA")
    await s.result(2)
    await s.quiet(2.0)


@scenario({"GAMMA": [say("gamma done")], **BACKGROUND_SHELL, "BETA": [slow("beta ", 3.0)]})
async def background_and_prompt_queued(s: Session) -> None:
    """During a user's turn both the notification and another prompt join the queue."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    s.prompt("BETA")
    await s.wait(STARTED)
    await s.pause(2.2)
    s.prompt("GAMMA")
    await s.result(2)
    await s.quiet(3.0)


@scenario({"GAMMA": [say("gamma done")], **BACKGROUND_SHELL, "BETA": [slow("beta ", 3.0)]})
async def background_prompt_queued_first(s: Session) -> None:
    """As above, but the prompt joins the queue before the notification."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    s.prompt("BETA")
    await s.wait(STARTED)
    s.prompt("GAMMA")
    await s.result(2)
    await s.quiet(3.0)


@scenario(
    {
        "toolu_long": [say("beta saw both")],
        **BACKGROUND_SHELL,
        "BETA": [bash("toolu_long", "sleep 3; echo long")],
    }
)
async def background_ends_in_tool(s: Session) -> None:
    """The command ends while a tool of a user's turn runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    s.prompt("BETA")
    await s.result()
    await s.quiet(3.0)


@scenario(
    {
        "toolu_long": [say("follow-up saw both")],
        **BACKGROUND_SHELL,
        "<task-notification>": [bash("toolu_long", "sleep 1.5; echo long")],
    }
)
async def background_fold_into_followup(s: Session) -> None:
    """A prompt sent while a tool of the follow-up turn runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.wait(STARTED)
    await s.wait(TOOL_CALL)
    await s.pause(0.5)
    s.prompt("BETA")
    await s.result()
    await s.quiet(3.0)


@scenario({**BACKGROUND_SHELL, "<task-notification>": [slow("noticed ", 8.0)]})
async def background_interrupt_followup(s: Session) -> None:
    """The follow-up turn is interrupted, with a prompt in the queue."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.wait(STARTED)
    await s.pause(0.7)
    s.prompt("BETA")
    await s.pause(0.5)
    await s.control("interrupt")
    await s.result(2)
    await s.quiet(2.0)


BACKGROUND_AGENT: Script = {
    "<task-notification>": [say("noticed the agent")],
    "toolu_inner": [say("inner done")],
    "ERRAND": [bash("toolu_inner", "sleep 1.5; echo inner")],
    "toolu_agent": [say("agent launched")],
}


@scenario({**BACKGROUND_AGENT, "ALPHA": [agent("toolu_agent", "ERRAND")]})
async def agent_default(s: Session) -> None:
    """A subagent without ``run_in_background``."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet(3.5)


@scenario({**BACKGROUND_AGENT, "ALPHA": [agent("toolu_agent", "ERRAND", run_in_background=True)]})
async def agent_background(s: Session) -> None:
    """A subagent in the background."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet(3.5)


@scenario(
    {
        **BACKGROUND_AGENT,
        "ERRAND": [
            Reply(
                blocks=(
                    Thinking("inner thought"),
                    Text("inner words"),
                    ToolUse("toolu_inner", "Bash", {"command": "echo inner"}),
                )
            )
        ],
        "ALPHA": [agent("toolu_agent", "ERRAND", run_in_background=False)],
    }
)
async def agent_foreground_forward(s: Session) -> None:
    """A subagent in the foreground whose text is forwarded."""
    await s.initialize(forwardSubagentText=True)
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


def agent_call(tool_id: str, prompt: str) -> ToolUse:
    """A call of the Task tool in the foreground, to be used beside other blocks."""
    kind = {"description": prompt.lower(), "subagent_type": "general-purpose"}
    return ToolUse(tool_id, "Task", {"prompt": prompt, **kind, "run_in_background": False})


@scenario(
    {
        "toolu_nested": [say("errand done")],
        "toolu_two": [say("both done")],
        "NESTED": [say("nested done")],
        "ERRAND": [Reply(blocks=(Text("errand words"), agent_call("toolu_nested", "NESTED")))],
        "OTHER": [slow("other ", 0.5)],
        "ALPHA": [
            Reply(blocks=(agent_call("toolu_one", "ERRAND"), agent_call("toolu_two", "OTHER")))
        ],
    },
    "--include-partial-messages",
)
async def agents_nested(s: Session) -> None:
    """Two subagents at the same time, one of which starts another."""
    await s.initialize(forwardSubagentText=True)
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario(
    {**BACKGROUND_SHELL, "<task-notification>": [slow("noticed ", 1.0)]},
    "--include-partial-messages",
)
async def background_partial(s: Session) -> None:
    """A follow-up turn and a queued prompt, with partial messages."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.wait(STARTED)
    s.prompt("BETA")
    await s.result(2)
    await s.quiet()


# -- e: prompts stopped by a hook ------------------------------------------------------


def refuse_marked(hook_input: Json) -> Json:
    """Block prompts that contain ``BLOCKME``."""
    if "BLOCKME" in hook_input["prompt"]:
        return {"decision": "block", "reason": "not allowed here"}
    return {}


def halt_marked(hook_input: Json) -> Json:
    """Answer ``continue: false`` to prompts that contain ``BLOCKME``."""
    if "BLOCKME" in hook_input["prompt"]:
        return {"continue": False, "stopReason": "halted here"}
    return {}


@scenario({"BETA": [say("beta done")]}, hooks={"UserPromptSubmit:block": refuse_marked})
async def prompt_blocked(s: Session) -> None:
    """A UserPromptSubmit hook blocks the first prompt and lets the second pass."""
    await s.initialize()
    s.prompt("BLOCKME")
    await s.result()
    await s.quiet()
    s.prompt("BETA")
    await s.result()
    await s.quiet()


@scenario({"BETA": [say("beta done")]}, hooks={"UserPromptSubmit:halt": halt_marked})
async def prompt_halted(s: Session) -> None:
    """A UserPromptSubmit hook answers ``continue: false``."""
    await s.initialize()
    s.prompt("BLOCKME")
    await s.result()
    await s.quiet()
    s.prompt("BETA")
    await s.result()
    await s.quiet()


@scenario(
    {"GAMMA": [say("gamma done")], "ALPHA": [slow("alpha ", 2.0)]},
    hooks={"UserPromptSubmit:block": refuse_marked},
)
async def prompt_blocked_in_queue(s: Session) -> None:
    """One of two queued prompts would be blocked by the hook."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(STARTED)
    await s.pause(0.3)
    s.prompt("BLOCKME", "GAMMA")
    await s.result(2)
    await s.quiet(2.0)


@scenario(
    {
        "toolu_fold": [say("answered")],
        "ALPHA": [bash("toolu_fold", "sleep 1.5; echo x")],
    },
    hooks={"UserPromptSubmit:block": refuse_marked},
)
async def prompt_blocked_in_fold(s: Session) -> None:
    """A prompt the hook would block is sent while a tool runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(TOOL_CALL)
    await s.pause(0.3)
    s.prompt("BLOCKME")
    await s.result()
    await s.quiet(2.0)


# -- f: slash commands -----------------------------------------------------------------


@scenario(
    {
        "ALPHA": [say("alpha done")],
        "GAMMA": [say("gamma done")],
        "BETA": [say("beta done")],
        "": [say("<summary>They exchanged greetings.</summary>")],
    }
)
async def slash_compact(s: Session) -> None:
    """``/compact`` in a conversation that is long enough for it."""
    await s.initialize()
    for text in ("ALPHA", "GAMMA", "ALPHA again"):
        s.prompt(text)
        await s.result()
    s.prompt("/compact")
    await s.result()
    await s.quiet()
    s.prompt("BETA")
    await s.result()
    await s.quiet()


@scenario({})
async def slash_compact_empty(s: Session) -> None:
    """``/compact`` with nothing to compact."""
    await s.initialize()
    s.prompt("/compact")
    await s.result()
    await s.quiet()


@scenario(
    {
        "toolu_fold": [say("answered")],
        "ALPHA": [bash("toolu_fold", "sleep 1.5; echo x")],
    }
)
async def slash_during_tool(s: Session) -> None:
    """A local command sent while a tool runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(TOOL_CALL)
    await s.pause(0.3)
    s.prompt("/context")
    await s.result()
    await s.quiet(2.0)


@scenario({"ALPHA": [say("alpha done")], "BETA": [say("beta done")]})
async def slash_clear(s: Session) -> None:
    """``/clear`` between two turns."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    s.prompt("/clear")
    await s.result()
    await s.quiet()
    s.prompt("BETA")
    await s.result()
    await s.quiet()


@scenario({"nonesuch": [say("no such command")]})
async def slash_unknown(s: Session) -> None:
    """A command the CLI does not know."""
    await s.initialize()
    s.prompt("/nonesuch now")
    await s.result()
    await s.quiet()


@scenario({"ALPHA": [say("alpha done")]})
async def slash_text(s: Session) -> None:
    """A local command with text output."""
    await s.initialize()
    s.prompt("/context")
    await s.result()
    await s.quiet()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario({"BETA": [say("beta done")], "ALPHA": [slow("alpha ", 1.5)], "GAMMA": [say("gamma")]})
async def slash_in_queue(s: Session) -> None:
    """A local command between queued prompts."""
    await s.initialize()
    s.prompt("ALPHA", "BETA", "/context", "GAMMA")
    await s.result(2)
    await s.quiet(3.0)


# -- g: limits and failures ------------------------------------------------------------


@scenario(
    {
        "BETA": [say("beta done")],
        "toolu_": [bash("toolu_again", "echo again")],
        "ALPHA": [bash("toolu_one", "echo x")],
    },
    "--max-turns",
    "2",
)
async def max_turns(s: Session) -> None:
    """A tool loop that runs into ``--max-turns``, then another prompt."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    s.prompt("BETA")
    await s.result()
    await s.quiet()


DEAR: Script = {
    "ALPHA": [
        Reply(
            blocks=(ToolUse("toolu_one", "Bash", {"command": "echo x"}),),
            delay=1.0,
            input_tokens=90_000,
        )
    ]
}


@scenario(DEAR, "--max-budget-usd", "0.01")
async def max_budget_queue(s: Session) -> None:
    """The budget is exceeded while two more prompts wait."""
    await s.initialize()
    s.prompt("ALPHA", "BETA", "GAMMA")
    await s.result(2)
    await s.quiet(2.0)


@scenario(DEAR, "--max-budget-usd", "0.01")
async def max_budget(s: Session) -> None:
    """A turn that exceeds ``--max-budget-usd``, then another prompt."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    s.prompt("BETA")
    await s.result()
    await s.quiet()


@scenario({"toolu_": [say("alpha done")], "ALPHA": [bash("toolu_one", "sleep 1")]})
async def usage_in_turn(s: Session) -> None:
    """The cost is requested before a turn, while a tool runs, and after the turn."""
    await s.initialize()
    await s.control("get_usage", skip_behaviors=True)
    s.prompt("ALPHA")
    await s.wait(lambda line: line["type"] == "assistant")
    await s.pause(0.3)
    await s.control("get_usage", skip_behaviors=True)
    await s.control("get_session_cost")
    await s.result()
    await s.control("get_usage", skip_behaviors=True)
    await s.quiet()


FAILURES: Mapping[str, Reply] = {
    "api_400": fail(400, "invalid_request_error", "messages: malformed"),
    "api_400_too_long": fail(
        400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"
    ),
    "api_400_credit": fail(
        400, "invalid_request_error", "Your credit balance is too low to access the API."
    ),
    "api_401": fail(401, "authentication_error", "invalid x-api-key"),
    "api_403": fail(403, "permission_error", "not permitted"),
    "api_404": fail(404, "not_found_error", "model: claude-sonnet-4-5"),
    "api_413": fail(413, "request_too_large", "Request exceeds the maximum size"),
    "api_429": fail(429, "rate_limit_error", "too many requests"),
    "api_500": fail(500, "api_error", "internal error"),
    "api_529": fail(529, "overloaded_error", "Overloaded"),
}


async def one_failure(s: Session) -> None:
    """A turn that the API rejects."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


for _name, _reply in FAILURES.items():
    SCENARIOS[_name] = Scenario(
        _name, one_failure, {"ALPHA": [_reply]}, (), {"CLAUDE_CODE_MAX_RETRIES": "0"}
    )


@scenario({"ALPHA": [FAILURES["api_529"], say("alpha after all")]})
async def api_529_once(s: Session) -> None:
    """One overload, then success: the retry is announced."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario({"BETA": [say("beta done")], "ALPHA": [FAILURES["api_400"]]})
async def api_error_then_prompt(s: Session) -> None:
    """A failed turn with a second prompt in the queue."""
    await s.initialize()
    s.prompt("ALPHA", "BETA")
    await s.result(2)
    await s.quiet()


@scenario({}, env={"ANTHROPIC_API_KEY": None})
async def no_api_key(s: Session) -> None:
    """The CLI is not logged in."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario({"": [say("I will not.", stop_reason="refusal")]}, env={"CLAUDE_CODE_MAX_RETRIES": "0"})
async def refusal(s: Session) -> None:
    """The model refuses every request."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario(
    {"": [say("I will not.", stop_reason="refusal"), say("I will.")]}, "--model", "claude-fable-5"
)
async def refusal_fallback(s: Session) -> None:
    """The model refuses. 2.1.197 asks another model, 2.1.325 asks the same model again."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


MISSING_MARKETPLACE = {"source": {"source": "directory", "path": "/missing/marketplace"}}


@scenario(
    {"": [say("alpha done")]},
    "--settings",
    json.dumps({"extraKnownMarketplaces": {"missing": MISSING_MARKETPLACE}}),
    env={"CLAUDE_CODE_SYNC_PLUGIN_INSTALL": "1"},
)
async def plugin_install(s: Session) -> None:
    """The CLI installs plugins before the first turn. The marketplace does not exist."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario({"": [say('{"ok": true, "reason": "It is said."}')]}, env={"CLAUDE_CODE_REMOTE": "1"})
async def active_goal(s: Session) -> None:
    """The user sets a goal, which the model reaches. 2.1.325 tells remote programs about it."""
    await s.initialize()
    s.prompt("/goal the word is said")
    await s.result()
    await s.quiet()


@scenario({"": [say("cut sho", stop_reason="max_tokens")]}, env={"CLAUDE_CODE_MAX_RETRIES": "0"})
async def max_tokens(s: Session) -> None:
    """Every answer ends at the token limit."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario({"": [say("broken off", cut=True)]}, env={"CLAUDE_CODE_MAX_RETRIES": "0"})
async def disconnect(s: Session) -> None:
    """The connection drops in the middle of every answer."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario({"": [say("broken off", cut=True), say("whole at last")]})
async def disconnect_once(s: Session) -> None:
    """The connection drops once."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario({"": [say("broken off", cut=True), say("whole at last")]}, "--include-partial-messages")
async def disconnect_partial(s: Session) -> None:
    """The connection drops once, with partial messages.

    2.1.325 ends the broken stream with ``message_stop`` and ``abandoned_blocks``.
    """
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


# -- h: set_model ------------------------------------------------------------------------


@scenario({"ALPHA": [say("alpha done")], "BETA": [slow("beta ", 2.0)], "GAMMA": [say("gamma")]})
async def set_model(s: Session) -> None:
    """The model is changed between turns and again during one."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.control("set_model", model="claude-haiku-4-5")
    await s.quiet()
    s.prompt("BETA")
    await s.wait(STARTED)
    await s.pause(0.5)
    await s.control("set_model", model="claude-sonnet-4-5")
    await s.result()
    s.prompt("GAMMA")
    await s.result()
    await s.quiet()


@scenario({"ALPHA": [say("alpha done")]})
async def set_permission_mode(s: Session) -> None:
    """The permission mode is changed before and after a turn."""
    await s.initialize()
    await s.control("set_permission_mode", mode="acceptEdits")
    s.prompt("ALPHA")
    await s.result()
    await s.control("set_permission_mode", mode="default")
    await s.quiet()


# -- i: cancelling a queued prompt ---------------------------------------------------------


@scenario({"GAMMA": [say("gamma done")], "BETA": [say("beta")], "ALPHA": [slow("alpha ", 2.5)]})
async def cancel_queued(s: Session) -> None:
    """One of two queued prompts is cancelled. Cancelling the running one has no effect."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(STARTED)
    await s.pause(0.3)
    s.prompt("BETA", "GAMMA")
    await s.pause(0.3)
    await s.control("cancel_async_message", message_uuid=prompt_uuid(2))
    await s.control("cancel_async_message", message_uuid=prompt_uuid(1))
    await s.result(2)
    await s.quiet(1.5)


# -- j: stops by hooks and permissions -------------------------------------------------------


def deny(_: Json) -> Json:
    """Deny a tool call. The turn continues."""
    return {"behavior": "deny", "message": "denied by the host"}


def deny_and_stop(_: Json) -> Json:
    """Deny a tool call and end the turn."""
    return {"behavior": "deny", "message": "denied by the host", "interrupt": True}


def halt(_: Json) -> Json:
    """Return a hook response that ends the turn."""
    return {"continue": False, "stopReason": "stopped by the hook"}


def halt_and_deny(_: Json) -> Json:
    """Return a PreToolUse response that denies the call and ends the turn."""
    decision = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "denied by the hook",
    }
    return {**halt({}), "hookSpecificOutput": decision}


def insist_once(hook_input: Json) -> Json:
    """Return a Stop response that makes the model continue, once."""
    if hook_input.get("stop_hook_active"):
        return {}
    return {"decision": "block", "reason": "one more thing"}


TOUCH: Script = {"toolu_touch": [say("went on")], "ALPHA": [bash("toolu_touch", "touch made.txt")]}


async def one_prompt(s: Session) -> None:
    """One prompt and its result."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


def defer(_: Json) -> Json:
    """Let the tool call wait for approval."""
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}


def defer_first(request: Json) -> Json:
    """Let the first of two tool calls wait, and deny the other one."""
    if request["tool_use_id"] == "toolu_a":
        return defer(request)
    reason = "another call is waiting for approval"
    decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


STOPS: Mapping[str, tuple[Mapping[str, Responder], Responder]] = {
    "permission_allow": ({}, allow),
    "permission_deny": ({}, deny),
    "permission_deny_interrupt": ({}, deny_and_stop),
    "hook_and_permission": (
        {
            f"{event}:look": no_output
            for event in ("PreToolUse", "PostToolUse", "PostToolBatch", "Stop")
        },
        allow,
    ),
    "hook_pre_defer": ({"PreToolUse:defer": defer}, allow),
    "hook_pre_halt": ({"PreToolUse:halt": halt}, allow),
    "hook_pre_halt_deny": ({"PreToolUse:halt": halt_and_deny}, allow),
    "hook_post_halt": ({"PostToolUse:halt": halt}, allow),
    "hook_stop_halt": ({"Stop:halt": halt}, allow),
    "hook_stop_block": ({"Stop:insist": insist_once}, allow),
}

for _name, (_hooks, _permission) in STOPS.items():
    SCENARIOS[_name] = Scenario(_name, one_prompt, TOUCH, (), {}, _hooks, _permission)


# -- calls that wait for approval --------------------------------------------------------------

TWO_CALLS: Script = {
    "toolu_a": [say("went on")],
    "ALPHA": [
        Reply(
            blocks=(
                ToolUse("toolu_a", "Bash", {"command": "touch a", "description": "make a"}),
                ToolUse("toolu_b", "Bash", {"command": "touch b", "description": "make b"}),
            )
        )
    ],
}
SCENARIOS["hook_pre_defer_two"] = Scenario(
    "hook_pre_defer_two", one_prompt, TWO_CALLS, (), {}, {"PreToolUse:defer": defer_first}
)

WAITING_SESSION = "00000000-0000-4000-8000-00000000abcd"
WAITING = Scenario(
    "waiting",
    one_prompt,
    TOUCH,
    (f"--session-id={WAITING_SESSION}",),
    {},
    {"PreToolUse:defer": defer},
)


async def resumed_turn(s: Session) -> None:
    """A turn that the CLI continues without a prompt."""
    await s.initialize()
    await s.result()
    await s.quiet()


def ask(_: Json) -> Json:
    """Make the CLI ask for permission."""
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}}


for _name, _args, _hooks, _permission in (
    ("approval_allow", (), {}, allow),
    ("approval_deny", (), {}, deny),
    # Newer CLIs only: older ones do not know the flag.
    ("approval_awaited", ("--await-initialize",), {"PreToolUse:ask": ask}, allow),
):
    SCENARIOS[_name] = Scenario(
        _name,
        resumed_turn,
        TOUCH,
        (f"--resume={WAITING_SESSION}", *_args),
        {},
        _hooks,
        _permission,
        after=WAITING,
    )


@scenario(TOUCH, permission=lambda _: None)
async def interrupt_permission(s: Session) -> None:
    """Interrupt while a permission request is open."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(request_is("can_use_tool"))
    await s.pause(0.3)
    await s.control("interrupt")
    await s.result()
    await s.quiet()


# -- k: structured output ----------------------------------------------------------------------

CITY_SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


@scenario(
    {
        "toolu_city": [say("structured")],
        "ALPHA": [call("toolu_city", "StructuredOutput", city="Ulm", people=130_000)],
    }
)
async def structured_ok(s: Session) -> None:
    """A valid structured answer."""
    await s.initialize(jsonSchema=CITY_SCHEMA)
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario({"": [say("only words")]})
async def structured_text_only(s: Session) -> None:
    """The model never calls the tool."""
    await s.initialize(jsonSchema=CITY_SCHEMA)
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario({"": [call(f"toolu_bad{n}", "StructuredOutput", city=5) for n in range(20)]})
async def structured_never_valid(s: Session) -> None:
    """Every structured answer violates the schema."""
    await s.initialize(jsonSchema=CITY_SCHEMA)
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


# -- l: MCP and rate limits ----------------------------------------------------------------------


@scenario(
    {
        "toolu_add": [say("the sum is 5")],
        "ALPHA": [call("toolu_add", "mcp__calc__add", a=2, b=3)],
    }
)
async def sdk_mcp(s: Session) -> None:
    """A call of a tool the SDK serves itself."""
    await s.initialize(sdkMcpServers=["calc"])
    s.prompt("ALPHA")
    await s.result()
    await s.control("mcp_status")
    await s.quiet()


OAUTH: Mapping[str, str | None] = {
    "ANTHROPIC_API_KEY": None,
    "CLAUDE_CODE_OAUTH_TOKEN": "fake-oauth-token",
    "CLAUDE_CODE_MAX_RETRIES": "0",
}
UNIFIED = "anthropic-ratelimit-unified"
RESET = "1999999999"


@scenario(
    {
        "ALPHA": [
            say(
                "alpha done",
                headers={
                    f"{UNIFIED}-status": "allowed_warning",
                    f"{UNIFIED}-reset": RESET,
                    f"{UNIFIED}-representative-claim": "five_hour",
                    f"{UNIFIED}-5h-utilization": "0.95",
                    f"{UNIFIED}-5h-reset": RESET,
                    f"{UNIFIED}-5h-surpassed-threshold": "0.9",
                },
            )
        ]
    },
    env=OAUTH,
)
async def rate_limit_warning(s: Session) -> None:
    """An answer that comes with a warning about the limit."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


@scenario(
    {
        "ALPHA": [
            Reply(
                status=429,
                error_type="rate_limit_error",
                error_message="limit reached",
                headers={
                    f"{UNIFIED}-status": "rejected",
                    f"{UNIFIED}-reset": RESET,
                    f"{UNIFIED}-representative-claim": "five_hour",
                    f"{UNIFIED}-overage-status": "rejected",
                },
            )
        ]
    },
    env=OAUTH,
)
async def rate_limit_rejected(s: Session) -> None:
    """The limit is reached."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()


# -- m: repeated uuids, end of input -------------------------------------------------


@scenario({"ALPHA": [say("alpha done")], "BETA": [say("beta done")], "GAMMA": [say("gamma")]})
async def duplicate_uuid(s: Session) -> None:
    """A prompt that reuses the uuid of a finished one."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    s.write(s.user("BETA", uuid=prompt_uuid(1)))
    await s.quiet(2.0)
    s.prompt("GAMMA")
    await s.result()
    await s.quiet()


@scenario({"ALPHA": [slow("alpha ", 2.0)], "BETA": [say("beta done")]})
async def duplicate_uuid_running(s: Session) -> None:
    """The uuids of the running and of a queued prompt are used again."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.wait(STARTED)
    await s.pause(0.3)
    s.prompt("BETA")
    s.write(s.user("GAMMA", uuid=prompt_uuid(1)), s.user("DELTA", uuid=prompt_uuid(2)))
    await s.result(2)
    await s.quiet(2.0)


@scenario({"ALPHA": [slow("alpha ", 1.0)]})
async def eof_after_prompt(s: Session) -> None:
    """Input ends right behind the prompt; the turn is finished."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.eof()
    await s.result()


@scenario({"ALPHA": [slow("alpha ", 1.0)], "BETA": [say("beta done")]})
async def eof_with_queue(s: Session) -> None:
    """Input ends with two prompts in the queue."""
    await s.initialize()
    s.prompt("ALPHA", "BETA", "GAMMA")
    await s.eof()
    await s.result()


@scenario(BACKGROUND_SHELL)
async def eof_background(s: Session) -> None:
    """Input ends while a background command runs."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    await s.eof()
    await s.result()


# -- n: control operations -----------------------------------------------------------

OPERATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mcp_status", {}),
    ("mcp_set_servers", {"servers": {"broken": {"command": "/no/such/program", "args": []}}}),
    ("stop_task", {"task_id": "unknown"}),
    ("background_tasks", {}),
    ("get_task_output", {"task_id": "unknown"}),
    ("get_context_usage", {"detail": "summary"}),
    ("list_models", {}),
    ("set_max_thinking_tokens", {"max_thinking_tokens": None}),
    ("get_settings", {}),
    ("apply_flag_settings", {"settings": {"cleanupPeriodDays": 30}}),
    ("list_permission_rules", {}),
    ("get_hooks_listing", {}),
    ("reload_output_styles", {}),
    ("read_file", {"path": "missing.txt"}),
    ("file_suggestions", {"query": "a"}),
    ("get_workspace_diff", {}),
    ("reload_plugins", {}),
    ("reload_skills", {}),
    ("cancel_async_message", {"message_uuid": "00000000-0000-4000-8000-000000000099"}),
    ("rename_session", {"title": "A title"}),
    ("generate_session_title", {"description": "Mend the parser", "persist": False}),
    ("side_question", {"question": "ALPHA?"}),
    ("export_conversation", {}),
    ("get_plan", {}),
    ("get_status", {}),
    ("get_binary_version", {}),
    ("get_session_cost", {}),
    ("get_usage", {"skip_behaviors": True}),
    ("set_has_subscribers", {"has_subscribers": True}),
    ("set_color", {"color": "red"}),  # neither version supports it
)


@scenario({"ALPHA": [say("alpha done"), say("aside")]})
async def control_operations(s: Session) -> None:
    """One request of each kind after a turn. Older CLIs reject some of them."""
    await s.initialize()
    s.prompt("ALPHA")
    await s.result()
    for subtype, fields in OPERATIONS:
        await s.control(subtype, **fields)
    await s.quiet()


# -- processes that are started in advance (newer CLIs only) ----------------------------


def directory_of(s: Session) -> str:
    """Return the working directory of the CLI."""
    return os.readlink(f"/proc/{s.pid}/cwd")


@scenario(TOUCH, "--await-claim", hooks={"PreToolUse": lambda _: {}, "SessionStart": lambda _: {}})
async def claim(s: Session) -> None:
    """A process that has waited without any input is initialized, claimed and used."""
    await s.pause(1.5)
    await s.initialize()
    await s.control("claim_session", cwd=directory_of(s))
    s.prompt("ALPHA")
    await s.result()
    await s.control("claim_session", cwd=directory_of(s))
    await s.quiet()


@scenario({"ALPHA": [say("Alpha.")]}, "--await-claim")
async def claim_refused(s: Session) -> None:
    """Claims that the CLI rejects, a prompt before the claim, then a claim that works."""
    home = directory_of(s)
    await s.initialize()
    await s.control("claim_session")
    await s.control("claim_session", cwd="project")
    await s.control("claim_session", cwd=f"{home}/missing")
    await s.control("claim_session", cwd="/etc/hostname")
    await s.control("claim_session", cwd=home, env={"FOO": "bar"})
    settings = Path(home, ".claude", "settings.json")
    settings.parent.mkdir()
    settings.write_text('{"env": {"FOO": "bar"}}')
    await s.control("claim_session", cwd=home)
    settings.write_text("{}")
    s.prompt("ALPHA")
    await s.result()
    await s.control("claim_session", cwd=home)
    s.prompt("ALPHA")
    await s.result()
    await s.quiet()
