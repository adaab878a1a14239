"""A fake CLI: a real executable that says and expects what a test wrote down.

A :class:`FakeCli` is a script, and every method that adds to it returns a new one. The executable
exists from the first use of :attr:`FakeCli.path` on, until :meth:`FakeCli.close` or until nobody
holds the object any more. It speaks the protocol as the real CLI does, down to the members of its
frames; it starts in a few milliseconds and depends on nothing but Python.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from bridle._shell.preflight import CALLS_NOBODY
from bridle.testing import _fake_cli_main
from bridle.testing._fake_cli.expectations import expectations, shortfall
from bridle.testing._fake_cli.model import WORDS
from bridle.testing._fake_cli.payloads import NEWEST, OLDER
from bridle.testing.recording import Entry, read_recording
from bridle.testing.script import Block, Reply

Json: TypeAlias = Mapping[str, object]
Replies: TypeAlias = Sequence[Reply | Sequence[Block | Json]]

FLAVOURS = (NEWEST, OLDER)
"""The CLI versions a fake can be: the newest, and an older one that tells less."""

PROMPT_WORDS: Mapping[str, str] = MappingProxyType(WORDS)
"""What a line of a prompt can ask of an automatic fake's model, with what each word does."""

_NAME = "claude"

_DEFAULTS: Json = MappingProxyType(
    {
        "flavour": NEWEST,
        "version": f"{NEWEST} (Claude Code)",
        "version_after": 0.0,
        "patience": 10.0,
        "lifetime": 300,
        "slow_start": 0.0,
        "latency": 0.0,
        "bad_flag": None,
        "unknown_session": False,
        "reply": "",
        "steps": [],
    }
)


