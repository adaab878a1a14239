"""The transcript files of the CLI: find, read, append to, create and delete them.

The CLI keeps a session in ``<config>/projects/<project>/<session id>.jsonl``, and its subagents in
a directory of the session's id beside it. Everything here blocks: call it in a thread.

Links below ``projects`` are not followed, and a file that is not a regular file is not opened. New
files can be read by their owner only.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from errno import EEXIST
from os import PathLike
from pathlib import Path
from typing import NamedTuple, cast

from msgspec import Struct

from bridle._process.config_directory import config_directory
from bridle._records.raw_line import JsonObject, parse_json
from bridle.errors import OptionsError, SessionNotFoundError
from bridle.options._checks import is_uuid
from bridle.sessions._transcripts.changes import ForkPlan
from bridle.sessions._transcripts.empty_sessions import IN_FILES
from bridle.sessions._transcripts.outlines import Outlines, open_regular
from bridle.sessions._transcripts.summaries import Ends, SessionInfo, fork_title, summarize
from bridle.sessions._transcripts.transcript import (
    SUBAGENTS,
    SubagentTranscript,
    Transcript,
    TranscriptEntry,
    entries_of_bytes,
    is_project,
    line_of_object,
    project_name,
    subagent_name,
    subagent_transcript,
    text_of,
)

_log = logging.getLogger("bridle.sessions")

END = 64 * 1024
"""How many bytes of the start and of the end of a transcript a summary reads."""

SUFFIX = ".jsonl"
"""The ending of the name of every transcript."""


def log_damaged(session_id: str, count: int) -> None:
    """Log that lines of a transcript could not be read."""
    _log.warning(
        "session %s: lines of the transcript that could not be read: %d",
        session_id,
        count,
        extra={"bridle_event": "damaged_transcript", "session_id": session_id},
    )


class _File(Struct, frozen=True):
    """A transcript file, as the directory lists it."""

    directory: str
    session_id: str
    modified: float
    size: int

    @property
    def path(self) -> Path:
        return Path(self.directory, f"{self.session_id}{SUFFIX}")


class _Session(Struct, frozen=True):
    """The files of a session, the last changed first. Each project may have a copy."""

    #: The directory whose sessions are listed. A long name of a project fits several.
    directory: str | None
    files: tuple[_File, ...]


class TranscriptFiles:
    """The sessions in the files of the CLI, of one project or of all.

    Args:
        directory: the working directory of the sessions. None means all directories.
        config_dir: the configuration directory of the CLI. None means ``CLAUDE_CONFIG_DIR``, or
            ``~/.claude``.
    """

    def __init__(
        self,
        directory: str | PathLike[str] | None = None,
        config_dir: str | PathLike[str] | None = None,
    ) -> None:
        self._directory = None if directory is None else os.path.realpath(directory)
        self._projects = Path(config_dir or config_directory(os.environ)) / "projects"

    # -- finding -----------------------------------------------------------------------------------

    def list(self, limit: int | None, offset: int) -> list[SessionInfo]:
        """Return the sessions, the last changed first. Reads only the files that it returns."""
        copies: dict[str, list[_File]] = {}
        for file in sorted(self._files(), key=lambda one: one.modified, reverse=True):
            if file.size:
                copies.setdefault(file.session_id, []).append(file)
        sessions = (_Session(self._directory, tuple(files)) for files in copies.values())
        found: list[SessionInfo] = []
        for session in IN_FILES.after(sessions, offset):
            if limit is not None and len(found) >= limit:
                break
            with suppress(OSError):  # it was deleted meanwhile, or belongs to another user
                info = next(filter(None, map(self._summary, session.files)), None)
                IN_FILES.note(session, is_empty=info is None)
                found += [info] if info else []
        return found

    def info(self, session_id: str) -> SessionInfo:
        """Return one session.

        Raises:
            SessionNotFoundError: there is no such session, or it has no conversation yet.
        """
        file, info = self._found(session_id), None
        with suppress(OSError):  # it was deleted meanwhile, or belongs to another user
            info = self._summary(file)
        if info is None:
            raise self._missing(session_id)
        return info

    def path(self, session_id: str) -> Path | None:
        """Return the transcript of a session: of several copies, the one that changed last."""
        file = self._find(session_id)
        return None if file is None else file.path

    def _files(self, session_id: str | None = None) -> Iterator[_File]:
        for project in _entries(self._projects):
            if not project.is_dir(follow_symlinks=False):
                continue
            if self._directory is not None and not is_project(project.name, self._directory):
                continue
            if session_id is not None:
                path = os.path.join(project.path, f"{session_id}{SUFFIX}")
                yield from _regular(project.path, session_id, functools.partial(os.lstat, path))
                continue
            for entry in _entries(project.path):
                name = entry.name.removesuffix(SUFFIX)
                if name != entry.name and is_uuid(name):
                    look = functools.partial(entry.stat, follow_symlinks=False)
                    yield from _regular(project.path, name, look)

    def _find(self, session_id: str) -> _File | None:
        files = (file for file in self._files(session_id) if file.size)
        return max(files, key=lambda one: one.modified, default=None)

    def _found(self, session_id: str) -> _File:
        file = self._find(session_id)
        if file is None:
            raise self._missing(session_id)
        return file

    def _missing(self, session_id: str) -> SessionNotFoundError:
        place = str(self._projects)
        if self._directory is not None:
            place = f"{place} for the directory {self._directory}"
        return SessionNotFoundError(session_id, place)

    # -- reading -----------------------------------------------------------------------------------

    def _summary(self, file: _File) -> SessionInfo | None:
        ends = _ends(file.path)
        title = _object(_beside(file.path) / "custom-title.json")
        info = summarize(
            ends,
            file.session_id,
            os.path.basename(file.directory),
            updated_at=file.modified,
            size=file.size,
            path=str(file.path),
            title=text_of(title, "customTitle"),
        )
        if info is None or self._directory is None or info.cwd is None:
            return info
        # A long name is found by its start, so it may belong to another directory.
        is_exact = info.project == project_name(self._directory)
        is_own = is_exact or project_name(info.cwd) == project_name(self._directory)
        return info if is_own else None

    def load(self, session_id: str) -> Transcript:
        """Return the whole transcript of a session, with its subagents."""
        path = self._found(session_id).path
        return Transcript(
            session_id=session_id,
            project=path.parent.name,
            entries=_entries_of_file(path),
            subagents=tuple(_subagents(path, _entries_of_file)),
        )

    # -- changing ----------------------------------------------------------------------------------

    def append(self, session_id: str, entry: JsonObject) -> None:
        """Append an entry. A CLI may use the file meanwhile."""
        path = self._found(session_id).path
        line = line_of_object(entry) + b"\n"
        with _opened(path, os.O_RDWR | os.O_APPEND) as file:
            size = os.fstat(file).st_size
            # A CLI that was killed may have left an unfinished line.
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line
            if os.write(file, line) != len(line):
                raise OSError(f"the disk is full: {path}")

    def fork(self, session_id: str, new_id: str, up_to: str | None, title: str | None) -> None:
        """Write a copy of a session into its project. See `ForkPlan`.

        The content of one entry at a time is in memory.
        """
        file = self._found(session_id)
        with Outlines() as outlines:
            source = Transcript(
                session_id=session_id,
                project=os.path.basename(file.directory),
                entries=outlines.read(file.path),
                subagents=tuple(_subagents(file.path, outlines.read)),
            )
            if title is None:
                title = fork_title(self._summary(file))
            plan = ForkPlan(
                source, new_id, up_to=up_to, title=title, now=iso_time(), uuids=new_uuids()
            )
            agents = [
                SubagentFile(agent.name, map(line_of_object, entries), agent.metadata)
                for agent, entries in plan.subagents()
            ]
            path = file.path.with_name(f"{new_id}{SUFFIX}")
            write_transcript(path, map(line_of_object, plan.entries()), agents)

    def delete(self, session_id: str) -> None:
        """Delete every copy of a session, and its subagents."""
        files = list(self._files(session_id))
        if not files:
            raise self._missing(session_id)
        for file in files:
            with suppress(FileNotFoundError):
                file.path.unlink()
            beside = _beside(file.path)
            if beside.is_symlink():
                beside.unlink()
            elif beside.exists():
                shutil.rmtree(beside)


# ------------------------------------------------------------------------- files


def _entries(directory: str | Path) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ()


def _regular(
    directory: str, session_id: str, look: Callable[[], os.stat_result]
) -> Iterator[_File]:
    with suppress(OSError):
        facts = look()
        if stat.S_ISREG(facts.st_mode):
            yield _File(directory, session_id, facts.st_mtime, facts.st_size)


@contextmanager
def _opened(path: Path, flags: int) -> Generator[int]:
    """Open a regular file as `open_regular` does, and close it."""
    file = open_regular(path, flags)
    try:
        yield file
    finally:
        os.close(file)


def _ends(path: Path) -> Ends:
    with _opened(path, os.O_RDONLY) as file:
        size = os.fstat(file).st_size
        if size <= 2 * END:
            return Ends(os.pread(file, size, 0))
        return Ends(os.pread(file, END, 0), os.pread(file, END, size - END))


def read_file(path: Path, position: int = 0) -> bytes:
    """Return the content of a regular file after a position.

    Raises:
        OSError: the file cannot be read, is a link, or is not a regular file.
    """
    with _opened(path, os.O_RDONLY) as file, open(file, "rb", closefd=False) as stream:
        stream.seek(position)
        return stream.read()


def _object(path: Path) -> JsonObject:
    """Return the JSON object in a file. Empty if there is none."""
    try:
        value = parse_json(read_file(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def subagent_files(transcript: Path) -> dict[str, Path]:
    """Return the transcripts of the subagents of a session by their subkeys in a store, sorted.

    A subkey may be one that `subagent_name` does not accept.
    """
    session = _beside(transcript)
    files = sorted(_below(session / SUBAGENTS))
    return {_beside(file).relative_to(session).as_posix(): file for file in files}


def _below(directory: Path) -> Iterator[Path]:
    for entry in _entries(directory):
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path))
        elif entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _subagents(
    transcript: Path, read: Callable[[Path], tuple[TranscriptEntry, ...]]
) -> Iterator[SubagentTranscript]:
    for subkey, path in subagent_files(transcript).items():
        name = subagent_name(subkey)
        if name is not None:
            with suppress(FileNotFoundError):
                yield subagent_transcript(name, read(path), _object(_metadata_file(path)))


def _entries_of_file(path: Path) -> tuple[TranscriptEntry, ...]:
    return entries_of_bytes(read_file(path))


def _beside(transcript: Path) -> Path:
    """Return the path without its ending. The name may contain other dots."""
    return transcript.with_name(transcript.name.removesuffix(SUFFIX))


def _metadata_file(transcript: Path) -> Path:
    return transcript.with_name(transcript.name.removesuffix(SUFFIX) + ".meta.json")


# ------------------------------------------------------------------------- writing


class SubagentFile(NamedTuple):
    """The transcript of a subagent to write: its name, its lines, and what the CLI knows of it."""

    name: str
    lines: Iterable[bytes]
    metadata: JsonObject


def write_transcript(
    path: Path,
    lines: Iterable[bytes],
    subagents: Iterable[SubagentFile] = (),
    *,
    overwrite: bool = False,
) -> None:
    """Write a session and its subagents to files that only their owner can read.

    ``path`` ends in ``.jsonl``, and gets its content last. The lines have no line endings.
    ``overwrite`` replaces another session at this path, with its subagents.

    Raises:
        FileExistsError: a file exists, and ``overwrite`` is False. Nothing was changed.
        OptionsError: the name of a subagent is invalid. Nothing was changed.
    """
    files: dict[Path, Iterable[bytes]] = {}
    for agent in subagents:
        if subagent_name(f"{SUBAGENTS}/{agent.name}") is None:
            raise OptionsError("session", f"has a subagent with the invalid name {agent.name!r}")
        file = _beside(path).joinpath(SUBAGENTS, f"{agent.name}{SUFFIX}")
        files[file] = agent.lines
        if agent.metadata:
            files[_metadata_file(file)] = [line_of_object(agent.metadata)]
    files[path] = lines
    old = list(subagent_files(path).values()) if overwrite else []
    for file in () if overwrite else filter(os.path.lexists, files):
        raise FileExistsError(EEXIST, os.strerror(EEXIST), str(file))
    written: list[Path] = []
    try:
        for file, content in files.items():
            if file != path:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(file, (line + b"\n" for line in content), overwrite=overwrite)
            written.append(file)
    except BaseException:
        for file in () if overwrite else written:
            file.unlink(missing_ok=True)
        raise
    for file in old:
        for one in {file, _metadata_file(file)} - files.keys():
            one.unlink(missing_ok=True)


def write_private(path: Path, data: Iterable[bytes], *, overwrite: bool = False) -> None:
    """Write a file that only its owner can read. It gets its content when that is complete.

    Raises:
        FileExistsError: the file exists, and ``overwrite`` is False.
    """
    if not overwrite:
        os.close(os.open(path, _NEW, 0o600))  # an empty file reserves the name
    unfinished = path.with_name(f".{uuid.uuid4()}.tmp")
    try:
        with open(os.open(unfinished, _NEW, 0o600), "wb") as file:
            file.writelines(data)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        if not overwrite:
            path.unlink(missing_ok=True)
        raise


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def iso_time() -> str:
    """Return the time of now as the CLI writes it: ISO 8601 in UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_uuids() -> Iterator[str]:
    """Yield new uuids."""
    while True:
        yield str(uuid.uuid4())
