"""The public face: `bridle.__all__`. Its order is the linter's business."""

from __future__ import annotations

import inspect
import pydoc
import typing
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

import bridle

MODULES = [
    "bridle",
    "bridle.agents",
    "bridle.api",
    "bridle.content",
    "bridle.controls",
    "bridle.errors",
    "bridle.events",
    "bridle.hooks",
    "bridle.messages",
    "bridle.options",
    "bridle.outcomes",
    "bridle.permissions",
    "bridle.sync",
    "bridle.system",
    "bridle.telemetry",
    "bridle.testing",
    "bridle.tools",
]


def exported() -> dict[str, object]:
    return {name: getattr(bridle, name) for name in bridle.__all__}


@pytest.mark.requirement("S111")
def test_every_exported_name_exists_once() -> None:
    """R466: the face exports what it says."""
    assert [name for name in bridle.__all__ if not hasattr(bridle, name)] == []
    assert [name for name, count in Counter(bridle.__all__).items() if count > 1] == []


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


def test_every_exported_class_and_function_is_documented() -> None:
    """R397 among others: a name without a docstring is a name without a contract."""
    silent = [
        name
        for name, value in exported().items()
        if inspect.isclass(value) or inspect.isfunction(value)
        if not own_docstring(value)
    ]
    assert silent == []


def own_docstring(value: object) -> str | None:
    """What was written for this very class or function; an inherited text does not count."""
    return vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__


def test_every_exported_error_is_defined_in_one_module() -> None:
    """R385."""
    raised = [
        value
        for value in exported().values()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]
    assert bridle.BridleError in raised
    assert {kind.__module__ for kind in raised} == {bridle.BridleError.__module__}


def test_every_exported_class_is_ours() -> None:
    foreign = [
        name
        for name, value in exported().items()
        if inspect.isclass(value) and value.__module__.partition(".")[0] != "bridle"
    ]
    assert foreign == []


def ours(module: str) -> Iterator[tuple[str, object]]:
    """The classes and functions of Bridle that a module makes public."""
    face = import_module(module)
    names = getattr(face, "__all__", [name for name in dir(face) if not name.startswith("_")])
    for name in names:
        value = getattr(face, name)
        is_ours = getattr(value, "__module__", "").partition(".")[0] == "bridle"
        if is_ours and (inspect.isclass(value) or inspect.isfunction(value)):
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
