"""Find each statement of a program that uses the official SDK, with its native form."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from bridle.cli._port.layout import double_quoted, layout
from bridle.cli._port.names import NAMES, RESULTS
from bridle.cli._port.rewrite import AGENT, SESSION, Imports, Rewriter, is_sdk

_PERMISSION = ("ctx.tool_name", "ctx.tool_input", "ctx")
_VARIABLES = {"ClaudeSDKClient": SESSION, "ClaudeAgentOptions": AGENT}
_HOOK = ("ctx.raw", "ctx.tool_use_id", "ctx")


class Use(msgspec.Struct, frozen=True):
    """One statement: its first line, its text, the native form and what to know about it.

    `native` is "" if the statement can stay as it is, apart from what the notes say.
    """

    line: int
    code: str
    native: str
    notes: tuple[str, ...] = ()


class Callback(msgspec.Struct, frozen=True):
    """A function that the SDK calls: the type of its context, and what its parameters become."""

    context: str
    parameters: tuple[str, ...]


def uses(source: str) -> list[Use]:
    """Return the uses of the official SDK in a program, in order.

    Raises:
        SyntaxError: the text is not a Python program.
    """
    tree = ast.parse(source)
    imports = Imports(tree)
    if not imports:
        return []
    finder = _Finder(source, tree, imports)
    found = sorted([*finder.found()], key=lambda use: use.line)
    return sorted([*finder.imports(found), *found], key=lambda use: use.line)


class _Finder:
    def __init__(self, source: str, tree: ast.Module, imports: Imports) -> None:
        self._lines = source.splitlines()
        self._tree = tree
        self._imports = imports
        self._variables = dict(self._find_variables())
        self._callbacks = dict(self._find_callbacks())
        self._classes = {
            node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
        }

    def found(self) -> Iterator[Use]:
        """Yield every use."""
        yield from self._in(self._tree.body, {}, may_await=False)

    def _in(
        self, body: list[ast.stmt], parameters: Mapping[str, str], *, may_await: bool
    ) -> Iterator[Use]:
        for statement in body:
            inside, awaits = parameters, may_await
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._function(statement)
                inside = {**parameters, **self._parameters(statement)}
                awaits = isinstance(statement, ast.AsyncFunctionDef)
            elif isinstance(statement, ast.Try):
                yield from self._handlers(statement)
            else:
                yield from self._statement(statement, parameters, may_await=may_await)
            for block in _blocks(statement):
                yield from self._in(block, inside, may_await=awaits)

    # ------------------------------------------------------------ what the program calls its parts

    def _find_variables(self) -> Iterator[tuple[str, str]]:
        """Yield the expressions that are clients or options, with what to write for them."""
        for node in ast.walk(self._tree):
            match node:
                case ast.withitem(context_expr=ast.Call(func=kind), optional_vars=ast.expr() as to):
                    targets = [to]
                case ast.Assign(value=ast.Call(func=kind), targets=targets):
                    pass
                case ast.AnnAssign(annotation=kind, target=to):
                    targets = [to]
                case ast.arg(arg=name, annotation=ast.expr() as kind):
                    targets = [ast.Name(name)]
                case _:
                    continue
            for part in ast.walk(kind):
                native = _VARIABLES.get(self._imports.official(part))
                if native is not None:
                    yield from ((ast.unparse(one), native) for one in targets)

    def _find_callbacks(self) -> Iterator[tuple[str, Callback]]:
        """Yield the functions that are given as hooks and permission callbacks."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.keyword) and node.arg == "can_use_tool":
                yield ast.unparse(node.value), Callback("CanUseToolContext", _PERMISSION)
            if isinstance(node, ast.Call):
                for one in self._hooks(node):
                    yield one, Callback("HookContext", _HOOK)
        for node in ast.walk(self._tree):  # these know the event, so they win
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        for one in self._hooks(value):
                            name = f"{key.value}Context"
                            yield one, Callback(name if name in RESULTS else "HookContext", _HOOK)

    def _hooks(self, matchers: ast.expr) -> Iterator[str]:
        for node in ast.walk(matchers):
            if isinstance(node, ast.Call) and self._imports.official(node.func) == "HookMatcher":
                for one in ast.walk(node):
                    if isinstance(one, ast.Name | ast.Attribute):
                        yield ast.unparse(one)

    def _parameters(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
        callback = self._callback(function)
        names = [one.arg for one in function.args.args if one.arg not in ("self", "cls")]
        if callback is None or len(names) != len(callback.parameters):
            return {}
        return dict(zip(names, callback.parameters, strict=True))

    def _callback(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Callback | None:
        return self._callbacks.get(function.name) or self._callbacks.get(f"self.{function.name}")

    # ------------------------------------------------------------ kinds of statements

    def imports(self, found: list[Use]) -> Iterator[Use]:
        """Yield the imports. They bring what the native forms of the other uses need."""
        words = {word for use in found for word in re.findall(r"\w+", use.native)}
        needed = {name: module for name, module in RESULTS.items() if name in words}
        if not any(re.search(r"(?<!sync\.)\bsessions\.", use.native) for use in found):
            needed.pop("sessions", None)
        brought: set[str] = set()  # by imports of the module, which come first
        for statement in ast.walk(self._tree):
            if isinstance(statement, ast.Import):
                if not any(is_sdk(alias.name) for alias in statement.names):
                    continue
                official = self._used(ast.Attribute)
            elif isinstance(statement, ast.ImportFrom) and is_sdk(statement.module or ""):
                official = set(self._imported(statement))
            else:
                continue
            is_local = statement not in self._tree.body
            yield self._import(
                statement, official if is_local else official - brought, needed, words
            )
            needed = {}
            brought |= official

    def _used(self, kind: type[ast.expr]) -> set[str]:
        """Return the official names that the program uses: ``name``, or ``sdk.name``."""
        nodes = (node for node in ast.walk(self._tree) if isinstance(node, kind))
        return {self._imports.official(node) for node in nodes} - {""}

    def _imported(self, statement: ast.ImportFrom) -> Iterator[str]:
        for alias in statement.names:
            if alias.name == "*":
                yield from self._used(ast.Name)
            elif alias.name in ("types", "testing"):
                yield from self._used(ast.Attribute)
            else:
                yield alias.name

    def _import(
        self,
        statement: ast.Import | ast.ImportFrom,
        official: Iterable[str],
        needed: Mapping[str, str],
        words: set[str],
    ) -> Use:
        wanted = dict(needed)
        notes: list[str] = []
        for name in official:
            native = NAMES.get(name)
            if native is None or not native.name:
                notes.append(f"{name}: {native.note if native else 'no native name.'}")
            elif native.module == "bridle.sessions" and native.name.islower():
                continue  # the native forms have `sessions` or `sync` before them
            elif native.name not in RESULTS and (native.name == name or native.name in words):
                wanted[native.name] = native.module
        lines: list[str] = []
        for module in sorted(set(wanted.values())):
            names = sorted((one for one in wanted if wanted[one] == module), key=str.lower)
            lines.append(f"from {module} import {', '.join(names)}")
        whole = "import bridle" if isinstance(statement, ast.Import) else ""
        return self._use(statement, "\n".join(lines) or whole, sorted(notes))

    def _function(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Use]:
        for decorator in function.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            if call is not None and self._imports.official(call.func) == "tool":
                yield self._tool(function, call)
                return
        callback = self._callback(function)
        if callback is not None and self._parameters(function):
            head = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
            native = f"{head} {function.name}(ctx: {callback.context}):"
            note = "It may be a plain function, too. ctx.raw is the dictionary that the CLI sent."
            yield self._use(function, native, [note])

    def _tool(self, function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> Use:
        """Return a tool whose schema comes from its signature."""
        given = dict(zip(("name", "description", "input_schema"), call.args, strict=False))
        given |= {str(one.arg): one.value for one in call.keywords}
        rewriter = Rewriter(self._imports, self._variables)
        schema = given.pop("input_schema", None)
        parameters = _typed(schema, self._classes)
        keywords = [
            ast.keyword(key, rewriter.visit(copy.deepcopy(one))) for key, one in given.items()
        ]
        if parameters is None and schema is not None:
            keywords.append(ast.keyword("schema", schema))
            parameters = "**arguments"
            rewriter.note("Or annotate the parameters: Bridle makes the schema of the signature.")
        rewriter.note("Return the result itself. Raise ToolFailure(text) for an error.")
        head = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
        decorator = layout(ast.Call(ast.Name("tool", ast.Load()), [], keywords))
        native = f"@{decorator}\n{head} {function.name}({parameters}):"
        return self._use(function, native, rewriter.notes)

    def _statement(
        self, statement: ast.stmt, parameters: Mapping[str, str], *, may_await: bool
    ) -> Iterator[Use]:
        head = _head(statement)
        before = ast.unparse(head)
        rewriter = Rewriter(self._imports, self._variables, parameters, may_await=may_await)
        after = rewriter.visit(copy.deepcopy(head))
        if ast.unparse(after) != before or rewriter.notes:
            changed = ast.unparse(after) != before
            yield self._use(statement, _header(after) if changed else "", rewriter.notes)

    def _handlers(self, statement: ast.Try) -> Iterator[Use]:
        for handler in statement.handlers:
            rewriter = Rewriter(self._imports, self._variables)
            kind = handler.type and rewriter.visit(copy.deepcopy(handler.type))
            if kind is None or (ast.unparse(kind) == ast.unparse(handler.type or kind)):
                continue
            name = f" as {handler.name}" if handler.name else ""
            code = self._lines[handler.lineno - 1].strip()
            native = f"except {ast.unparse(kind)}{name}:"
            yield Use(handler.lineno, code, native, tuple(rewriter.notes))

    def _use(self, statement: ast.stmt, native: str, notes: list[str]) -> Use:
        first = min([statement.lineno, *(one.lineno for one in _decorators(statement))])
        blocks = _blocks(statement)
        last = statement.end_lineno or first
        if blocks and blocks[0]:
            last = max(statement.lineno, blocks[0][0].lineno - 1)
        shown = [line for line in self._lines[first - 1 : last] if line.strip()]
        indent = min((len(line) - len(line.lstrip()) for line in shown), default=0)
        code = "\n".join(line[indent:] for line in shown)
        return Use(first, code, double_quoted(native), tuple(notes))


# ------------------------------------------------------------------------- parts of statements


def _decorators(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return statement.decorator_list
    return []


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the bodies of a compound statement."""
    found = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    found += [handler.body for handler in getattr(statement, "handlers", [])]
    found += [case.body for case in getattr(statement, "cases", [])]
    return [block for block in found if block]


def _head(statement: ast.stmt) -> ast.stmt:
    """Return the statement without its bodies."""
    if not _blocks(statement):
        return statement
    head = copy.deepcopy(statement)
    empty: list[ast.stmt] = [ast.Expr(ast.Constant(...))]
    for name in ("body", "orelse", "finalbody"):
        if getattr(head, name, None):
            setattr(head, name, empty if name == "body" else [])
    for part in [*getattr(head, "handlers", []), *getattr(head, "cases", [])]:
        part.body = empty
    return head


def _header(head: ast.stmt) -> str:
    """Return the text of a statement, without the bodies that :func:`_head` emptied."""
    if not _blocks(head):
        return layout(head)
    lines = [line for line in ast.unparse(head).splitlines() if line.strip() not in ("...", "try:")]
    return "\n".join(lines)


def _typed(schema: ast.expr | None, classes: Mapping[str, ast.ClassDef]) -> str | None:
    """Return the parameters of a tool: of a typed dictionary, or of a mapping from names to types.

    None for other schemas.
    """
    if schema is None:
        return ""
    if isinstance(schema, ast.Name) and schema.id in classes:
        fields = [one for one in classes[schema.id].body if isinstance(one, ast.AnnAssign)]
        required = [one for one in fields if not _optional(one.annotation)]
        optional = [one for one in fields if _optional(one.annotation)]
        return ", ".join(_parameter(one) for one in [*required, *optional])
    if not isinstance(schema, ast.Dict):
        return None
    keys = [key.value if isinstance(key, ast.Constant) else None for key in schema.keys]
    if "type" in keys and "properties" in keys:
        return None
    if not all(isinstance(key, str) and key.isidentifier() for key in keys):
        return None
    pairs = zip(keys, schema.values, strict=True)
    return ", ".join(f"{key!s}: {ast.unparse(value)}" for key, value in pairs)


def _parameter(field: ast.AnnAssign) -> str:
    inner = _optional(field.annotation)
    kind = ast.unparse(field.annotation) if inner is None else f"{ast.unparse(inner)} | None = None"
    return f"{ast.unparse(field.target)}: {kind}"


def _optional(annotation: ast.expr) -> ast.expr | None:
    """Return the type inside ``NotRequired[...]``; None for another type."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="NotRequired"), slice=inner):
            return inner
        case _:
            return None
