"""Write the blocking twins in `bridle.sync` from the async classes and functions.

Run it after a change to one of them: `python tools/build_sync.py`. With `--check` it changes
nothing, and fails if a module is not current. `make lint` runs that.

A twin has the signatures and the documentation of its original. `TWINS` says how the text of a
method differs. Each row of it must still fit: the converter fails if a text to replace is gone.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "src" / "bridle"

RENAMED = {
    "__aiter__": "__iter__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
}
ALIAS = """The same as :meth:`close`, under the name that the async version has."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Twin:
    """How one class, or the functions of a module, become blocking."""

    #: The module of the original, below `src/bridle`, and its names.
    source: str
    door: str
    #: The twin: its name and bases. Empty for functions.
    name: str = ""
    bases: str = ""
    #: The async object that the twin holds, and calls. Empty: the bodies are those of the original.
    held: str = ""
    #: What a method of the twin does, if that is not a call of the same method.
    bodies: dict[str, str] = field(default_factory=dict)
    #: Statements before the body of a method, and at the start of the class.
    imports: dict[str, str] = field(default_factory=dict)
    start: str = ""
    #: Methods that have no twin.
    without: frozenset[str] = frozenset()
    #: Changes to bodies, to annotations (patterns) and to documentation.
    code: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    docs: dict[str, str] = field(default_factory=dict)
    #: The whole documentation of the class.
    doc: str = ""
    #: Where the whole documentation of a method is, such as "Agent.": the twin has only a summary.
    see: str = ""
    #: What the summary says besides.
    notes: dict[str, str] = field(default_factory=dict)
    #: Names of operations in errors, if they are not those of the methods.
    operations: dict[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- documentation


def logical_lines(doc: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the entries and paragraphs of a docstring: the text in one line, and its lines."""
    gathered: list[str] = []
    for line in [*doc.splitlines(), ""]:
        is_new = (
            not line
            or not gathered
            or gathered[-1].endswith(("Args:", "Raises:"))
            or re.match(r"    \S|[A-Z][\w-]*: ", line)
        )
        if is_new and gathered:
            yield " ".join([gathered[0], *(one.strip() for one in gathered[1:])]), gathered
            gathered = []
        if line:
            gathered.append(line)
        else:
            yield "", [""]


def blocking_doc(doc: str, changes: dict[str, str], used: set[str], width: int) -> str:
    """Return a docstring without what concerns tasks, and with the changes."""
    kept: list[str] = []
    for before, lines in logical_lines(doc):
        after = before
        for old, new in changes.items():
            if old in after:
                used.add(old)
                after = after.replace(old, new)
        if after.startswith("Concurrency: ") or (before and not after.strip()):
            continue
        after = re.sub(r"^Cancellation: the", "The", after)
        after = after.replace("Cancellation: ", "Ctrl-C ").replace(
            "even if the wait is cancelled", "even if Ctrl-C ends the call"
        )
        if after == before:
            kept += lines
            continue
        indent = len(after) - len(after.lstrip())
        kept += textwrap.wrap(
            after.strip(),
            width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (2 * indent),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def summary(doc: str, reference: str, note: str) -> str:
    """Return the first paragraph, where the rest is, and what Ctrl-C does."""
    first = doc.partition("\n\n")[0]
    ctrl_c = re.search(r"^Ctrl-C .*(?:\n\S.*)*", doc, re.MULTILINE)
    rest = [f"See ``{reference}``.", note, " ".join(ctrl_c[0].split()) if ctrl_c else ""]
    return f"{first}\n\n{textwrap.fill(' '.join(filter(None, rest)), 92)}"


# ---------------------------------------------------------------- code


class _Blocking(ast.NodeTransformer):
    """Replaces ``await`` by a call on the event loop, or by a call of the twin's own method."""

    def __init__(self, operation: str) -> None:
        self.operation = operation

    def visit_Await(self, node: ast.Await) -> ast.expr:
        called = node.value
        match called:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if (
                name[0] != "_"
            ):
                text = f"self.{RENAMED.get(name, name)}()"
            case ast.Call(func=function, args=[], keywords=[]):
                text = f"self._call({self.operation!r}, {ast.unparse(function)})"
            case _:
                text = f"self._call({self.operation!r}, lambda: {ast.unparse(called)})"
        return ast.parse(text, mode="eval").body


def parameters(arguments: ast.arguments) -> set[str]:
    """Return the names of all parameters but the first one of a method."""
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    optional = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return {one.arg for one in (*given, *optional)} - {"self"}


def passed_on(arguments: ast.arguments) -> str:
    """Return the arguments of a call that passes all parameters on."""
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args) if one.arg != "self"]
    names += [f"{one.arg}={one.arg}" for one in arguments.kwonlyargs]
    if arguments.kwarg is not None:
        names.append(f"**{arguments.kwarg.arg}")
    return ", ".join(names)


