"""Where examples are run: as programs, in an environment that names a CLI and a model for it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from tests.soak.endings import TAG, tagged
from tests.support.processes import LIMIT, wait_until
from tests.support.terminals import Terminal

from bridle.testing import ScriptedModel

NOT_OURS = ("claude-", "pytest-")
"""How the names of directories begin that the CLI and pytest keep among temporary files."""


class Stage:
    """A directory, and an environment without anything of whoever runs the tests."""

    def __init__(self, model: ScriptedModel, cli: Path, directory: Path) -> None:
        self.directory = directory
        self._cli = str(cli)
        self._tag = str(uuid4())
        self._temporary = directory / "tmp"
        self._temporary.mkdir()
        self._environ = {
            **model.env,
            TAG: self._tag,
            "BRIDLE_CLI": self._cli,
            "BRIDLE_FORBID_REAL_API": "1",
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self._temporary),
        }

    @contextmanager
    def running(self, *command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """A program, and its pipes. When it is over it must have left no process and no file."""
        pipe = subprocess.PIPE
        with subprocess.Popen(
            (*_interruptible(), *command),
            cwd=self.directory,
            env={**self._environ, **variables},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()
        wait_until(lambda: not tagged(self._tag))
        names = [path.name for path in self._temporary.iterdir()]
        left = [name for name in names if not name.startswith(NOT_OURS)]
        assert not left, f"files are left: {left}"

    def run(self, *command: str, typed: str = "") -> list[str]:
        """The lines of a program that ends well, and has nothing to complain about."""
        with self.running(*command) as process:
            output, complaints = process.communicate(typed, timeout=3 * LIMIT)
        assert process.returncode == 0, complaints
        assert not complaints, complaints
        return output.splitlines()

    @contextmanager
    def on_terminal(self, *command: str) -> Iterator[Terminal]:
        """A program on a terminal. When it is over it must have left no process."""
        with Terminal((*_interruptible(), *command), self._environ, self.directory) as seen:
            yield seen
        wait_until(lambda: not tagged(self._tag))

    def clis(self) -> list[int]:
        """The CLIs that run on this stage."""
        return [pid for pid in tagged(self._tag) if _program(pid) == self._cli]


def _interruptible() -> tuple[str, ...]:
    """Return what makes a program accept SIGINT, which programs in the background ignore."""
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (str(shutil.which("env")), "--default-signal=INT") if is_ignored else ()


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


def fits(shape: str, words: str) -> bool:
    """Whether a text is of a shape, in which an ellipsis stands for anything."""
    pattern = ".*".join(map(re.escape, shape.split("…")))
    return re.fullmatch(pattern, words, re.DOTALL) is not None
