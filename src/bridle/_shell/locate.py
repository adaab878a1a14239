"""Where the CLI is, and which version it says it is.

Looking for it is a walk over one ordered list of places; the first hit wins and versions are not
compared, so what runs is what the user would expect. The version is asked for by running the CLI;
whatever comes of that is data, for the policy of whoever asked.
"""

from __future__ import annotations

import asyncio
import os
import re
import weakref
from collections.abc import Iterator, Mapping
from errno import EACCES
from functools import partial

import msgspec

from bridle._core.handshake import MINIMUM_CLI_VERSION
from bridle._core.launch import Launch
from bridle._redaction import redact_text
from bridle._shell.process import CliProcess
from bridle.errors import CliNotFoundError, SpawnError

VARIABLE = "BRIDLE_CLI"
"""The variable that names the CLI to use."""

VERSION_TIMEOUT = 5.0
"""Seconds a CLI has to tell its version. It takes well under one; a crowded machine needs more."""

_NAME = "claude"

# Known habits of installers, each only looked at when it is not on PATH anyway.
_USUAL = (
    "~/.npm-global/bin",
    "/usr/local/bin",
    "~/.local/bin",
    "~/node_modules/.bin",
    "~/.yarn/bin",
    "/opt/homebrew/bin",
)


class Candidate(msgspec.Struct, frozen=True):
    """A place where a CLI may be. ``origin`` says in a word why it was looked at."""

    path: str
    origin: str

    @property
    def is_file(self) -> bool:
        """Whether anything is there."""
        return os.path.isfile(self.path)

    @property
    def is_usable(self) -> bool:
        """Whether it can be run."""
        return self.is_file and os.access(self.path, os.X_OK)


def candidates(environ: Mapping[str, str] = os.environ, home: str = "~") -> Iterator[Candidate]:
    """Every place a CLI is looked for when none is named, in order, hits and misses."""
    home = os.path.expanduser(home)
    yield Candidate(os.path.join(home, ".claude/local", _NAME), "local install")
    for directory in _on_path(environ):
        yield Candidate(os.path.join(directory, _NAME), "PATH")
    for directory in _USUAL:
        yield Candidate(os.path.join(_expanded(directory, home), _NAME), "usual place")
    for directory in _wheel():
        yield Candidate(os.path.join(directory, "_bundled", _NAME), "claude-agent-sdk")


def find_cli(
    named: str | None = None, *, environ: Mapping[str, str] = os.environ, home: str = "~"
) -> str:
    """The absolute path of the CLI to run: the named one, that of BRIDLE_CLI, or the first found.

    A CLI that was named is used or nothing is: CliNotFoundError when it does not exist, SpawnError
    when it cannot be run. CliNotFoundError lists every place that was looked at.
    """
    named = named or environ.get(VARIABLE)
    if named:
        places = list(_named(named, environ, os.path.expanduser(home)))
    else:
        places = list(candidates(environ, home))
    found = next((place for place in places if place.is_usable), None)
    if found:
        return found.path
    if named:
        for place in places:
            if os.path.exists(place.path):
                what = "Not executable" if place.is_file else "Not a file"
                raise SpawnError(f"{what}: {place.path}", EACCES)
    raise CliNotFoundError(place.path for place in places)


def _named(name: str, environ: Mapping[str, str], home: str) -> Iterator[Candidate]:
    """A path is taken as it is; a bare name is looked for on PATH, as a shell would."""
    if os.sep in name:
        yield Candidate(os.path.abspath(_expanded(name, home)), "named")
        return
    for directory in _on_path(environ):
        yield Candidate(os.path.join(directory, name), "named")


def _on_path(environ: Mapping[str, str]) -> list[str]:
    directories = environ.get("PATH", os.defpath).split(os.pathsep)
    return [os.path.abspath(directory) for directory in directories if directory]


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path.startswith("~/") else path


def _wheel() -> list[str]:
    """The directory of the installed claude-agent-sdk, none of which is imported."""
    from importlib.util import find_spec  # not loaded by asyncio, and seldom needed

    try:
        spec = find_spec("claude_agent_sdk")
    except ValueError:  # somebody put a module of that name together by hand
        return []
    return list(spec.submodule_search_locations or ()) if spec else []


# ---------------------------------------------------------------- versions


