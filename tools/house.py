"""Print the figures of the floor plan: ``python tools/house.py``.

Each figure is measured from the code, in the way that its function describes. A test keeps them
from rising.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src" / "bridle"

ANNEXES = ("cli", "testing", "compat", "fleet", "terminal")
"""Packages that other modules of Bridle do not import."""

FEATURES = {
    "stores": r"store(?!d_err)|spool|journal|recover|lease|mirror|rejection|outbox",
    "pool": r"(?<!s)pool|park",
    "approvals": r"approval|resum|begun|waiting",
}
"""The words in the paths of the modules of a feature."""

ENGINE = "Engine"
ACTOR = "Actor"
SESSION = "Session"
PROMPT_KEYS = frozenset({"uuid", "prompt", "prompt_uuid", "turn", "of", "merged_with"})
"""How the code names the uuid of a prompt."""
OF_TRANSCRIPTS = r"transcript|new_messages|stored_position"
"""The names of modules whose uuids are those of the entries of transcripts."""


@cache
def modules() -> dict[str, ast.Module]:
    """Return all modules by their path in the package, such as ``cli/run.py``."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths
    }


def is_annex(path: str) -> bool:
    """Return whether a module belongs to an annex."""
    return path.partition("/")[0].removesuffix(".py") in ANNEXES


@cache
def house() -> dict[str, ast.Module]:
    """Return the modules outside the annexes."""
    return {path: tree for path, tree in modules().items() if not is_annex(path)}


def dotted(path: str) -> str:
    """Return the name of a module, such as ``bridle.cli.run``."""
    name = path.removesuffix(".py").removesuffix("__init__").rstrip("/")
    return f"bridle.{name}".replace("/", ".").rstrip(".")


@cache
def module_names() -> frozenset[str]:
    """Return the names of all modules."""
    return frozenset(map(dotted, modules()))


def imports(tree: ast.Module) -> set[str]:
    """Return the modules of Bridle that a module imports, also for types and in functions."""
    names = module_names()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & names
            if inner - names:
                found.add(node.module)
    return found & names


def is_private(module: str) -> bool:
    """Return whether a part of the name of a module begins with an underscore."""
    return any(part.startswith("_") for part in module.split("."))


@cache
def sources() -> dict[str, dict[str, tuple[str, str]]]:
    """Return for each module where its names come from: the module and the name there."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for path, tree in house().items():
        names = found[dotted(path)] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                names[node.name] = (dotted(path), node.name)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    names[alias.asname or alias.name] = (node.module, alias.name)
    return found


@cache
def classes() -> dict[tuple[str, str], ast.ClassDef]:
    """Return the classes outside the annexes, by module and name."""
    return {
        (dotted(path), node.name): node
        for path, tree in house().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def base_classes(module: str, kind: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the base classes that Bridle defines, by module and name."""
    for base in kind.bases:
        name = ast.unparse(base).partition("[")[0]
        if (found := sources()[module].get(name)) in classes():
            yield found


def session_classes() -> dict[tuple[str, str], int]:
    """Return the asyncio class `Session` and the classes that derive from it.

    The value is the length of the longest chain from `Session`, which has 1. The blocking twin
    `bridle.sync.Session` is left out.
    """
    depths = {key: 1 for key in classes() if key[1] == SESSION and ".sync" not in key[0]}
    while True:
        found = dict(depths)
        for key, kind in classes().items():
            longest = max((found.get(base, 0) for base in base_classes(key[0], kind)), default=0)
            if longest and key not in (one for one in depths if one[1] == SESSION):
                found[key] = longest + 1
        if found == depths:
            return depths
        depths = found


def number_of_session_classes() -> int:
    """Count the asyncio class `Session` and the classes that derive from it."""
    return len(session_classes())


def depth_of_session_classes() -> int:
    """Return the length of the longest chain of inheritance from `Session`, both ends counted."""
    return max(session_classes().values())


def find_class(name: str) -> ast.ClassDef:
    """Return the class of a name that only one class outside the annexes has."""
    [found] = [kind for (_, each), kind in classes().items() if each == name]
    return found


def methods(kind: ast.ClassDef) -> set[str]:
    """Return the names of the methods of a class, without properties."""
    return {
        node.name
        for node in kind.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any("property" in ast.unparse(one) for one in node.decorator_list)
    }


