"""Records of the core are values: nothing changes one that another module holds."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

from msgspec import Struct

from bridle import _engine

GROWING = {
    *("Account", "ApprovalRun", "Attribute", "Batch", "Deliver", "Evidence", "HookRun"),
    *("Task", "Turn", "TurnAccount"),
}
"""What is filled step by step."""


def records() -> Iterator[type[Struct]]:
    """Every public record of the core."""
    for module in walk_packages(_engine.__path__, f"{_engine.__name__}."):
        for name, kind in inspect.getmembers(import_module(module.name), inspect.isclass):
            is_ours = kind.__module__ == module.name and not name.startswith("_")
            if is_ours and issubclass(kind, Struct):
                yield kind


def test_records_are_frozen() -> None:
    kinds = list(records())
    assert len(kinds) > 30
    assert {kind.__name__ for kind in kinds if not kind.__struct_config__.frozen} <= GROWING
