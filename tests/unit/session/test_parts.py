"""The seam of a session: which parts see an action, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridle._session.parts.part import Part, Perform, Sees, shown_to


class Seeing(Part):
    """Notes its name when it sees a number."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self._name = name
        self._seen = seen

    def sees(self) -> Sees:
        return {int: lambda number: self._seen.append(f"{self._name} {number}")}


def perform(seen: list[str]) -> Mapping[type, Perform]:
    return {
        int: lambda _, number: seen.append(f"performed {number}"),
        str: lambda _, text: seen.append(text),
    }


def test_parts_see_an_action_in_their_order_and_before_it_is_performed() -> None:
    seen: list[str] = []
    table = shown_to([Seeing("a", seen), Part(), Seeing("b", seen)], perform(seen))
    table[int](None, 1)
    table[str](None, "text")
    assert seen == ["a 1", "b 1", "performed 1", "text"]


def test_an_action_that_no_part_sees_is_performed_by_the_same_function() -> None:
    plain: Mapping[type, Any] = perform([])
    assert shown_to([Part(), Seeing("a", [])], plain)[str] is plain[str]
