"""The sender of a prompt is remembered while callbacks for the prompt can come."""

from __future__ import annotations

from bridle._callbacks.prompt_contexts import Senders


def test_a_prompt_with_tasks_keeps_its_sender_after_its_outcome() -> None:
    tasks = {"a"}
    senders = Senders("session", tasks.__contains__)
    for prompt in ("a", "b"):
        senders.sending(prompt, f"deps of {prompt}")
        senders.ended(prompt)
    assert senders.of("a").deps == "deps of a"
    assert senders.of("b").deps == "deps of b"
    tasks.clear()
    senders.sending("c", "deps of c")
    senders.ended("c")
    assert senders.of(None).deps == "deps of c"
    assert senders.of("a").deps == "session"


def test_the_end_of_an_unknown_prompt_changes_nothing() -> None:
    senders = Senders("session")
    senders.ended("x")
    assert senders.of("x").deps == "session"
