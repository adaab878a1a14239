"""Use the ``deps`` of a session before it starts. :mod:`senders` gives them to callbacks."""

from __future__ import annotations

from typing import Any, Final

from bridle.errors import OptionsError
from bridle.options import CliOptions


class _SessionDeps:
    def __repr__(self) -> str:
        return "<the session's deps>"


SESSION_DEPS: Final[Any] = _SessionDeps()
"""Default of an argument ``deps``: the deps of the session. A caller may also give None."""

_PROMPTS = ("system_prompt", "append_system_prompt")


def with_prompts(cli: CliOptions | None, deps: Any) -> CliOptions | None:
    """Return the options with the system prompts that functions of ``deps`` return.

    Raises:
        OptionsError: a function raised an exception, or did not return text.
    """
    if not isinstance(cli, CliOptions):
        return cli
    made: dict[str, Any] = {}
    for field in _PROMPTS:
        function = getattr(cli, field)
        if not callable(function):
            continue
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
    return cli.replace(**made) if made else cli
