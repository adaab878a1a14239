"""The CLI as a child process: start it, write to it, read from it, and end its whole tree.

Everything runs on the event loop: any loop that can watch descriptors, in any thread. No signal
handler is installed. A process that has exited stays a zombie until it is closed, so that the
system does not reuse its id while the reaper looks for its descendants.

A running process takes three descriptors, one for each of its pipes. Its exit is noticed when one
of them closes: a process descriptor (pidfd) then takes the place of the pipe. The exit of a CLI
whose descendants hold all three pipes open is noticed within half a second. Where there is no
process descriptor, the process is checked in growing intervals after a pipe has closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import warnings
import weakref
from collections.abc import Iterable, Mapping
from errno import ENOENT, EPERM
from signal import SIGTERM
from typing import IO, cast

from bridle._process import reaper, watchdog
from bridle._process import tree as trees
from bridle._process.config_directory import CliPlace, place_of
from bridle._process.launch.plan import Launch, LaunchFile
from bridle._process.pipes import InputPipe, OutputPipe, StderrLines, weakly
from bridle._process.session_locks import SessionLocks, StartLock
from bridle._process.transport import TransportEvents
from bridle._process.tree import MARK, SIGKILL, Tree, labelled, remove_directory
from bridle._runtime.forked_loops import separate
from bridle._runtime.tasks import StartedCoroutine
from bridle.errors import SpawnError

_CLOSE_LIMIT = 5.0
"""Seconds after which `aclose` leaves processes that survive SIGKILL to the watchdog."""

_ABANDON_LIMIT = 1.0
"""The same limit, in seconds, where the event loop or the garbage collector has to wait."""

_PAUSES = (0.001, 0.5)
"""The shortest and the longest time, in seconds, between two checks of a process."""


class CliProcess:
    """A CLI process: the :class:`bridle._process.transport.Transport` of a session.

    A process that is dropped without :meth:`aclose` is killed, with a ResourceWarning.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, resources: _Resources, events: TransportEvents
    ) -> None:
        popen = resources.popen
        self._loop = loop
        self._resources = resources
        self._events = events
        self._has_exited = False
        self._has_reported_exit = False
        self._exit_code: int | None = None
        self._closing: asyncio.Task[None] | None = None
        weakref.finalize(self, _abandon, resources)
        self._stderr = StderrLines(events.wrote_stderr)
        stdin, stdout, stderr = (
            cast("IO[bytes]", file) for file in (popen.stdin, popen.stdout, popen.stderr)
        )
        self._pause = _PAUSES[1]
        watch = weakly(CliProcess._watch, self)
        self._input = InputPipe(loop, stdin, events.input_failed, watch)
        #: Sends whole lines to the CLI after everything written before. Does not block.
        self.write = self._input.write
        self._output = OutputPipe(loop, stdout, events.received, events.output_ended, watch)
        self._errors = OutputPipe(loop, stderr, self._stderr.feed, self._stderr.finish, watch)
        self._look_later()

    @classmethod
    def spawn(
        cls,
        executable: str,
        launch: Launch,
        events: TransportEvents,
        *,
        environ: Mapping[str, str] = os.environ,
        loop: asyncio.AbstractEventLoop | None = None,
        lock: StartLock | None = None,
    ) -> CliProcess:
        """Start the CLI with the arguments, environment and files of ``launch``.

        The process takes over what ``lock`` holds.

        Raises:
            SpawnError: the process could not be started. Nothing is left of it.
            OptionsError: the user of ``launch`` does not exist.
            SessionInUseError: another process or session writes the same conversation.
        """
        loop = loop or asyncio.get_running_loop()
        try:
            resources = _start(executable, launch, environ, loop, lock)
        except OSError as error:
            raise SpawnError(_reason(error, launch.user), error.errno) from error
        except ValueError as error:  # an invalid argument, for example one with a NUL
            raise SpawnError(str(error)) from error
        try:
            return cls(loop, resources, events)
        except BaseException:
            resources.abandon()
            _close_files(resources.files, loop)
            raise

    @property
    def pid(self) -> int:
        """The process id, also after the exit."""
        return self._resources.popen.pid

    @property
    def locks(self) -> SessionLocks:
        """The locks of the sessions that this CLI writes. They are released at its end."""
        return self._resources.locks

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs, or if it is unknown."""
        return self._exit_code

    @property
    def stderr_tail(self) -> str:
        """The last part of what the CLI wrote to stderr."""
        return self._stderr.tail

    async def drain(self) -> None:
        """Wait until most of what was written has been sent, or the input is closed."""
        await self._input.drain()

    def end_input(self) -> None:
        """Close the CLI's input after everything written has been sent."""
        self._input.end()

    def pause_reading(self) -> None:
        """Stop reading until ``resume_reading``, or until the CLI exits."""
        if not self._has_exited:
            self._output.pause()

    def resume_reading(self) -> None:
        """Read again."""
        self._output.resume()

    def terminate(self) -> None:
        """Send SIGTERM to the whole process tree."""
        self._resources.signal(SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the whole process tree."""
        self._resources.signal(SIGKILL)

    async def aclose(self) -> None:
        """Kill what is left of the process tree and release everything.

        Returns when no process, descriptor or file is left. Cancelling the call does not stop the
        work.
        """
        if self._resources.is_inherited:
            return
        if self._loop.is_closed():
            self._resources.abandon()
            self._resources.close_files()
            return
        if self._closing is None:
            # The task keeps this object alive until everything is released.
            self._closing = self._loop.create_task(StartedCoroutine(self._close()))
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for pipe in (self._input, self._output, self._errors):
            with contextlib.suppress(OSError):  # other code has closed the descriptor
                pipe.close()
        try:
            is_ended = await self._end_tree()
        except asyncio.CancelledError:  # the event loop ends: finish the work now
            if self._resources.is_inherited:
                raise
            is_ended = self._resources.tree.end(_ABANDON_LIMIT)
        try:
            self._on_exit()
            self._report_exit()
        finally:
            self._resources.release(is_ended=is_ended)

    async def _end_tree(self) -> bool:
        """Kill until no process is left. Return False if some are left after five seconds."""
        resources, loop = self._resources, self._loop
        ended = asyncio.Event()

        def done() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set)

        resources.signal_cli(SIGKILL)
        ending = reaper.shared.end(resources.tree, resources.is_dead, _CLOSE_LIMIT, done)
        await ended.wait()
        return ending.is_complete

    def _look_later(self) -> None:
        # Long pauses of all processes end at the same times, so a loop with many wakes up once.
        longest = _PAUSES[1]
        now = self._loop.time()
        due = now + self._pause if self._pause < longest else (now // longest + 1) * longest
        self._timer = self._loop.call_at(due, weakly(CliProcess._look_again, self))

    def _look_again(self) -> None:
        if _look(self._resources.popen)[0]:
            self._on_exit()
        else:
            self._pause = min(2 * self._pause, _PAUSES[1])
            self._look_later()

    def _watch(self) -> None:
        """Watch for the exit after a pipe closed: the CLI may exit, and a descriptor is free."""
        resources, notify = self._resources, weakly(CliProcess._on_exit, self)
        if resources.handle is not None or self._has_exited or self._closing is not None:
            return
        self._timer.cancel()
        if _look(resources.popen)[0]:
            # Its id may belong to another process by now, if other code has reaped it.
            self._loop.call_soon(notify)
            return
        try:
            resources.handle = os.fdopen(os.pidfd_open(self.pid), "rb", buffering=0)
        except (OSError, AttributeError):
            self._pause = _PAUSES[0]
            self._look_later()
        else:
            self._loop.add_reader(resources.handle.fileno(), notify)

    def _on_exit(self) -> None:
        if self._has_exited:
            return
        self._has_exited = True
        self._timer.cancel()
        self._resources.stop_watching()
        _, self._exit_code = _look(self._resources.popen)
        try:
            # Report what the process wrote before its exit, even if a descendant holds the pipes
            # open.
            self._output.drain()
            self._output.resume()
            self._errors.drain()
            self._stderr.finish()
        finally:
            # As a separate callback: if many processes exit, other callbacks run in between.
            self._loop.call_soon(self._report_exit)

    def _report_exit(self) -> None:
        if not self._has_reported_exit:
            self._has_reported_exit = True
            self._events.exited(self._exit_code)

    def __repr__(self) -> str:
        state = f"exit code {self._exit_code}" if self._has_exited else "running"
        return f"<{type(self).__name__} pid {self.pid}, {state}>"


# ---------------------------------------------------------------- resources


class _Resources:
    """What must be released with a process object. Separate, so that a finalizer can do it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        popen: subprocess.Popen[bytes],
        tree: Tree,
        directory: str,
        locks: SessionLocks,
    ) -> None:
        self.popen = popen
        self.tree = tree
        self.handle: IO[bytes] | None = None
        self.loop = loop
        self._directory = directory
        self.locks = locks
        self._is_released = False
        #: True in a forked child. The process belongs to the parent.
        self.is_inherited = False
        _live.add(self)

    def signal(self, number: int) -> None:
        """Signal the CLI now and the rest of its tree soon."""
        if not self._is_released:
            self.signal_cli(number)
            reaper.shared.signal(self.tree, number)

    def signal_cli(self, number: int) -> None:
        """Signal the CLI itself. This needs no free descriptor."""
        if not self.is_dead():
            with contextlib.suppress(OSError):
                os.kill(self.popen.pid, number)

    def is_dead(self) -> bool:
        """Return whether the CLI itself has ended."""
        return self._is_released or _look(self.popen)[0]

    @property
    def files(self) -> list[IO[bytes]]:
        """Our descriptors, open or closed."""
        files = (self.popen.stdin, self.popen.stdout, self.popen.stderr, self.handle)
        return [file for file in files if file is not None]

    def stop_watching(self) -> None:
        """Close the process descriptor, if there is one."""
        if self.handle is not None:
            _close_files([self.handle], self.loop)

    def release(self, *, is_ended: bool) -> None:
        """Release all but the descriptors. ``is_ended`` is False if processes are left."""
        self._is_released = True
        _live.discard(self)
        self.popen.poll()  # reaps it
        remove_directory(self._directory)
        self.locks.release()
        if is_ended:
            reaper.shared.release(self.tree)
        else:
            watchdog.shared.end(self.tree)

    def abandon(self) -> bool:
        """End the process tree, then `release`. Return False if that was done before."""
        if self._is_released:
            return False
        self.release(is_ended=self.tree.end(_ABANDON_LIMIT))
        self.locks.give_back()
        return True

    def close_files(self) -> None:
        """Close the descriptors, from any thread, after the loop has stopped watching them."""
        try:
            self.loop.call_soon_threadsafe(_close_files, self.files, self.loop)
        except RuntimeError:  # the loop is closed
            _close_files(self.files, None)

    def forget(self) -> None:
        """Close the descriptors in a forked child. The process belongs to its parent."""
        self._is_released = self.is_inherited = True
        self.popen.returncode = 0
        for file in self.files:
            file.close()