def callables_of_the_engine() -> int:
    """Count the functions that ``Engine.__init__`` passes to its parts.

    Counted are arguments of calls that are a lambda, a method of the engine (``self._ask``) or a
    method or function of another part (``self._turns.prompt_of``). The function that appends an
    action, ``self._emit``, is not counted.
    """
    engine = find_class(ENGINE)
    everywhere = {name for kind in classes().values() for name in methods(kind)} | {"cli_version"}
    [init] = [one for one in engine.body if getattr(one, "name", "") == "__init__"]
    count = 0
    for call in (node for node in ast.walk(init) if isinstance(node, ast.Call)):
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            text = ast.unparse(argument)
            is_own = text.startswith("self.") and text[5:] in methods(engine)
            part = re.fullmatch(r"self\.\w+\.(\w+)", text)
            is_of_part = part is not None and part[1] in everywhere
            count += isinstance(argument, ast.Lambda) or is_own or is_of_part
    return count


def keyed_by_prompt() -> dict[tuple[str, str], set[str]]:
    """Return the attributes that are collections keyed by the uuid of a prompt, by class.

    Counted are attributes that a class outside the annexes makes as a dict, set or deque, and that
    one of its methods indexes, searches or changes with a key that the code calls as in
    `PROMPT_KEYS`. Modules in `OF_TRANSCRIPTS` are left out, because the uuids there are those of
    the entries of transcripts.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for key, kind in classes().items():
        if re.search(OF_TRANSCRIPTS, key[0]):
            continue
        text = ast.unparse(kind)
        made = set(
            re.findall(r"self\.(\w+): (?:collections\.)?(?:dict|set|OrderedDict|frozenset)\[", text)
        )
        keyed: set[str] = set()
        for name in made:
            keys = re.findall(
                rf"self\.{name}(?:\[|\.(?:get|pop|add|discard|remove|setdefault)\()([\w.]+)", text
            )
            keys += re.findall(rf"(?<!for )\b([\w.]+) (?:not )?in self\.{name}\b", text)
            if any(each.rpartition(".")[2] in PROMPT_KEYS for each in keys):
                keyed.add(name)
        if keyed:
            found[key] = keyed
    return found


def collections_keyed_by_prompt() -> int:
    """Count the collections of `keyed_by_prompt`."""
    return sum(map(len, keyed_by_prompt().values()))


def classes_with_collections_keyed_by_prompt() -> int:
    """Count the classes of `keyed_by_prompt`."""
    return len(keyed_by_prompt())


def folders(feature: str) -> set[str]:
    """Return the folders outside the annexes that hold a feature.

    A module belongs to a feature if a word of `FEATURES` is in its path. A folder inside another
    folder of the feature is not counted; the package itself holds only its own modules.
    """
    pattern = re.compile(FEATURES[feature])
    found = {path.rpartition("/")[0] for path in house() if pattern.search(path)}
    return {
        folder
        for folder in found
        if not any(other and folder.startswith(f"{other}/") for other in found)
    }


def folders_of_stores() -> int:
    """Count the folders with stores, the journal and recovery, as `folders` finds them."""
    return len(folders("stores"))


def folders_of_the_pool() -> int:
    """Count the folders with the pool, as `folders` finds them."""
    return len(folders("pool"))


def folders_of_approvals() -> int:
    """Count the folders with approvals, as `folders` finds them."""
    return len(folders("approvals"))


def most_files_in_a_folder() -> int:
    """Return the largest number of modules directly in one folder, without ``__init__.py``."""
    files = [path for path in modules() if not path.endswith("__init__.py")]
    return max(Counter(path.rpartition("/")[0] for path in files).values())


def import_layers() -> int:
    """Count the layers of the import contract ``layers`` in ``pyproject.toml``."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [layers] = [one["layers"] for one in contracts if one["id"] == "layers"]
    return len(layers)


def repeated_file_names() -> int:
    """Count the file names that more than one module has.

    Leading underscores do not make names differ. ``__init__.py`` and the folder that has the names
    of the official SDK are left out.
    """
    files = [path for path in modules() if not path.startswith("compat/claude_agent_sdk/")]
    names = Counter(path.rpartition("/")[2].lstrip("_") for path in files)
    return sum(count > 1 for name, count in names.items() if name != "init__.py")


