"""The public names: `bridle.__all__`, and the `__all__` of every public module."""

from __future__ import annotations

import ast
import builtins
import inspect
import pydoc
import re
import subprocess
import sys
import typing
from collections import Counter, abc
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType, UnionType

import pytest

import bridle
from docs_griffe import MADE_BY_BRIDLE

MOST_NAMES = 120
"""The limit of `bridle.__all__`, so that completion and the reference stay readable."""

PACKAGE = Path(bridle.__file__).parent

NOT_LIBRARY = {"__main__", "cli"}
"""The `bridle` command: run, not imported."""

DROP_IN = "bridle.compat.claude_agent_sdk"
"""Has the modules of the official package, which repeat names."""

ENGINE_TYPES = {
    "bridle.testing.replaying.Replay.steps",
    "bridle.testing.replaying.Replay.warnings",
    "bridle.testing.replaying.replay",
}
"""Where the types of the engine show: these are for tests of Bridle itself."""


def public_modules() -> list[str]:
    """Modules without a leading underscore in their path that have an `__all__`."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if any(part.startswith("_") for part in parts) or (parts and parts[0] in NOT_LIBRARY):
            continue
        if re.search(r"^__all__\b", path.read_text("utf-8"), re.MULTILINE):
            found.append(".".join(["bridle", *parts]))
    return found


MODULES = public_modules()


def exported() -> dict[str, object]:
    return {name: getattr(bridle, name) for name in bridle.__all__}


@pytest.mark.requirement("S111")
def test_every_exported_name_exists_once() -> None:
    """R466: the face exports what it says."""
    assert [name for name in bridle.__all__ if not hasattr(bridle, name)] == []
    assert [name for name, count in Counter(bridle.__all__).items() if count > 1] == []


def test_the_package_exports_at_most_120_names() -> None:
    assert len(bridle.__all__) <= MOST_NAMES


def test_every_module_of_the_library_says_what_is_public() -> None:
    """A module directly in `bridle` is public and has an `__all__`, or is private by its name."""
    children = {
        path.stem if path.suffix else path.name
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    public = {name for name in children if not name.startswith("_")} - NOT_LIBRARY
    assert {f"bridle.{name}" for name in public} - set(MODULES) == set()


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_a_public_module_exists_once(module: str) -> None:
    face = import_module(module)
    assert [name for name in face.__all__ if not hasattr(face, name)] == []
    assert [name for name, count in Counter(face.__all__).items() if count > 1] == []


def test_a_public_name_is_in_one_module_only() -> None:
    """Beside `bridle`, which repeats the common names, each object has one public module."""
    homes: dict[int, list[str]] = {}
    repeats = {module for module in MODULES if module.startswith(f"{DROP_IN}.")}
    for module in set(MODULES) - {"bridle"} - repeats:
        face = import_module(module)
        for name in face.__all__:
            value = getattr(face, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                homes.setdefault(id(value), []).append(f"{module}.{name}")
    # At run time a completed outcome is an outcome; only type checkers tell them apart.
    same = [["bridle.outcomes.CompletedOutcome", "bridle.outcomes.Outcome"]]
    assert [sorted(names) for names in homes.values() if len(names) > 1] == same


def test_a_name_of_another_module_is_found_by_its_error() -> None:
    elsewhere, unknown = "SetupContext", "NoSuchName"
    with pytest.raises(AttributeError, match=r"Use bridle\.hooks\.SetupContext\.$"):
        getattr(bridle, elsewhere)
    with pytest.raises(AttributeError, match=r"has no attribute 'NoSuchName'$"):
        getattr(bridle, unknown)
    assert not hasattr(bridle, elsewhere)


def test_the_vocabulary_is_there_after_importing_bridle_alone() -> None:
    """`bridle.messages.Usage` needs no second import statement."""
    code = "import bridle; print(bridle.messages.Usage, bridle.hooks.SetupContext, bridle.sync)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_private_name_is_exported() -> None:
    assert [name for name in bridle.__all__ if name.startswith("_") and name != "__version__"] == []


def test_no_public_name_is_left_out() -> None:
    """Whatever a user can reach without an underscore is either exported or a module."""
    unlisted = [
        name
        for name, value in vars(bridle).items()
        if not name.startswith("_")
        and name not in bridle.__all__
        and not isinstance(value, ModuleType)
        and name not in {"annotations", "TYPE_CHECKING"}
    ]
    assert unlisted == []


@pytest.mark.parametrize("module", MODULES)
def test_every_public_class_and_function_is_documented(module: str) -> None:
    """R397 among others: a name without a docstring is a name without a contract."""
    assert [name for name, value in ours(module) if not own_docstring(value)] == []


def own_docstring(value: object) -> str | None:
    """What was written for this very class or function; an inherited text does not count."""
    return vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__


KIT_ERRORS = {"CassetteError", "RecordingError", "ReplayMismatch", "ScriptFailure"}
"""The errors of the testing kit, which is loaded only by tests."""


def test_every_public_error_is_defined_in_one_module() -> None:
    """R385: `bridle.errors`, except the errors of the testing kit, and of the official SDK."""
    raised = {
        value
        for module in MODULES
        if not module.startswith(DROP_IN)
        for name in import_module(module).__all__
        if inspect.isclass(value := getattr(import_module(module), name))
        and issubclass(value, Exception)
    }
    elsewhere = {kind for kind in raised if kind.__module__ != "bridle.errors"}
    assert bridle.BridleError in raised - elsewhere
    assert {kind.__name__ for kind in elsewhere} == KIT_ERRORS
    assert {kind.__module__.rpartition(".")[0] for kind in elsewhere} == {"bridle.testing"}


def test_every_exported_class_is_ours() -> None:
    foreign = [
        name
        for name, value in exported().items()
        if inspect.isclass(value) and value.__module__.partition(".")[0] != "bridle"
    ]
    assert foreign == []


def is_ours(value: object) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "bridle"


def ours(module: str) -> Iterator[tuple[str, object]]:
    """The classes and functions of Bridle that a module makes public."""
    face = import_module(module)
    for name in face.__all__:
        value = getattr(face, name)
        if is_ours(value) and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


@pytest.mark.parametrize("module", MODULES)
def test_the_annotations_of_every_public_name_can_be_resolved(module: str) -> None:
    for name, value in ours(module):
        assert isinstance(typing.get_type_hints(value), dict), name
        methods = vars(value).values() if inspect.isclass(value) else ()
        for member in methods:
            function = member.fget if isinstance(member, property) else member
            function = getattr(function, "__func__", function)
            if inspect.isfunction(function):
                assert isinstance(typing.get_type_hints(function), dict), (name, function)


@pytest.mark.parametrize("module", MODULES)
def test_help_works_on_every_public_name(module: str) -> None:
    for name, value in ours(module):
        assert name in pydoc.plain(pydoc.render_doc(value)), name


# ---------------------------------------------------------------- types of public signatures


def public_values() -> list[tuple[str, object]]:
    """Every public name with its value."""
    faces = map(import_module, MODULES)
    return [(name, getattr(face, name)) for face in faces for name in face.__all__]


PUBLIC = public_values()
PUBLIC_CLASSES = [value for _, value in PUBLIC if inspect.isclass(value)]


def annotated(module: str) -> Iterator[tuple[str, object, Mapping[str, object]]]:
    """Everything annotated that a module makes public: where, the annotation, its namespace."""
    for name, value in ours(module):
        where = f"{module}.{name}"
        if inspect.isclass(value):
            yield from members(where, value)
        else:
            yield from signature(where, value)


def members(where: str, kind: type) -> Iterator[tuple[str, object, Mapping[str, object]]]:
    for base in filter(is_ours, kind.__mro__):
        space = vars(sys.modules[base.__module__])
        for name, annotation in vars(base).get("__annotations__", {}).items():
            # A table of the class is not a field of its records.
            if not name.startswith("_") and not str(annotation).startswith("ClassVar"):
                yield f"{where}.{name}", annotation, space
        for name, member in vars(base).items():
            is_special = name.startswith("__") and name.endswith("__")
            if name.startswith("_") and not is_special:
                continue
            if name == "__init__" and kind.__name__ in MADE_BY_BRIDLE:
                continue
            if name == "__new__" and issubclass(base, tuple):
                continue  # generated from the fields of a NamedTuple
            function = member.fget if isinstance(member, property) else member
            yield from signature(f"{where}.{name}", getattr(function, "__func__", function))


def signature(where: str, value: object) -> Iterator[tuple[str, object, Mapping[str, object]]]:
    if inspect.isfunction(value):
        functions: list[Callable[..., object]] = [*typing.get_overloads(value), value]
        for function in functions:
            for annotation in function.__annotations__.values():
                yield where, annotation, inspect.unwrap(value).__globals__


def names_in(annotation: object) -> set[str]:
    """The names in an annotation. It is a string, unless `TypedDict` needs it evaluated."""
    if annotation is None or inspect.isclass(annotation) or typing.get_origin(annotation):
        return set()
    text = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
    tree = ast.parse(str(text), mode="eval")
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def is_public(name: str, value: object) -> bool:
    """Whether a name of an annotation is Python's, or has a public name of Bridle."""
    if isinstance(value, ModuleType | typing.TypeVar | typing.ParamSpec):
        return True
    if inspect.isclass(value) and not is_ours(value):
        return True
    if any(getattr(module, name, None) is value for module in (builtins, typing, abc)):
        return True
    return any(name == known and value == one for known, one in PUBLIC)


