"""The actions of one input, in the making."""

from __future__ import annotations

from tests.support import cli

from bridle._engine.actions import Deliver, EndInput, Outbox

FIRST, SECOND, THIRD = cli.decoded(cli.assistant("1") + cli.assistant("2") + cli.assistant("3"))
MINE = ("u1",)


def test_messages_that_follow_one_another_in_a_turn_are_delivered_together() -> None:
    """R374."""
    outbox = Outbox()
    outbox.deliver([FIRST], MINE, 1)
    outbox.deliver([SECOND], MINE, 2)
    outbox.deliver([THIRD], (), 3)
    assert outbox.take() == [Deliver([FIRST, SECOND], MINE, 3), Deliver([THIRD], (), 3)]


def test_an_action_between_messages_keeps_its_place() -> None:
    """R374."""
    outbox = Outbox()
    outbox.deliver([FIRST], MINE, 1)
    outbox.emit(EndInput())
    outbox.deliver([SECOND], MINE, 2)
    assert outbox.take() == [Deliver([FIRST], MINE, 1), EndInput(), Deliver([SECOND], MINE, 2)]


def test_what_was_taken_does_not_grow_any_more() -> None:
    outbox = Outbox()
    outbox.deliver([FIRST], MINE, 1)
    taken = outbox.take()
    outbox.deliver([SECOND], MINE, 2)
    assert taken == [Deliver([FIRST], MINE, 1)]
    assert (outbox.take(), outbox.take()) == ([Deliver([SECOND], MINE, 2)], [])
