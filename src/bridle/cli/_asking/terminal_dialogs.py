"""Dialogs with the user: ask until there is a valid answer, and return the result of a callback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from bridle.cli._asking import questions
from bridle.cli._screens.printable import one_line
from bridle.cli._screens.shown import Line, Span
from bridle.permissions import (
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    CanUseToolContext,
    Deny,
    Edit,
    PlanContext,
    PlanResult,
    QuestionContext,
    QuestionResult,
)

NO = "The user does not want this."
DISMISSED = "The user does not want to answer. Decide yourself, and state your assumptions."

_AGAIN = "This answer is not one of the choices."


class Asker(Protocol):
    """Asks the user."""

    async def ask(self, lines: Sequence[Line], prompt: str) -> str | None:
        """Show the lines and the prompt. Return the answer; None if the user gives no answer."""
        ...

    async def edit(self, text: str) -> str:
        """Let the user edit a text and return the result. Raises OSError if that fails."""
        ...


async def ask_permission(
    asker: Asker, context: CanUseToolContext
) -> AllowOnce | AllowAll | Edit | Deny:
    """Ask whether a tool may run. No answer means no."""
    lines: Sequence[Line] = questions.permission(context)
    while True:
        said = await asker.ask(lines, questions.choices(context))
        chosen = questions.Choice("no") if said is None else questions.choice(said, context)
        match chosen:
            case questions.Choice("yes"):
                return AllowOnce()
            case questions.Choice("always"):
                return AllowAll()
            case questions.Choice("no", reason):
                return Deny(reason or NO)
            case questions.Choice("edit"):
                changed, lines = await _edit(asker, context)
                if changed is not None:
                    return Edit(changed)
            case _:
                lines = _hint(_AGAIN)


async def _edit(
    asker: Asker, context: CanUseToolContext
) -> tuple[dict[str, Any] | None, Sequence[Line]]:
    """Return the edited input; or None, and the lines to show before asking again."""
    before = questions.document(context.tool_input)
    try:
        after = await asker.edit(before)
        changed = questions.edited(after)
    except (OSError, ValueError) as problem:
        return None, _hint(str(problem))
    if changed == context.tool_input:
        return None, questions.permission(context)
    return changed, ()


async def ask_plan(asker: Asker, context: PlanContext, plan: str | None) -> PlanResult:
    """Ask whether a plan is approved. No answer means no."""
    lines = questions.plan(plan)
    while True:
        said = await asker.ask(lines, questions.PLAN_CHOICES)
        chosen = questions.Choice("no") if said is None else questions.choice(said, context)
        match chosen:
            case questions.Choice("yes"):
                return Allow()
            case questions.Choice("no", reason):
                return Deny(reason or NO)
            case _:
                lines = _hint(_AGAIN)


async def ask_questions(asker: Asker, context: QuestionContext) -> QuestionResult:
    """Ask the questions of the model. No answer to one of them dismisses all."""
    answers: dict[str, str | Sequence[str]] = {}
    for asked in context.questions:
        lines = questions.question(asked)
        answer = None
        while answer is None:
            said = await asker.ask(lines, questions.offer(asked))
            if said is None:
                return Deny(DISMISSED)
            answer = questions.answer(said, asked)
            lines = _hint(_AGAIN)
        answers[asked.question] = answer
    return Answers(answers)


def _hint(text: str) -> list[Line]:
    return [(Span(f"  {one_line(text, 500)}", "warn"),)]
