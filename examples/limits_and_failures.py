"""Limits, and what to do when a turn does not end well.

Every turn ends with exactly one reason, in bounded time if you bound it. Look at the reason where
you can act on it, and let `raise_for_reason()` turn the rest into typed errors.

$ python examples/limits_and_failures.py
"""

import asyncio

import bridle
from bridle import OutcomeReason

LIMITS = bridle.Limits(
    first_event=60.0,  # seconds until the CLI shows a sign of life
    idle=120.0,  # seconds between two of them
    total=600.0,  # seconds for the whole turn
    turns=3,  # calls of the model
    usd=0.50,
)
PROMPTS = ("What is 2 + 2?", "List this directory, one file at a time.", "What is 3 + 3?")


def watch(event: bridle.SessionEvent) -> None:
    """What happens beside the conversation, while it happens."""
    if isinstance(event, bridle.RateLimited) and event.utilization is not None:
        print(f"! {event.utilization:.0%} of the {event.limit_type} limit is used")
    elif isinstance(event, bridle.ApiRetry):
        print(f"! the API failed ({event.error_status}), next try in {event.delay:.0f} s")
    elif isinstance(event, bridle.SdkWarning) and event.level == "error":
        print(f"! {event}")


async def ask(prompt: str) -> str:
    """The answer, or why there is none that could be waited for."""
    while True:
        outcome = await bridle.run(
            prompt,
            sdk=bridle.SdkOptions(limits=LIMITS),
            bidir=bridle.BidirOptions(on_event=watch),
        )
        match outcome.reason:
            case OutcomeReason.RATE_LIMITED:
                print(f"! {outcome.detail}")
                await outcome.wait_for_reset(default=60.0)  # then try again
            case OutcomeReason.LIMIT_TURNS | OutcomeReason.LIMIT_TOTAL | OutcomeReason.LIMIT_USD:
                return f"gave up, {outcome.detail}"
            case _:
                return outcome.raise_for_reason().text


async def main() -> None:
    for prompt in PROMPTS:
        try:
            print(f"{prompt} {await ask(prompt)}")
        except bridle.errors.AuthFailedError:
            raise SystemExit("Log in first: run `claude` and follow what it says.") from None
        except bridle.OutcomeError as error:  # the base of all reasons
            print(f"{prompt} failed: {error.outcome.reason}")


if __name__ == "__main__":
    asyncio.run(main())
