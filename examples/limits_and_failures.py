"""Set limits, and handle turns that fail.

Every turn ends with exactly one reason. With limits, it also ends in bounded time. Check the
reasons that you can handle, and let `raise_for_reason()` raise typed errors for the others.

$ python examples/limits_and_failures.py
"""

import asyncio

import bridle
from bridle import OutcomeReason

LIMITS = bridle.Limits(
    first_event=60.0,  # seconds until the first message of the CLI
    idle=120.0,  # seconds between two messages
    total=600.0,  # seconds for the whole turn
    turns=3,  # model calls
    usd=0.50,
)
PROMPTS = ("What is 2 + 2?", "List this directory, one file at a time.", "What is 3 + 3?")


def watch(event: bridle.SessionEvent) -> None:
    """Print events of the session while the turn runs."""
    if isinstance(event, bridle.RateLimited) and event.utilization is not None:
        print(f"! {event.utilization:.0%} of the {event.limit_type} limit is used")
    elif isinstance(event, bridle.ApiRetry):
        print(f"! the API failed ({event.error_status}), next try in {event.delay:.0f} s")
    elif isinstance(event, bridle.SdkWarning) and event.level == "error":
        print(f"! {event}")


agent = bridle.Agent(limits=LIMITS, on_event=watch)


async def ask(prompt: str) -> str:
    """Return the answer, or the reason why there is none. Wait if a rate limit was reached."""
    while True:
        outcome = await agent.run(prompt)
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
        except bridle.OutcomeError as error:  # the base class of the errors of all reasons
            print(f"{prompt} failed: {error.outcome.reason}")


if __name__ == "__main__":
    asyncio.run(main())
