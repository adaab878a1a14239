"""Where a promise is tried: a CLI, a directory of its own, and a scripted model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import bridle
from bridle import Agent, Outcome, SdkWarning, Session
from bridle.testing._verify.promises import Broken
from bridle.testing.model_request import ModelRequest
from bridle.testing.script import Block, Script, text, tool_use, turns
from bridle.testing.scripted_model import ScriptedModel

_GLANCE = 0.02
"""Seconds between two looks at something that cannot be awaited."""

DONE = "done"
BESIDE = "<summary>nothing happened</summary>"
"""The answer to requests beside the conversation. It is also a valid summary of it."""

_CONTROL_TIMEOUT = 10.0


class Model(ScriptedModel):
    """A scripted model. Requests without tools are not part of the script.

    Some CLIs use a small model beside the conversation, for titles or to judge a command.
    """

    def __init__(self, script: Script) -> None:
        listed = turns(script)

        def reply(request: ModelRequest) -> Any:
            if not request.tools:
                return [text(BESIDE)]
            turn = next(listed, None)
            if turn is None:
                raise LookupError("the model was asked more often than expected")
            return turn(request) if callable(turn) else turn

        super().__init__(reply, tolerate_rejected=True)

    async def __aenter__(self) -> Model:
        """Start the server."""
        await super().__aenter__()
        return self

    @property
    def asked(self) -> list[ModelRequest]:
        """The requests of the conversation, in order."""
        return [request for request in self.requests if request.tools]


class Stage:
    """The options of sessions that use a scripted model and the directory ``work``."""

    def __init__(self, cli_path: str, directory: Path) -> None:
        self.cli_path = cli_path
        self.work = directory / "work"
        self.work.mkdir(parents=True)
        self.directory = directory
        #: The warnings of all sessions of this promise.
        self.warnings: list[SdkWarning] = []

    def options(self, model: Model, **more: Any) -> dict[str, Any]:
        """Return the options of an agent, a run or a session."""
        return {
            "cli_path": self.cli_path,
            "env": model.env,
            "cwd": str(self.work),
            "model": "claude-sonnet-4-5",
            "inherit_env": ["PATH"],
            "on_warning": self.warnings.append,
            "control_timeout": _CONTROL_TIMEOUT,
            **more,
        }

    def agent(self, model: Model, **more: Any) -> Agent[Any]:
        """Return an agent with these options."""
        return Agent(**self.options(model, **more))

    def session(self, model: Model, **more: Any) -> AbstractAsyncContextManager[Session]:
        """Start a session: ``async with stage.session(model) as session``."""
        return bridle.start_session(**self.options(model, **more))

    async def ask(
        self, script: Script, *prompts: str, **more: Any
    ) -> tuple[list[Outcome[Any]], Model]:
        """Send prompts to one session, one after the other. Return the outcomes and the model."""
        async with Model(script) as model:
            async with self.session(model, **more) as session:
                outcomes = [await send(session, prompt) for prompt in prompts or ("go",)]
            return outcomes, model

    def write(self, name: str = "note.txt", content: str = "original") -> Block:
        """Return a call with which the model writes a file."""
        return tool_use("Write", file_path=str(self.work / name), content=content)

    def script(self, *calls: Block) -> Script:
        """Return a model that makes these calls in one message, then answers."""
        return [list(calls), [text(DONE)]]

    @property
    def files(self) -> list[str]:
        """The files in the working directory."""
        return sorted(path.name for path in self.work.iterdir() if path.is_file())

    @property
    def warned(self) -> list[str]:
        """The kinds of the warnings so far."""
        return [str(warning.kind) for warning in self.warnings]


async def send(session: Session, prompt: str = "go") -> Outcome[Any]:
    """Send a prompt and return its outcome."""
    return await (await session.send_user_message(prompt))


def ended(outcome: Outcome[Any]) -> str:
    """Describe how a turn ended, in a few words."""
    detail = f" ({outcome.detail:.120})" if outcome.detail else ""
    return f"the turn ended as {outcome.reason}{detail}"


async def until(condition: Callable[[], object], what: str, timeout: float = 20.0) -> None:
    """Wait until a condition is true that nothing announces.

    Raises:
        Broken: it did not become true in time.
    """
    try:
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(_GLANCE)
    except TimeoutError:
        raise Broken(f"{what} did not happen within {timeout:g} s") from None


def processes_with(word: str) -> list[int]:
    """Return the processes with this word on their command line, without this one."""
    return [pid for pid, line in _command_lines() if word in line and pid != os.getpid()]


def _command_lines() -> Iterator[tuple[int, str]]:
    places = [place for place in Path("/proc").glob("[0-9]*") if place.name.isdigit()]
    for place in places:
        try:
            yield int(place.name), (place / "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue  # it has ended
    if not places:
        import subprocess  # a system without /proc

        listed = subprocess.run(
            ["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=False
        )
        for line in listed.stdout.splitlines():
            pid, _, words = line.strip().partition(" ")
            yield int(pid), words
