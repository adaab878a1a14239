"""Read the type declarations of a ``.d.ts`` file: names, fields of objects, members of unions.

This is a reader for generated declaration files, which use a small part of TypeScript. A type is a
list of tokens; brackets are balanced, comments are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

Tokens = list[str]

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)
      | (?P<word>[A-Za-z_$0-9][\w$.]*)
      | (?P<mark>=>|\.\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_OPEN = {"{", "[", "(", "<"}
_CLOSE = {"}", "]", ")", ">"}
_BLOCKS = {"interface", "class", "namespace"}  # statements that end without a semicolon


@dataclass(frozen=True)
class Field:
    """A field of an object type."""

    name: str
    type: Tokens
    optional: bool


def tokens(text: str) -> Iterator[str]:
    """Yield the tokens of a source text, without comments and white space."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "skip":
            yield match.group()


def split(types: Tokens, *separators: str) -> list[Tokens]:
    """Split a list of tokens at the separators that stand outside every bracket."""
    parts: list[Tokens] = [[]]
    depth = 0
    for token in types:
        depth += (token in _OPEN) - (token in _CLOSE)
        if depth == 0 and token in separators:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def literals(types: Tokens) -> list[str]:
    """Return the values of the string literals among the tokens."""
    return [token[1:-1] for token in types if token[0] in "'\"`"]


class Declarations:
    """The named types of a declaration file."""

    def __init__(self, text: str) -> None:
        self._types: dict[str, Tokens] = dict(_declared(list(tokens(text))))

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def names(self) -> list[str]:
        """Return the names of all types, in the order of the file."""
        return list(self._types)

    def type_of(self, name: str) -> Tokens:
        """Return the type with this name; the prefix of a namespace is ignored.

        Raises:
            LookupError: the file does not declare the name.
        """
        try:
            return self._types[name.rpartition(".")[2]]
        except KeyError:
            raise LookupError(f"the declaration file has no type {name!r}") from None

    def union(self, name: str) -> list[str]:
        """Return the names or literals that a type is a union of; nested unions are resolved."""
        members: list[str] = []
        for part in split(self.type_of(name), "|"):
            [token] = part
            if token[0] in "'\"":
                members.append(token[1:-1])
            elif token in self or token.rpartition(".")[2] in self:
                short = token.rpartition(".")[2]
                is_union = len(split(self.type_of(short), "|")) > 1
                members += self.union(short) if is_union else [short]
            else:
                members.append(token)
        return members

    def fields(self, name: str) -> dict[str, Field]:
        """Return the fields of an object type, an intersection, or an interface."""
        return self.fields_in(self.type_of(name))

    def fields_in(self, types: Tokens) -> dict[str, Field]:
        """Return the fields of the object types in this type; of a union, those of all members."""
        if len(split(types, "|", "&")) > 1:
            return {
                key: field
                for part in split(types, "|", "&")
                for key, field in self.fields_in(part).items()
            }
        if types[:1] == ["("]:
            return self.fields_in(types[1:-1])
        if types[:1] != ["{"]:
            short = types[0].rpartition(".")[2]
            return self.fields(short) if len(types) == 1 and short in self else {}
        return {field.name: field for field in map(_field, split(types[1:-1], ";", ",")) if field}


def _declared(source: Tokens) -> Iterator[tuple[str, Tokens]]:
    """Yield the name and the type of each declaration at the top level."""
    for statement in _statements(source):
        words = [word for word in statement[:3] if word not in ("export", "declare")]
        rest = statement[statement.index(words[0]) :] if words else []
        if rest[:1] == ["type"]:
            start = rest.index("=")
            yield rest[1], rest[start + 1 :]
        elif rest[:1] == ["interface"]:
            yield rest[1], rest[rest.index("{") :]


def _statements(source: Tokens) -> Iterator[Tokens]:
    """Yield the statements at the top level. Most end with ``;``, a class ends with ``}``."""
    statement: Tokens = []
    depth = 0
    for token in source:
        depth += (token in _OPEN) - (token in _CLOSE)
        if depth == 0 and token == ";":
            yield statement
            statement = []
            continue
        statement.append(token)
        if depth == 0 and token == "}" and _BLOCKS.intersection(statement[:3]):
            yield statement
            statement = []


def _field(part: Tokens) -> Field | None:
    """Return the field that these tokens declare. Methods and index signatures are left out."""
    if part[0] == "readonly":
        part = part[1:]
    name, rest = part[0], part[1:]
    if name == "[":
        return None
    optional = rest[:1] == ["?"]
    rest = rest[1:] if optional else rest
    if rest[:1] == [":"]:
        return Field(name.strip("'\""), rest[1:], optional)
    if rest[:1] in (["("], ["<"]):
        return Field(name, rest, optional)
    return None