class Converter:
    """Writes one twin."""

    def __init__(self, twin: Twin) -> None:
        self.twin = twin
        self.used: set[str] = set()

    def check(self) -> None:
        """Fail if a row of the twin fits no longer."""
        twin = self.twin
        rows = {*twin.bodies, *twin.imports, *twin.code, *twin.types, *twin.docs, *twin.without}
        if left := sorted((rows | twin.notes.keys() | twin.operations.keys()) - self.used):
            sys.exit(f"tools/build_sync.py: {twin.source}: {twin.door} has no longer {left}")

    def annotation(self, node: ast.expr | None) -> str:
        """Return the result of a method of the twin."""
        text = "None" if node is None else ast.unparse(node)
        for old, new in self.twin.types.items():
            text, count = re.subn(old, new, text)
            if count:
                self.used.add(old)
                break
        return text

    def body(self, node: Function, result: str) -> list[str]:
        """Return the statements of a method."""
        twin, name = self.twin, node.name
        self.used |= {name} & (twin.bodies.keys() | twin.imports.keys() | twin.operations.keys())
        if name in twin.bodies:
            body = twin.bodies[name]
            if name != "__aexit__":
                self.use(
                    node, {one.id for one in ast.walk(ast.parse(body)) if isinstance(one, ast.Name)}
                )
            return body.splitlines()
        if name in {"__aenter__", "__aexit__"} or not twin.held:
            return self.converted(node)
        if is_property(node):
            # A group of operations has a twin as well.
            is_group = result.endswith("Operations")
            value = f"{twin.held}.{name}"
            return [f"return {result}(self._call, {value})" if is_group else f"return {value}"]
        called, given = f"{twin.held}.{name}", passed_on(node.args)
        if not isinstance(node, ast.AsyncFunctionDef):
            if result.startswith("Subscription["):
                self.use(node, set())
                return [f"return self._subscribe({name!r}, {called})"]
            return self.converted(node)
        call = f"self._call({name!r}, {f'lambda: {called}({given})' if given else called})"
        return [call if result == "None" else f"return {call}"]

    def use(self, node: Function, names: set[str]) -> None:
        """Fail if a method has parameters that its body does not use."""
        if left := sorted(parameters(node.args) - names):
            place = f"{self.twin.name}.{node.name}"
            sys.exit(f"tools/build_sync.py: {place} does not use {', '.join(left)}")

    def converted(self, node: Function) -> list[str]:
        """Return the statements of the original without ``await``."""
        statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
        text = "\n".join(map(ast.unparse, statements))
        for old, new in self.twin.code.items():
            if old in text:
                self.used.add(old)
                text = text.replace(old, new)
        operation = self.twin.operations.get(node.name, node.name)
        text = ast.unparse(_Blocking(operation).visit(ast.parse(text)))
        return [*self.twin.imports.get(node.name, "").splitlines(), *text.splitlines()]

    def function(self, node: Function, indent: str) -> Iterator[str]:
        """Yield the lines of a method or function."""
        for decorator in node.decorator_list:
            yield f"{indent}@{ast.unparse(decorator)}"
        result = self.annotation(node.returns)
        name = RENAMED.get(node.name, node.name)
        arrow = "" if node.name == "__init__" and node.returns is None else f" -> {result}"
        yield f"{indent}def {name}({ast.unparse(node.args)}){arrow}:"
        if any(ast.unparse(one) == "overload" for one in node.decorator_list):
            yield f"{indent}    ..."
            return
        inner = indent + "    "
        if doc := self.documentation(node, 100 - len(inner)):
            yield from docstring(doc, inner)
        yield from (inner + line for line in self.body(node, result))
        if node.name == "aclose":
            first = doc.partition("\n\n")[0]
            yield f"{indent}def aclose(self) -> None:"
            yield from docstring(f"{first}\n\n{ALIAS}", inner)
            yield f"{inner}self.close()"

    def documentation(self, node: Function, width: int) -> str:
        """Return the docstring of the twin of a function."""
        twin, doc = self.twin, ast.get_docstring(node)
        if doc is None:
            return ""
        doc = blocking_doc(doc, twin.docs, self.used, width)
        if not twin.see or is_property(node):
            return doc
        self.used |= {node.name} & twin.notes.keys()
        short = summary(doc, twin.see + node.name, twin.notes.get(node.name, ""))
        raises = re.search(r"^Raises:\n(?: .*\n?)*", doc, re.MULTILINE)
        return short if twin.name or raises is None else f"{short}\n\n{raises[0].strip()}"

    def lines(self) -> Iterator[str]:
        """Yield the lines of the twin."""
        tree = ast.parse((PACKAGE / self.twin.source).read_text("utf-8"))
        body = tree.body
        indent = ""
        if self.twin.name:
            indent = "    "
            (door,) = (
                one for one in body if isinstance(one, ast.ClassDef) and one.name == self.twin.door
            )
            body = door.body
            yield f"class {self.twin.name}{f'({self.twin.bases})' if self.twin.bases else ''}:"
            original = blocking_doc(ast.get_docstring(door) or "", self.twin.docs, self.used, 96)
            yield from docstring(self.twin.doc or original, indent)
            yield f"{indent}{self.twin.start}"
        for node in body:
            if isinstance(node, Function) and self.is_wanted(node):
                yield from self.function(node, indent)
                yield ""
        self.check()

    def is_wanted(self, node: Function) -> bool:
        """Return whether a function has a twin."""
        if not self.twin.name:
            return node.name == self.twin.door
        is_abstract = any(ast.unparse(one) == "abstractmethod" for one in node.decorator_list)
        self.used |= {node.name} & self.twin.without
        if is_abstract or node.name in self.twin.without:
            return False
        return not node.name.startswith("_") or node.name in {*RENAMED, *self.twin.bodies}


