"""The scenes: the prompt, the replies of the scripted model, and a check of the result.

This module is a table. A check inspects the disk, this process or the outcome, never the script.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from bridle import Outcome, OutcomeReason, Session, Turn
from bridle.cli._demo import tour_program as program
from bridle.cli._screens.shown import counted, seconds
from bridle.content import ToolUseBlock
from bridle.messages import AssistantMessage, Message
from bridle.testing.script import Block, Reply, text, tool_use

KEPT = Path("stable", "horse.txt")
WRITTEN = Path("settings.py")
_NO_TOOLS = "not checked: the fake CLI runs no commands and writes no files"

Act: TypeAlias = Callable[[Session, str, program.Print], Awaitable[Turn]]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scene. Times are seconds of one clock."""

    outcome: Outcome[Any]
    messages: Sequence[Message]
    began: float
    printed: Sequence[float]
    ended: float
    work: Path
    is_real: bool


class Proof(msgspec.Struct, frozen=True):
    """The line shown after a scene, and whether its check passed; None if it was not checked."""

    text: str
    holds: bool | None


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One scene. Without an ``act``, the prompt is sent and the turn is shown while it runs."""

    title: str
    code: tuple[str, ...]
    prompt: str
    says: tuple[Reply, ...]
    prove: Callable[[Seen], Proof]
    act: Act | None = None


# ---------------------------------------------------------------- replies of the model


def _words(said: str) -> Block:
    """Return a text block that is streamed word by word."""
    return text(said, chunks=re.findall(r"\s*\S+", said))


_BRIDLE = (
    "A bridle is what a rider guides a horse with. It takes no strength away: "
    "it lets the one who knows the way talk to the one who can run."
)
_HORSES = (
    "Gladly. Horses were first tamed on the steppe, more than five thousand years ago, and "
    "since then they have carried riders, mail, ploughs and armies. To begin at the beginning: "
    "the earliest of them, no larger than a fox and with toes instead of hooves, lived in"
)
_EVENTS_BEFORE_TEXT = 3


def _endless(said: str) -> Reply:
    """Return a reply that stops after this text and never ends."""
    block = _words(said)
    assert isinstance(block.pieces, tuple)
    return Reply(blocks=(block,), hold=True, hold_after=_EVENTS_BEFORE_TEXT + len(block.pieces))


# ---------------------------------------------------------------- checks of the results


def _streamed(seen: Seen) -> Proof:
    first = seconds(min(seen.printed, default=seen.ended) - seen.began)
    said = f"{counted(len(seen.printed), 'delta')}, the first after {first}"
    return Proof(said, seen.outcome.text == _BRIDLE)


def _interrupted(seen: Seen) -> Proof:
    took = 1000 * (seen.ended - max(seen.printed, default=seen.began))
    said = f"{seen.outcome.reason} {took:.0f} ms after the last delta; the session continues"
    return Proof(said, seen.outcome.reason is OutcomeReason.INTERRUPTED)


def _kept(seen: Seen) -> Proof:
    if not seen.is_real:
        return Proof(_NO_TOOLS, None)
    is_there = (seen.work / KEPT).exists()
    return Proof(f"{KEPT} is {'still there' if is_there else 'gone'}", is_there)


def _edited(seen: Seen) -> Proof:
    if not seen.is_real:
        return Proof(_NO_TOOLS, None)
    asked = " ".join(
        str(block.input.get("content"))
        for message in seen.messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolUseBlock)
    ).strip()
    path = seen.work / WRITTEN
    found = path.read_text("utf-8").strip() if path.exists() else "nothing"
    said = f"the model wrote {asked!r}; the file contains {found!r}"
    return Proof(said, (asked, found) == ("DEBUG = True", "DEBUG = False"))


def _called(seen: Seen) -> Proof:
    said = f"called in this process, where ORDERS is now {program.ORDERS!r}"
    return Proof(said, program.ORDERS == ["saddle"])


def _typed(seen: Seen) -> Proof:
    output = seen.outcome.output
    said = f"outcome.output is a {type(output).__name__}"
    if isinstance(output, program.Bill):
        said += f", and its total a {type(output.total).__name__}"
    return Proof(said, output == program.Bill("Ada", 2, 620.0))


# ---------------------------------------------------------------- the scenes

IN_SESSION = (
    Scene(
        title="Text while it is written",
        code=("stream",),
        prompt="What is a bridle?",
        says=(Reply(blocks=(_words(_BRIDLE),)),),
        act=program.stream,
        prove=_streamed,
    ),
    Scene(
        title="An interrupt",
        code=("stop_early",),
        prompt="Tell me everything about horses.",
        says=(_endless(_HORSES),),
        act=program.stop_early,
        prove=_interrupted,
    ),
    Scene(
        title="A hook stops a command",
        code=("guard",),
        prompt="Free some disk space.",
        says=(
            Reply(
                blocks=(
                    _words("The stable takes most of it, so I remove that."),
                    tool_use("Bash", command="rm -rf stable", description="Remove the stable"),
                )
            ),
            Reply(blocks=(_words("I may not delete anything here. All of it is as it was."),)),
        ),
        prove=_kept,
    ),
    Scene(
        title="A permission, edited",
        code=("decide",),
        prompt="Write settings.py for production.",
        says=(
            Reply(
                blocks=(tool_use("Write", file_path=str(WRITTEN), content="DEBUG = True\n"),),
            ),
            Reply(blocks=(_words("It is written."),)),
        ),
        prove=_edited,
    ),
    Scene(
        title="A function as a tool",
        code=("ORDERS", "order"),
        prompt="Order a saddle.",
        says=(
            Reply(blocks=(tool_use("mcp__tools__order", article="saddle"),)),
            Reply(blocks=(_words("Your saddle is ordered."),)),
        ),
        prove=_called,
    ),
)
"""The scenes that run in one session, in order."""

TYPED = Scene(
    title="A typed result",
    code=("Bill", "extract"),
    prompt="Make out a bill: two saddles for Ada, 310 euros each.",
    says=(Reply(blocks=(tool_use("StructuredOutput", customer="Ada", count=2, total=620.0),)),),
    prove=_typed,
)
"""The last scene, which needs no session."""

SCENES = (*IN_SESSION, TYPED)
