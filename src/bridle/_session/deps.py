"""Use the ``deps`` of a session before it starts. :mod:`senders` gives them to callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from bridle.errors import OptionsError
from bridle.options._precedence import ResolvedOptions

PROMPTS = ("system_prompt", "append_system_prompt")
"""The options that may be functions of ``deps``."""


def with_prompts(options: ResolvedOptions, deps: Any) -> ResolvedOptions:
    """Return the options with the system prompts that functions of ``deps`` return.

    Raises:
        OptionsError: a function raised an exception, or did not return text.
    """
    made: dict[str, Any] = {}
    for field in _prompt_functions(options):
        function = getattr(options.cli, field)
        try:
            text = function(deps)
        except Exception as error:
            problem = f"is a function that raised {type(error).__name__}"
            fix = "Make it return the prompt for these deps."
            raise OptionsError(field, problem, fix=fix) from error
        if not isinstance(text, str):
            problem = f"is a function that returned {type(text).__name__}"
            raise OptionsError(field, problem, fix="Make it return text.")
        made[field] = text
    return _with(options, made)


def without_functions(options: ResolvedOptions) -> ResolvedOptions:
    """Return the options with text in place of functions, to check them without ``deps``."""
    return _with(options, dict.fromkeys(_prompt_functions(options), ""))


def _prompt_functions(options: ResolvedOptions) -> list[str]:
    """Return the system prompts that are functions."""
    return [field for field in PROMPTS if callable(getattr(options.cli, field))]


def _with(options: ResolvedOptions, prompts: Mapping[str, str]) -> ResolvedOptions:
    if not prompts:
        return options
    return structs.replace(options, cli=options.cli.replace(**prompts))