def is_property(node: Function) -> bool:
    """Return whether a function is a property."""
    return any(ast.unparse(one) == "property" for one in node.decorator_list)


def docstring(text: str, indent: str) -> Iterator[str]:
    """Yield the lines of a docstring."""
    lines = [f'"""{text}', '"""'] if "\n" in text else [f'"""{text}"""']
    for line in "\n".join(lines).splitlines():
        yield f"{indent}{line}".rstrip()


def names_of(text: str) -> dict[str, str]:
    """Return the imports of a module: each name with the statement that imports it."""
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                what = f"{one.name} as {one.asname}" if one.asname else one.name
                found[one.asname or one.name] = f"from {node.module} import {what}"
        elif isinstance(node, ast.Import):
            found |= {one.name: f"import {one.name}" for one in node.names}
    return found


# ---------------------------------------------------------------- whole modules


def groups(source: str) -> Iterator[str]:
    """Yield the groups of operations. Their methods are those of the originals."""
    for door in ast.parse((PACKAGE / source).read_text("utf-8")).body:
        if not isinstance(door, ast.ClassDef) or not door.name.endswith("Operations"):
            continue
        yield f"class {door.name}(Group):"
        yield from docstring(ast.get_docstring(door) or "", "    ")
        for node in door.body:
            if not isinstance(node, Function) or node.name.startswith("_"):
                continue
            if isinstance(node, ast.AsyncFunctionDef):
                yield f"    {node.name} = blocking(twin.{door.name}.{node.name})"
                continue
            result = ast.unparse(node.returns) if node.returns else "None"
            yield f"    def {node.name}({ast.unparse(node.args)}) -> {result}:"
            yield from docstring(ast.get_docstring(node) or "", "        ")
            call = f"{node.name}({passed_on(node.args)})"
            yield f'        return cast("twin.{door.name}", self._twin).{call}'
        yield ""
    yield from Converter(GROUPS).lines()


