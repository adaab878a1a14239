"""``bridle replay``: show a recorded session as text, as JSON or as a page."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from bridle._spi import actions as act
from bridle.cli._screens.endings import ending, summary
from bridle.cli._screens.printable import one_line, printable_json
from bridle.cli._screens.screens import text_of
from bridle.cli._screens.shown import Note, Shown, Span, counted, joined, seconds
from bridle.cli._screens.view import View
from bridle.cli._timeline.damage import damage
from bridle.cli._timeline.frame_summaries import part, said
from bridle.errors import OptionsError
from bridle.outcomes import Outcome
from bridle.testing.recording import Entry, Recording, RecordingError, open_private, read_recording
from bridle.testing.replaying import EnginePlayer

_EPILOG = """\
The recording runs through the same engine as a session, so turns and outcomes are the ones that
the application saw. No process is started and nothing is sent.

  bridle replay session.ndjson                      everything, without pauses
  bridle replay session.ndjson --speed 1            at the original speed
  bridle replay session.ndjson --html session.html  a page: conversation, timeline, every frame

The page is one file that needs no network. It contains everything that was recorded, so read it
before you share it.
"""


_DAMAGED = (
    "The file is damaged there, or `bridle record` did not write it. Each line of a recording is a "
    "JSON object with t, dir and line. You can remove this line and replay the rest."
)


def _speed(text: str) -> float:
    """Parse --speed: the number of recorded seconds to replay in one second."""
    try:
        value = math.inf if text == "max" else float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 or 'max'")
    return value


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("recording", metavar="FILE", help="A file that `bridle record` wrote.")
    parser.add_argument(
        "--speed",
        type=_speed,
        default=math.inf,
        metavar="FACTOR",
        help="Speed, as a multiple of the original: 1, 0.5, 10. Default: 'max', without pauses.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="Print every message and outcome as a line of JSON."
    )
    form.add_argument("--html", metavar="PAGE", help="Write an HTML page to this file.")
    parser.add_argument("--overwrite", action="store_true", help="Replace PAGE if it exists.")


def main(options: argparse.Namespace) -> int:
    """Replay a recording. The exit code does not depend on the outcomes in the recording.

    Raises:
        RecordingError: the file is not a recording.
        OptionsError: the recording does not exist, or the page exists or cannot be written.
    """
    recording = _read(options.recording)
    if options.html is not None:
        _write_page(recording, options.recording, options.html, overwrite=options.overwrite)
    else:
        teller = _JsonTeller() if options.json else _TextTeller()
        for line in _played(recording, teller, options.speed):
            sys.stdout.write(line)
            sys.stdout.flush()
    problems = damage(recording)
    if problems:
        what = "damaged" if problems != [recording.gap] else "incomplete"
        print(f"The recording is {what}: {'; '.join(problems)}.", file=sys.stderr)
    return 0


def _read(path: str) -> Recording:
    try:
        return read_recording(path)
    except RecordingError as error:
        if not isinstance(error.__cause__, OSError):
            error.fix = _DAMAGED
            raise
        # The general advice describes the format of a recording, which does not help here.
        fix = "Name a file that `bridle record` wrote."
        cause = error.__cause__
        is_file = not isinstance(cause, FileNotFoundError | NotADirectoryError | IsADirectoryError)
        why = f"cannot be read: {cause.strerror}" if is_file else "is not a file"
        raise OptionsError("FILE", f"names {path}, which {why}", fix=fix) from None


# ---------------------------------------------------------------- replaying


def _played(recording: Recording, teller: _Teller, speed: float) -> Iterator[str]:
    """Yield the text to print, at the recorded times divided by ``speed``."""
    player = EnginePlayer()
    started = time.monotonic()
    for entry in recording:
        if speed != math.inf:
            time.sleep(max(0.0, started + entry.t / speed - time.monotonic()))
        teller.see(entry)
        for now, action in player.play(entry):
            yield from teller.tell(action, now)
    yield from teller.close(recording)


class _Teller(Protocol):
    """Formats entries and actions as text."""

    def see(self, entry: Entry) -> None:
        """Receive an entry before it is replayed."""
        ...

    def tell(self, action: act.Action, now: float) -> Iterator[str]:
        """Yield the text about an action of the engine."""
        ...

    def close(self, recording: Recording) -> Iterator[str]:
        """Yield the last lines."""
        ...


class _TextTeller:
    """Formats the recording like `bridle run`, with each prompt and its time."""

    def __init__(self) -> None:
        self._view = View(0.0)
        self._prompts: dict[str, str] = {}
        self._turns = 0

    def see(self, entry: Entry) -> None:
        if entry.direction == "in" and entry.members.get("type") == "user":
            content = part(entry.members, "message").get("content")
            self._prompts[str(entry.members.get("uuid"))] = said(content)

    def tell(self, action: act.Action, now: float) -> Iterator[str]:
        if isinstance(action, act.TurnStarted):
            prompt = self._prompts.get(action.uuid, "")
            yield from text_of([*self._view.close_answer(), *self._prompt(prompt, now)])
        elif isinstance(action, act.Deliver):
            for message in action.messages:
                yield from text_of(self._view.see(message, now))
        elif isinstance(action, act.Publish):
            yield from text_of(self._view.see(action.event, now))
        elif isinstance(action, act.TurnEnded):
            yield from text_of([*self._view.end_answer(), *ending(action.outcome)])

    def _prompt(self, prompt: str, now: float) -> list[Shown]:
        self._turns += 1
        return [Note((Span(f"\n[{now:.3f} s] > {one_line(prompt, 500)}"),))]

    def close(self, recording: Recording) -> Iterator[str]:
        lasted = seconds(recording[-1].t) if recording else ""
        facts = joined([counted(self._turns, "prompt"), counted(len(recording), "frame"), lasted])
        yield from text_of([*self._view.close_answer(), Note((Span(f"\n{facts}"),))])


class _JsonTeller:
    """Yields messages as the raw lines, and each outcome and the end as an added JSON line."""

    def see(self, entry: Entry) -> None:
        """Do nothing: only messages of the CLI are printed."""

    def tell(self, action: act.Action, now: float) -> Iterator[str]:
        if isinstance(action, act.Deliver):
            for message in action.messages:
                yield _printed(message.raw_line or msgspec.json.encode(message.raw))
        elif isinstance(action, act.TurnEnded):
            yield _printed(msgspec.json.encode({**_outcome(action.outcome), "t": now}))

    def close(self, recording: Recording) -> Iterator[str]:
        told = {
            "type": "bridle_recording",
            "frames": len(recording),
            "duration": recording[-1].t if recording else 0.0,
            "complete": not recording.gap,
            "gap": recording.gap,
            "damage": damage(recording),
        }
        yield _printed(msgspec.json.encode(told))


def _outcome(outcome: Outcome[Any]) -> dict[str, object]:
    told = {name: value for name, value in summary(outcome).items() if name != "exit_code"}
    return {**told, "uuid": outcome.uuid, "merged_with": list(outcome.merged_with)}


def _printed(data: bytes) -> str:
    # A pipe gets the text unchanged. A terminal would execute control characters in it.
    line = data.decode("utf-8", "replace").rstrip("\n")
    return f"{printable_json(line) if sys.stdout.isatty() else line}\n"


# ---------------------------------------------------------------- the page


def _write_page(recording: Recording, source: str, target: str, *, overwrite: bool) -> None:
    from bridle.cli._timeline.page import page
    from bridle.cli._timeline.timeline import timeline

    if os.path.exists(target) and os.path.samefile(source, target):
        problem = f"names {target}, which is the recording"
        raise OptionsError("--html", problem, fix="Name another file.")
    problems = "; ".join(damage(recording))
    text = page(timeline(recording, gap=problems), os.path.basename(source))
    try:
        # Readable by its owner only, like the recording, because it contains the conversation.
        with open_private(target, overwrite=overwrite) as file:
            file.write(text.encode())
    except FileExistsError:
        fix = "Name another file, or pass --overwrite."
        problem = f"names {target}, which already exists"
        raise OptionsError("--html", problem, fix=fix) from None
    except OSError as error:
        problem = f"names {target}, which cannot be written: {error.strerror}"
        raise OptionsError("--html", problem) from None
    print(f"{target}: {counted(len(recording), 'frame')}. Open it in a browser.")