_live: set[_Resources] = set()


def _forget_all() -> None:
    for resources in _live:
        resources.forget()
    for loop in {resources.loop for resources in _live}:
        separate(loop)
    _live.clear()


# Without this, a forked child would keep the CLI's input open, and its copy of the event loop would
# change that of the parent.
os.register_at_fork(after_in_child=_forget_all)


def _abandon(resources: _Resources) -> None:
    if resources.abandon():
        resources.close_files()
        warnings.warn(
            f"CLI process {resources.popen.pid} was never closed", ResourceWarning, stacklevel=2
        )


def _close_files(files: Iterable[IO[bytes]], loop: asyncio.AbstractEventLoop | None) -> None:
    for file in files:
        if loop and not file.closed:
            loop.remove_reader(file.fileno())
            loop.remove_writer(file.fileno())
        file.close()


# ---------------------------------------------------------------- starting


def _start(
    executable: str,
    launch: Launch,
    environ: Mapping[str, str],
    loop: asyncio.AbstractEventLoop,
    lock: StartLock | None,
) -> _Resources:
    place = place_of(launch, environ)
    account = place.account
    tree = Tree(os.urandom(16).hex())
    directory = launch.directory
    locks = (lock and lock.hand_over()) or SessionLocks(place)
    try:
        if launch.writes_id is not None:
            locks.take(launch.writes_id)
        if launch.files and not directory:
            from tempfile import mkdtemp  # slow to import, and not every launch has files

            directory = mkdtemp(prefix="bridle-")
        watchdog.shared.guard(tree, directory)
        arguments = launch.arguments(_write(launch.files, directory))
        if account is not None and directory:
            account.share(directory)
        cwd = None if launch.cwd is None else os.path.abspath(launch.cwd)
        popen = subprocess.Popen(
            (executable, *arguments),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=_environment(place, environ, tree.mark, cwd),
            start_new_session=True,
            user=account.user if account else None,
            group=account.group if account else None,
            extra_groups=account.groups if account else None,
        )
    except BaseException:
        locks.give_back()
        remove_directory(directory)
        reaper.shared.release(tree)
        raise
    tree = labelled(tree.mark, popen.pid)
    watchdog.shared.guard(tree, directory)
    return _Resources(loop, popen, tree, directory, locks)


