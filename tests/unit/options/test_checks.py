"""Checks of values with a special format."""

from __future__ import annotations

import pytest

from bridle.options._checks import is_uuid

ID = "00000000-0000-4000-8000-00000000000a"


@pytest.mark.parametrize("value", ["", "1", "../x", f"{ID}/", f"{ID}\n", f"a/{ID}", None, 7])
def test_only_the_text_of_a_uuid_is_one(value: object) -> None:
    assert not is_uuid(value)
    assert is_uuid(ID)
    assert is_uuid(ID.upper())
