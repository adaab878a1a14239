"""Run the Python blocks of a documentation page: ``python tools/run_page.py docs/tutorial.md``.

The blocks run in order, in one namespace, in a new directory, with the real CLI and a scripted
model. ``await`` is allowed at the top level. Blocks with a title are written to files first, and
pytest runs files named ``test_*.py``. The program fails, and names the place in the page, if a
block raises an exception, leaves a reply of the model unused, or prints something other than the
page shows.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import linecache
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType

import bridle.testing
from bridle._process.locate import VARIABLE, candidates
from bridle.testing import FORBID_REAL_API, ModelRequest, ScriptedModel, text
from bridle.testing.script import Answer, Player
from doc_blocks import PRINTS, Block, read_blocks

_DEFAULT: Answer = [text("Hello from the model.")]
_WORDS = {name: getattr(bridle.testing, name) for name in bridle.testing.__all__}


def newest_cli() -> Path | None:
    """Return the CLI in the development environment."""
    wheels = (Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk")
    return next((path for path in wheels if path.exists()), None)


class Stage:
    """The replies of the model: the script of the running block, or a default reply."""

    def __init__(self) -> None:
        self._turns: deque[Answer | Player] | None = None

    def set(self, script: str | None) -> None:
        """Set the script of the next block."""
        self._turns = None if script is None else deque(eval(script, dict(_WORDS)))

    def __call__(self, request: ModelRequest) -> Answer:
        """Return the next reply."""
        if self._turns is None:
            return _DEFAULT
        if not self._turns:
            raise AssertionError("the page's script has no further reply")
        turn = self._turns.popleft()
        made = turn(request) if callable(turn) else turn
        assert not inspect.isawaitable(made), "a page's script answers at once"
        return made

    @property
    def left(self) -> int:
        """The number of unused replies."""
        return len(self._turns or ())


class Page:
    """A page that is being run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blocks = read_blocks(path)
        self._stage = Stage()
        # The page becomes the module __main__, so that its classes and functions are found there.
        self._module = ModuleType("__main__")
        sys.modules["__main__"] = self._module

    def run(self) -> None:
        """Run every block."""
        with ScriptedModel(self._stage) as model, asyncio.Runner() as runner:
            os.environ.update(model.env)
            printed = ""
            for block in self._blocks:
                if block.title == PRINTS:
                    self._compare(block, printed)
                elif block.title:
                    Path(block.title).write_text(block.code, "utf-8")
                if block.is_program:
                    self._stage.set(block.script)
                    printed = self._run_block(block, runner)
                    if self._stage.left:
                        where = f"{self._path}:{block.line}"
                        raise AssertionError(f"{where} leaves {self._stage.left} replies unused")
                    model.check()

    def _run_block(self, block: Block, runner: asyncio.Runner) -> str:
        if Path(block.title).name.startswith("test_"):
            _run_tests(block.title)
            return ""
        output = io.StringIO()
        code = self._compile(block)
        with contextlib.redirect_stdout(output):
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(_await(eval(code, vars(self._module))))
            else:
                exec(code, vars(self._module))
        return output.getvalue()

    def _compile(self, block: Block) -> CodeType:
        """Compile a block with the line numbers of the page, so that tracebacks show the page."""
        padded = "\n" * (block.line - 1) + block.code
        name = str(self._path)
        linecache.checkcache(name)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(padded, name, "exec", flags=flags, dont_inherit=True)
        assert isinstance(code, CodeType)
        return code

    def _compare(self, block: Block, printed: str) -> None:
        if not doctest.OutputChecker().check_output(block.code, printed, doctest.ELLIPSIS):
            where = f"{self._path}:{block.line}"
            raise AssertionError(f"{where} shows\n{block.code}but what is printed is\n{printed}")


async def _await(made: object) -> None:
    assert inspect.isawaitable(made)
    await made


def _run_tests(file: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{file} fails:\n{done.stdout}{done.stderr}")


def main(arguments: list[str], cli: Callable[[], Path | None] = newest_cli) -> None:
    """Run the given pages."""
    path = cli()
    if path is not None:
        os.environ.setdefault(VARIABLE, str(path))
    os.environ[FORBID_REAL_API] = "1"
    pages = [Path(argument).resolve() for argument in arguments]
    for page in pages:
        with tempfile.TemporaryDirectory(prefix="page-") as work, contextlib.chdir(work):
            sys.path.insert(0, work)
            Page(page).run()


if __name__ == "__main__":
    main(sys.argv[1:])
