"""The cassette fixture in a pytest of its own: recorded on the real CLI, then replayed without."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bridle
from bridle.testing import ScriptedModel, repeat, text, tool_use
from bridle.testing.cassette import Cassette
from bridle.testing.recording import read_recording
from bridle.testing.script import Turn

if TYPE_CHECKING:
    from tests.real.conftest import Lab

pytest_plugins = ["pytester"]

# Under one name only, whether or not this installation announces the plugin by itself.
LOADED = ("-p", "no:bridle", "-p", "bridle.testing.pytest_plugin", "-p", "no:cacheprovider")

SHOP = """
    import asyncio, os
    import bridle
    from bridle import sync
    from bridle.testing import text, tool_use

    SECRET = "hush-hush-0123456789abcdef"

    @bridle.tool
    def price(article: str) -> int:
        return int(os.environ.get("PRICE", "7"))

    def decide(ctx):
        return bridle.Allow() if os.environ.get("POLICY") != "deny" else bridle.Deny("no")

    def options(cassette, model, tmp_path):
        cli = bridle.CliOptions(
            cli_path=os.environ["SHOP_CLI"], cwd=tmp_path,
            env={**model.env, "MY_TOKEN": SECRET, "SEASON": os.environ.get("SEASON", "dry")},
            settings={"cleanupPeriodDays": int(os.environ.get("DAYS", "30"))},
            sandbox={"enabled": False, "autoAllowBashIfSandboxed": "AUTO" in os.environ},
            append_system_prompt=f"The key is {SECRET}.",
        )
        bidir = bridle.BidirOptions(
            mcp_servers={"shop": bridle.ToolServer([price])}, on_can_use_tool=decide
        )
        limits = bridle.Limits(turns=int(os.environ.get("TURNS", "8")))
        sdk = bridle.SdkOptions(recorder=cassette, limits=limits)
        return {"cli": cli, "sdk": sdk, "bidir": bidir}

    def test_price(cassette, scripted_model, tmp_path):
        calls = [tool_use("mcp__shop__price", article=name) for name in ("saddle", "girth")]
        model = scripted_model([calls, [text("done")]])
        (tmp_path / "list.txt").write_text("saddle")
        prompt = os.environ.get("PROMPT", f"What does {tmp_path / 'list.txt'} cost?")
        outcome = sync.run(prompt, **options(cassette, model, tmp_path))
        assert (outcome.ok, outcome.text) == (True, "done"), outcome
        assert os.environ.get("BREAK") is None
"""


class Shop:
    """A project with a test that uses a cassette."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        self._environment = monkeypatch
        pytester.makepyfile(test_shop=SHOP)
        self.directory = pytester.path / "cassettes" / "test_shop"
        self.recording = self.directory / "test_price.ndjson"

    def run(self, cli: str, *arguments: str, **environment: str) -> pytest.RunResult:
        """Run the test with this CLI."""
        with self._environment.context() as patch:
            for name, value in {"SHOP_CLI": cli, **environment}.items():
                patch.setenv(name, value)
            return self._pytester.runpytest_inprocess(*LOADED, *arguments)


@pytest.fixture
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(pytester, monkeypatch)


NO_CLI = "/nowhere/claude"


@pytest.mark.longer
def test_a_test_is_recorded_once_and_replayed_without_a_cli(cli_path: str, shop: Shop) -> None:
    shop.run(cli_path).assert_outcomes(passed=1)
    recorded = shop.recording.read_bytes()
    entries = read_recording(shop.recording)
    assert entries.gap == ""
    assert b"hush-hush" not in recorded
    answers = [one.members for one in entries if one.direction == "in"]
    # Two tool calls. An older CLI also makes the handshake.
    assert sum("mcp_response" in json.dumps(one) for one in answers) >= 2

    shop.run(NO_CLI).assert_outcomes(passed=1)  # another tmp_path, another key, no CLI
    assert shop.recording.read_bytes() == recorded


