"""Questions to the user: the lines to print, and the meaning of the answer.

The user decides on the input that is shown, so it is shown in full. Long input is cut, and the
question says so. :func:`document` returns all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from bridle.cli._screens.printable import one_line, printable
from bridle.cli._screens.shown import Line, Span, counted
from bridle.cli._screens.view import ASK
from bridle.permissions import CanUseToolContext, Question

_LINES = 30
_CHARACTERS = 3000

# ---------------------------------------------------------------- permissions


class Choice(msgspec.Struct, frozen=True):
    """The user's choice."""

    kind: Literal["yes", "no", "edit", "always"]
    reason: str = ""


_KINDS: Mapping[str, Literal["yes", "no", "edit", "always"]] = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "e": "edit",
    "edit": "edit",
    "a": "always",
    "always": "always",
}


def permission(context: CanUseToolContext) -> list[Line]:
    """Return the lines that ask for permission to run a tool."""
    name = one_line(context.tool_name)
    agent = " in a subagent" if context.agent_id else ""
    lines: list[Line] = [
        (Span(f"{ASK} ", "ask"), Span(name, "strong"), Span(f" asks for permission{agent}", "ask")),
        *_members(context.tool_input),
    ]
    if context.decision_reason:
        lines.append((Span(f"    asked because: {one_line(context.decision_reason, 500)}", "dim"),))
    return lines


def choices(context: CanUseToolContext) -> str:
    """Return the prompt that lists the possible answers to a permission request."""
    name = one_line(context.tool_name)
    always = "" if _is_always_asked(context) else f", [a]lways allow {name}"
    return f"  [y]es, [n]o (or n and why), [e]dit{always} > "


def choice(text: str, context: CanUseToolContext) -> Choice | None:
    """Return the choice that an answer means, or None if it is not one of the choices."""
    word, _, rest = text.strip().partition(" ")
    kind = _KINDS.get(word.lower())
    if kind is None or (kind == "always" and _is_always_asked(context)):
        return None
    if kind == "no":
        return Choice(kind, rest.strip())
    return None if rest.strip() else Choice(kind)


def _is_always_asked(context: CanUseToolContext) -> bool:
    is_by_hook = context.decision_reason_type == "hook"  # such as our policy: it asks every time
    return is_by_hook or context.suppress_always_allow_rule or context.server_policy_ask_only


def _members(tool_input: Mapping[str, Any]) -> Iterator[Line]:
    width = max((len(one_line(name)) for name in tool_input), default=0)
    for name, value in tool_input.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        head, *rest = list(excerpt(text)) or [(Span(""),)]
        label = Span(f"    {one_line(name):{width}}  ", "dim")
        yield (label, *head)
        yield from ((Span(" " * (width + 6)), *line) for line in rest)


def excerpt(text: str) -> Iterator[Line]:
    """Yield the lines of a text. If it is long, cut it and say how much is missing."""
    whole = printable(text).rstrip("\n")
    shown = whole[:_CHARACTERS].split("\n")[:_LINES]
    yield from ((Span(line),) for line in shown)
    left = len(whole) - len("\n".join(shown))
    if left > 0:
        more = f"… {counted(left, 'character')} more: e shows everything"
        yield (Span(more, "warn"),)


def document(tool_input: Mapping[str, Any]) -> str:
    """Return a tool input as JSON text for the editor."""
    return msgspec.json.format(msgspec.json.encode(tool_input), indent=2).decode() + "\n"


def edited(text: str) -> dict[str, Any]:
    """Return the tool input in an edited document.

    Raises:
        ValueError: the document is not a JSON object. The message says why.
    """
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"This is not a JSON object: {error}") from None


# ---------------------------------------------------------------- questions of the model


def question(asked: Question) -> list[Line]:
    """Return the lines of a question of the model, with the offered answers."""
    head = f" {one_line(asked.header)}:" if asked.header else ""
    lines: list[Line] = [
        (Span(f"{ASK}{head} ", "ask"), Span(one_line(asked.question, 2000), "strong"))
    ]
    width = max((len(one_line(option.label)) for option in asked.options), default=0)
    for number, option in enumerate(asked.options, 1):
        label = f"{one_line(option.label):{width}}"
        lines.append(
            (
                Span(f"  {number:>3}  "),
                Span(label),
                Span(f"  {one_line(option.description)}", "dim"),
            )
        )
    return lines


def offer(asked: Question) -> str:
    """Return the prompt that says how to answer a question of the model."""
    if not asked.options:
        return "  your answer > "
    return f"  {'numbers' if asked.multi_select else 'a number'}, or your own words > "


def answer(text: str, asked: Question) -> str | Sequence[str] | None:
    """Return the chosen label, labels or the user's own text; None if the answer is invalid."""
    said = text.strip()
    if not said:
        return None
    if not asked.options or not re.fullmatch(r"\d+([\s,]+\d+)*", said):
        return said
    numbers = [int(number) for number in re.findall(r"\d+", said)]
    if not all(1 <= number <= len(asked.options) for number in numbers):
        return None
    labels = [asked.options[number - 1].label for number in numbers]
    if asked.multi_select:
        return labels
    return labels[0] if len(labels) == 1 else None


# ---------------------------------------------------------------- plans


def plan(text: str | None) -> list[Line]:
    """Return the lines that ask the user to approve a plan."""
    lines: list[Line] = [(Span(f"{ASK} ", "ask"), Span("The model has a plan", "strong"))]
    if text:
        lines += [(Span(f"    {line}"),) for line in printable(text).split("\n")]
    return lines


PLAN_CHOICES = "  [y]es, do it, [n]o (or n and what to change) > "
