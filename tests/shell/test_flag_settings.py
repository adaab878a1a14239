"""Settings that are applied at run time keep the permission rules of Bridle and of the program."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.processes import until

from bridle import ControlRejected, ControlTimeout, OptionsError, TooManyPendingRequests
from bridle._session.changes.settings import FlagSettings, Payload

APPLY = "apply_flag_settings"
RULES = {"deny": ["Bash(rm:*)"], "ask": ["Bash(git:*)"], "allow": ["Read"]}


class Lab:
    """A CLI that replaces each setting as a whole, and the settings that Bridle applies to it."""

    def __init__(self, *rules: str) -> None:
        self.settings = FlagSettings(rules, self.submit, self.rejected, timeout=5)
        self.started = list(rules)
        self.inline: dict[str, Any] = {}
        self.sent: list[Mapping[str, Any]] = []
        #: Raised after the CLI has applied the next settings.
        self.failure: BaseException | None = None
        #: Whether requests for the settings fail.
        self.is_crowded = False
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def submit(
        self, subtype: str, fields: Mapping[str, Any], timeout: float | None = None
    ) -> Payload:
        await self.is_open.wait()
        if subtype == APPLY:
            self.sent.append(fields["settings"])
            self.inline |= fields["settings"]
            failure, self.failure = self.failure, None
            if failure is not None:
                raise failure
            return None
        assert subtype == "get_settings"
        if self.is_crowded:
            raise TooManyPendingRequests(subtype, 64)
        is_ignored = self.inline.get("cleanupPeriodDays") == "never"
        applied: dict[str, Any] = {} if is_ignored else self.inline.get("permissions") or {}
        return {"effective": {"permissions": {"ask": self.started + applied.get("ask", [])}}}

    async def apply(self, settings: object) -> None:
        await self.settings.apply({"settings": settings})

    async def add(self, *rules: str) -> None:
        await self.settings.add_rules(rules)

    async def until_sent(self, count: int) -> None:
        await until(lambda: len(self.sent) >= count)

    def rejected(self, operation: str, message: str) -> ControlRejected:
        return ControlRejected(operation, None, message)


@pytest.mark.parametrize(
    "env",
    [
        {"ANTHROPIC_BASE_URL": "https://api.example.com"},
        {"ANTHROPIC_BASE_URL": None},
        {"CLAUDE_CODE_USE_BEDROCK": "1"},
        {"HTTPS_PROXY": "http://proxy.example.com"},
    ],
)
async def test_settings_that_lead_to_a_real_api_are_refused_where_that_is_forbidden(
    env: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab()
    monkeypatch.setenv("BRIDLE_FORBID_REAL_API", "1")
    with pytest.raises(OptionsError, match="BRIDLE_FORBID_REAL_API"):
        await lab.apply({"env": env})
    assert lab.sent == []
    fine = {"A": "b", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    await lab.apply({"env": fine})
    monkeypatch.delenv("BRIDLE_FORBID_REAL_API")
    await lab.apply({"env": env})
    assert lab.sent == [{"env": fine}, {"env": env}]


async def test_settings_are_sent_unchanged_without_rules_of_bridle() -> None:
    lab = Lab()
    for settings in ({"permissions": RULES}, {"permissions": None}, {"outputStyle": "x"}):
        await lab.apply(settings)
        assert lab.sent[-1] == settings


async def test_rules_of_the_program_and_of_bridle_are_sent_together() -> None:
    lab = Lab("mcp__bank__pay")
    await lab.apply({"permissions": RULES})
    asks = ["Bash(git:*)", "mcp__bank__pay"]
    assert lab.sent[-1] == {"permissions": {**RULES, "ask": asks}}
    await lab.add("mcp__late__pay")
    assert lab.sent[-1] == {"permissions": {**RULES, "ask": [*asks, "mcp__late__pay"]}}
    await lab.apply({"outputStyle": "x"})
    assert lab.sent[-1] == {"outputStyle": "x"}
    await lab.apply({"permissions": None})
    assert lab.sent[-1] == {"permissions": {"ask": ["mcp__bank__pay", "mcp__late__pay"]}}


async def test_later_changes_of_a_mapping_do_not_change_what_was_applied() -> None:
    lab = Lab()
    rules = {"deny": ["Bash"]}
    await lab.apply({"permissions": rules})
    rules["deny"].clear()
    await lab.add("mcp__late__pay")
    assert lab.sent[-1] == {"permissions": {"deny": ["Bash"], "ask": ["mcp__late__pay"]}}


@pytest.mark.parametrize("permissions", [5, [], {"ask": "Bash"}, {"deny": None}, {"allow": {}}])
async def test_permissions_of_the_wrong_type_are_not_sent(permissions: object) -> None:
    """2.1.197 would ignore all settings that were applied."""

    lab = Lab()
    with pytest.raises(OptionsError) as refused:
        await lab.apply({"permissions": permissions})
    assert refused.value.field.startswith("apply_flag_settings.settings.permissions")
    assert lab.sent == []


async def test_settings_that_make_the_cli_ignore_the_rules_are_taken_back() -> None:
    lab = Lab()
    await lab.apply({"permissions": RULES, "outputStyle": "x"})
    await lab.add("mcp__late__pay")
    kept = lab.sent[-1]["permissions"]
    with pytest.raises(ControlRejected):
        await lab.apply({"cleanupPeriodDays": "never", "outputStyle": "y"})
    assert lab.inline == {
        "permissions": kept,
        "outputStyle": "x",
        "cleanupPeriodDays": None,
    }


async def test_rules_that_the_cli_ignores_are_an_error() -> None:
    lab = Lab()
    await lab.apply({"cleanupPeriodDays": "never"})
    with pytest.raises(ControlRejected):
        await lab.add("mcp__late__pay")


async def test_settings_that_the_cli_rejects_are_forgotten() -> None:
    lab = Lab()
    await lab.apply({"permissions": RULES})
    lab.failure = ControlRejected(APPLY, None, "no")
    with pytest.raises(ControlRejected):
        await lab.apply({"permissions": {"deny": ["Read"]}})
    await lab.add("mcp__late__pay")
    assert lab.sent[-1]["permissions"]["deny"] == RULES["deny"]


async def test_after_a_timeout_the_stricter_rules_of_both_are_in_force() -> None:
    """The CLI may have applied the settings, or not."""

    lab = Lab("mcp__bank__pay")
    await lab.apply({"permissions": {**RULES, "defaultMode": "plan"}})
    lab.failure = ControlTimeout(APPLY, None, 1.0)
    with pytest.raises(ControlTimeout):
        await lab.apply(
            {"permissions": {"deny": ["Read"], "allow": ["Bash"], "defaultMode": "plan"}}
        )
    await lab.until_sent(3)
    assert lab.inline["permissions"] == {
        "defaultMode": "plan",
        "deny": ["Bash(rm:*)", "Read"],
        "ask": ["Bash(git:*)", "mcp__bank__pay"],
    }


async def test_a_cancelled_caller_leaves_the_rules_complete() -> None:
    lab = Lab()
    lab.is_open.clear()
    adding = asyncio.create_task(lab.add("mcp__late__pay"))
    applying = asyncio.create_task(lab.apply({"permissions": RULES}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    adding.cancel()
    lab.is_open.set()
    await applying
    assert adding.cancelled()
    asks = ["Bash(git:*)", "mcp__late__pay"]
    assert lab.inline == {"permissions": {**RULES, "ask": asks}}


async def test_an_error_of_the_check_does_not_lose_the_rules_of_the_program() -> None:
    lab = Lab("mcp__paid__buy")

    lab.is_crowded = True
    with pytest.raises(TooManyPendingRequests):
        await lab.apply({"permissions": RULES})
    lab.is_crowded = False
    await lab.add("mcp__late__sell")
    assert lab.inline["permissions"]["deny"] == RULES["deny"]


async def test_an_error_after_the_caller_was_cancelled_is_not_reported_by_asyncio() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, why: reported.append(why))
    lab = Lab("mcp__paid__buy")
    lab.is_open.clear()
    call = asyncio.create_task(lab.apply({"permissions": RULES}))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    lab.failure = ControlTimeout(APPLY, None, 1.0)
    lab.is_open.set()
    await lab.until_sent(1)
    await asyncio.sleep(0)
    del call
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


async def test_a_change_that_waits_for_another_one_times_out_in_its_own_time() -> None:
    lab = Lab()
    lab.is_open.clear()
    first = asyncio.create_task(lab.apply({"outputStyle": "x"}))
    await asyncio.sleep(0)
    with pytest.raises(ControlTimeout):
        await lab.settings.apply({"settings": {"outputStyle": "y"}}, timeout=0.01)
    lab.is_open.set()
    await first
    assert lab.sent == [{"outputStyle": "x"}]


async def test_a_cancelled_change_that_waits_for_another_one_is_not_sent() -> None:
    lab = Lab("mcp__bank__pay")
    lab.is_open.clear()
    first = asyncio.create_task(lab.apply({"outputStyle": "x"}))
    second = asyncio.create_task(lab.apply({"permissions": {"allow": ["Bash"]}}))
    await asyncio.sleep(0)
    second.cancel()
    lab.is_open.set()
    await first
    assert second.cancelled()
    assert lab.sent == [{"outputStyle": "x"}]


async def test_the_first_change_is_sent_before_the_call_gives_up_control() -> None:
    """So that a prompt that is sent after it comes after it."""

    lab = Lab()
    call = lab.apply({"outputStyle": "x"})
    with pytest.raises(StopIteration):
        call.send(None)
    assert lab.sent == [{"outputStyle": "x"}]


async def test_a_change_waits_until_an_uncertain_one_is_taken_back() -> None:
    lab = Lab("mcp__bank__pay")
    lab.failure = ControlTimeout(APPLY, None, 1.0)
    with pytest.raises(ControlTimeout):
        await lab.apply({"outputStyle": "x"})
    await lab.apply({"outputStyle": "y"})
    taken_back = {"outputStyle": None, "permissions": {"ask": ["mcp__bank__pay"]}}
    assert lab.sent == [{"outputStyle": "x"}, taken_back, {"outputStyle": "y"}]
