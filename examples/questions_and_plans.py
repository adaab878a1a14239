"""Answer questions of the model, and approve its plan before it does anything.

Both callbacks are plain functions. They run in threads, so `input()` does not block the event loop.
A thread that waits in `input()` keeps the terminal after Ctrl-C. On a terminal, use
`on_question=bridle.terminal.ask` and `on_plan=bridle.terminal.ask` instead.

$ python examples/questions_and_plans.py
"""

import asyncio

import bridle


def answer(ask: bridle.QuestionContext) -> bridle.QuestionResult:
    """Ask the user the questions of the model."""
    answers: dict[str, str] = {}
    for question in ask.questions:
        print(question.question)
        for number, option in enumerate(question.options, 1):
            print(f"  {number}. {option.label}: {option.description}")
        typed = input("number, or your own words: ").strip()
        if not typed:
            return bridle.Deny("The user does not want to answer. Decide yourself.")
        listed = {str(number): option.label for number, option in enumerate(question.options, 1)}
        answers[question.question] = listed.get(typed, typed)
    return bridle.Answers(answers)


def approve(ask: bridle.PlanContext) -> bridle.PlanResult:
    """Approve the plan, or reject it and say what to change."""
    print(f"--- plan\n{ask.plan}\n---")
    objection = input("Enter to go ahead, or what to change: ").strip()
    return bridle.Deny(objection) if objection else bridle.Allow()


async def main() -> None:
    agent = bridle.Agent(permission_mode="plan", on_question=answer, on_plan=approve)
    outcome = await agent.run(
        "Plan a birthday poem for a horse. Ask me which form it should have, then show your plan, "
        "then recite the poem."
    )
    print(outcome.raise_for_reason().text)


if __name__ == "__main__":
    asyncio.run(main())
