"""A fake CLI: an executable that sends and expects the lines that a test describes.

A :class:`FakeCli` is a script. Every method that adds a step returns a new script. The executable
is created on the first use of :attr:`FakeCli.path`, and deleted by :meth:`FakeCli.close` or when
the object is garbage-collected. Its frames have the same members as those of the real CLI. It
starts in a few milliseconds and needs only Python.
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

from bridle._spi import CALLS_NOBODY
from bridle.testing import _fake_cli_main
from bridle.testing._fake_cli.expectations import expectations, shortfall
from bridle.testing._fake_cli.model import WORDS
from bridle.testing._fake_cli.payloads import NEWER_VERSION, NEWEST, OLDER
from bridle.testing.recording import Entry, read_recording
from bridle.testing.script import Block, Reply

Json: TypeAlias = Mapping[str, object]
Replies: TypeAlias = Sequence[Reply | Sequence[Block | Json]]

FLAVOURS = (NEWEST, NEWER_VERSION, OLDER)
"""The CLI versions that a fake can imitate: the newest, and older ones that report less."""

PROMPT_WORDS: Mapping[str, str] = MappingProxyType(WORDS)
"""The words that control the model of an automatic fake CLI, with a description of each."""

_NAME = "claude"

_DEFAULTS: Json = MappingProxyType(
    {
        "flavour": NEWEST,
        "version": f"{NEWEST} (Claude Code)",
        "version_after": 0.0,
        "patience": 30.0,
        "lifetime": 300,
        "slow_start": 0.0,
        "latency": 0.0,
        "bad_flag": None,
        "unknown_session": False,
        "reply": "",
        "transcripts": False,
        "transcript_delay": 0.03,
        "steps": [],
    }
)


class FakeCli:
    """A script for a fake CLI, and the executable that runs it.

    Steps run in order. A step that expects a line takes the first unread line of its kind. Lines
    of other kinds stay unread for later steps. If the line does not arrive within ``patience``
    seconds, or differs, the process writes the reason to stderr and exits with 70, and
    :meth:`check` raises AssertionError.

    After the last step the process waits for the end of its input. Then it exits with 0, or with 1
    if its last result was an error. If initialize arrives and no step is left to answer it, the
    process exits with 70, unless the script sets a :meth:`version`.

    Args:
        flavour: The version of the CLI to imitate, one of :data:`FLAVOURS`.
        patience: Seconds to wait for an expected line.
        lifetime: Seconds after which the process exits in any case, so that none is left behind.
    """

    __slots__ = ("__weakref__", "_home", "_plan", "_steps")

    def __init__(
        self, *, flavour: str = NEWEST, patience: float = 30.0, lifetime: int = 300
    ) -> None:
        if flavour not in FLAVOURS:
            raise ValueError(f"flavour must be one of {', '.join(FLAVOURS)}, got {flavour}")
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
        transcripts: bool = False,
    ) -> FakeCli:
        """Return a fake CLI without a script that answers by itself.

        It answers every control request, initializes the client's MCP servers, calls hooks, sends
        permission requests, queues and merges prompts, can be interrupted, and exits at the end of
        its input. It runs only the tools of the client; other tools are imitated.

        A prompt, a tool result or the context that a UserPromptSubmit hook adds can control the
        model: a line that begins with one of :data:`PROMPT_WORDS`, such as ``BASH ls``,
        ``STREAM 100``, ``SLOW`` or ``CALL mcp__calc__add {"a": 1}``.

        Args:
            reply: The model's answer to every prompt, where ``{prompt}`` is replaced by the prompt.
                Or a list of the model's messages in order, as for a scripted model. Of a
                :class:`Reply`, only the blocks and ``hold`` are used; ``hold`` lasts until an
                interrupt.
            latency: Seconds before the model begins to answer.
            transcripts: Keep transcripts in the configuration directory (``CLAUDE_CONFIG_DIR``, or
                ``~/.claude``), resume from them, and report them to a client with a session store.
                A prompt whose uuid is in the transcript starts no turn. A tool call that a hook
                deferred waits, and a process that resumes the conversation asks for permission and
                runs it. A turn that was cut off is closed with the entries that the real CLI
                writes. The model remembers nothing.
        """
        cli = cls(flavour=flavour, lifetime=lifetime)
        said = reply if isinstance(reply, str) else [_message(message) for message in reply]
        return cli._set(reply=said, steps=None, latency=latency, transcripts=transcripts)

    def _set(self, **plan: object) -> FakeCli:
        changed = FakeCli.__new__(FakeCli)
        changed._plan = {**self._plan, **plan}
        changed._steps = self._steps
        changed._home = None
        return changed

    def _add(self, do: str, **arguments: object) -> FakeCli:
        if self._plan["steps"] is None:
            raise TypeError("an automatic fake CLI has no script: build a script from FakeCli()")
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
        """Wait for initialize. Answer it like a real CLI, with this payload, or with an error."""
        return self._add(
            "expect_initialize", answer=answer, delay=delay, error=error, like=like or {}
        )

    def expect_user(self, text: str | None = None, *, like: Json | None = None) -> FakeCli:
        """Wait for a prompt. If given, it must have this text and these members."""
        return self._add("expect_user", text=text, like=like or {})

    def turn(self, text: str = "Done.", *, tools: Sequence[tuple[str, Json, str]] = ()) -> FakeCli:
        """Send a whole turn for the prompts expected before, or else for the next prompt.

        ``tools`` are tool calls before the text: name, input and result of each.
        """
        return self._add("turn", text=text, tools=[list(tool) for tool in tools])

    def start_turn(self) -> FakeCli:
        """Send the beginning of a turn, up to the first message of the model."""
        return self._add("start_turn")

    def assistant(self, *content: str | Block | Json) -> FakeCli:
        """Send a message of the model: texts and blocks."""
        return self._add("assistant", blocks=[_block(one) for one in content])

    def stream(self, text: str, count: int = 1) -> FakeCli:
        """Send the text ``count`` times, as deltas if the client asks for partial messages."""
        return self._add("stream", text=text, count=count)

    def tool_result(self, content: str, *, is_error: bool = False) -> FakeCli:
        """Send the result of the model's last tool call."""
        return self._add("tool_result", content=content, is_error=is_error)

    def result(
        self, text: str | None = "Done.", *, state: str = "completed", **members: object
    ) -> FakeCli:
        """Send the result of the turn. ``members`` replace those of a successful result."""
        return self._add("result", text=text, state=state, members=members)

    def emit(self, *lines: Json | bytes | str) -> FakeCli:
        """Write lines: JSON objects, or text unchanged. A missing newline is added."""
        return self._add("emit", lines=[_line(line) for line in lines])

    def repeat(self, times: int, steps: FakeCli | None = None) -> FakeCli:
        """Run the steps of that script ``times`` times; without one, the last step (in total)."""
        if steps is not None:
            return self._add("repeat", steps=list(steps._steps), times=times)
        return self._without_last()._add("repeat", steps=[self._steps[-1]], times=times)

    def forever(self, steps: FakeCli | None = None) -> FakeCli:
        """Repeat the steps of that script, or the last step, without end."""
        if steps is not None:
            return self._add("repeat", steps=list(steps._steps), times=None)
        return self._without_last()._add("repeat", steps=[self._steps[-1]], times=None)

    def _without_last(self) -> FakeCli:
        if not self._steps:
            raise ValueError("there is no step to repeat")
        changed = self._set()
        changed._steps = self._steps[:-1]
        return changed

    # -- requests to the client --------------------------------------------------------------------

    def ask_hook(self, event: str, *, callback_id: str | None = None, **fields: object) -> FakeCli:
        """Call a hook: the one with this id, or the first one registered for this event."""
        return self._add("ask_hook", event=event, callback_id=callback_id, fields=fields)

    def expect_hook(self, like: Json) -> FakeCli:
        """Wait for a hook's response with these members."""
        return self._expect("hook_callback", "", {"response": like})

    def expect_continue(self) -> FakeCli:
        """Wait for a hook's response that does not block."""
        return self._expect("hook_callback", "continue", {})

    def expect_block(self, like: Json | None = None) -> FakeCli:
        """Wait for a hook's response that blocks."""
        return self._expect("hook_callback", "block", {"response": like} if like else {})

    def ask_permission(self, tool: str, /, **fields: object) -> FakeCli:
        """Send a permission request for a tool with this input."""
        return self._add("ask_permission", tool=tool, fields=fields)

    def expect_allow(self, updated_input: Json | None = None) -> FakeCli:
        """Wait for a response that allows; with this input, if given."""
        like = {} if updated_input is None else {"response": {"updatedInput": updated_input}}
        return self._expect("can_use_tool", "allow", like)

    def expect_deny(self, message: str | None = None) -> FakeCli:
        """Wait for a response that denies; with this message, if given."""
        like = {} if message is None else {"response": {"message": message}}
        return self._expect("can_use_tool", "deny", like)

    def ask_mcp(self, server: str, message: Json) -> FakeCli:
        """Send a JSON-RPC message to an MCP server of the client."""
        return self._add("ask_mcp", server=server, message=message)

    def expect_mcp_result(self, like: Json | None = None) -> FakeCli:
        """Wait for a server's result with these members."""
        wanted = {"response": {"mcp_response": {"result": like}}} if like else {}
        return self._expect("mcp_message", "result", wanted)

    def expect_mcp_error(self, like: Json | None = None) -> FakeCli:
        """Wait for a server's error with these members."""
        wanted = {"response": {"mcp_response": {"error": like}}} if like else {}
        return self._expect("mcp_message", "error", wanted)

    def ask_elicitation(
        self, message: str, *, server: str = "forms", schema: Json | None = None
    ) -> FakeCli:
        """Send an elicitation of an MCP server."""
        form = schema or {"type": "object", "properties": {}}
        return self._add("ask_elicitation", server=server, message=message, schema=form)

    def expect_elicitation(self, action: str, content: Json | None = None) -> FakeCli:
        """Wait for the response to the elicitation."""
        filled = {} if content is None else {"content": content}
        return self._expect("elicitation", "", {"response": {"action": action, **filled}})

    def ask(self, subtype: str, /, **fields: object) -> FakeCli:
        """Send a request of any subtype, known to the client or not."""
        return self._add("ask", subtype=subtype, fields=fields)

    def expect_answer(self, like: Json | None = None) -> FakeCli:
        """Wait for the response to the oldest open request. ``like`` may include ``subtype``."""
        return self._expect(None, "", like or {})

    def expect_error(self) -> FakeCli:
        """Wait for an error response to the oldest open request."""
        return self._expect(None, "error", {})

    def withdraw(self) -> FakeCli:
        """Withdraw the last request."""
        return self._add("withdraw")

    def _expect(self, subtype: str | None, verdict: str, like: Json) -> FakeCli:
        return self._add("expect_answer", subtype=subtype, verdict=verdict, like=like)

    # -- requests of the client --------------------------------------------------------------------

    def expect_request(self, subtype: str, /, **fields: object) -> FakeCli:
        """Wait for a control request. :meth:`reply`, :meth:`refuse` or :meth:`ignore` follows."""
        return self._add("expect_request", subtype=subtype, like=fields)

    def reply(self, payload: Json | None = None) -> FakeCli:
        """Answer the last expected request with success, and with this payload if given."""
        return self._add("reply", payload=payload)

    def refuse(self, error: str, *, code: str | None = None) -> FakeCli:
        """Answer the last expected request with an error."""
        return self._add("refuse", error=error, code=code)

    def ignore(self) -> FakeCli:
        """Never answer the last expected request."""
        return self._add("ignore")

    # -- faults ------------------------------------------------------------------------------------

    def garbage(self, data: bytes = b"this is not JSON\n") -> FakeCli:
        """Write these bytes unchanged."""
        return self._add("emit", lines=[data.decode("latin-1")])

    def half_line(self, data: bytes = b'{"type":"assistant","message":{"ro') -> FakeCli:
        """Write the beginning of a line, without its end."""
        return self.garbage(data.rstrip(b"\n"))

    def invalid_utf8(self) -> FakeCli:
        """Write a JSON line that contains two bytes of invalid UTF-8."""
        return self.garbage(b'{"type":"assistant","message":"\xff\xfe"}\n')

    def huge_line(self, size: int, kind: str = "assistant") -> FakeCli:
        """Write a line of ``size`` bytes.

        ``kind`` is assistant, result, control_request (a permission request), or control_response
        (the response to the last expected request).
        """
        return self._add("huge_line", size=size, kind=kind)

    def stderr(self, text: str) -> FakeCli:
        """Write a line to stderr."""
        return self._add("stderr", data=_line(text), times=1)

    def flood_stderr(self, size: int) -> FakeCli:
        """Write ``size`` bytes to stderr, in lines."""
        line = "the fake CLI complains\n"
        return self._add("stderr", data=line, times=-(-size // len(line)))

    def silence(self, seconds: float | None = None, *, reading: bool = True) -> FakeCli:
        """Write nothing for this many seconds, or forever. ``reading``: whether to read input."""
        return self._add("silence", seconds=seconds, reading=reading)

    def close_stdout(self) -> FakeCli:
        """Close the output. The process continues."""
        return self._add("close_stdout")

    def close_stdin(self) -> FakeCli:
        """Close the input, so that writing to it fails."""
        return self._add("close_stdin")

    def wait_for_eof(self) -> FakeCli:
        """Wait until the client closes the input."""
        return self._add("wait_for_eof")

    def ignore_eof(self) -> FakeCli:
        """From here on, keep running after the end of the input."""
        return self._add("ignore_eof")

    def ignore_sigterm(self) -> FakeCli:
        """From here on, ignore SIGTERM."""
        return self._add("ignore_sigterm")

    def fork_grandchild(
        self, *, setsid: bool = False, hold_stdout: bool = False, ignore_sigterm: bool = False
    ) -> FakeCli:
        """Start a child process that outlives the fake CLI, for two minutes at most.

        It can leave the process group, keep the output open, and ignore SIGTERM. Its process id is
        in :attr:`grandchildren`.
        """
        return self._add(
            "fork_grandchild",
            setsid=setsid,
            hold_stdout=hold_stdout,
            ignore_sigterm=ignore_sigterm,
        )

    def exit(self, code: int = 0) -> FakeCli:
        """Exit with this code."""
        return self._add("exit", code=code)

    def crash(self, number: int = signal.SIGKILL) -> FakeCli:
        """Kill the process with this signal."""
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
        """Set what ``--version`` does: print a text, hang, or exit with a code.

        It waits ``after`` seconds first.
        """
        if exit_code is not None:
            return self._set(version=exit_code, version_after=after)
        said = None if hang else text or f"{self._plan['flavour']} (Claude Code)"
        return self._set(version=said, version_after=after)

    def slow_start(self, seconds: float) -> FakeCli:
        """Do nothing for this many seconds after the start."""
        return self._set(slow_start=seconds)

    def bad_flag(self, flag: str = "--x") -> FakeCli:
        """Exit at the start, with an error about this option."""
        return self._set(bad_flag=flag)

    def unknown_session(self) -> FakeCli:
        """Fail at the start if a session is to be resumed, as if it did not exist."""
        return self._set(unknown_session=True)

    # -- the executable ----------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The path of the executable. It exists until the script is closed or garbage-collected."""
        return str(self._at_home().executable)

    def __enter__(self) -> FakeCli:
        self._at_home()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the executable and its transcripts. May be called again."""
        if self._home is not None:
            self._home.close()

    def _at_home(self) -> _Home:
        if self._home is None:
            steps = self._plan["steps"] if self._plan["steps"] is None else list(self._steps)
            self._home = _Home({**self._plan, "steps": steps})
        return self._home

    # -- results -----------------------------------------------------------------------------------

    @property
    def runs(self) -> list[list[Entry]]:
        """The transcripts of all runs so far, in order, without runs of ``--version``."""
        return self._at_home().runs()

    def transcript(self) -> list[Entry]:
        """Return input and output of the last run, with times. May be called during the run."""
        runs = self.runs
        return runs[-1] if runs else []

    @property
    def received(self) -> list[dict[str, Any]]:
        """The lines that the last run has read."""
        return [entry.members for entry in self.transcript() if entry.direction == "in"]

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The lines that the last run has written, if they are JSON objects."""
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
        """The ids of processes that the last run started and left behind."""
        return cast("list[int]", self._facts("grandchild", []))

    @property
    def failures(self) -> list[str]:
        """The expectations that were not met, in any run, or because there was no run.

        A prompt that a turn waits for counts as an expectation, too. For a run that has not ended,
        the list includes lines that may still arrive.
        """
        if self._home is not None and self._home.is_closed and any(expectations(self._steps)):
            return ["the fake CLI was closed, so it cannot be checked: call check() before close()"]
        runs = self.runs if self._home is not None else []
        told = [[entry.members for entry in run if entry.direction == "meta"] for run in runs]
        return shortfall(self._steps, told)

    def check(self) -> None:
        """Raise AssertionError if an expectation was not met.

        There must be at least one run. Every run, also one that was killed, must have met all
        expectations of the script. Other steps may be left over. Call it before :meth:`close`.
        """
        if failures := self.failures:
            raise AssertionError("; ".join(failures))

    def _facts(self, name: str, default: list[Any]) -> list[object]:
        entries = (entry for entry in self.transcript() if entry.direction == "meta")
        found = [entry.members[name] for entry in entries if name in entry.members]
        return found or default


def _remove(directory: Path, creator: int) -> None:
    if os.getpid() != creator:  # a forked child must not delete the files of its parent
        return
    CALLS_NOBODY.discard(str(directory / _NAME))
    shutil.rmtree(directory, ignore_errors=True)


class _Home:
    """The directory of one executable, its plan, and the transcripts of its runs."""

    def __init__(self, plan: Json) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="fake-cli-"))
        # Clean up without close(), too: with the last reference, or at the end of the interpreter.
        self.close = weakref.finalize(self, _remove, self._directory, os.getpid())
        script = self._directory / "script.json"
        script.write_text(json.dumps(plan), "utf-8")
        program = [sys.executable, "-I", "-S", _fake_cli_main.__file__, str(script)]
        self.executable = self._directory / _NAME
        lines = ["#!/bin/sh", *_version_in_shell(plan), f'exec {shlex.join(program)} "$@"', ""]
        self.executable.write_text("\n".join(lines), "utf-8")
        self.executable.chmod(stat.S_IRWXU)
        CALLS_NOBODY.add(str(self.executable))

    @property
    def is_closed(self) -> bool:
        """True if the directory was deleted."""
        return not self.close.alive

    def runs(self) -> list[list[Entry]]:
        """Return all transcripts, oldest first."""
        return [read_recording(path) for path in sorted(self._directory.glob("run-*.ndjson"))]


def _version_in_shell(plan: Json) -> list[str]:
    """Return the lines that print a version without starting Python, which takes longer."""
    if not isinstance(plan["version"], str) or plan["version_after"]:
        return []
    answer = f"printf '%s\\n' {shlex.quote(plan['version'])}"
    return [f'case "$*" in --version|-v) {answer}; exit;; esac']


def _line(line: Json | bytes | str) -> str:
    """Return a line for the script, with each byte as the character of the same number."""
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
