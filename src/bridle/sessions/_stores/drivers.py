"""Load the driver of a database when a store needs it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from bridle.errors import OptionsError


def load_driver(store: str, module: str, extra: str) -> ModuleType:
    """Import a driver. Raises `OptionsError` that names the extra if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        problem = f"needs the package {module.partition('.')[0]!r}, which could not be imported"
        # psycopg is importable without its binary part, and says so in the text.
        raise OptionsError(
            store, f"{problem} ({error})", fix=f"Install it with `pip install 'bridle[{extra}]'`."
        ) from None