class FakeCli:
    """A script for a fake CLI, and the executable that plays it.

    Steps are played in order. A step that expects something takes the first unread line of its
    kind; lines of other kinds wait for later steps. An expectation that is not met within
    ``patience`` seconds, or meets something else, makes the process say so on stderr and exit 70;
    :meth:`check` raises it. After the last step the process waits for the end of its input, and
    leaves with 0, or with 1 if its last result was an error. If the script is over, or empty, and
    initialize has yet to be answered, nobody will, and the process exits 70 as soon as it comes;
    unless it has a :meth:`version` of its own, for which it may be about to be turned away.

    Args:
        flavour: The version of the CLI to be.
        patience: Seconds to wait for what is expected.
        lifetime: Seconds after which the process is gone in any case, so that none is left over.
    """

    __slots__ = ("__weakref__", "_home", "_plan", "_steps")

    def __init__(
        self, *, flavour: str = NEWEST, patience: float = 10.0, lifetime: int = 300
    ) -> None:
        if flavour not in FLAVOURS:
            raise ValueError(f"flavour must be one of {', '.join(FLAVOURS)}, not {flavour}")
        chosen = {"flavour": flavour, "version": f"{flavour} (Claude Code)"}
        self._plan: Json = {**_DEFAULTS, **chosen, "patience": patience, "lifetime": lifetime}
        self._steps: tuple[Json, ...] = ()
        self._home: _Home | None = None

    @classmethod
    def auto(
        cls,
        reply: str | Replies = "You said: {prompt}",
        *,
        flavour: str = NEWEST,
        latency: float = 0.0,
        lifetime: int = 300,
    ) -> FakeCli:
        """A CLI without a script, which holds a conversation by itself.

        It answers every control request, shakes hands with the client's MCP servers, asks hooks
        and permissions, queues and merges prompts, can be interrupted, and leaves at the end of
        its input. Its model is played by ``reply``: a text for every prompt, where ``{prompt}``
        stands for it; or the model's messages in order, as for a scripted model (of a
        :class:`Reply`, its blocks count, and ``hold``, which lasts until an interrupt). Lines of a
        prompt that begin with one of :data:`PROMPT_WORDS`, such as ``BASH ls``, ``STREAM 100``,
        ``SLOW`` or ``CALL mcp__calc__add {"a": 1}``, say what the model does. No tool is really run
        but the client's own.

        Args:
            latency: Seconds the model thinks before it says anything.
        """
        cli = cls(flavour=flavour, lifetime=lifetime)
        said = reply if isinstance(reply, str) else [_message(message) for message in reply]
        return cli._set(reply=said, steps=None, latency=latency)

    def _set(self, **plan: object) -> FakeCli:
        changed = FakeCli.__new__(FakeCli)
        changed._plan = {**self._plan, **plan}
        changed._steps = self._steps
        changed._home = None
        return changed

    def _add(self, do: str, **arguments: object) -> FakeCli:
        if self._plan["steps"] is None:
            raise TypeError("an automatic fake CLI has no script; build one from FakeCli()")
        changed = self._set()
        changed._steps = (*self._steps, {"do": do, **arguments})
        return changed

    # -- the conversation ------------------------------------------------------------------------

    def expect_initialize(
        self,
        answer: Json | None = None,
        *,
        delay: float = 0.0,
        error: str | None = None,
        like: Json | None = None,
    ) -> FakeCli:
        """Wait for initialize, and answer it: as a real CLI does, with a payload, or an error."""
        return self._add(
            "expect_initialize", answer=answer, delay=delay, error=error, like=like or {}
        )

    def expect_user(self, text: str | None = None, *, like: Json | None = None) -> FakeCli:
        """Wait for a prompt: of this text, with these members, or any."""
        return self._add("expect_user", text=text, like=like or {})

    def turn(self, text: str = "Done.", *, tools: Sequence[tuple[str, Json, str]] = ()) -> FakeCli:
        """A whole turn, for the prompts expected before or else the next one.

        ``tools`` are calls the model makes first: name, input, and what came of it.
        """
        return self._add("turn", text=text, tools=[list(tool) for tool in tools])

    def start_turn(self) -> FakeCli:
        """The beginning of a turn, up to where the model speaks."""
        return self._add("start_turn")

    def assistant(self, *content: str | Block | Json) -> FakeCli:
        """The model says a message: texts and blocks."""
        return self._add("assistant", blocks=[_block(one) for one in content])

    def stream(self, text: str, count: int = 1) -> FakeCli:
        """The model says the text so many times, in as many deltas where these are asked for."""
        return self._add("stream", text=text, count=count)

    def tool_result(self, content: str, *, is_error: bool = False) -> FakeCli:
        """What came of the model's last tool call."""
        return self._add("tool_result", content=content, is_error=is_error)

    def result(
        self, text: str | None = "Done.", *, state: str = "completed", **members: object
    ) -> FakeCli:
        """The end of a turn. ``members`` replace those of a clean result."""
        return self._add("result", text=text, state=state, members=members)

    def emit(self, *lines: Json | bytes | str) -> FakeCli:
        """Write these lines: JSON objects, or text as it is. A missing newline is added."""
        return self._add("emit", lines=[_line(line) for line in lines])

    def repeat(self, times: int, steps: FakeCli | None = None) -> FakeCli:
        """Play the steps of that script so often; without one, the last step, so often in all."""
        if steps is not None:
            return self._add("repeat", steps=list(steps._steps), times=times)
        return self._without_last()._add("repeat", steps=[self._steps[-1]], times=times)

    def forever(self, steps: FakeCli | None = None) -> FakeCli:
        """Play the steps of that script, or the last step, without end."""
        if steps is not None:
            return self._add("repeat", steps=list(steps._steps), times=None)
        return self._without_last()._add("repeat", steps=[self._steps[-1]], times=None)

    def _without_last(self) -> FakeCli:
        if not self._steps:
            raise ValueError("there is no step to repeat")
        changed = self._set()
        changed._steps = self._steps[:-1]
        return changed

    # -- questions to the client -------------------------------------------------------------------

    def ask_hook(self, event: str, *, callback_id: str | None = None, **fields: object) -> FakeCli:
        """Call a hook: the one with that id, or the first that initialize registered for this."""
        return self._add("ask_hook", event=event, callback_id=callback_id, fields=fields)

    def expect_hook(self, like: Json) -> FakeCli:
        """Wait for a hook's answer that has these members."""
        return self._expect("hook_callback", "", {"response": like})

    def expect_continue(self) -> FakeCli:
        """Wait for a hook's answer that lets things go on."""
        return self._expect("hook_callback", "continue", {})

    def expect_block(self, like: Json | None = None) -> FakeCli:
        """Wait for a hook's answer that does not."""
        return self._expect("hook_callback", "block", {"response": like} if like else {})

    def ask_permission(self, tool: str, /, **fields: object) -> FakeCli:
        """Ask whether a tool may run with this input."""
        return self._add("ask_permission", tool=tool, fields=fields)

    def expect_allow(self, updated_input: Json | None = None) -> FakeCli:
        """Wait for a permission; with that input, if one is given."""
        like = {} if updated_input is None else {"response": {"updatedInput": updated_input}}
        return self._expect("can_use_tool", "allow", like)

    def expect_deny(self, message: str | None = None) -> FakeCli:
        """Wait for a refusal; with that message, if one is given."""
        like = {} if message is None else {"response": {"message": message}}
        return self._expect("can_use_tool", "deny", like)

    def ask_mcp(self, server: str, message: Json) -> FakeCli:
        """Send a JSON-RPC message to a server of the client's."""
        return self._add("ask_mcp", server=server, message=message)

    def expect_mcp_result(self, like: Json | None = None) -> FakeCli:
        """Wait for a server's result that has these members."""
        wanted = {"response": {"mcp_response": {"result": like}}} if like else {}
        return self._expect("mcp_message", "result", wanted)

    def expect_mcp_error(self, like: Json | None = None) -> FakeCli:
        """Wait for a server's error that has these members."""
        wanted = {"response": {"mcp_response": {"error": like}}} if like else {}
        return self._expect("mcp_message", "error", wanted)

    def ask_elicitation(
        self, message: str, *, server: str = "forms", schema: Json | None = None
    ) -> FakeCli:
        """Ask the user something on behalf of an MCP server."""
        form = schema or {"type": "object", "properties": {}}
        return self._add("ask_elicitation", server=server, message=message, schema=form)

    def expect_elicitation(self, action: str, content: Json | None = None) -> FakeCli:
        """Wait for the user's answer."""
        filled = {} if content is None else {"content": content}
        return self._expect("elicitation", "", {"response": {"action": action, **filled}})

    def ask(self, subtype: str, /, **fields: object) -> FakeCli:
        """Ask anything, known to the client or not."""
        return self._add("ask", subtype=subtype, fields=fields)

    def expect_answer(self, like: Json | None = None) -> FakeCli:
        """Wait for the answer to the oldest open question; ``like`` has its ``subtype`` too."""
        return self._expect(None, "", like or {})

    def expect_error(self) -> FakeCli:
        """Wait for an error in answer to the oldest open question."""
        return self._expect(None, "error", {})

    def withdraw(self) -> FakeCli:
        """Take the last question back."""
        return self._add("withdraw")

    def _expect(self, subtype: str | None, verdict: str, like: Json) -> FakeCli:
        return self._add("expect_answer", subtype=subtype, verdict=verdict, like=like)

    # -- requests of the client --------------------------------------------------------------------

    def expect_request(self, subtype: str, /, **fields: object) -> FakeCli:
        """Wait for a control request; :meth:`reply`, :meth:`refuse` or :meth:`ignore` follow."""
        return self._add("expect_request", subtype=subtype, like=fields)

    def reply(self, payload: Json | None = None) -> FakeCli:
        """The last expected request succeeded; without a payload, it is only acknowledged."""
        return self._add("reply", payload=payload)

    def refuse(self, error: str, *, code: str | None = None) -> FakeCli:
        """The last expected request failed."""
        return self._add("refuse", error=error, code=code)

    def ignore(self) -> FakeCli:
        """The last expected request is never answered."""
        return self._add("ignore")

    # -- faults ------------------------------------------------------------------------------------

    def garbage(self, data: bytes = b"this is no JSON\n") -> FakeCli:
        """Write these bytes, whatever they are."""
        return self._add("emit", lines=[data.decode("latin-1")])

    def half_line(self, data: bytes = b'{"type":"assistant","message":{"ro') -> FakeCli:
        """Write the beginning of a line."""
        return self.garbage(data.rstrip(b"\n"))

    def invalid_utf8(self) -> FakeCli:
        """Write a line that is JSON but for two bytes that are no text."""
        return self.garbage(b'{"type":"assistant","message":"\xff\xfe"}\n')

    def huge_line(self, size: int, kind: str = "assistant") -> FakeCli:
        """Write a line of so many bytes.

        ``kind`` is assistant, result, control_request (a permission), or control_response (the
        answer to the last expected request).
        """
        return self._add("huge_line", size=size, kind=kind)

    def stderr(self, text: str) -> FakeCli:
        """Write a line to stderr."""
        return self._add("stderr", data=_line(text), times=1)

    def flood_stderr(self, size: int) -> FakeCli:
        """Write so many bytes to stderr, in lines."""
        line = "the fake CLI complains\n"
        return self._add("stderr", data=line, times=-(-size // len(line)))

    def silence(self, seconds: float | None = None, *, reading: bool = True) -> FakeCli:
        """Say nothing for so long, or for ever; input is read all the while, or is not."""
        return self._add("silence", seconds=seconds, reading=reading)

    def close_stdout(self) -> FakeCli:
        """Close the output; the process goes on."""
        return self._add("close_stdout")

    def close_stdin(self) -> FakeCli:
        """Close the input; whoever writes to it fails."""
        return self._add("close_stdin")

    def wait_for_eof(self) -> FakeCli:
        """Wait until the client ends the input."""
        return self._add("wait_for_eof")

    def ignore_eof(self) -> FakeCli:
        """From here on the end of the input does not end the process."""
        return self._add("ignore_eof")

    def ignore_sigterm(self) -> FakeCli:
        """From here on SIGTERM does nothing."""
        return self._add("ignore_sigterm")

    def fork_grandchild(
        self, *, setsid: bool = False, hold_stdout: bool = False, ignore_sigterm: bool = False
    ) -> FakeCli:
        """Start a process that outlives this one, for two minutes at most.

        It may leave the process group, keep the output open, and be deaf to SIGTERM. Its id is in
        :attr:`grandchildren`.
        """
        return self._add(
            "fork_grandchild",
            setsid=setsid,
            hold_stdout=hold_stdout,
            ignore_sigterm=ignore_sigterm,
        )

    def exit(self, code: int = 0) -> FakeCli:
        """Leave with this code."""
        return self._add("exit", code=code)

    def crash(self, number: int = signal.SIGKILL) -> FakeCli:
        """Die of this signal."""
        return self._add("exit", code=-number)

    # -- the start ---------------------------------------------------------------------------------

    def version(
        self,
        text: str | None = None,
        *,
        hang: bool = False,
        exit_code: int | None = None,
        after: float = 0.0,
    ) -> FakeCli:
        """Say what ``--version`` does: print a text, never answer, or exit with a code.

        It does so ``after`` so many seconds.
        """
        if exit_code is not None:
            return self._set(version=exit_code, version_after=after)
        said = None if hang else text or f"{self._plan['flavour']} (Claude Code)"
        return self._set(version=said, version_after=after)

    def slow_start(self, seconds: float) -> FakeCli:
        """Do nothing for so long after the start."""
        return self._set(slow_start=seconds)

    def bad_flag(self, flag: str = "--x") -> FakeCli:
        """Refuse to start over an option."""
        return self._set(bad_flag=flag)

    def unknown_session(self) -> FakeCli:
        """Know nothing of any session that is to be resumed."""
        return self._set(unknown_session=True)

    # -- the executable ----------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The executable. It is there until the script is closed or forgotten."""
        return str(self._at_home().executable)

    def __enter__(self) -> FakeCli:
        self._at_home()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the executable and its transcripts. May be called again."""
        if self._home is not None:
            self._home.close()

    def _at_home(self) -> _Home:
        if self._home is None:
            steps = self._plan["steps"] if self._plan["steps"] is None else list(self._steps)
            self._home = _Home({**self._plan, "steps": steps})
        return self._home

    # -- what happened -----------------------------------------------------------------------------

    @property
    def runs(self) -> list[list[Entry]]:
        """The transcripts of all runs so far, in order; those for ``--version`` aside."""
        return self._at_home().runs()

    def transcript(self) -> list[Entry]:
        """What went in and out of the last run, with times. Works at any moment."""
        runs = self.runs
        return runs[-1] if runs else []

    @property
    def received(self) -> list[dict[str, Any]]:
        """The lines the last run has read."""
        return [entry.members for entry in self.transcript() if entry.direction == "in"]

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The lines the last run has written, as far as they are JSON objects."""
        return [entry.members for entry in self.transcript() if entry.direction == "out"]

    @property
    def argv(self) -> list[str]:
        """The arguments of the last run."""
        return cast("list[str]", self._facts("argv", [[]])[-1])

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the last run."""
        return cast("dict[str, str]", self._facts("env", [{}])[-1])

    @property
    def pid(self) -> int | None:
        """The process id of the last run."""
        return cast("int | None", self._facts("pid", [None])[-1])

    @property
    def grandchildren(self) -> list[int]:
        """The processes the last run left behind."""
        return cast("list[int]", self._facts("grandchild", []))

    @property
    def failures(self) -> list[str]:
        """What was expected and did not come: in any of the runs, or for want of one.

        Prompts that a turn waits for are expected too. In a run that still goes on, it is what has
        not come yet.
        """
        if self._home is not None and self._home.is_closed and any(expectations(self._steps)):
            return ["the fake CLI is closed, and nobody knows any more what came: check it before"]
        runs = self.runs if self._home is not None else []
        told = [[entry.members for entry in run if entry.direction == "meta"] for run in runs]
        return shortfall(self._steps, told)

    def check(self) -> None:
        """Raise AssertionError if anything that was expected did not come.

        Every run must have played all that the script expects, also one that was killed; and there
        must have been one. Steps that expect nothing may be left over. Check before you close.
        """
        if failures := self.failures:
            raise AssertionError("; ".join(failures))

    def _facts(self, name: str, default: list[Any]) -> list[object]:
        entries = (entry for entry in self.transcript() if entry.direction == "meta")
        found = [entry.members[name] for entry in entries if name in entry.members]
        return found or default


def _remove(directory: Path, creator: int) -> None:
    if os.getpid() != creator:  # a forked child has a copy of the object, not of the files
        return
    CALLS_NOBODY.discard(str(directory / _NAME))
    shutil.rmtree(directory, ignore_errors=True)


class _Home:
    """The directory of one executable, its plan, and the transcripts of its runs."""

    def __init__(self, plan: Json) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="fake-cli-"))
        # Also when nobody closes it: with the last reference, or with the interpreter.
        self.close = weakref.finalize(self, _remove, self._directory, os.getpid())
        script = self._directory / "script.json"
        script.write_text(json.dumps(plan), "utf-8")
        program = [sys.executable, "-I", "-S", _fake_cli_main.__file__, str(script)]
        self.executable = self._directory / _NAME
        self.executable.write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n', "utf-8")
        self.executable.chmod(stat.S_IRWXU)
        CALLS_NOBODY.add(str(self.executable))

    @property
    def is_closed(self) -> bool:
        """The directory is gone."""
        return not self.close.alive

    def runs(self) -> list[list[Entry]]:
        """Every transcript, oldest first."""
        return [read_recording(path) for path in sorted(self._directory.glob("run-*.ndjson"))]


def _line(line: Json | bytes | str) -> str:
    """A line for the script, which carries bytes as characters of the same number."""
    if isinstance(line, Mapping):
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        return text.encode().decode("latin-1") + "\n"
    data = line if isinstance(line, bytes) else line.encode()
    return (data if data.endswith(b"\n") else data + b"\n").decode("latin-1")


def _block(content: str | Block | Json) -> Json:
    if isinstance(content, str):
        return {"type": "text", "text": content}
    return content.content if isinstance(content, Block) else content


def _message(message: Reply | Sequence[Block | Json]) -> Json:
    blocks = message.blocks if isinstance(message, Reply) else message
    is_held = isinstance(message, Reply) and message.hold is not False
    return {"blocks": [_block(block) for block in blocks], "hold": is_held}
