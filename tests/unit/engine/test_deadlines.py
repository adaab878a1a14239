"""Deadlines under tokens, and our requests under ids that only grow."""

from __future__ import annotations

import math

import pytest

from bridle._engine.deadlines import Deadlines
from bridle._engine.outgoing.requests import Ledger, Request


def deadlines(**times: float) -> Deadlines:
    kept = Deadlines()
    for token, when in times.items():
        kept.set(token, when)
    return kept


def issued(count: int) -> Ledger:
    ledger = Ledger()
    for number in range(count):
        ledger.issue(Request(f"key_{number}", "interrupt", {}, 30.0))
    return ledger


# ------------------------------------------------------------------------- deadlines


def test_nothing_is_due_without_tokens() -> None:
    kept = Deadlines()
    assert (kept.next, list(kept.pop_expired(1e9)), len(kept)) == (None, [], 0)


def test_tokens_expire_earliest_first() -> None:
    kept = deadlines(late=3.0, early=1.0, middle=2.0, never=9.0)
    assert kept.next == 1.0
    assert list(kept.pop_expired(3.0)) == ["early", "middle", "late"]
    assert (kept.next, len(kept)) == (9.0, 1)


def test_tokens_due_at_once_expire_in_the_order_they_were_set() -> None:
    assert list(deadlines(b=1.0, a=1.0, c=1.0).pop_expired(1.0)) == ["b", "a", "c"]


def test_tokens_need_no_order_among_themselves() -> None:
    kept = Deadlines()
    kept.set(("call", 1), 1.0)
    kept.set("text", 1.0)
    assert list(kept.pop_expired(1.0)) == [("call", 1), "text"]


@pytest.mark.parametrize("moved_to", [0.5, 5.0], ids=["earlier", "later"])
def test_setting_a_token_again_moves_it(moved_to: float) -> None:
    """R303: an earlier time of the same token never fires."""
    kept = deadlines(a=1.0)
    kept.set("a", moved_to)
    assert kept.next == moved_to
    assert list(kept.pop_expired(10.0)) == ["a"]
    assert list(kept.pop_expired(10.0)) == []


def test_a_cleared_token_does_not_expire() -> None:
    """R250, R294."""
    kept = deadlines(a=1.0, b=2.0)
    kept.clear("a")
    kept.clear("unknown")
    assert ("a" in kept, "b" in kept, kept.next) == (False, True, 2.0)
    assert list(kept.pop_expired(5.0)) == ["b"]


def test_all_tokens_can_be_cleared() -> None:
    """R343."""
    kept = deadlines(a=1.0, b=2.0)
    kept.clear_all()
    assert (kept.next, len(kept)) == (None, 0)


def test_tokens_may_change_while_others_expire() -> None:
    """R353: what is cleared before its turn is not told; what is set in time is."""
    kept = deadlines(a=1.0, b=2.0, c=3.0)
    seen = []
    for token in kept.pop_expired(3.0):
        seen.append(token)
        if token == "a":
            kept.clear("b")
            kept.set("d", 2.5)
    assert seen == ["a", "d", "c"]


def test_a_token_moved_many_times_is_still_one_token() -> None:
    kept = deadlines(anchor=5000.0)
    for moment in range(1000):
        kept.set("moving", 1000.0 + moment)
        assert (kept.next, len(kept)) == (1000.0 + moment, 2)
    assert list(kept.pop_expired(1e9)) == ["moving", "anchor"]


def test_nothing_is_due_before_the_soonest() -> None:
    """It is no later than `next`, which makes it exact again."""
    kept = deadlines(b=2.0)
    assert (kept.soonest, Deadlines().soonest) == (2.0, math.inf)
    kept.set("a", 1.0)
    kept.clear("a")
    assert (kept.soonest, kept.next, kept.soonest) == (1.0, 2.0, 2.0)
    kept.clear("b")
    assert (kept.soonest, kept.next) == (math.inf, None)


# ------------------------------------------------------------------------- the ledger


def test_ids_count_up_and_are_never_used_again() -> None:
    """R183, R184, R423, C04."""
    ledger = Ledger()
    ids = []
    for _ in range(3):
        assert ledger.next_id not in ids
        ids.append(ledger.issue(Request(None, "interrupt", {}, 1.0)))
        del ledger.pending[ids[-1]]
    assert ids == ["req_0", "req_1", "req_2"]


def test_an_answer_finds_its_request_whatever_the_order() -> None:
    """R184, R254, R340, R423: an entry holds the operation, the waiter and its timeout."""
    first = Request("a", "interrupt", {}, 5.0)
    second = Request("b", "set_model", {"model": None}, 6.0)
    ledger = Ledger()
    assert (ledger.issue(first), ledger.issue(second)) == ("req_0", "req_1")
    assert (ledger.pending.pop("req_1"), ledger.pending.pop("req_0")) == (second, first)
    assert ledger.pending == {}


def test_a_request_is_found_by_its_waiter() -> None:
    """R344."""
    ledger = issued(2)
    assert (ledger.id_for("key_1"), ledger.id_for("nobody")) == ("req_1", None)
    del ledger.pending["req_1"]
    assert ledger.id_for("key_1") is None


@pytest.mark.parametrize(
    ("request_id", "ours"),
    [
        ("req_0", True),
        ("req_2", True),
        ("req_3", False),
        ("req_02", False),
        ("req_", False),
        ("req_-1", False),
        ("req_²", False),
        ("2", False),
        ("", False),
        ("cli-1", False),
        pytest.param("req_" + "9" * 5000, False, id="huge"),
    ],
)
def test_an_id_that_is_not_pending_is_late_or_a_strangers(request_id: str, ours: bool) -> None:
    """R225, R226: told apart by the counter alone."""
    ledger = issued(3)
    del ledger.pending["req_0"]
    assert ledger.was_issued(request_id) is ours
