"""Write the keyword types of `Agent` and the doors from the option records.

Run it after a change to an option record: `python tools/build_keywords.py`. A test fails if the
file is not current.
"""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from bridle._fields import Record
from bridle._keywords import CONVERSATION
from bridle.options import RECORDS

TARGET = Path(__file__).parents[1] / "src" / "bridle" / "_keyword_types.py"

# The modules that define the names in annotations. The first one that has a name is used.
HOMES = (
    "collections.abc",
    "typing",
    "bridle.hooks",
    "bridle.permissions",
    "bridle.events",
    "bridle.telemetry",
    "bridle.tools",
    "bridle._option_checks",
    "bridle._agents",
    "bridle._cli_options",
    "bridle.options",
)

# Keywords that take more than the field of the record does.
WIDER = {"tools": 'Sequence[str | Tool[..., Any] | Callable[..., Any]] | Literal["default"] | None'}

HEADER = '''"""Types of the keywords that `Agent` and the doors take.

Generated from the option records by tools/build_keywords.py. Do not edit.
"""

from __future__ import annotations

'''

CLASSES = {
    "AgentOptions": "The options of an `Agent`: the fields of the option records by name.",
    "AgentChanges": "The changes of `Agent.replace`: the options of an agent. None unsets one.",
    "ConversationOptions": "The options that choose a conversation. None counts as not given.",
}
# Classes in which every keyword may be None.
WITH_NONE = {"AgentChanges", "ConversationOptions"}
BOTH = '''
class Options(AgentOptions, ConversationOptions, total=False):
    """All options by name, for the calls that are not methods of an agent."""
'''


def options() -> Iterator[tuple[str, str, type[Record]]]:
    """Yield every option: its name, its annotation as written, and its record."""
    for cls in RECORDS.values():
        for name in cls.fields:
            yield name, WIDER.get(name) or str(cls.__annotations__[name]), cls


def home(name: str, cls: type[Record]) -> str:
    """Return the module to import a name of an annotation from."""
    space = vars(sys.modules[cls.__module__])
    for module in HOMES:
        value = getattr(import_module(module), name, None)
        if value is not None and (name not in space or space[name] is value):
            return module
    raise LookupError(f"no module of HOMES has {name}, which {cls.__name__} uses")


def imports() -> str:
    """Return the import statements."""
    found: dict[str, set[str]] = {"typing": {"TypedDict"}}
    for _, annotation, cls in options():
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                found.setdefault(home(node.id, cls), set()).add(node.id)
    return "".join(
        f"from {module} import {', '.join(sorted(names))}\n"
        for module, names in sorted(found.items())
    )


def build() -> str:
    """Return the text of the module."""
    parts = [HEADER, imports()]
    for title, summary in CLASSES.items():
        chosen = title == "ConversationOptions"
        rows = [(n, a) for n, a, _ in options() if (n in CONVERSATION) is chosen]
        if title in WITH_NONE:
            rows = [(name, or_none(annotation)) for name, annotation in rows]
        body = "".join(f"    {name}: {annotation}\n" for name, annotation in rows)
        parts.append(f'\nclass {title}(TypedDict, total=False):\n    """{summary}"""\n\n{body}\n')
    parts.append(BOTH)
    return formatted("\n".join(parts))


def or_none(annotation: str) -> str:
    """Return an annotation that also accepts None."""
    return annotation if annotation.endswith("| None") else f"{annotation} | None"


def formatted(text: str) -> str:
    """Return the text as `make fmt` would leave it."""
    for command in (["check", "--fix", "--quiet", "--select=I"], ["format"]):
        words = [sys.executable, "-m", "ruff", *command, f"--stdin-filename={TARGET}", "-"]
        run = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
        text = run.stdout
    return text


if __name__ == "__main__":
    TARGET.write_text(build(), "utf-8")