@pytest.mark.longer
@pytest.mark.parametrize("cli_path", ["newest"], indirect=True)  # no CLI takes part in a replay
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"POLICY": "deny"},
            "*permission request for mcp__shop__price: recorded: allow, now: deny*",
        ),
        ({"PROMPT": "Hello?"}, "*prompt 1, message.content: recorded: *, now: ?Hello??*"),
        ({"PRICE": "8"}, "*answer to tools/call price for the server shop, *7*8*"),
        ({"DAYS": "31"}, "*settings.cleanupPeriodDays at the start: recorded: 30, now: 31*"),
        ({"AUTO": "1"}, "*settings.sandbox.autoAllowBashIfSandboxed *: false, now: true*"),
        ({"SEASON": "wet"}, "*env_variables.SEASON at the start: *"),
        ({"TURNS": "9"}, "*limits.turns at the start: recorded: 8, now: 9*"),
    ],
    ids=["policy", "prompt", "tool", "settings", "sandbox", "env", "limits"],
)
def test_a_changed_program_fails_and_is_recorded_anew_on_demand(
    cli_path: str, shop: Shop, change: dict[str, str], said: str
) -> None:
    shop.run(cli_path).assert_outcomes(passed=1)
    changed = shop.run(NO_CLI, **change)
    changed.assert_outcomes(failed=1, errors=1)
    changed.stdout.fnmatch_lines([said])
    shop.run(cli_path, "--bridle-record", **change).assert_outcomes(passed=1)
    shop.run(NO_CLI, **change).assert_outcomes(passed=1)
    shop.run(NO_CLI).assert_outcomes(failed=1, errors=1)


@pytest.mark.longer
@pytest.mark.parametrize("cli_path", ["newest"], indirect=True)  # the recorder decides it
def test_a_test_that_fails_keeps_the_old_recording(cli_path: str, shop: Shop) -> None:
    shop.run(cli_path, BREAK="1").assert_outcomes(failed=1)
    assert not shop.directory.exists()
    shop.run(cli_path).assert_outcomes(passed=1)
    recorded = shop.recording.read_bytes()
    shop.run(cli_path, "--bridle-record", BREAK="1").assert_outcomes(failed=1)
    assert shop.recording.read_bytes() == recorded


@pytest.mark.longer
def test_random_values_are_ignored(lab: Lab, tmp_path: Path) -> None:
    """Parallel callbacks finish in another order in each run, and a turn is interrupted."""

    async def talk(cassette: Cassette, cli: bridle.CliOptions, order: int) -> list[str]:
        at_work = asyncio.Event()

        async def guard(context: bridle.PreToolUseContext) -> None:
            await asyncio.sleep(order * hash(context.tool_use_id) % 7 / 100)

        @bridle.tool(read_only=True)
        async def price(article: str) -> str:
            at_work.set()
            if article == "99":
                await asyncio.Event().wait()
            await asyncio.sleep(order * int(article) % 5 / 100)
            return article

        def decide(context: bridle.CanUseToolContext) -> bridle.PermissionResult:
            time.sleep(order * int(context.tool_input.get("article", 0)) % 3 / 100)
            return bridle.Allow()

        bidir = bridle.BidirOptions(
            on_pre_tool_use=guard,
            on_can_use_tool=decide,
            mcp_servers={"shop": bridle.ToolServer([price])},
        )
        sdk = lab.sdk.replace(recorder=cassette)
        async with bridle.start_session(cli, sdk, bidir) as session:
            first = await (await session.send_user_message("prices"))
            await asyncio.gather(session.ping(), session.set_model("claude-haiku-4-5"))
            at_work.clear()
            turn = await session.send_user_message("all")
            await asyncio.wait_for(at_work.wait(), 60)
            await session.interrupt()
            second = await turn
            last = await session.send_user_message("bye")
            return [first.text, second.reason, (await last).text]

    calls = [tool_use("mcp__shop__price", article=str(number)) for number in range(12)]
    script: list[Turn] = [
        calls,
        [text("cheap")],
        [tool_use("mcp__shop__price", article="99")],
        repeat([text("bye")]),
    ]
    path = tmp_path / "talk.ndjson"
    expected = ["cheap", "interrupted", "bye"]
    with ScriptedModel(script) as model:
        cli = lab.cli(model, allowed_tools=[])
        with Cassette(path) as cassette:
            assert asyncio.run(talk(cassette, cli, 1)) == expected
        assert cassette.is_recording
        for order in (2, 3, 11):
            with Cassette(path) as cassette:
                assert asyncio.run(talk(cassette, cli, order)) == expected
            assert not cassette.is_recording
