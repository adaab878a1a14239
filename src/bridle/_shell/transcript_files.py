"""The transcript files of the CLI: find, read, append to, create and delete them.

The CLI keeps a session in ``<config>/projects/<project>/<session id>.jsonl``, and its subagents in
a directory of the session's id beside it. Everything here blocks: call it in a thread.

Links below ``projects`` are not followed, and a file that is not a regular file is not opened. New
files can be read by their owner only.
"""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from errno import EEXIST
from os import PathLike
from pathlib import Path
from typing import NamedTuple, cast

from msgspec import Struct

from bridle._core.transcript_changes import Fork
from bridle._core.transcript_summaries import Ends, SessionInfo, summarize
from bridle._core.transcripts import (
    SUBAGENTS,
    SubagentTranscript,
    Transcript,
    entries_of_bytes,
    is_project,
    line_of_object,
    project_name,
    subagent_name,
    subagent_transcript,
    text_of,
)
from bridle._option_checks import is_uuid
from bridle._raw_line import JsonObject, parse_json
from bridle._shell.config_directory import config_directory
from bridle.errors import OptionsError, SessionNotFoundError

_END = 64 * 1024
"""How many bytes of the start and of the end of a file a summary reads."""

SUFFIX = ".jsonl"
"""The ending of the name of every transcript."""


class _File(Struct, frozen=True):
    """A transcript file, as the directory lists it."""

    path: Path
    modified: float
    size: int


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
        wanted = None if limit is None else offset + limit
        found: dict[str, SessionInfo] = {}
        for file in sorted(self._files(), key=lambda one: one.modified, reverse=True):
            if wanted is not None and len(found) >= wanted:
                break
            info = None if file.path.stem in found else self._summary(file)
            if info is not None:
                found[info.session_id] = info
        return [*found.values()][offset:]

    def info(self, session_id: str) -> SessionInfo:
        """Return one session.

        Raises:
            SessionNotFoundError: there is no such session, or it has no conversation yet.
        """
        info = self._summary(self._found(session_id))
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
                yield from _regular(Path(project.path) / f"{session_id}{SUFFIX}")
                continue
            for entry in _entries(project.path):
                name, ending = os.path.splitext(entry.name)
                if ending == SUFFIX and is_uuid(name):
                    yield from _regular(Path(entry.path))

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
        try:
            ends = _ends(file.path)
        except OSError:  # it was deleted meanwhile, or belongs to another user
            return None
        title = _object(_beside(file.path) / "custom-title.json")
        info = summarize(
            ends,
            file.path.stem,
            file.path.parent.name,
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
            entries=entries_of_bytes(read_file(path)),
            subagents=tuple(_subagents(path)),
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

    def create(self, source: Transcript, session_id: str, fork: Fork) -> None:
        """Write a new session into the project of another one."""
        path = self._projects / source.project / f"{session_id}{SUFFIX}"
        agents = [
            SubagentFile(agent.name, map(line_of_object, entries), agent.metadata)
            for agent, entries in fork.subagents
        ]
        write_transcript(path, map(line_of_object, fork.entries), agents)

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


def _regular(path: Path) -> Iterator[_File]:
    with suppress(OSError):
        facts = path.lstat()
        if stat.S_ISREG(facts.st_mode):
            yield _File(path, facts.st_mtime, facts.st_size)


@contextmanager
def _opened(path: Path, flags: int) -> Generator[int]:
    """Open a regular file. A link is an error, and a pipe does not block."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"not a regular file: {path}")
        yield file
    finally:
        os.close(file)


def _ends(path: Path) -> Ends:
    with _opened(path, os.O_RDONLY) as file:
        size = os.fstat(file).st_size
        if size <= 2 * _END:
            return Ends(os.pread(file, size, 0))
        return Ends(os.pread(file, _END, 0), os.pread(file, _END, size - _END))


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


def _subagents(transcript: Path) -> Iterator[SubagentTranscript]:
    for subkey, path in subagent_files(transcript).items():
        name = subagent_name(subkey)
        if name is not None:
            with suppress(FileNotFoundError):
                facts = _object(_metadata_file(path))
                yield subagent_transcript(name, entries_of_bytes(read_file(path)), facts)


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