def functions(source: str) -> Iterator[str]:
    """Yield the functions of a module."""
    public = [
        node.name
        for node in ast.parse((PACKAGE / source).read_text("utf-8")).body
        if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]
    yield f"__all__ = {sorted(public)}"
    yield from (f"{name} = blocking_function(sessions.{name})" for name in sorted(public))


@dataclass
class Module:
    """One generated module."""

    target: str
    #: Its documentation in the first line, then imports and statements that the originals lack.
    header: str
    twins: list[Twin] = field(default_factory=list)
    #: Or a function that writes the whole body, and the module that it reads.
    write: Callable[[str], Iterator[str]] = groups
    source: str = ""


def build(module: Module) -> str:
    """Return the text of a generated module."""
    sources = list(dict.fromkeys(one.source for one in module.twins)) or [module.source]
    if module.twins:
        body = "\n".join(line for twin in module.twins for line in Converter(twin).lines())
    else:
        body = "\n".join(module.write(module.source))
    doc, _, header = module.header.partition("\n")
    own = names_of(header)
    names: dict[str, str] = {}
    for source in sources if module.twins else []:
        names |= names_of((PACKAGE / source).read_text("utf-8"))
    names |= own
    code = "\n".join(
        line for line in header.splitlines() if not line.startswith(("from ", "import "))
    )
    tree = ast.parse(code + "\n" + body)
    wanted = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    wanted -= {one.name for one in tree.body if isinstance(one, ast.ClassDef)}
    imports = "\n".join(line for name, line in names.items() if name in wanted)
    origin = f"Generated by tools/build_sync.py from {', '.join(sources)}. Do not edit."
    first = textwrap.fill(origin, 100, initial_indent="# ", subsequent_indent="# ")
    text = (
        f'{first}\n"""{doc}"""\n\nfrom __future__ import annotations\n\n{imports}\n{code}\n\n{body}'
    )
    return formatted(text, PACKAGE / module.target)


def formatted(text: str, path: Path) -> str:
    """Return the text as `make fmt` would leave it."""
    for command in (["check", "--fix", "--quiet", "--select=I"], ["format"]):
        words = [sys.executable, "-m", "ruff", *command, f"--stdin-filename={path}", "-"]
        run = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
        text = run.stdout
    return text


def stale() -> Iterator[tuple[Path, str]]:
    """Yield the modules that are not current, and what they should be."""
    for module in MODULES:
        path, text = PACKAGE / module.target, build(module)
        if not path.exists() or path.read_text("utf-8") != text:
            yield path, text


def main() -> None:
    """Write the modules, or check them."""
    found = list(stale())
    if "--check" in sys.argv[1:]:
        names = ", ".join(str(path.relative_to(REPOSITORY)) for path, _ in found)
        sys.exit(f"Not current: {names}. Run `python tools/build_sync.py`." if found else 0)
    for path, text in found:
        path.write_text(text, "utf-8")


# ---------------------------------------------------------------- the twins


GROUPS = Twin(
    "operations.py",
    "OperationGroups",
    "OperationGroups",
    "GroupsBase",
    "self._session",
)

SESSION = Twin(
    "_session/session.py",
    "Session",
    "Session",
    "SessionBase",
    "self._session",
    bodies={
        "__init__": (
            "settled = settle_keywords(cli, sdk, bidir, options)\n"
            "self._adopt(InnerSession.make(settled, deps, output_type, output_retries))"
        ),
        "connect": "self._connect()",
        "lifecycle": "return Lifecycle.STOPPED if self._is_lost else self._session.lifecycle",
        "alive": "return self._session.alive and not self._is_lost",
        "send_user_message": (
            "send = self._session.send_user_message\n"
            "turn = self._call('send_user_message',"
            " lambda: send(content, timeout=timeout, deps=deps))\n"
            "return Turn(turn, self._portal)"
        ),
        "control": (
            "control = self._session.control\n"
            "return self._call(subtype, lambda: control(subtype, timeout=timeout, **fields))"
        ),
        "stop": "self._end('stop', self._session.stop)",
        "aclose": "self._end('close', self._session.aclose)",
    },
    docs={
        "use ``bridle.start_session``, which": "use :func:`start_session`, which",
        " Operations that you start before the session is running wait for it; at most sixteen can"
        " wait.": "",
        "``async with`` connects": "``with`` connects",
        "Cancellation: cancelling an operation cancels": "Ctrl-C during an operation cancels",
    },
)

