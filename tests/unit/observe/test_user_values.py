"""Objects of the user as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest

from bridle._observe.user_values import describe_error, plain_fields
from bridle.errors import OptionsError


class Hostile(Mapping[str, object]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> object:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        raise KeyError("nothing")

    def __len__(self) -> int:
        return 1


class Mute(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_the_fields_of_a_request_become_plain_values() -> None:
    given = {"mode": "plan", "servers": MappingProxyType({"a": MappingProxyType({"b": (1,)})})}
    assert plain_fields("x", given) == {"mode": "plan", "servers": {"a": {"b": [1]}}}
    assert plain_fields("x", {}) == {}


@pytest.mark.parametrize("value", [object(), Hostile(), {"a": Hostile()}], ids=range(3))
def test_a_field_that_json_cannot_carry_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(OptionsError) as refused:
        plain_fields("apply_flag_settings", {"settings": value})
    assert refused.value.field == "apply_flag_settings.settings"


def test_an_exception_without_a_text_is_reported_by_its_class() -> None:
    assert describe_error(Mute()) == "Mute"
    assert describe_error(ValueError()) == "ValueError"
    assert describe_error(ValueError("bad")) == "ValueError: bad"
