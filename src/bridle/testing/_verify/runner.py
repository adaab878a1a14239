"""Try all promises on a CLI: two or three at a time, each with a timeout, and leave nothing behind."""

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
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from bridle._core.versions import Version, parse_version
from bridle._shell.locate import find_cli, version_of
from bridle._shell.verifications import (
    Promise,
    State,
    Verification,
    bridle_version,
    identity,
    store_verification,
)
from bridle.testing._verify.promises import FIRST, TIMEOUT, Check, all_checks
from bridle.testing._verify.worker import Finding, Order
from bridle.testing.environment import FORBID_REAL_API

_AT_ONCE = 3
_GRACE = 10.0
"""Seconds that a worker has beyond the timeout of a promise, to close what it started."""

_LEFT = "process.nothing_left"
_LEFT_SENTENCE = "After all of this, no process is left and nothing is left on disk."

# Variables that a worker needs to run Python and the CLI. Everything else is its own.
_KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "SYSTEMROOT", "TZ")

Progress = Callable[[Promise, int, int], None]
"""Gets each promise when it was tried, how many were tried, and how many there are."""


def verify(
    cli_path: str | os.PathLike[str] | None = None,
) -> list[Promise]:
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
    verification = run_all(cli_path)
    with contextlib.suppress(OSError):  # it is a cache
        store_verification(verification)
    return list(verification.promises)


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
    found = asyncio.run(version_of(path))
    version = found if isinstance(found, Version) else None
    checks = [check for check in all_checks().values() if only is None or check.id in only]
    count = len(checks) + (only is None)
    promises: dict[str, Promise] = {}

    def keep(promise: Promise) -> None:
        promises[promise.id] = promise
        if progress is not None:
            progress(promise, len(promises), count)

    with _Place() as place:
        findings = _findings(checks, path, place, timeout)
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
        promises=tuple(promises[check.id] for check in checks)
        + tuple(promises[one] for one in (_LEFT,) if one in promises),
    )


def _judged(check: Check, finding: Finding, version: Version | None) -> Promise:
    since = parse_version(check.since or "")
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
    checks: Iterable[Check], path: str, place: _Place, timeout: float
) -> Iterable[tuple[Check, Finding]]:
    """Yield the findings in the order in which they come."""
    by_id = {check.id: check for check in checks}
    if FIRST in by_id:
        with _Worker(path, place) as worker:
            first = worker.try_one(Order(FIRST, timeout))
        yield by_id.pop(FIRST), first
        if not first.held:
            for check in by_id.values():
                yield check, Finding(check.id, False, "not tried: no session can be started", 0.0)
            return
    orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
    for check in by_id.values():
        orders.put(Order(check.id, timeout))
    found: queue.SimpleQueue[Finding] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=_work, args=(path, place, orders, found), daemon=True)
        for _ in range(min(_AT_ONCE, len(by_id)))
    ]
    for thread in threads:
        thread.start()
    for _ in range(len(by_id)):
        finding = found.get()
        yield by_id[finding.id], finding
    for thread in threads:
        thread.join()


def _work(
    path: str,
    place: _Place,
    orders: queue.SimpleQueue[Order],
    found: queue.SimpleQueue[Finding],
) -> None:
    """Try what is ordered, with a new worker after one that hangs or dies."""
    worker: _Worker | None = None
    while True:
        try:
            order = orders.get_nowait()
        except queue.Empty:
            break
        worker = worker if worker is not None and worker.is_usable else _Worker(path, place)
        found.put(worker.try_one(order))
    if worker is not None:
        worker.end()


class _Worker:
    """A process that tries promises."""

    def __init__(self, path: str, place: _Place) -> None:
        self.is_usable = True
        self._buffer = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bridle.testing._verify.worker", path, str(place.new())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=place.environment,
            cwd=place.root,
            start_new_session=True,
        )
        place.workers.append(self)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

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
        return Finding(order.id, False, observed, round(seconds, 3))

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
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process. Bridle's watchdog ends the CLIs that it started."""
        self.is_usable = False
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


# ---------------------------------------------------------------- the directory


class _Place:
    """The directory of one verification, and what was started in it."""

    def __init__(self) -> None:
        self.workers: list[_Worker] = []
        self._made = 0
        self._lock = threading.Lock()

    def __enter__(self) -> _Place:
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="bridle-verify-"))
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
        self._wait_for_processes(5.0)
        for pid in self._processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)

    def new(self) -> Path:
        """Make a directory for a worker."""
        with self._lock:
            self._made += 1
            path = Path(self.root) / f"worker-{self._made}"
        path.mkdir()
        return path

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of a worker: everything that it writes is in the directory."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        homes = ("CACHE", "CONFIG", "DATA", "STATE")
        return {
            **kept,
            "HOME": self.root,
            "TMPDIR": self.root,
            **{f"XDG_{name}_HOME": os.path.join(self.root, name.lower()) for name in homes},
            "PYTHONDONTWRITEBYTECODE": "1",
            FORBID_REAL_API: "1",
        }

    def processes_left(self) -> list[int]:
        """Return the processes that did not end by themselves after their worker."""
        for worker in self.workers:
            worker.end()
        self._wait_for_processes(5.0)
        return self._processes()

    def _wait_for_processes(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._processes() and time.monotonic() < deadline:
            time.sleep(0.05)

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