TURN = Twin(
    "_session/turn.py",
    "Turn",
    "Turn",
    "TurnBase",
    "self._turn",
    bodies={
        "__aiter__": "return self._read()",
        "outcome": "return self._portal.call('outcome', self._turn.outcome, self._interrupt)",
    },
    code={"__aiter__": "__iter__"},
    docs={
        "await it for its outcome": "call ``outcome()`` for its outcome",
        "You can do both, at the same time or one after the other. Begin to iterate first: awaiting"
        " the turn discards the messages if no loop reads them, even if the wait times out, and a"
        " later loop raises UsageError.": (
            "If you need both, iterate first. ``outcome()`` discards the messages if no loop reads"
            " them, and a later loop raises UsageError."
        ),
        "use ``session.messages()``.": (
            "use ``session.messages()``. Ctrl-C during the wait for a message, an event or the"
            " outcome interrupts the turn."
        ),
        "Cancellation: ends the wait; the turn continues.": (
            "Ctrl-C interrupts the turn. Any number of threads may wait."
        ),
    },
)

RUN = Twin(
    "_session/run.py",
    "run",
    imports={"run": "from bridle._session.run import Run  # not every program uses it"},
    code={"await job.outcome()": "run_job(job)"},
    see="bridle.",
    notes={"run": "It explains the arguments and limits."},
)
QUERY = Twin(
    "_session/one_way/query.py",
    "query",
    imports={
        "query": "from bridle._session.one_way.query import stream  # not every program uses it"
    },
    code={
        "return stream(prompt, settle_keywords(cli, sdk, bidir, options), deps)": (
            "return read_query(stream(prompt, settle_keywords(cli, sdk, bidir, options), deps))"
        )
    },
    see="bridle.",
    notes={
        "query": (
            "With callbacks or in-process tools the query runs as a session; without them it is"
            " one-way. ``prompt`` can be an iterator over several prompts. Bridle reads it in its"
            " own thread, so it may block, and may call every function of this module."
        )
    },
)
START = Twin(
    "_session/session_start.py",
    "start_session",
    code={"return start(": "return connect("},
    types={"^SessionStart$": "Session"},
    docs={
        "``async with start_session(...) as session``, or ``await`` it.": (
            "``with start_session(...) as session``, or call ``close()`` yourself."
        ),
        " The end of ``async with`` shuts it down. If you await it, call ``aclose()`` yourself.": (
            ""
        ),
        " Raised by the call, before anything is started.": " Nothing was started.",
        " Raised when you await or enter it.": "",
    },
)

AGENT = Twin(
    "agent.py",
    "Agent",
    "SyncAgent",
    "AgentBase[Deps]",
    start="__slots__ = ()",
    without=frozenset({"sync"}),
    bodies={
        "replace": (
            "changed = self._plan.replace(options, deps, output_type, output_retries)\n"
            "return SyncAgent(changed)"
        ),
    },
    code={
        "await job.outcome()": "run_job(job)",
        "await job.outcomes()": "recover_job(job)",
        "return plan.outcomes()": "return read_runs(plan)",
        "return stream(prompt, self._plan.chosen(conversation), self._plan.deps_or(deps))": (
            "return read_query("
            "stream(prompt, self._plan.chosen(conversation), self._plan.deps_or(deps)))"
        ),
        "return start(": "return connect(",
        "return Pool(": "return SyncPool(",
    },
    types={
        r"^AsyncGenerator\[(.*), None\]$": r"blocking.Subscription[\1]",
        "^Self$": "SyncAgent[Deps]",
        "^QueryStream$": "blocking.QueryStream",
        "^SessionStart$": "blocking.Session",
        r"^Pool\[": "SyncPool[",
    },
    docs={
        "``async with agent.session() as session``, or ``await`` it.": (
            "``with agent.sync.session() as session``, or call ``close()`` yourself."
        )
    },
    doc=(
        "An :class:`Agent` with blocking methods. Get it from ``agent.sync``.\n\n"
        "See `bridle.sync` for threads, callbacks and Ctrl-C."
    ),
    see="Agent.",
    notes={
        "session": "The session that you get is running.",
        "run_many": (
            "The runs start with the call. Leaving the loop, ``close`` or the end of ``with`` ends"
            " the runs in progress; ``close`` and ``with`` wait until their CLIs have exited. One"
            " outcome is read ahead of the loop."
        ),
        "pool": "Use it in ``with agent.sync.pool() as pool``. Any thread may use it.",
    },
)

