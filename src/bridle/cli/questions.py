"""What a person is asked: the lines of a question, and what an answer means.

Whoever allows something allows what they have seen, so an input is shown whole, up to a bound that
is said when it is reached; :func:`document` has all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from bridle.cli.printable import one_line, printable
from bridle.cli.shown import Line, Span, counted
from bridle.cli.view import ASK
from bridle.permissions import CanUseToolContext, Question

_LINES = 30
_CHARACTERS = 3000

# ---------------------------------------------------------------- permissions


class Choice(msgspec.Struct, frozen=True):
    """What a person chose."""

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
    """May this tool run?"""
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
    """The answers there are."""
    name = one_line(context.tool_name)
    always = "" if _is_always_asked(context) else f", [a]lways allow {name}"
    return f"  [y]es, [n]o (or n and why), [e]dit{always} > "


def choice(text: str, context: CanUseToolContext) -> Choice | None:
    """What an answer means; None for one that means nothing here."""
    word, _, rest = text.strip().partition(" ")
    kind = _KINDS.get(word.lower())
    if kind is None or (kind == "always" and _is_always_asked(context)):
        return None
    if kind == "no":
        return Choice(kind, rest.strip())
    return None if rest.strip() else Choice(kind)


def _is_always_asked(context: CanUseToolContext) -> bool:
    is_by_hook = context.decision_reason_type == "hook"  # the policy's too: it asks every time
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
    """Text line by line, and a word about what is left out of a long one."""
    whole = printable(text).rstrip("\n")
    shown = whole[:_CHARACTERS].split("\n")[:_LINES]
    yield from ((Span(line),) for line in shown)
    left = len(whole) - len("\n".join(shown))
    if left > 0:
        more = f"… {counted(left, 'character')} more: e shows everything"
        yield (Span(more, "warn"),)


def document(tool_input: Mapping[str, Any]) -> str:
    """An input as a person edits it."""
    return msgspec.json.format(msgspec.json.encode(tool_input), indent=2).decode() + "\n"


def edited(text: str) -> dict[str, Any]:
    """The input in an edited document.

    Raises:
        ValueError: it holds none; says why.
    """
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"This is not a JSON object: {error}") from None


# ---------------------------------------------------------------- questions of the model


def question(asked: Question) -> list[Line]:
    """What the model wants to know, with the answers it offers."""
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
    """The answers there are."""
    if not asked.options:
        return "  your answer > "
    return f"  {'numbers' if asked.multi_select else 'a number'}, or your own words > "


def answer(text: str, asked: Question) -> str | Sequence[str] | None:
    """What an answer means: a label, several, or own words; None for one that means nothing."""
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
    """Shall this be done?"""
    lines: list[Line] = [(Span(f"{ASK} ", "ask"), Span("The model has a plan", "strong"))]
    if text:
        lines += [(Span(f"    {line}"),) for line in printable(text).split("\n")]
    return lines


PLAN_CHOICES = "  [y]es, do it, [n]o (or n and what to change) > "
