"""All combinations of prompts to conversations whose tool call waits for approval."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.real.conftest import OLDER, newest
from tests.support import waiting_calls

pytestmark = pytest.mark.skipif(
    not os.environ.get("BRIDLE_SOAK"), reason="takes minutes: `make soak` runs it"
)


@pytest.mark.parametrize("one", waiting_calls.ALL, ids=str)
@pytest.mark.parametrize("cli_path", [newest(), OLDER], ids=["newest", "2.1.197"])
def test_a_prompt_is_refused_and_the_call_stays_approvable(
    cli_path: Path | None, one: waiting_calls.Combination, tmp_path: Path
) -> None:
    assert cli_path is not None
    asyncio.run(asyncio.wait_for(waiting_calls.play(one, str(cli_path), tmp_path), 300))