class Version(msgspec.Struct, frozen=True, order=True):
    """A version, to be compared. What follows the third number does not count."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class Unreadable(msgspec.Struct, frozen=True):
    """The CLI answered with something that holds no version."""

    text: str

    def __str__(self) -> str:
        words = f"with {_told(self.text)!r}, which holds none" if self.text else "with nothing"
        return f"it answered --version {words}"


class TimedOut(msgspec.Struct, frozen=True):
    """The CLI did not answer within so many seconds."""

    seconds: float

    def __str__(self) -> str:
        return f"it did not answer --version within {self.seconds:g} s"


class Failed(msgspec.Struct, frozen=True):
    """The CLI could not be asked, or ended with an error."""

    reason: str

    def __str__(self) -> str:
        return f"it failed at --version: {_told(self.reason)}"


VersionAnswer = Version | Unreadable | TimedOut | Failed

MINIMUM = Version(*map(int, MINIMUM_CLI_VERSION.split(".")))
"""The oldest CLI whose control protocol Bridle speaks, to compare with."""

_VERSION = re.compile(r"(?<!\d)(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_SHOWN = 500  # characters of an answer worth keeping
_QUOTED = 120  # characters of it worth telling

_ASK = Launch(
    argv=("--version",),
    env={},
    unset_env=(),
    inherit_env=True,
    cwd=None,
    files=(),
    initialize={},
    session_id=None,
)

# The file behind a path: whatever replaces or changes it is noticed.
_Key = tuple[str, int, int, int, int]
_known: dict[_Key, Version] = {}
# Sessions that start together ask once. Who asks holds the question: with a loop that is closed in
# the midst of it all of them go, and are not held here for ever.
_asking: weakref.WeakValueDictionary[tuple[asyncio.AbstractEventLoop, _Key], _Question] = (
    weakref.WeakValueDictionary()
)


def _told(text: str) -> str:
    """What a CLI said, short and without secrets."""
    clean = redact_text(text)
    return clean if len(clean) <= _QUOTED else f"{clean[:_QUOTED]}..."


def parse_version(text: str) -> Version | None:
    """The first MAJOR.MINOR.PATCH anywhere in a text."""
    match = _VERSION.search(text)
    return Version(*map(int, match.groups())) if match else None


async def version_of(
    executable: str,
    launch: Launch = _ASK,
    *,
    environ: Mapping[str, str] = os.environ,
    timeout: float = VERSION_TIMEOUT,
) -> VersionAnswer:
    """Ask a CLI for its version, in the environment and directory of a launch. Never raises.

    A version is remembered as long as the file does not change.
    """
    try:
        status = os.stat(executable)
    except OSError as error:
        return Failed(f"{error.strerror}: {executable}")
    key = (executable, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if key in _known:
        return _known[key]
    here = (asyncio.get_running_loop(), key)
    question = _asking.get(here)
    if question is None:
        question = _Question(asyncio.create_task(_ask(executable, launch, environ)))
        question.task.add_done_callback(partial(question.forget, here))
        _asking[here] = question
    answer = await question.wait(here, timeout)
    if isinstance(answer, Version):
        _known[key] = answer
    return answer


class _Question:
    """One process that is being asked, for everybody who wants to know."""

    def __init__(self, task: asyncio.Task[VersionAnswer]) -> None:
        self.task = task
        self._waiting = 0

    def forget(self, here: tuple[asyncio.AbstractEventLoop, _Key], _: object = None) -> None:
        """Let the next one who wants to know ask anew."""
        if _asking.get(here) is self:
            del _asking[here]

    async def wait(
        self, here: tuple[asyncio.AbstractEventLoop, _Key], timeout: float
    ) -> VersionAnswer:
        """The answer, or that it did not come in time: each has a patience of their own.

        When nobody waits for it any more, the process is not left behind.
        """
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(self.task)
        except TimeoutError:
            return TimedOut(timeout)
        finally:
            self._waiting -= 1
            if not self._waiting and not self.task.done():
                self.forget(here)
                if not self.task.cancelling():  # a loop that ends has seen to it: twice is too much
                    self.task.cancel()
                await asyncio.wait([self.task])


async def _ask(executable: str, launch: Launch, environ: Mapping[str, str]) -> VersionAnswer:
    question = msgspec.structs.replace(launch, argv=_ASK.argv, files=(), initialize={})
    hearing = _Hearing()
    try:
        process = CliProcess.spawn(executable, question, hearing, environ=environ)
    except SpawnError as error:
        return Failed(error.os_error)
    try:
        process.end_input()
        await hearing.is_over.wait()
    finally:
        await process.aclose()
    text = hearing.text.decode("utf-8", "backslashreplace").strip()[:_SHOWN]
    version = parse_version(text)
    if version is None and process.exit_code:
        said = process.stderr_tail.strip()[-_SHOWN:] or text
        return Failed(f"exit code {process.exit_code}" + (f": {said}" if said else ""))
    return version or Unreadable(text)


class _Hearing:
    """What a CLI says when it has nothing to do but to speak."""

    def __init__(self) -> None:
        self.text = b""
        self.is_over = asyncio.Event()

    def received(self, data: bytes) -> None:
        if len(self.text) < _SHOWN:
            self.text += data

    def exited(self, exit_code: int | None) -> None:
        self.is_over.set()

    def output_ended(self) -> None:
        """Of no interest: the exit comes after it."""

    def wrote_stderr(self, line: str) -> None:
        """Of no interest: the process keeps the tail."""

    def input_failed(self, reason: str) -> None:
        """Of no interest: nothing is written."""
