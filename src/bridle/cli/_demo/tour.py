"""Run the tour: start the CLI and the scripted model, run the scenes, print a summary."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from bridle import Outcome, Session
from bridle._spi import Version, find_cli, version_of
from bridle.cli._demo import tour_program as program
from bridle.cli._demo.scenes import IN_SESSION, KEPT, SCENES, TYPED, Proof, Scene, Seen
from bridle.cli._demo.tour_output import Stage, excerpt, line_of
from bridle.cli._screens.printable import one_line
from bridle.cli._screens.shown import Span, Tone, counted, dollars, joined, seconds
from bridle.cli._screens.view import BAD, GOOD, NOTE, WARN
from bridle.errors import StartError
from bridle.messages import Message
from bridle.options import CliOptions
from bridle.testing import FakeCli, ScriptedModel
from bridle.testing.script import Reply

_INTRODUCTION = (
    "The code you see is the code that runs, on the Claude Code CLI. Only the model is scripted, "
    "on this machine: you need no API key and no network, and pay nothing."
)
_STAND_IN = (
    "The tour uses the fake CLI of Bridle instead. It speaks the same protocol, but runs no "
    "commands and writes no files."
)
_GET_REAL = "To use the real CLI: pip install claude-agent-sdk. `bridle doctor` explains problems."
_WHOLE = f"The whole program: {program.__file__}"
_RUN = 'bridle run "What does this project do?"'
_NO_KEY = ("This tour without a key", "python -m pydoc bridle.testing")

_MARKS: dict[bool | None, tuple[str, Tone]] = {
    True: (GOOD, "good"),
    False: (BAD, "bad"),
    None: (NOTE, "dim"),
}


class Tour:
    """One tour in the directory ``work``. ``credentials`` are those that a session would find."""

    def __init__(self, stage: Stage, work: Path, credentials: Sequence[str]) -> None:
        self._stage = stage
        self._work = work
        self._credentials = credentials
        self._is_real = True
        self._outcomes: list[Outcome[Any]] = []
        self._is_well = True

    async def play(self) -> bool:
        """Run the tour. Return whether the checks of all scenes passed.

        Raises:
            BridleError: neither the real nor the fake CLI could be started.
        """
        began = time.monotonic()
        kept = self._work / KEPT
        kept.parent.mkdir()
        kept.write_text("a horse\n", "utf-8")
        program.ORDERS.clear()
        self._introduce()
        async with AsyncExitStack() as closing:
            session = await self._open(closing)
            for number, scene in enumerate(IN_SESSION, 1):
                await self._play(number, scene, session)
        await self._play_typed()
        self._conclude(time.monotonic() - began)
        return self._is_well

    # -- the model and the CLI ---------------------------------------------------------------------

    @asynccontextmanager
    async def _cast(self, *scenes: Scene) -> AsyncGenerator[CliOptions]:
        """Start a model with the replies of these scenes. Return the options for its CLI."""
        word = self._stage.pace.word
        script: list[Reply] = [
            msgspec.structs.replace(reply, chunk_delay=word)
            for scene in scenes
            for reply in scene.says
        ]
        async with ScriptedModel(script) as model:
            cli = CliOptions(
                env=model.env,
                cwd=self._work,
                model="sonnet",
                permission_mode="default",
                include_partial_messages=True,
            )
            if self._is_real:
                yield cli
                return
            with FakeCli.auto(script) as fake:
                yield cli.replace(cli_path=fake.path)

    async def _open(self, closing: AsyncExitStack) -> Session:
        self._stage.title("A session, with your code in it")
        await self._stage.code(excerpt(program, "open_session"))
        try:
            return await self._start(closing)
        except StartError as error:
            self._is_real = False
            words = str(error).splitlines()[0]
            self._stage.tell(f"{WARN} No working CLI was found: {one_line(words)}", "warn")
            self._stage.tell(_STAND_IN, "warn")
            self._stage.tell(_GET_REAL, "warn")
        return await self._start(closing)

    async def _start(self, closing: AsyncExitStack) -> Session:
        cli = await closing.enter_async_context(self._cast(*IN_SESSION))
        began = time.monotonic()
        async with self._stage.acting("starting the CLI"):
            session = await closing.enter_async_context(program.open_session(cli))
        took = seconds(time.monotonic() - began)
        name = await _name_of_cli() if self._is_real else "the fake CLI"
        self._tell(Proof(f"{name} is running, pid {session.pid}", holds=True), took)
        await self._stage.pause()
        return session

    # -- scenes ------------------------------------------------------------------------------------

    async def _play(self, number: int, scene: Scene, session: Session) -> None:
        await self._present(number, scene)
        began = time.monotonic()
        messages: list[Message] = []
        async with self._stage.acting("waiting for the model"):
            if scene.act is not None:
                turn = await scene.act(session, scene.prompt, self._stage.print)
            else:
                turn = await session.send_user_message(scene.prompt)
                messages = await self._stage.watch(turn)
            outcome = await turn
        await self._judge(scene, outcome, began, messages)

    async def _play_typed(self) -> None:
        await self._present(len(SCENES), TYPED)
        began = time.monotonic()
        async with self._cast(TYPED) as cli, self._stage.acting("waiting for a new CLI"):
            outcome = await program.extract(cli, TYPED.prompt, self._stage.print)
        await self._judge(TYPED, outcome, began)

    async def _present(self, number: int, scene: Scene) -> None:
        self._stage.title(f"{number}  {scene.title}")
        await self._stage.code(excerpt(program, *scene.code))
        self._stage.show(Span(f"> {scene.prompt}", "ask"))

    async def _judge(
        self, scene: Scene, outcome: Outcome[Any], began: float, messages: Sequence[Message] = ()
    ) -> None:
        seen = Seen(
            outcome=outcome,
            messages=messages,
            began=began,
            printed=tuple(self._stage.printed),
            ended=time.monotonic(),
            work=self._work,
            is_real=self._is_real,
        )
        proof = scene.prove(seen)
        self._tell(proof, seconds(outcome.duration), dollars(outcome.cost_usd))
        if proof.holds is False:
            self._is_well = False
            self._stage.tell(f"{outcome.reason}: {one_line(outcome.detail)}", "bad")
        self._outcomes.append(outcome)
        await self._stage.pause()

    def _tell(self, proof: Proof, *facts: str) -> None:
        mark, tone = _MARKS[proof.holds]
        told = Span(f" · {joined(facts)}", "dim")
        self._stage.show(Span(f"  {mark} ", tone), Span(one_line(proof.text), tone), told)

    # -- before and after --------------------------------------------------------------------------

    def _introduce(self) -> None:
        self._stage.show(Span(f"Bridle {version('bridle')}: a tour", "strong"))
        self._stage.tell(_INTRODUCTION, indent="")

    def _conclude(self, took: float) -> None:
        self._stage.title("What you just saw")
        self._stage.show()
        listed = [(f"{n} {scene.title}", _where(scene)) for n, scene in enumerate(SCENES, 1)]
        for title, where in (*listed, _NO_KEY):
            self._stage.show(Span(f"  {title:27}"), Span(where, "ask"))
        self._stage.show()
        self._stage.tell(
            f"{counted(len(self._outcomes), 'turn')} in {seconds(took)}, {self._cost()}"
        )
        self._stage.tell(_WHOLE)
        self._stage.tell(self._on_your_own())

    def _cost(self) -> str:
        if not self._is_real:
            return f"with the fake CLI. {_GET_REAL}"
        cost = dollars(sum(outcome.cost_usd or 0.0 for outcome in self._outcomes))
        return f"for {cost} according to the CLI. You pay nothing: the model was scripted."

    def _on_your_own(self) -> str:
        if not self._credentials:
            return f"With your own login: {_RUN}"
        return f"{'; '.join(self._credentials)}. The tour did not use it. To use it: {_RUN}"


def _where(scene: Scene) -> str:
    """Return the place of the code of a scene, in a file that is installed with Bridle."""
    places = [f"{name} (line {line_of(program, name)})" for name in scene.code]
    return f"program.py: {', '.join(places)}"


async def _name_of_cli() -> str:
    answer = await version_of(find_cli())
    return f"claude {answer}" if isinstance(answer, Version) else "claude"