POOL = Twin(
    "_pool/pool.py",
    "Pool",
    "SyncPool",
    "PoolBase, Generic[Deps]",
    bodies={
        "__aenter__": "self._open()\nreturn self",
        "__aexit__": "self._close(hurry=kind is not None and issubclass(kind, KeyboardInterrupt))",
        "aclose": "self._close(hurry=False)",
        "metrics": "return self._read_metrics()",
    },
    code={
        "self._work.run(make, timeout)": "self._work.run(shown_run(make), timeout)",
        "wait, make)": "wait, shown_resume(make))",
        "PoolSession(self._work, ": "SyncPoolSession(*self._opened, ",
    },
    types={"^PoolSession$": "SyncPoolSession"},
    docs={"``async with pool.session(": "``with pool.session("},
    doc=(
        "A :class:`Pool` with blocking methods. Get it from ``agent.sync.pool(...)``.\n\n"
        "Use it in ``with``. Any thread may use it at any time. See `bridle.sync` for callbacks and"
        "\nCtrl-C."
    ),
    see="Pool.",
    operations={"resume": "pool.resume", "forget": "pool.forget"},
)

MODULES = [
    Module(
        "sync/_session_twin.py",
        """The blocking `Turn` and `Session`.
from bridle._session.session import InnerSession
from bridle.sync._iterators import Subscription, TextPieces, TurnEvents
from bridle.sync._session_base import SessionBase, TurnBase""",
        [TURN, SESSION],
    ),
    Module(
        "sync/_functions_twin.py",
        """The blocking `run`, `query` and `start_session`.
from bridle.sync._iterators import QueryStream
from bridle.sync._session_twin import Session
from bridle.sync._doors import connect, read_query, run_job""",
        [RUN, QUERY, START],
    ),
    Module(
        "sync/_agent_twin.py",
        """`SyncAgent`: the blocking methods of an `Agent`.
from typing import TypeVar
from bridle import sync as blocking
from bridle.sync._agent_base import AgentBase, Deps
from bridle.sync._pool_twin import SyncPool
from bridle.sync._doors import connect, read_query, read_runs, recover_job, run_job

_Prompt = TypeVar("_Prompt", bound=Content)""",
        [AGENT],
    ),
    Module(
        "sync/_pool_twin.py",
        """`SyncPool`: the blocking methods of a `Pool`.
from bridle._session.agent_plan import AgentPlan
from bridle.sync._pool_base import PoolBase, SyncPoolSession, shown_resume, shown_run

Deps = TypeVar("Deps")""",
        [POOL],
    ),
    Module(
        "sync/_operations_twin.py",
        """The typed control operations of a blocking session.
import builtins
from typing import cast
from bridle import operations as twin
from bridle.messages import LiveTask
from bridle.sync._groups import Group, GroupsBase, blocking""",
        write=groups,
        source="operations.py",
    ),
    Module(
        "sync/_sessions_twin.py",
        """The blocking functions of `bridle.sessions`.
from bridle import sessions
from bridle.sync._portal import blocking_function""",
        write=functions,
        source="sessions/__init__.py",
    ),
]
"""The generated modules."""

if __name__ == "__main__":
    main()