@pytest.mark.parametrize("module", MODULES)
def test_every_type_of_a_public_signature_has_a_public_name(module: str) -> None:
    hidden = {
        f"{where}: {name}"
        for where, annotation, space in annotated(module)
        if where not in ENGINE_TYPES
        for name in names_in(annotation)
        if not is_public(name, space.get(name) or getattr(builtins, name))
    }
    hidden |= {
        f"{where}: {one.__name__}"
        for where, annotation, _ in annotated(module)
        if typing.get_origin(annotation)
        for one in parts(annotation)
        if one not in PUBLIC_CLASSES
    }
    assert sorted(hidden) == []


def parts(alias: object) -> Iterator[type]:
    """The classes of Bridle that an alias is made of."""
    if inspect.isclass(alias) and not typing.get_args(alias):
        if is_ours(alias):
            yield alias
    else:
        for part in typing.get_args(alias):
            for inner in part if isinstance(part, list) else [part]:
                yield from parts(inner)


def test_every_class_in_a_public_alias_is_public() -> None:
    aliases = {name: value for name, value in PUBLIC if typing.get_args(value)}
    assert aliases.keys() >= {"Content", "HookCallback", "SessionEvent"}
    assert isinstance(aliases["SessionEvent"], UnionType)
    hidden = {
        f"{name}: {one.__name__}"
        for name, value in aliases.items()
        for one in parts(value)
        if one not in PUBLIC_CLASSES
    }
    assert sorted(hidden) == []
