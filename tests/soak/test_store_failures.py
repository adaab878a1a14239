"""A database server that hangs for half a minute in the middle of a turn loses nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.real.conftest import OLDER, Lab, newest
from tests.support.store_failures import Server, check_that_nothing_is_lost, run_while_away
from tests.support.stores import open_place

pytestmark = pytest.mark.skipif(
    not os.environ.get("BRIDLE_SOAK"), reason="takes minutes: `make soak` runs it"
)


@pytest.mark.parametrize("version", ["newest", "2.1.197"])
@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_a_server_that_hangs_for_half_a_minute_misses_nothing(
    version: str,
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cli_path = newest() if version == "newest" else OLDER
    if cli_path is None or not cli_path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it (the older one needs npm)")
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    server: Server = request.getfixturevalue(f"{kind}_server")
    place = open_place(kind, request, tmp_path)
    (tmp_path / "work").mkdir()
    store = place.open()
    machine, session_id, details = await run_while_away(
        Lab(str(cli_path), tmp_path / "work"),
        store,
        state,
        leave=server.pause,
        come_back=server.resume,
        seconds=30.0,
        call=1.5,
    )
    assert any(str(state) in one for one in details)
    assert list(state.rglob("*.jsonl")) == []
    await check_that_nothing_is_lost(machine, store, session_id)
    await store.aclose()
