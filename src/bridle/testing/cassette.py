"""Cassettes: sessions that are recorded once on the real CLI and replayed from then on.

A cassette takes the place of a recorder: ``SdkOptions(recorder=cassette)``. The pytest fixture
``cassette`` makes one for each test (:mod:`bridle.testing.pytest_plugin`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType

from bridle._shell.transport import Transport, TransportEvents, TransportFactory
from bridle.errors import BridleError, CliNotFoundError
from bridle.testing.comparing import Difference, Normalize
from bridle.testing.recording import Recorder, open_private, read_recording
from bridle.testing.replaying import ReplayMismatch, ReplayTransport

__all__ = ["Cassette", "CassetteError"]


class CassetteError(BridleError):
    """A cassette could not be recorded. The text says why."""


class Cassette:
    """Records every session and query that gets it on the real CLI, or replays them.

    Give it to ``SdkOptions.recorder``. It is a context manager::

        with Cassette("cassettes/order.ndjson") as cassette:
            outcome = sync.run("Order a saddle.", sdk=SdkOptions(recorder=cassette))

    While it records, the sessions run as they would without it. The files are written when the
    block is left, and only if it raised nothing: the first session to ``path``, each following one
    to a file with a number. Sessions are replayed in the order in which they start.

    A replay starts no CLI and needs none. The program is compared with the recording, and what
    differs is raised (see :func:`bridle.testing.replaying.replay_transport`).

    Args:
        path: The file.
        record: Whether to record; None records if the file does not exist.
        directories: Directories, by a name of your choice, that have another path in every run,
            such as ``{"tmp": tmp_path}``. In a replay the present one takes the place of the
            recorded one. The working directory is one of them already.
        normalize: See :func:`~bridle.testing.replaying.replay_transport`. May also be set later,
            before the first session.
        timeout: See there, too.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        record: bool | None = None,
        directories: Mapping[str, str | PathLike[str]] | None = None,
        normalize: Normalize | None = None,
        timeout: float | None = 30.0,
    ) -> None:
        self.path = Path(path)
        #: Whether sessions run on the real CLI and are recorded.
        self.is_recording = not self.path.exists() if record is None else record
        self.normalize = normalize
        self.timeout = timeout
        self._directories = {name: os.fspath(at) for name, at in (directories or {}).items()}
        self._recorded: list[Path] = [] if self.is_recording else self._files()
        self._replays: list[ReplayTransport] = []
        self._extra: list[Difference] = []
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._recorder: Recorder | None = None

    # -- what a session does with a recorder

    def wrap(
        self, factory: TransportFactory, *, secrets: Iterable[str], about: Mapping[str, object]
    ) -> TransportFactory:
        """Return the factory of a transport that is recorded or replayed."""
        if self.is_recording:
            return self._record(factory, secrets, about)
        number = len(self._replays) + 1
        if number > len(self._recorded):
            extra = Difference(what=f"session {number}", recorded="nothing", now="started")
            self._extra.append(extra)
            raise ReplayMismatch([extra], str(self.path))
        replay = ReplayTransport(
            self._recorded[number - 1],
            timeout=self.timeout,
            normalize=self.normalize,
            directories=self._directories,
        )
        self._replays.append(replay)
        return lambda events: replay.open(events, about=about, secrets=secrets)

    def _record(
        self, factory: TransportFactory, secrets: Iterable[str], about: Mapping[str, object]
    ) -> TransportFactory:
        if self._recorder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="bridle-cassette-")
            self._recorder = Recorder(Path(self._scratch.name) / self.path.name)

        def start(events: TransportEvents) -> Transport:
            try:
                return factory(events)
            except CliNotFoundError as error:
                error.fix = (
                    f"There is no recording {self.path}, so the test has to make it, and that "
                    "needs a CLI. Run the test where one is installed and commit the file."
                )
                raise

        facts = {**about, "directories": self._directories}
        return self._recorder.wrap(start, secrets=secrets, about=facts)

    # -- the end

    def check(self) -> None:
        """Raise :class:`ReplayMismatch` if the program differed from the recording.

        Call it when all sessions are over. While recording there is nothing to check.
        """
        found = [*self.differences]
        if not found and len(self._replays) < len(self._recorded):
            what = f"session {len(self._replays) + 1}"
            found.append(Difference(what=what, recorded="started", now="nothing"))
        if found:
            raise ReplayMismatch(found, str(self.path))
        for replay in self._replays:
            replay.check()

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What was noticed so far, in order."""
        noticed = (difference for replay in self._replays for difference in replay.differences)
        return (*noticed, *self._extra)

    def finish(self, *, passed: bool) -> None:
        """Keep what was recorded, or check what was replayed.

        Args:
            passed: Whether the test passed. If not, nothing is kept, and a replay raises only
                what was noticed before: the rest is missing because the test failed.

        Raises:
            ReplayMismatch: the program differs from the recording.
            CassetteError: no session was recorded, or one of them not to its end.
        """
        try:
            if self.is_recording and passed:
                self._keep()
            elif passed:
                self.check()
            elif self.differences:
                raise ReplayMismatch(self.differences, str(self.path))
        finally:
            if self._recorder is not None:
                self._recorder.close()
            if self._scratch is not None:
                self._scratch.cleanup()

    def __enter__(self) -> Cassette:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do what :meth:`finish` does."""
        self.finish(passed=problem is None)

    def _keep(self) -> None:
        if self._recorder is None:
            raise CassetteError(
                f"There is nothing to record in {self.path}: no session was started with it.",
                fix="Give it to the session: SdkOptions(recorder=cassette).",
            )
        if self._recorder.failure is not None:
            raise CassetteError(f"Recording {self.path} failed: {self._recorder.failure!r}.")
        for number, path in enumerate(self._recorder.paths, 1):
            if gap := read_recording(path).gap:
                raise CassetteError(
                    f"Session {number} was not recorded to its end: {gap}.",
                    fix="Close every session before the test ends: use async with.",
                )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for stale in self._files():
            stale.unlink()
        for made in self._recorder.paths:
            with made.open("rb") as source, open_private(self.path.with_name(made.name)) as kept:
                shutil.copyfileobj(source, kept)

    def _files(self) -> list[Path]:
        """Return the files of this cassette that exist, in the order of their sessions."""
        files: list[Path] = []
        path = self.path
        while path.exists():
            files.append(path)
            path = self.path.with_name(f"{self.path.stem}-{len(files) + 1}{self.path.suffix}")
        return files
