"""Pools whose processes are borrowed and returned a thousand times. Only when asked for.

``BRIDLE_SOAK=1`` asks for it, as ``make soak`` does.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.pools import cycle

from bridle._shell.locate import candidates

OLDER = Path(__file__).parents[2] / ".clis" / "2.1.197" / "claude"

pytestmark = pytest.mark.skipif(
    not os.environ.get("BRIDLE_SOAK"), reason="takes minutes: `make soak` runs it"
)


@pytest.mark.parametrize("flavour", ["2.1.325", "2.1.197"])
def test_a_thousand_uses_on_the_fake_cli_leave_nothing(tmp_path: Path, flavour: str) -> None:
    cycle(tmp_path, uses=1000, flavour=flavour)


@pytest.mark.parametrize("age", ["newest", "older"])
def test_fifty_uses_on_a_real_cli_leave_nothing(tmp_path: Path, age: str) -> None:
    wheels = [Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk"]
    path = OLDER if age == "older" else next((one for one in wheels if one.exists()), None)
    if path is None or not path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it")
    cycle(tmp_path, uses=50, cli=str(path))
