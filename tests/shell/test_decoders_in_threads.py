"""Threads that decode the first value of a class at the same time.

msgspec builds the decoder of a class on first use. It crashes the process if another thread decodes
the class meanwhile: a program that read 16 runs of a fleet at once died of SIGSEGV.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, threading
{imports}

order, building, decoded = [], threading.Event(), threading.Event()

def pause(frame, event, _):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        sys.setprofile(None)
        building.set()
        decoded.wait(1.0)  # in vain if the other thread waits for this one

def first():
    sys.setprofile(pause)
    {decode}
    sys.setprofile(None)
    order.append("first")

def second():
    {decode}
    order.append("second")
    decoded.set()

one, other = threading.Thread(target=first), threading.Thread(target=second)
one.start()
while one.is_alive() and not building.wait(0.01):
    pass
other.start()
one.join()
other.join()
print(*order)
"""

CASES = {
    "runs of a fleet": (
        "from bridle.fleet._queue import rows as _rows",
        """one = __import__("types").SimpleNamespace(
        workflow_id="r", status="SUCCESS", executor_id=None, attributes=None, created_at=0,
        recovery_attempts=0, dequeued_at=None, completed_at=None, delay_until_epoch_ms=None,
        error=None, output='{"outcome": {"reason": "completed"}}',
        input={"args": ['{"run_id": "r", "session_id": "s", "prompt": "p", "spent": 1.0}']})
    _rows.row_of(one, _rows.segment_of(one))""",
    ),
    "a message": ("import bridle", """bridle.decode_line(b'{"type": "user", "message": {}}')"""),
    "a system message": (
        "import bridle",
        """bridle.decode_line(b'{"type": "system", "subtype": "init"}')""",
    ),
    "a call that waits": (
        "from bridle import PendingApproval\n"
        "text = PendingApproval(session_id='s', tool_name='t', tool_input={}, "
        "tool_use_id='u').to_json()",
        "PendingApproval.from_json(text)",
    ),
    "a journal": (
        "from bridle.sessions._journal import decode_entries",
        """decode_entries([{"type": "outcome", "uuid": "u", "at": 0.0, "prompt_uuid": "p",
        "outcome": {"reason": "completed", "usage": {}}}])""",
    ),
    "the owner of a lease": (
        "from bridle.sessions._outbox import lease_owners\n"
        """open("lease", "w").write('{"owner": "a", "boot": "b"}')""",
        "lease_owners._read('lease')",
    ),
}


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("case", CASES)
def test_a_thread_waits_until_the_decoder_is_complete(case: str, tmp_path: Path) -> None:
    if case == "runs of a fleet":
        pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")
    imports, decode = CASES[case]
    program = PROGRAM.format(imports=imports, decode=decode)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "first second\n"), done.stderr
