"""The files in which a CLI keeps its conversations on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import structs

from bridle._process.config_directory import place_of, working_directory
from bridle._process.launch.plan import Launch
from bridle._records.session_store import Entry
from bridle.sessions._transcripts.files import TranscriptFiles, read_file, subagent_files
from bridle.sessions._transcripts.transcript import is_linked, objects_of_bytes, project_name


class CliFiles:
    """The files of a CLI, by how it is started."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        #: Where the CLI runs.
        self.place = place_of(launch)
        #: The name of the project of the working directory.
        self.project = project_name(working_directory(launch))

    def of_directory(self, directory: str) -> CliFiles:
        """Return the files of the same CLI if it runs in another directory."""
        return CliFiles(structs.replace(self._launch, cwd=directory))

    def read(self, session_id: str) -> dict[str, list[Entry]]:
        """Return the entries of a conversation by subkey, "" for the main one. Blocks.

        Raises:
            OSError: a file exists and cannot be read.
        """
        path = self._find(session_id)
        if path is None:
            return {}
        files = {"": path, **subagent_files(path)}
        return {subkey: _entries_in(one) for subkey, one in files.items()}

    def remove_unused(self, session_id: str) -> None:
        """Remove a file without a conversation, with which the CLI starts no new one. Blocks."""
        path = self._find(session_id)
        if path is not None and not any(map(is_linked, _entries_in(path))):
            os.unlink(path)

    def _find(self, session_id: str) -> Path | None:
        return TranscriptFiles(None, self.place.config).path(session_id)


def _entries_in(path: Path) -> list[Entry]:
    """Return the entries of a file without the last line if it is not complete. Blocks.

    Raises:
        OSError: the file exists and cannot be read.
    """
    try:
        data = read_file(path)
    except FileNotFoundError:
        return []
    return objects_of_bytes(data[: data.rfind(b"\n") + 1])
