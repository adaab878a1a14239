"""Try all promises on a CLI: some at a time, each with a timeout, without leaving anything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bridle._spi import Version, find_cli, version_of
from bridle.testing._verify._running.promise_worker import Finding, Order
from bridle.testing._verify.promises import FIRST, MISSING_IN, TIMEOUT, Check, all_checks
from bridle.testing.environment import FORBID_REAL_API
from bridle.testing.verifications import (
    Promise,
    State,
    Verification,
    bridle_version,
    identity,
    store_verification,
)

_AT_ONCE = 3
_GRACE = 10.0
"""Seconds that a worker has beyond the timeout of a promise, to close what it started."""

_LINGER = 5.0
"""Seconds that processes have to end after their worker."""

_LEFT = "process.nothing_left"
_LEFT_SENTENCE = "After all of this, no process is left and nothing is left on disk."

# Variables that a worker needs to run Python and the CLI. Everything else is its own.
_KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "SYSTEMROOT", "TZ")

Progress = Callable[[Promise, int, int], None]
"""Gets each promise when it was tried, how many were tried, and how many there are."""


def verify(cli_path: str | os.PathLike[str] | None = None) -> list[Promise]:
    """Try Bridle's promises on a CLI, offline, with a scripted model, in about half a minute.

    The result is stored for ``bridle doctor`` and for fleets with ``verified=True``. Blocks; in a
    coroutine use ``await asyncio.to_thread(verify)``.

    Args:
        cli_path: the CLI. By default the one that sessions use here.

    Returns:
        All promises. A CLI that cannot start a session breaks the first one, and then all others.

    Raises:
        CliNotFoundError: there is no CLI.
        SpawnError: the CLI cannot be executed.
    """
    return list(run_and_store(cli_path).promises)


def run_and_store(
    cli_path: str | os.PathLike[str] | None = None, *, progress: Progress | None = None
) -> Verification:
    """Do what :func:`verify` does, and return the whole result."""
    verification = run_all(cli_path, progress=progress)
    with contextlib.suppress(OSError):  # it is a cache
        store_verification(verification)
    return verification


def run_all(
    cli_path: str | os.PathLike[str] | None = None,
    *,
    only: Collection[str] | None = None,
    timeout: float = TIMEOUT,
    progress: Progress | None = None,
) -> Verification:
    """Try the promises, or ``only`` those with these ids, and return the result without storing it.

    Args:
        timeout: seconds for one promise.
        progress: called in this thread after each promise.

    Raises:
        CliNotFoundError: there is no CLI.
        SpawnError: the CLI cannot be executed.
    """
    begun = time.monotonic()
    path = find_cli(None if cli_path is None else os.fspath(cli_path))
    sha256 = identity(path)
    found = asyncio.run(version_of(path, timeout=timeout))
    version = found if isinstance(found, Version) else None
    by_id = {id: one for id, one in all_checks().items() if only is None or id in only}
    count = len(by_id) + (only is None)
    promises: dict[str, Promise] = {}

    def keep(promise: Promise) -> None:
        promises[promise.id] = promise
        if progress is not None:
            progress(promise, len(promises), count)

    with _Place() as place:
        findings = _findings(by_id, path, place, timeout, without=_missing(by_id, version))
        for check, finding in findings:
            keep(_judged(check, finding, version))
        left = place.processes_left()
    if only is None:
        keep(_left(left, exists=os.path.exists(place.root)))
    return Verification(
        cli_path=path,
        cli_version=None if version is None else str(version),
        cli_sha256=sha256,
        bridle_version=bridle_version(),
        at=time.time(),
        seconds=round(time.monotonic() - begun, 3),
        promises=tuple(promises[id] for id in (*by_id, _LEFT) if id in promises),
    )


def _missing(checks: Mapping[str, Check], version: Version | None) -> set[str]:
    """Return the promises that need a feature which this CLI is known not to have."""
    if version is None or version > _version(MISSING_IN):
        return set()
    return {id for id, check in checks.items() if check.since is not None}


def _version(text: str) -> Version:
    return Version(*map(int, text.split(".")))


def _judged(check: Check, finding: Finding, version: Version | None) -> Promise:
    since = None if check.since is None else _version(check.since)
    is_older = since is not None and version is not None and version < since
    state: State = "held" if finding.held else "unsupported" if is_older else "broken"
    observed = finding.observed
    if state == "unsupported":
        observed = f"not in this CLI (known from {since} on): {observed}"
    return Promise(
        id=check.id,
        sentence=check.sentence,
        depends=check.depends,
        state=state,
        observed=observed,
        seconds=finding.seconds,
    )


def _left(left: Collection[int], *, exists: bool) -> Promise:
    problems = [f"{len(left)} processes were left and killed"] if left else []
    problems += ["the temporary directory was left"] if exists else []
    return Promise(
        id=_LEFT,
        sentence=_LEFT_SENTENCE,
        depends="every program",
        state="broken" if problems else "held",
        observed=", ".join(problems) or "no process and no file",
    )


# ---------------------------------------------------------------- workers


def _findings(
    checks: Mapping[str, Check],
    path: str,
    place: _Place,
    timeout: float,
    *,
    without: Collection[str],
) -> Iterator[tuple[Check, Finding]]:
    """Yield the findings in the order in which they come, first those that need no trial."""
    by_id = dict(checks)
    if FIRST in by_id:
        [first] = _tried([Order(FIRST, timeout)], path, place)
        yield by_id.pop(FIRST), first
        if not first.held:
            for check in by_id.values():
                observed = "not tried: no session can be started"
                yield check, Finding(check.id, held=False, observed=observed, seconds=0.0)
            return
    for id in without:
        yield by_id.pop(id), Finding(id, held=False, observed="not tried", seconds=0.0)
    for finding in _tried([Order(one, timeout) for one in by_id], path, place):
        yield by_id[finding.id], finding


def _tried(orders: Sequence[Order], path: str, place: _Place) -> Iterator[Finding]:
    """Carry out the orders, some at a time, each thread with a worker of its own."""
    waiting: queue.SimpleQueue[Order] = queue.SimpleQueue()
    found: queue.SimpleQueue[Finding] = queue.SimpleQueue()
    for order in orders:
        waiting.put(order)
    threads = [
        threading.Thread(target=_work, args=(path, place, waiting, found), daemon=True)
        for _ in range(min(_AT_ONCE, len(orders)))
    ]
    for thread in threads:
        thread.start()
    for _ in orders:
        yield found.get()
    for thread in threads:
        thread.join()


def _work(
    path: str,
    place: _Place,
    waiting: queue.SimpleQueue[Order],
    found: queue.SimpleQueue[Finding],
) -> None:
    """Take orders until there are none. A worker that hangs or dies is replaced."""
    worker: _Worker | None = None
    while not place.is_closed:
        try:
            order = waiting.get_nowait()
        except queue.Empty:
            break
        try:
            if worker is None or not worker.is_usable:
                worker = place.start_worker(path)
            finding = worker.try_one(order)
        except Exception as error:  # such as: no file descriptor is free
            observed = f"it could not be tried: {type(error).__name__}"
            finding = Finding(order.id, held=False, observed=observed, seconds=0.0)
        found.put(finding)
    if worker is not None:
        worker.end()


class _Worker:
    """A process that tries promises. Used by one thread, except for `kill`."""

    def __init__(self, path: str, place: _Place, directory: Path) -> None:
        self.is_usable = True
        self._buffer = b""
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bridle.testing._verify._running.promise_worker",
                path,
                str(directory),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=place.environment,
            cwd=place.root,
            start_new_session=True,
        )

    def try_one(self, order: Order) -> Finding:
        """Return what the worker found. It is killed if it does not answer in time."""
        begun = time.monotonic()
        line = None
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
            line = self._line(begun + order.timeout + _GRACE)
        if line:
            with contextlib.suppress(msgspec.MsgspecError):
                return msgspec.json.decode(line, type=Finding)
        self.end()
        seconds = time.monotonic() - begun
        observed = "the process that tried it died"
        if seconds > order.timeout:
            observed = f"it blocked its process for {seconds:.0f} s"
        return Finding(order.id, held=False, observed=observed, seconds=round(seconds, 3))

    def _line(self, deadline: float) -> bytes | None:
        """Return the next line; None after the deadline or at the end of the output."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            remaining = max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], remaining)[0]:
                return None
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def end(self) -> None:
        """End the process: an idle one by the end of its input, another one by a signal."""
        self.is_usable = False
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process.stdout.close()

    def kill(self) -> None:
        """Kill the process. Bridle's watchdog ends the CLIs that it started."""
        self._process.kill()
        self._process.wait()


