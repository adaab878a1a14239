"""Make the native hooks of a `HookMatcher`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from bridle.cli._port.names import CANNOT_FAIL, GUARDS, HOOK_TIMEOUT


def hooks_of(
    arguments: Mapping[str, ast.expr], event: str | None, note: Callable[[str], object]
) -> ast.expr | None:
    """Return one hook for each callback of a matcher. None if its callbacks are not known.

    ``event`` is the event of the matcher, None if it is not known. ``note`` gets notes for the
    reader.
    """
    given = {name: value for name, value in arguments.items() if not _is_none(value)}
    callbacks, on_failure = given.pop("hooks", None), given.pop("on_failure", None)
    if event is None:
        note(f'Add on_timeout="block" to hooks of {", ".join(sorted(GUARDS))}.')
    if callbacks is None:
        note("Hook takes one function: write one Hook for each function of the matcher.")
        return None
    if event in GUARDS:
        given.setdefault("timeout", ast.Constant(HOOK_TIMEOUT))
    elif "timeout" not in given:
        note(
            f"A hook without a timeout may take {HOOK_TIMEOUT} seconds with the official SDK, and "
            "60 with Bridle (callback_timeout)."
        )
    if on_failure is not None and event not in CANNOT_FAIL:
        given["on_error"] = _on_error(on_failure)
        if event is None:
            note(f"Leave out on_error at {', '.join(sorted(CANNOT_FAIL))}.")
    keywords = [*(ast.keyword(name, value) for name, value in given.items()), *guards_of(event)]
    if not isinstance(callbacks, ast.List):
        each = ast.Name("hook", ast.Load())
        return ast.ListComp(_hook(each, keywords), [ast.comprehension(each, callbacks, [], 0)])
    hooks = [_hook(one, keywords) for one in callbacks.elts]
    return hooks[0] if len(hooks) == 1 else ast.List(hooks, ast.Load())


def guards_of(event: str | None) -> list[ast.keyword]:
    """Return the arguments that make a hook block after its timeout, if its event needs them."""
    return [ast.keyword("on_timeout", ast.Constant("block"))] if event in GUARDS else []


def flat(value: ast.expr) -> ast.expr:
    """Join lists of hooks that became parts of a list of matchers."""
    if not isinstance(value, ast.List):
        return value
    return ast.List([one for part in value.elts for one in _parts(part)], ast.Load())


def _parts(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.ListComp):
        return [ast.Starred(value, ast.Load())]
    return value.elts if isinstance(value, ast.List) else [value]


def _hook(callback: ast.expr, keywords: list[ast.keyword]) -> ast.expr:
    return ast.Call(ast.Name("Hook", ast.Load()), [callback], keywords)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _on_error(on_failure: ast.expr) -> ast.expr:
    """Return the value of `on_error`. The CLI reads every other word as "block"."""
    is_other = isinstance(on_failure, ast.Constant) and on_failure.value != "continue"
    return ast.Constant("block") if is_other else on_failure
