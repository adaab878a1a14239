"""The public face: `bridle.__all__`. Its order is the linter's business."""

from __future__ import annotations

import inspect
from collections import Counter
from types import ModuleType

import bridle


def exported() -> dict[str, object]:
    return {name: getattr(bridle, name) for name in bridle.__all__}


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


def test_every_exported_class_is_ours() -> None:
    foreign = [
        name
        for name, value in exported().items()
        if inspect.isclass(value) and value.__module__.partition(".")[0] != "bridle"
    ]
    assert foreign == []
