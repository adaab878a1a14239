"""Cassettes: record sessions once on the real CLI, and replay them in later runs.

Use a cassette like a recorder: ``SdkOptions(recorder=cassette)``. The pytest fixture
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

from bridle._spi import Transport, TransportEvents, TransportFactory
from bridle.errors import BridleError, CliNotFoundError
from bridle.testing.comparing import Difference, Normalize
from bridle.testing.recording import Recorder, open_private, read_recording
from bridle.testing.replaying import ReplayMismatch, ReplayTransport

__all__ = ["Cassette", "CassetteError"]


class CassetteError(BridleError):
    """A cassette could not be recorded. The message says why."""


class Cassette:
    """Record sessions and queries on the real CLI, or replay them.

    Pass it as ``SdkOptions.recorder``. It is a context manager::

        with Cassette("cassettes/order.ndjson") as cassette:
            outcome = sync.run("Order a saddle.", sdk=SdkOptions(recorder=cassette))

    While it records, the sessions run normally. The files are written when the block ends without
    an exception: the first session to ``path``, each further session to a file with a number.
    Sessions are replayed in the order in which they start.

    A replay needs no CLI. It compares the program with the recording and raises an error if they
    differ (see :func:`bridle.testing.replaying.replay_transport`). This includes the arguments of
    the CLI, its settings with the sandbox, its environment, and the limits.

    Args:
        path: The file of the first session.
        record: True records, False replays, None records if the file does not exist.
        directories: Directories whose path differs in every run, by a name of your choice, such as
            ``{"tmp": tmp_path}``. A replay replaces the recorded path by the present one. The
            working directory is always included.
        normalize: See :func:`~bridle.testing.replaying.replay_transport`. You can also set it
            later, before the first session.
        timeout: See :func:`~bridle.testing.replaying.replay_transport`.
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
        #: True if sessions run on the real CLI and are recorded.
        self.is_recording = not self.path.exists() if record is None else record
        self.normalize = normalize
        self.timeout = timeout
        self._directories = {name: os.fspath(at) for name, at in (directories or {}).items()}
        self._recorded: list[Path] = [] if self.is_recording else self._files()
        self._replays: list[ReplayTransport] = []
        self._extra: list[Difference] = []
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._recorder: Recorder | None = None

    # -- the interface of a recorder

    def wrap(
        self, factory: TransportFactory, *, secrets: Iterable[str], about: Mapping[str, object]
    ) -> TransportFactory:
        """Return a transport factory that records or replays."""
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
                    f"The cassette {self.path} does not exist, and recording it needs a CLI. Run "
                    "the test once on a machine with a CLI and commit the file."
                )
                raise

        facts = {**about, "directories": self._directories}
        return self._recorder.wrap(start, secrets=secrets, about=facts)

    # -- the end

    def check(self) -> None:
        """Raise :class:`ReplayMismatch` if the program differed from the recording.

        Call it when all sessions are over. While recording, it does nothing.
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
        """The differences found so far, in order."""
        noticed = (difference for replay in self._replays for difference in replay.differences)
        return (*noticed, *self._extra)

    def finish(self, *, passed: bool) -> None:
        """Save the recording, or check the replay.

        Args:
            passed: Whether the test passed. If not, no recording is saved, and a replay raises
                only differences found so far. Lines that are missing at the end do not count,
                because the failure of the test explains them.

        Raises:
            ReplayMismatch: the program differs from the recording.
            CassetteError: no session was recorded, or the recording of a session is incomplete.
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
        """Call :meth:`finish`."""
        self.finish(passed=problem is None)

    def _keep(self) -> None:
        if self._recorder is None:
            raise CassetteError(
                f"Nothing was recorded in {self.path}: no session used this cassette.",
                fix="Pass it to the session: SdkOptions(recorder=cassette).",
            )
        if self._recorder.failure is not None:
            raise CassetteError(f"Recording {self.path} failed: {self._recorder.failure!r}.")
        for number, path in enumerate(self._recorder.paths, 1):
            if gap := read_recording(path).gap:
                raise CassetteError(
                    f"The recording of session {number} is incomplete: {gap}.",
                    fix="Close every session before the test ends. Use async with.",
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
