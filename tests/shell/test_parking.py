"""A process without a session: what it writes is kept, and its end is noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import Programs, Recorder, is_alive, plan, until

from bridle._process.parked import ParkedCli
from bridle.errors import SpawnError

ECHO = """
print('early', flush=True)
print('note', file=sys.stderr, flush=True)
for line in sys.stdin: print(line, end='', flush=True)
"""


async def test_what_a_process_wrote_before_is_delivered_first(tmp_path: Path) -> None:
    lost: list[ParkedCli] = []
    parked = ParkedCli(Programs(tmp_path).python(ECHO), plan(), lost.append)
    await until(lambda: len(parked._kept) >= 2)
    events = Recorder()
    process = parked.hand_over(events)
    assert events.log == []  # the session has to have its process first
    process.write(b"later\n")
    await until(lambda: bytes(events.output) == b"early\nlater\n")
    assert events.all("wrote_stderr") == ["note"]
    with pytest.raises(SpawnError):
        parked.hand_over(events)
    await parked.aclose()  # the session ends the process
    assert is_alive(parked.pid)
    await process.aclose()
    assert (events.has_exited, lost) == (True, [])


@pytest.mark.parametrize("end", ["sys.exit(3)", "os.close(0); os.close(1); time.sleep(60)"])
async def test_the_end_of_a_process_is_reported_once(tmp_path: Path, end: str) -> None:
    lost: list[ParkedCli] = []
    parked = ParkedCli(Programs(tmp_path).python(end), plan(), lost.append)
    assert parked.is_alive
    await until(lambda: lost)
    with pytest.raises(SpawnError):
        parked.hand_over(Recorder())
    await parked.aclose()
    assert lost == [parked]
    assert not is_alive(parked.pid)


async def test_a_process_that_writes_too_much_is_not_used(
    tmp_path: Path, set_limits: SetLimits
) -> None:
    set_limits(parked_processes=3)

    lost: list[ParkedCli] = []
    parked = ParkedCli(Programs(tmp_path).python(ECHO), plan(), lost.append)
    await until(lambda: lost)
    await parked.aclose()


async def test_closing_a_process_ends_it_even_if_the_caller_is_cancelled(tmp_path: Path) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
    parked = ParkedCli(Programs(tmp_path).python(deaf), plan(), lambda _: None)
    closing = asyncio.create_task(parked.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await until(lambda: not is_alive(parked.pid))
