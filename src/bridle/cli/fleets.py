"""Find the fleet that the arguments of a command name."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING

from bridle.agent import Agent
from bridle.errors import OptionsError

if TYPE_CHECKING:
    from bridle.fleet import Fleet

VARIABLE = "BRIDLE_FLEET"
"""Names the fleet if no argument does."""

_FIX = "Use MODULE:NAME, such as app:fleet for the variable `fleet` of app.py."


def fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name a fleet."""
    parser.add_argument(
        "--fleet",
        metavar="MODULE:NAME",
        help=f"The fleet: a variable of a module. Default: the environment variable {VARIABLE}.",
    )
    parser.add_argument(
        "--database", metavar="URL", help="The database of the fleet, instead of --fleet."
    )
    parser.add_argument("--name", default="default", help="With --database: the name of the fleet.")


def named_fleet(options: argparse.Namespace) -> Fleet:
    """Return the fleet that the arguments or the environment name.

    Raises:
        OptionsError: there is no such fleet, or none is named.
    """
    if options.database is not None:
        from bridle.fleet import Fleet

        return Fleet(Agent(), options.database, name=options.name)
    given = options.fleet or os.environ.get(VARIABLE)
    if not given:
        fix = f"Pass --fleet MODULE:NAME or --database URL, or set {VARIABLE}."
        raise OptionsError("--fleet", "is missing", fix=fix)
    return load_fleet(given)


def load_fleet(given: str) -> Fleet:
    """Import a module and return its fleet. The module may be in the working directory.

    Raises:
        OptionsError: there is no such module, or it has no such fleet.
    """
    from bridle.fleet import Fleet

    module_name, _, name = given.partition(":")
    if not module_name or not name:
        raise OptionsError("MODULE:NAME", f"is missing a part: {given!r:.80}", fix=_FIX)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # a module that the module imports is missing
        problem = f"names the module {module_name!r:.80}, which does not exist"
        raise OptionsError("MODULE:NAME", problem, fix=_FIX) from None
    found = getattr(module, name, None)
    if not isinstance(found, Fleet):
        problem = f"names {name!r:.80} in {module_name!r:.80}, which is not a Fleet"
        raise OptionsError("MODULE:NAME", problem, fix=_FIX)
    return found