def imports_of_the_session() -> int:
    """Count the private modules that the module of `Session` imports."""
    [(home, _)] = [key for key, depth in session_classes().items() if depth == 1]
    [tree] = [tree for path, tree in house().items() if dotted(path) == home]
    return sum(map(is_private, imports(tree)))


def private_imports_of_annexes() -> int:
    """Count the imports of private modules by annexes: pairs of importing and imported module.

    A private module of the annex itself, and ``bridle._spi``, are not counted.
    """
    return sum(
        is_private(module) and not is_annex(module.split(".")[1]) and module != "bridle._spi"
        for path, tree in modules().items()
        if is_annex(path)
        for module in imports(tree)
    )


def rows_of_the_placing_table() -> int:
    """Count the rows of "Where a line of code belongs" in ``CONTRIBUTING.md``."""
    page = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    section = page.split("## Where a line of code belongs\n")[1].split("\n## ")[0]
    return len(re.findall(r"^\| ", section, re.MULTILINE)) - 1


def code_lines(path: str, tree: ast.Module) -> int:
    """Count the lines of a module with code, without blank lines, comments and docstrings."""
    prose: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                prose |= set(range(node.lineno, (node.end_lineno or 0) + 1))
            case _:
                pass
    silent = {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
    lines: set[int] = set()
    for token in tokenize.tokenize(io.BytesIO((SOURCE / path).read_bytes()).readline):
        if token.type not in silent:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - prose)


def is_generated(path: str) -> bool:
    """Return whether the first line of a module says that a tool wrote it."""
    return (SOURCE / path).read_text("utf-8").startswith("# Generated by tools/")


def written(found: dict[str, ast.Module]) -> int:
    """Count the lines with code of the modules that people write and read."""
    return sum(code_lines(path, tree) for path, tree in found.items() if not is_generated(path))


def lines_of_code() -> int:
    """Count the lines with code of the package, without generated modules."""
    return written(modules())


def lines_of_code_without_annexes() -> int:
    """Count the lines with code outside the annexes, without generated modules."""
    return written(house())


def ways_to_look_over_the_actor() -> int:
    """Count the ways in which other parts of a session see what the actor does.

    They are: ``Actor.before``; the table ``_WHEN_READ``; attributes that other code sets on the
    actor or on what it holds; and a hook that the journal appends to the plan (``last=``).
    """
    ways: set[str] = set()
    for path, tree in house().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == ACTOR:
                ways |= methods(node) & {"before"}
            elif isinstance(node, ast.Name) and node.id == "_WHEN_READ":
                ways.add("_WHEN_READ")
            elif isinstance(node, ast.Assign) and "actor.py" not in path:
                targets = map(ast.unparse, node.targets)
                ways |= {
                    "attribute" for one in targets if re.fullmatch(r"(.*\.)?_?actor\.\w+", one)
                }
            elif isinstance(node, ast.keyword) and node.arg == "last":
                ways |= {"hook"} if "journal" in ast.unparse(node.value) else set()
    return len(ways)


MEASURES: tuple[tuple[Callable[[], int], int], ...] = (
    (number_of_session_classes, 3),
    (depth_of_session_classes, 2),
    (callables_of_the_engine, 3),
    (collections_keyed_by_prompt, 8),
    (classes_with_collections_keyed_by_prompt, 3),
    (folders_of_stores, 1),
    (folders_of_the_pool, 1),
    (folders_of_approvals, 1),
    (most_files_in_a_folder, 15),
    (import_layers, 12),
    (repeated_file_names, 8),
    (imports_of_the_session, 20),
    (private_imports_of_annexes, 0),
    (rows_of_the_placing_table, 20),
    (lines_of_code, 45_000),
    (lines_of_code_without_annexes, 28_000),
    (ways_to_look_over_the_actor, 1),
)
"""The functions that measure, and the most that each should return."""


def main() -> None:
    """Print the table."""
    print("| measure | now | target |\n|---|--:|--:|")
    for measure, target in MEASURES:
        print(f"| {measure.__name__.replace('_', ' ')} | {measure():,} | {target:,} |")


if __name__ == "__main__":
    main()
