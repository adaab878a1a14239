"""Programs for the official SDK on Bridle: `install`, and the module `claude_agent_sdk`."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

__all__ = ["install"]

_OFFICIAL = "claude_agent_sdk"
_OURS = f"{__name__}.{_OFFICIAL}"


def install() -> None:
    """Make ``import claude_agent_sdk`` import `bridle.compat.claude_agent_sdk`.

    Its public modules, such as ``claude_agent_sdk.types``, are replaced too. Call it before the
    first import of ``claude_agent_sdk``. The official package does not have to be installed.

    Raises:
        RuntimeError: the official package was imported already.
    """
    loaded = sys.modules.get(_OFFICIAL)
    if loaded is not None and loaded.__name__ != _OURS:
        raise RuntimeError(
            "claude_agent_sdk was imported before bridle.compat.install(). Call install() first."
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the official package in this package."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _OFFICIAL and not fullname.startswith(f"{_OFFICIAL}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=fullname == _OFFICIAL)

    def exec_module(self, module: ModuleType) -> None:
        """Put our module in the place of the empty one that the import has made."""
        ours = _OURS + module.__name__.removeprefix(_OFFICIAL)
        try:
            sys.modules[module.__name__] = importlib.import_module(ours)
        except ModuleNotFoundError as error:
            if error.name != ours:
                raise
            problem = f"No module named {module.__name__!r} in bridle.compat"
            raise ModuleNotFoundError(problem, name=module.__name__) from None
        if module.__name__ == _OFFICIAL:
            # Importing a submodule later would set it as an attribute of the package. The function
            # `query` has the name of its module.
            loaded = [name for name in sys.modules if name.startswith(f"{_OURS}.")]
            for name in loaded:
                sys.modules[_OFFICIAL + name.removeprefix(_OURS)] = sys.modules[name]
