"""The CLI as a child process: start it, write to it, read from it, and end its whole tree.

Everything runs on the event loop: any loop that can watch descriptors, in any thread. No signal
handler is installed. A process that has exited stays a zombie until it is closed, so that the
system does not reuse its id while the reaper looks for its descendants.

A running process takes three descriptors, one for each of its pipes. Its exit is noticed when one
of them closes: a process descriptor (pidfd) then takes the place of the pipe. The exit of a CLI
whose descendants hold all three pipes open is noticed within half a second. Where there is no
process descriptor, the process is looked at in growing intervals after a pipe has closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import warnings
import weakref
from collections.abc import Iterable, Mapping
from errno import ENOENT
from signal import SIGTERM
from typing import IO, cast

from bridle._core.launch import Launch, LaunchFile
from bridle._shell import reaper, watchdog
from bridle._shell import tree as trees
from bridle._shell.pipes import InputPipe, OutputPipe, StderrLines, weakly
from bridle._shell.tasks import StartedCoroutine
from bridle._shell.transport import TransportEvents
from bridle._shell.tree import MARK, SIGKILL, Tree, labelled, remove_directory
from bridle.errors import SpawnError

_CLOSE_LIMIT = 5.0  # seconds until processes that do not even yield to SIGKILL are left alone
_ABANDON_LIMIT = 1.0  # the same where nothing else can go on meanwhile
_PAUSES = (0.001, 0.5)  # the shortest and the longest time between two looks at a process


class CliProcess:
    """A CLI process as its session sees it: a :class:`bridle._shell.transport.Transport`.

    One that is dropped without :meth:`aclose` is killed all the same, with a ResourceWarning.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, belongings: _Belongings, events: TransportEvents
    ) -> None:
        popen = belongings.popen
        self._loop = loop
        self._belongings = belongings
        self._events = events
        self._has_exited = False
        self._has_told_exit = False
        self._exit_code: int | None = None
        self._closing: asyncio.Task[None] | None = None
        weakref.finalize(self, _abandon, belongings)
        self._stderr = StderrLines(events.wrote_stderr)
        stdin, stdout, stderr = (
            cast("IO[bytes]", file) for file in (popen.stdin, popen.stdout, popen.stderr)
        )
        self._pause = _PAUSES[1]
        watch = weakly(CliProcess._watch, self)
        self._input = InputPipe(loop, stdin, events.input_failed, watch)
        #: Sends whole lines to the CLI, after everything written before. Never blocks.
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
    ) -> CliProcess:
        """Start the CLI as planned. Raises SpawnError, and then nothing is left behind."""
        loop = loop or asyncio.get_running_loop()
        try:
            belongings = _start(executable, launch, environ, loop)
        except OSError as error:
            raise SpawnError(_reason(error), error.errno) from error
        except ValueError as error:  # what no operating system would take, a NUL for example
            raise SpawnError(str(error)) from error
        try:
            return cls(loop, belongings, events)
        except BaseException:
            belongings.abandon()
            _close_files(belongings.files, loop)
            raise

    @property
    def pid(self) -> int:
        """The process id, also when the process is gone."""
        return self._belongings.popen.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, negative for a signal; None as long as it runs, or if nobody can tell."""
        return self._exit_code

    @property
    def stderr_tail(self) -> str:
        """The last of what the CLI wrote to stderr."""
        return self._stderr.tail

    async def drain(self) -> None:
        """Wait until little enough is unsent that more may be written, or the input is gone."""
        await self._input.drain()

    def end_input(self) -> None:
        """Close the CLI's input once everything written has left."""
        self._input.end()

    def pause_reading(self) -> None:
        """Let the CLI wait: nothing is received until ``resume_reading``, or until it exits."""
        if not self._has_exited:
            self._output.pause()

    def resume_reading(self) -> None:
        """Receive again."""
        self._output.resume()

    def terminate(self) -> None:
        """Ask the whole process tree to end (SIGTERM)."""
        self._belongings.signal(SIGTERM)

    def kill(self) -> None:
        """End the whole process tree (SIGKILL)."""
        self._belongings.signal(SIGKILL)

    async def aclose(self) -> None:
        """Release everything: returns when no process, descriptor or file of it is left."""
        if self._loop.is_closed():
            self._belongings.abandon()
            self._belongings.close_files()
            return
        if self._closing is None:
            # The loop holds it: it sleeps where it waits. A loop that is closed lets go of it.
            self._closing = self._loop.create_task(StartedCoroutine(self._close()))
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for pipe in (self._input, self._output, self._errors):
            with contextlib.suppress(OSError):  # somebody else has closed it
                pipe.close()
        try:
            is_ended = await self._end_tree()
        except asyncio.CancelledError:  # the loop is at its end: this is all the time there is
            is_ended = self._belongings.tree.end(_ABANDON_LIMIT)
        try:
            self._on_exit()
            self._tell_exit()
        finally:
            self._belongings.release(is_ended=is_ended)

    async def _end_tree(self) -> bool:
        """Kill until no process is left; false if some are after five seconds."""
        belongings, loop = self._belongings, self._loop
        ended = asyncio.Event()

        def done() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set)

        belongings.signal_cli(SIGKILL)
        ending = reaper.shared.end(belongings.tree, belongings.is_dead, _CLOSE_LIMIT, done)
        await ended.wait()
        return ending.is_complete

    def _look_later(self) -> None:
        # The longest pauses of all processes end together: a loop with many wakes up once.
        longest = _PAUSES[1]
        now = self._loop.time()
        due = now + self._pause if self._pause < longest else (now // longest + 1) * longest
        self._timer = self._loop.call_at(due, weakly(CliProcess._look_again, self))

    def _look_again(self) -> None:
        if _look(self._belongings.popen)[0]:
            self._on_exit()
        else:
            self._pause = min(2 * self._pause, _PAUSES[1])
            self._look_later()

    def _watch(self) -> None:
        """Watch for the exit: a pipe was closed, which may be its sign and frees a descriptor."""
        belongings, notify = self._belongings, weakly(CliProcess._on_exit, self)
        if belongings.handle is not None or self._has_exited or self._closing is not None:
            return
        self._timer.cancel()
        if _look(belongings.popen)[0]:
            # Its id may belong to another process by now, if other code has reaped it.
            self._loop.call_soon(notify)
            return
        try:
            belongings.handle = os.fdopen(os.pidfd_open(self.pid), "rb", buffering=0)
        except (OSError, AttributeError):
            self._pause = _PAUSES[0]
            self._look_later()
        else:
            self._loop.add_reader(belongings.handle.fileno(), notify)

    def _on_exit(self) -> None:
        if self._has_exited:
            return
        self._has_exited = True
        self._timer.cancel()
        self._belongings.stop_watching()
        _, self._exit_code = _look(self._belongings.popen)
        try:
            # What the process wrote comes before its exit, even if a child of it holds the pipes
            # open.
            self._output.drain()
            self._output.resume()
            self._errors.drain()
            self._stderr.finish()
        finally:
            # In a step of its own: when many processes exit, the loop gets to other work sooner.
            self._loop.call_soon(self._tell_exit)

    def _tell_exit(self) -> None:
        if not self._has_told_exit:
            self._has_told_exit = True
            self._events.exited(self._exit_code)

    def __repr__(self) -> str:
        state = f"exit code {self._exit_code}" if self._has_exited else "running"
        return f"<{type(self).__name__} pid {self.pid}, {state}>"


# ---------------------------------------------------------------- what the system holds for it


class _Belongings:
    """Everything that must not outlive a process object, kept apart from it to be released."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        popen: subprocess.Popen[bytes],
        tree: Tree,
        directory: str,
    ) -> None:
        self.popen = popen
        self.tree = tree
        self.handle: IO[bytes] | None = None
        self._loop = loop
        self._directory = directory
        self._is_released = False
        _live.add(self)

    def signal(self, number: int) -> None:
        """Signal the CLI now and the rest of its tree soon."""
        if not self._is_released:
            self.signal_cli(number)
            reaper.shared.signal(self.tree, number)

    def signal_cli(self, number: int) -> None:
        """Signal the CLI itself, which takes no descriptor."""
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
        """The exit is noticed; the handle of the process, if there is one, has served."""
        if self.handle is not None:
            _close_files([self.handle], self._loop)

    def release(self, *, is_ended: bool) -> None:
        """Give everything back, once the process tree is ended or beyond our reach."""
        self._is_released = True
        _live.discard(self)
        self.popen.poll()  # reaps it
        remove_directory(self._directory)
        if is_ended:
            reaper.shared.release(self.tree)
        else:
            watchdog.shared.end(self.tree)

    def abandon(self) -> bool:
        """End the process tree and give back all but the descriptors; false if that was done."""
        if self._is_released:
            return False
        self.release(is_ended=self.tree.end(_ABANDON_LIMIT))
        return True

    def close_files(self) -> None:
        """Close the descriptors, from whatever thread; the loop must let go of them first."""
        try:
            self._loop.call_soon_threadsafe(_close_files, self.files, self._loop)
        except RuntimeError:  # there is no loop any more
            _close_files(self.files, None)

    def forget(self) -> None:
        """This is a forked child: the process is its parent's, only the descriptors are its own."""
        self._is_released = True
        self.popen.returncode = 0
        for file in self.files:
            file.close()


_live: set[_Belongings] = set()


def _forget_all() -> None:
    for belongings in _live:
        belongings.forget()
    _live.clear()


# Without this, a forked child would keep the CLI's input open.
os.register_at_fork(after_in_child=_forget_all)


def _abandon(belongings: _Belongings) -> None:
    if belongings.abandon():
        belongings.close_files()
        warnings.warn(
            f"CLI process {belongings.popen.pid} was never closed", ResourceWarning, stacklevel=2
        )


def _close_files(files: Iterable[IO[bytes]], loop: asyncio.AbstractEventLoop | None) -> None:
    for file in files:
        if loop and not file.closed:
            loop.remove_reader(file.fileno())
            loop.remove_writer(file.fileno())
        file.close()


# ---------------------------------------------------------------- starting


def _start(
    executable: str, launch: Launch, environ: Mapping[str, str], loop: asyncio.AbstractEventLoop
) -> _Belongings:
    tree = Tree(os.urandom(16).hex())
    directory = ""
    try:
        if launch.files:
            from tempfile import mkdtemp  # slow to import, and not every launch has files

            directory = mkdtemp(prefix="bridle-")
        watchdog.shared.guard(tree, directory)
        arguments = launch.arguments(_write(launch.files, directory))
        cwd = None if launch.cwd is None else os.path.abspath(launch.cwd)
        popen = subprocess.Popen(
            (executable, *arguments),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=_environment(launch, environ, tree.mark, cwd),
            start_new_session=True,
        )
    except BaseException:
        remove_directory(directory)
        reaper.shared.release(tree)
        raise
    tree = labelled(tree.mark, popen.pid)
    watchdog.shared.guard(tree, directory)
    return _Belongings(loop, popen, tree, directory)


def _reason(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno == ENOENT and error.filename and os.path.exists(error.filename):
        reason = "The interpreter or loader it is made for was not found"
    return f"{reason}: {error.filename}" if error.filename else reason


def _environment(
    launch: Launch, environ: Mapping[str, str], mark: str, cwd: str | None
) -> dict[str, str]:
    """The planned one, with the mark after those of the CLIs that this program runs inside of."""
    marks = filter(None, (environ.get(MARK), mark))
    place = {} if cwd is None else {"PWD": cwd}
    return {**launch.environment(environ), **place, MARK: ":".join(marks)}


def _write(files: Iterable[LaunchFile], directory: str) -> dict[str, str]:
    """Write files for the owner alone; their paths, by token."""
    paths: dict[str, str] = {}
    for number, file in enumerate(files):
        paths[file.token] = path = os.path.join(directory, f"{number}{file.suffix}")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
    return paths


# ---------------------------------------------------------------- exiting

# Where descendants are found by more than their group, the number of the process must stay taken
# until they are: its end is looked at and left in place. Elsewhere it is reaped at once.


def _look(popen: subprocess.Popen[bytes]) -> tuple[bool, int | None]:
    """Whether a process has ended, and with which exit code if anybody can tell."""
    if not trees.PROC:
        code = popen.poll()
        return code is not None, code
    try:
        end = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return True, None  # somebody else has reaped it
    if end is None:
        return False, None
    return True, end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
