"""Read what a CLI adds to its transcript files, and write transcripts for a CLI to resume.

Everything here blocks. Call it in a thread.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from bridle._core.mirroring import split_metadata
from bridle._core.transcripts import project_name
from bridle._option_checks import is_uuid
from bridle._raw_line import parse_json
from bridle._store import Entry

_SUFFIX = ".jsonl"


class Addition(NamedTuple):
    """Entries that were added to a transcript file."""

    entries: list[Entry]
    #: Their size in bytes.
    size: int
    #: The position in the file after them.
    end: int


class TranscriptTail:
    """A transcript file, and the position up to which it was copied.

    Reading does not change the position, so that a reading that is cancelled loses nothing.
    """

    def __init__(self, path: str, position: int = 0) -> None:
        self.path = path
        self.position = position

    def read(self) -> Addition:
        """Return the entries after the position.

        A line that is not complete yet is left out. So are lines that are not JSON objects. A file
        that cannot be read has no entries.
        """
        lines = self._lines()
        return Addition(_entries(lines), len(lines), self.position + len(lines))

    def read_after(self, uuid: str | None) -> Addition:
        """Return the entries after the position that have a uuid and come after this uuid.

        None, or a uuid that is not there, returns all of them. Entries without a uuid are left out,
        because a store cannot tell whether it has them.
        """
        lines = self._lines()
        found = -1 if uuid is None else lines.rfind(f'"uuid":"{uuid}"'.encode())
        rest = lines[lines.find(b"\n", found) + 1 :] if found >= 0 else lines
        entries = [entry for entry in _entries(rest) if "uuid" in entry]
        return Addition(entries, len(rest), self.position + len(lines))

    def _lines(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.position)
                data = file.read()
        except OSError:
            return b""
        return data[: data.rfind(b"\n") + 1]


def _entries(lines: bytes) -> list[Entry]:
    found: list[Entry] = []
    for line in lines.splitlines():
        try:
            entry = parse_json(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            found.append(cast("Entry", entry))
    return found


def size_of(path: str) -> int:
    """Return the size of a file; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def find_transcript(config_directory: str, session_id: str, cwd: str) -> str | None:
    """Return the path of the transcript of a session. That of the working directory comes first."""
    projects = os.path.join(config_directory, "projects")
    own = os.path.join(projects, project_name(cwd), f"{session_id}{_SUFFIX}")
    if os.path.isfile(own):
        return own
    found = glob.glob(f"{glob.escape(projects)}/*/{glob.escape(session_id)}{_SUFFIX}")
    return found[0] if found else None


def newest_transcript(config_directory: str, cwd: str) -> str | None:
    """Return the path of the transcript that was changed last in a working directory."""
    place = os.path.join(config_directory, "projects", project_name(cwd))
    try:
        found = [one for one in os.scandir(place) if one.name.endswith(_SUFFIX)]
        found = [one for one in found if is_uuid(one.name.removesuffix(_SUFFIX)) and one.is_file()]
        return max(found, key=lambda one: one.stat().st_mtime_ns).path
    except (OSError, ValueError):  # there is none
        return None


def subagent_transcripts(path: str) -> list[str]:
    """Return the paths of the transcripts of the subagents of a session, sorted."""
    place = glob.escape(f"{path.removesuffix(_SUFFIX)}/subagents")
    return sorted(glob.glob(f"{place}/**/*{_SUFFIX}", recursive=True))


def write_transcripts(
    directory: str,
    session_id: str,
    entries: Iterable[Entry],
    subagents: Mapping[str, Sequence[Entry]],
) -> str:
    """Write a conversation and those of its subagents, for a CLI to resume. Return the path.

    Only the owner can read the files. ``directory`` must be private too.
    """
    path = os.path.join(directory, f"{session_id}{_SUFFIX}")
    _write(path, entries)
    # The CLI may add subagents here, also if it runs as a user who cannot write to the directory.
    os.makedirs(os.path.join(directory, session_id, "subagents"), mode=0o700)
    for subkey, listed in subagents.items():
        stem = os.path.join(directory, session_id, *subkey.split("/"))
        os.makedirs(os.path.dirname(stem), mode=0o700, exist_ok=True)
        transcript, metadata = split_metadata(listed)
        _write(f"{stem}{_SUFFIX}", transcript)
        if metadata is not None:
            _write(f"{stem}.meta.json", [metadata])
    return path


def _write(path: str, entries: Iterable[Entry]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for entry in entries:
            file.write(_line(entry))


def _line(entry: Entry) -> bytes:
    try:
        return msgspec.json.encode(entry) + b"\n"
    except (UnicodeEncodeError, TypeError):  # half a surrogate pair, or a mapping of another kind
        return json.dumps(dict(entry), separators=(",", ":")).encode() + b"\n"