def _reason(error: OSError, user: str | None = None) -> str:
    if error.errno == EPERM and user is not None:
        return f"This process may not start programs as the user {user!r}"
    reason = error.strerror or str(error)
    if error.errno == ENOENT and error.filename and os.path.exists(error.filename):
        reason = "The interpreter or loader it is made for was not found"
    return f"{reason}: {error.filename}" if error.filename else reason


def _environment(
    place: CliPlace, environ: Mapping[str, str], mark: str, cwd: str | None
) -> dict[str, str]:
    """Return the environment of a CLI with its mark.

    The mark follows those of the CLIs that this program runs inside of.
    """
    marks = filter(None, (environ.get(MARK), mark))
    directory = {} if cwd is None else {"PWD": cwd}
    return {**place.environment, **directory, MARK: ":".join(marks)}


def _write(files: Iterable[LaunchFile], directory: str) -> dict[str, str]:
    """Write files that only their owner can read. Return their paths by token."""
    paths: dict[str, str] = {}
    for number, file in enumerate(files):
        paths[file.token] = path = os.path.join(directory, f"{number}{file.suffix}")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
    return paths


# ---------------------------------------------------------------- exiting

# With /proc, the process stays a zombie until its descendants are found: their search needs its id.
# Without /proc it is reaped at once.


def _look(popen: subprocess.Popen[bytes]) -> tuple[bool, int | None]:
    """Return whether a process has exited, and its exit code if that is known."""
    if not trees.PROC:
        code = popen.poll()
        return code is not None, code
    try:
        end = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return True, None  # other code has reaped it
    if end is None:
        return False, None
    return True, end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
