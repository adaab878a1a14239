"""Find each name, argument and method of the official SDK that a program uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from bridle.cli._port.names import ARGUMENTS, METHODS, NAMES, OPTIONS, Native

_SDK = "claude_agent_sdk"
_PARTS = ("types", "testing")
_CLIENT, _OPTIONS = "ClaudeSDKClient", "ClaudeAgentOptions"


class Use(msgspec.Struct, frozen=True, order=True):
    """One use: its line, what is used, the native name and what to know about it.

    `native` is "" if a program written for Bridle needs nothing in its place.
    """

    line: int
    official: str
    native: str
    note: str = ""


def uses(source: str) -> list[Use]:
    """Return the uses of the official SDK in a program, in order. A line names each once.

    Raises:
        SyntaxError: the text is not a Python program.
    """
    tree = ast.parse(source)
    return sorted(set(_Finder(tree).found()))


class _Finder:
    def __init__(self, tree: ast.Module) -> None:
        self._nodes = list(ast.walk(tree))
        self._names: dict[str, str] = {}
        self._modules: set[str] = set()
        for node in self._nodes:
            self._read_import(node)
        self._variables = dict(self._find_variables()) if self._names or self._modules else {}

    def found(self) -> Iterator[Use]:
        """Yield every use."""
        for node in self._nodes:
            match node:
                case ast.ImportFrom(module=module, names=aliases) if _is_sdk(module or ""):
                    yield from (_use(one.lineno, one.name) for one in aliases if _is_name(one.name))
                case ast.Name() | ast.Attribute() if name := self._official(node):
                    yield _use(node.lineno, name)
                case ast.Attribute(value=owner, attr=attr):
                    yield from self._member(node, owner, attr)
                case ast.Call(keywords=keywords):
                    taker = self._taker(node)
                    known = ARGUMENTS.get(taker, {})
                    for one in keywords:
                        if one.arg is not None and one.arg in known:
                            yield _argument(one.lineno, one.arg, known[one.arg])
                        elif one.arg is None and taker == _OPTIONS:
                            note = "Rename these options where they are made."
                            yield Use(one.lineno, f"**{ast.unparse(one.value)}", "", note)
                case _:
                    pass

    def _read_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            self._modules |= {
                alias.asname or alias.name for alias in node.names if _is_sdk(alias.name)
            }
        elif isinstance(node, ast.ImportFrom) and _is_sdk(node.module or ""):
            for alias in node.names:
                if alias.name in _PARTS:
                    self._modules.add(alias.asname or alias.name)
                elif alias.name == "*":
                    self._names |= {name: name for name in NAMES}
                else:
                    self._names[alias.asname or alias.name] = alias.name

    def _official(self, node: ast.expr) -> str:
        """Return the official name that an expression means; "" if it means something else."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, "")
        if isinstance(node, ast.Attribute) and self._is_module(ast.unparse(node.value)):
            return "" if node.attr in _PARTS else node.attr
        return ""

    def _is_module(self, text: str) -> bool:
        return text in self._modules or any(
            text == f"{module}.{part}" for module in self._modules for part in _PARTS
        )

    def _find_variables(self) -> Iterator[tuple[str, str]]:
        """Yield the expressions that are clients or options, such as ``self._client``."""
        for node in self._nodes:
            match node:
                case ast.withitem(context_expr=kind, optional_vars=ast.expr() as to):
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
                official = self._official(part) if isinstance(part, ast.expr) else ""
                if official in (_CLIENT, _OPTIONS):
                    yield from ((ast.unparse(one), official) for one in targets)
                    break

    def _member(self, node: ast.Attribute, owner: ast.expr, attr: str) -> Iterator[Use]:
        """Yield a method of a client, or an option that is set or read."""
        kind = self._variables.get(ast.unparse(owner)) or self._constructed(owner)
        if kind == _CLIENT and attr in METHODS:
            yield Use(node.lineno, ast.unparse(node), METHODS[attr])
        if kind == _OPTIONS and attr in OPTIONS:
            yield _argument(node.lineno, attr, OPTIONS[attr])

    def _constructed(self, owner: ast.expr) -> str:
        return self._official(owner.func) if isinstance(owner, ast.Call) else ""

    def _taker(self, call: ast.Call) -> str:
        """Return the name whose arguments a call has."""
        copies = ast.unparse(call.func) in ("replace", "dataclasses.replace") and call.args
        if copies and self._variables.get(ast.unparse(call.args[0])) == _OPTIONS:
            return _OPTIONS
        return self._official(call.func)


def _is_sdk(module: str) -> bool:
    return module == _SDK or module.startswith(f"{_SDK}.")


def _is_name(name: str) -> bool:
    return name != "*" and name not in _PARTS


def _use(line: int, name: str) -> Use:
    native = NAMES.get(name, Native("", "", "No native name."))
    return Use(line, name, native.name and f"{native.module}.{native.name}", native.note)


def _argument(line: int, name: str, native: Native) -> Use:
    return Use(line, f"{name}=", native.name and f"{native.name}=", native.note)