# ---------------------------------------------------------------- the directory


class _Place:
    """The directory of one verification, and what was started in it."""

    def __init__(self) -> None:
        self.root = ""
        self.is_closed = False
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()

    def __enter__(self) -> _Place:
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="bridle-verify-"))
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.is_closed = True
        for worker in self._workers:
            worker.kill()
        for pid in self.processes_left():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)

    def start_worker(self, path: str) -> _Worker:
        """Start a process that tries promises on the CLI at ``path``.

        Raises:
            RuntimeError: the verification was interrupted meanwhile.
        """
        with self._lock:
            if self.is_closed:
                raise RuntimeError("the verification has ended")
            directory = Path(self.root) / f"worker-{len(self._workers)}"
            directory.mkdir()
            self._workers.append(_Worker(path, self, directory))
            return self._workers[-1]

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of a worker: everything that it writes is in the directory."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        homes = ("CACHE", "CONFIG", "DATA", "STATE")
        return {
            **kept,
            **{f"XDG_{name}_HOME": os.path.join(self.root, name.lower()) for name in homes},
            "HOME": self.root,
            "TMPDIR": self.root,
            "PYTHONDONTWRITEBYTECODE": "1",
            FORBID_REAL_API: "1",
        }

    def processes_left(self) -> list[int]:
        """Return the processes that do not end by themselves within seconds."""
        deadline = time.monotonic() + _LINGER
        while (found := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def _processes(self) -> list[int]:
        """Return the processes with this directory in their environment, where /proc shows it."""
        word = os.fsencode(self.root)
        found: list[int] = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if word in (place / "environ").read_bytes():
                    found.append(int(place.name))
            except OSError:
                continue
        return found
