"""Find the CLI and ask it for its version.

The search goes through an ordered list of places and takes the first CLI that it finds. It does not
compare versions, so the result is predictable. To get a version, the CLI is run with ``--version``.
Every result of that, also a failure, is returned as a value for the caller to judge.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from errno import EACCES
from functools import partial

import msgspec

from bridle._engine.versions import Version, parse_version
from bridle._process.launch.plan import Launch
from bridle._process.process import CliProcess
from bridle.errors import CliNotFoundError, SpawnError
from bridle.errors._redaction import redact_text

VARIABLE = "BRIDLE_CLI"
"""The environment variable with the path of the CLI to use."""

VERSION_TIMEOUT = 5.0
"""Seconds that a CLI has to print its version. It needs less than one on an idle machine."""

_NAME = "claude"

# Directories that installers use. They may be missing from PATH.
_USUAL = (
    "~/.npm-global/bin",
    "/usr/local/bin",
    "~/.local/bin",
    "~/node_modules/.bin",
    "~/.yarn/bin",
    "/opt/homebrew/bin",
)


class Candidate(msgspec.Struct, frozen=True):
    """A place where the CLI may be. ``origin`` is a short reason for looking there."""

    path: str
    origin: str

    @property
    def is_file(self) -> bool:
        """Whether the file exists."""
        return os.path.isfile(self.path)

    @property
    def is_usable(self) -> bool:
        """Whether the file exists and is executable."""
        return self.is_file and os.access(self.path, os.X_OK)


def candidates(environ: Mapping[str, str] = os.environ, home: str = "~") -> Iterator[Candidate]:
    """Yield every place to search for a CLI, in order, whether or not a CLI is there."""
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
    """Return the absolute path of the CLI: ``named``, the one in BRIDLE_CLI, or the first found.

    If a CLI is named, no other one is used.

    Raises:
        CliNotFoundError: no CLI was found. The error lists every place that was searched.
        SpawnError: the named file exists but cannot be executed.
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
    """Yield a path as it is, or search PATH for a bare name, as a shell does."""
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
    """Return the directory of the installed claude-agent-sdk, without importing it.

    Searches the path, because `bridle.compat.install` replaces the module.
    """
    from importlib.machinery import PathFinder  # asyncio does not load it, and it is rarely needed

    spec = PathFinder.find_spec("claude_agent_sdk")
    return list(spec.submodule_search_locations or ()) if spec else []


# ---------------------------------------------------------------- versions


class Unreadable(msgspec.Struct, frozen=True):
    """The output of ``--version`` contains no version."""

    text: str

    def __str__(self) -> str:
        words = f"with {_told(self.text)!r}, which holds none" if self.text else "with nothing"
        return f"it answered --version {words}"

    def shown(self, redact: Callable[[str], str]) -> tuple[str, bool]:
        """Return the answer as a sentence about the CLI, and whether it failed."""
        words = f"{redact(self.text)[:80]!r}, which is not a version" if self.text else "nothing"
        return f"--version printed {words}", False


class TimedOut(msgspec.Struct, frozen=True):
    """The CLI did not print its version within this many seconds."""

    seconds: float

    def __str__(self) -> str:
        return f"it did not answer --version within {self.seconds:g} s"

    def shown(self, redact: Callable[[str], str]) -> tuple[str, bool]:
        """Return the answer as a sentence about the CLI, and whether it failed."""
        return f"the CLI did not answer --version within {self.seconds:g} s", False


class Failed(msgspec.Struct, frozen=True):
    """The CLI could not be run, or ended with an error."""

    reason: str

    def __str__(self) -> str:
        return f"it failed at --version: {_told(self.reason)}"

    def shown(self, redact: Callable[[str], str]) -> tuple[str, bool]:
        """Return the answer as a sentence about the CLI, and whether it failed."""
        return f"--version failed: {redact(self.reason)}", True


VersionAnswer = Version | Unreadable | TimedOut | Failed

_SHOWN = 500  # characters of the output to keep
_QUOTED = 120  # characters of it to quote in messages

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

# Identifies a file by path, device, inode, size and time of change, to notice a new version.
_Key = tuple[str, int, int, int, int]
_known: dict[_Key, Version] = {}
# Callers that ask at the same time share one process. The references are weak, so that the entries
# of a closed event loop disappear with their callers.
_asking: weakref.WeakValueDictionary[tuple[asyncio.AbstractEventLoop, _Key], _Question] = (
    weakref.WeakValueDictionary()
)


def _told(text: str) -> str:
    """Return output of the CLI for a message: shortened and without secrets."""
    clean = redact_text(text)
    return clean if len(clean) <= _QUOTED else f"{clean[:_QUOTED]}..."


async def version_of(
    executable: str,
    launch: Launch = _ASK,
    *,
    environ: Mapping[str, str] = os.environ,
    timeout: float = VERSION_TIMEOUT,
) -> VersionAnswer:
    """Return the version of a CLI, run in the environment and directory of ``launch``.

    Never raises; a failure is a value. The version is cached until the file changes. ``timeout`` is
    in seconds.
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
    """One run of ``--version``, shared by all callers that wait for it."""

    def __init__(self, task: asyncio.Task[VersionAnswer]) -> None:
        self.task = task
        self._waiting = 0

    def forget(self, here: tuple[asyncio.AbstractEventLoop, _Key], _: object = None) -> None:
        """Remove this run, so that the next caller starts a new one."""
        if _asking.get(here) is self:
            del _asking[here]

    async def wait(
        self, here: tuple[asyncio.AbstractEventLoop, _Key], timeout: float
    ) -> VersionAnswer:
        """Return the answer, or `TimedOut` after ``timeout`` seconds.

        Each caller has its own timeout. The last caller to leave cancels the run and ends its
        process.
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
                # Do not cancel a task twice that the closing event loop has cancelled already.
                if not self.task.cancelling():
                    self.task.cancel()
                await asyncio.wait([self.task])


async def _ask(executable: str, launch: Launch, environ: Mapping[str, str]) -> VersionAnswer:
    question = msgspec.structs.replace(
        launch, argv=_ASK.argv, files=(), initialize={}, writes_id=None, directory=""
    )
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
    """Collects the output of a CLI until it exits."""

    def __init__(self) -> None:
        self.text = b""
        self.is_over = asyncio.Event()

    def received(self, data: bytes) -> None:
        if len(self.text) < _SHOWN:
            self.text += data

    def exited(self, exit_code: int | None) -> None:
        self.is_over.set()

    def output_ended(self) -> None:
        """Ignore this: the exit follows."""

    def wrote_stderr(self, line: str) -> None:
        """Ignore this: the process keeps the end of stderr."""

    def input_failed(self, reason: str) -> None:
        """Ignore this: nothing is written to the CLI."""
