"""Make the native hooks of a `HookMatcher`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from bridle.compat._hook_rules import CANNOT_FAIL, GUARDS, HOOK_TIMEOUT

RETURNS_NONE = (
    "A hook that returns None lets the work continue, also with on_error. With the official SDK "
    "it blocks. Return Block, or raise an exception, wherever the hook must block."
)

SEVERAL_HOOKS = "Set the option parallel_hooks=True if an event has several hooks."


def hooks_of(
    arguments: Mapping[str, ast.expr], event: str | None, note: Callable[[str], object]
) -> ast.expr | None:
    """Return one hook for each callback of a matcher. None if its callbacks are not known.

    ``event`` is the event of the matcher, None if it is not known. ``note`` gets notes for the
    reader.
    """
    given = {name: value for name, value in arguments.items() if not _is_none(value)}
    if "timeout" in given and _is_zero(given["timeout"]):
        del given["timeout"]  # the default, too
    callbacks, on_failure = given.pop("hooks", None), given.pop("on_failure", None)
    if event is None:
        note(f'Add on_timeout="block" to hooks of {", ".join(sorted(GUARDS))}.')
        note(SEVERAL_HOOKS)
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
        if not isinstance(on_failure, ast.Constant):
            note('The value of on_error is "block" or "continue".')
        if not (isinstance(on_failure, ast.Constant) and on_failure.value == "continue"):
            note(RETURNS_NONE)
    keywords = [*(ast.keyword(name, value) for name, value in given.items()), *guards_of(event)]
    if not isinstance(callbacks, ast.List):
        return _each(callbacks, keywords)
    hooks = [
        ast.Starred(_each(one.value, keywords), ast.Load())
        if isinstance(one, ast.Starred)
        else _hook(one, keywords)
        for one in callbacks.elts
    ]
    is_one = len(hooks) == 1 and not isinstance(hooks[0], ast.Starred)
    return hooks[0] if is_one else ast.List(hooks, ast.Load())


def guards_of(event: str | None) -> list[ast.keyword]:
    """Return the arguments that make a hook block after its timeout, if its event needs them."""
    return [ast.keyword("on_timeout", ast.Constant("block"))] if event in GUARDS else []


def needs_parallel(hooks: ast.expr) -> bool:
    """Return whether an event of the option `hooks` has several hooks, or a list not known here.

    The CLI calls all hooks of the official SDK. Bridle stops after the first that decides.
    """
    if not isinstance(hooks, ast.Dict):
        return not _is_none(hooks)
    lists = [one.elts if isinstance(one, ast.List) else None for one in hooks.values]
    known = all(one is not None and all(map(_is_hook, one)) and len(one) < 2 for one in lists)
    return None in hooks.keys or not known


def _is_hook(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    return ast.unparse(value.func) == "Hook" and len(value.args) == 1


def parts_of(hooks: ast.expr) -> list[ast.expr]:
    """Return the elements that the hooks of a matcher are in a list of hooks."""
    if isinstance(hooks, ast.ListComp):
        return [ast.Starred(hooks, ast.Load())]
    return hooks.elts if isinstance(hooks, ast.List) else [hooks]


def flat(hooks: ast.ListComp) -> ast.ListComp:
    """Join the lists of hooks that a list comprehension of matchers became."""
    inner = hooks.elt
    if isinstance(inner, ast.ListComp):
        return ast.ListComp(inner.elt, [*hooks.generators, *inner.generators])
    if not isinstance(inner, ast.List):
        return hooks
    each = ast.Name("hook", ast.Load())
    return ast.ListComp(each, [*hooks.generators, ast.comprehension(each, inner, [], 0)])


def _each(callbacks: ast.expr, keywords: list[ast.keyword]) -> ast.expr:
    """Return a list comprehension that makes a hook of each callback."""
    values = (one.value for one in keywords)
    used = {node.id for one in values for node in ast.walk(one) if isinstance(node, ast.Name)}
    each = ast.Name("callback" if "hook" in used else "hook", ast.Load())
    return ast.ListComp(_hook(each, keywords), [ast.comprehension(each, callbacks, [], 0)])


def _hook(callback: ast.expr, keywords: list[ast.keyword]) -> ast.expr:
    return ast.Call(ast.Name("Hook", ast.Load()), [callback], keywords)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_zero(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == 0


def _on_error(on_failure: ast.expr) -> ast.expr:
    """Return the value of `on_error`. The CLI reads every other word as "block"."""
    is_other = isinstance(on_failure, ast.Constant) and on_failure.value != "continue"
    return ast.Constant("block") if is_other else on_failure
