"""The cassette fixture in a pytest of its own: recorded on the real CLI, then replayed without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridle.testing.recording import read_recording

pytest_plugins = ["pytester"]

# Under one name only, whether or not this installation announces the plugin by itself.
LOADED = ("-p", "no:bridle", "-p", "bridle.testing.pytest_plugin", "-p", "no:cacheprovider")

SHOP = """
    import asyncio, os
    import bridle
    from bridle import sync
    from bridle.testing import text, tool_use

    SECRET = "sk-ant-api03-" + "x" * 40

    @bridle.tool
    def price(article: str) -> int:
        return int(os.environ.get("PRICE", "7"))

    def decide(ctx):
        return bridle.Allow() if os.environ.get("POLICY") != "deny" else bridle.Deny("no")

    def options(cassette, model, tmp_path):
        cli = bridle.CliOptions(
            cli_path=os.environ["SHOP_CLI"], cwd=tmp_path, env={**model.env, "MY_TOKEN": SECRET},
            append_system_prompt=f"The key is {SECRET}.",
        )
        bidir = bridle.BidirOptions(
            mcp_servers={"shop": bridle.ToolServer([price])}, on_can_use_tool=decide
        )
        return {"cli": cli, "sdk": bridle.SdkOptions(recorder=cassette), "bidir": bidir}

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


def test_a_test_is_recorded_once_and_replayed_without_a_cli(cli_path: str, shop: Shop) -> None:
    shop.run(cli_path).assert_outcomes(passed=1)
    recorded = shop.recording.read_bytes()
    entries = read_recording(shop.recording)
    assert entries.gap == ""
    assert b"sk-ant-api03" not in recorded
    answers = [one.members for one in entries if one.direction == "in"]
    assert sum("mcp_response" in json.dumps(one) for one in answers) >= 4

    shop.run(NO_CLI).assert_outcomes(passed=1)  # another tmp_path, another key, no CLI
    assert shop.recording.read_bytes() == recorded


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"POLICY": "deny"},
            "*permission request for mcp__shop__price: recorded: allow, now: deny*",
        ),
        ({"PROMPT": "Hello?"}, "*prompt 1, message.content: recorded: *, now: ?Hello??*"),
        ({"PRICE": "8"}, "*answer to tools/call price for the server shop, *7*8*"),
    ],
    ids=["policy", "prompt", "tool"],
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


def test_a_test_that_fails_keeps_the_old_recording(cli_path: str, shop: Shop) -> None:
    shop.run(cli_path, BREAK="1").assert_outcomes(failed=1)
    assert not shop.directory.exists()
    shop.run(cli_path).assert_outcomes(passed=1)
    recorded = shop.recording.read_bytes()
    shop.run(cli_path, "--bridle-record", BREAK="1").assert_outcomes(failed=1)
    assert shop.recording.read_bytes() == recorded


def test_a_missing_recording_without_a_cli_says_what_to_do(shop: Shop) -> None:
    result = shop.run(NO_CLI)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*CliNotFoundError*", "*There is no recording *test_price.ndjson*"]
    )
    assert not Path(shop.directory).exists()
