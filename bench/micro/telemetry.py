"""What telemetry costs per message of a session: when there is none, and when there is.

The floor is the session's engine and queues without an observer. An observer that does nothing
is what every message costs once telemetry is set; OpenTelemetry, recording, is what a user of it
pays. All run in turns, in one process; what counts is the ratio of medians to the floor.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time

from bridle import BidirOptions, SdkOptions, Session
from bridle._process.transport import TransportEvents
from bridle.telemetry import Observation, Telemetry

ROUNDS = 31
LINES_PER_CHUNK = 160
CHUNKS = 20

_LINE = {
    "type": "assistant",
    "message": {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "A short answer, as most of them are."}],
        "stop_reason": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
    "session_id": "11111111-1111-4111-8111-111111111111",
    "uuid": "22222222-2222-4222-8222-222222222222",
    "parent_tool_use_id": None,
}
_CHUNK = (json.dumps(_LINE).encode() + b"\n") * LINES_PER_CHUNK


class Silence:
    """Telemetry that ignores everything."""

    def observe(self, observation: Observation, /) -> None:
        """Do nothing."""


class Stage:
    """Takes the place of the process: answers the handshake, and says what it is told to say."""

    pid: int | None = None
    stderr_tail = ""

    def __call__(self, events: TransportEvents) -> Stage:
        self.events = events
        return self

    def write(self, data: bytes) -> None:
        """Answer the handshake."""
        frame = json.loads(data)
        if frame.get("request", {}).get("subtype") == "initialize":
            answer = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
            line = json.dumps({"type": "control_response", "response": answer}).encode() + b"\n"
            asyncio.get_running_loop().call_soon(self.events.received, line)

    async def drain(self) -> None:
        """Nothing ever waits."""

    def end_input(self) -> None:
        """Leave."""
        self.terminate()

    def terminate(self) -> None:
        """Leave."""
        asyncio.get_running_loop().call_soon(self._leave)

    def kill(self) -> None:
        """Leave."""

    def _leave(self) -> None:
        self.events.exited(0)
        self.events.output_ended()

    async def aclose(self) -> None:
        """Nothing is left."""


async def seconds(telemetry: Telemetry | None) -> float:
    """CPU seconds for one round of messages, in the middle of a turn that nobody reads."""
    stage = Stage()
    sdk = SdkOptions(telemetry=telemetry, max_unread_bytes=1 << 30)
    session = Session(sdk=sdk, bidir=BidirOptions(transport_factory=stage))
    await session.connect()
    _ = await session.send_user_message("hello")
    before = time.process_time()
    for _ in range(CHUNKS):
        stage.events.received(_CHUNK)
    taken = time.process_time() - before
    await session.stop()
    return taken


def contenders() -> dict[str, Telemetry | None]:
    """What is compared; OpenTelemetry only where it is installed."""
    found: dict[str, Telemetry | None] = {"none": None, "none again": None, "silence": Silence()}
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider

        from bridle.otel import OpenTelemetry
    except ImportError:
        return found
    providers = TracerProvider(), MeterProvider()
    found["otel"] = OpenTelemetry(tracer_provider=providers[0], meter_provider=providers[1])
    return found


async def main() -> None:
    """Print a row for each."""
    compared = contenders()
    rounds = [
        {name: await seconds(telemetry) for name, telemetry in compared.items()}
        for _ in range(ROUNDS)
    ]
    per_message = 1e6 / (CHUNKS * LINES_PER_CHUNK)
    print(f"{'telemetry':<12}{'us/message':>12}{'spread':>16}{'ratio':>8}")
    for name in compared:
        taken = sorted(one[name] * per_message for one in rounds)
        ratio = statistics.median(one[name] / one["none"] for one in rounds)
        spread = f"{taken[0]:.2f}..{taken[-1]:.2f}"
        print(f"{name:<12}{statistics.median(taken):>12.2f}{spread:>16}{ratio:>8.3f}")


if __name__ == "__main__":
    asyncio.run(main())
