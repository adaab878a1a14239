"""The encoding of entries and names: any JSON value and any text comes back unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle.sessions._stores.entries import from_body, quote_name, to_rows, unquote_name, uuid_of

TEXT = st.text(st.characters(exclude_categories=()))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@pytest.mark.longer
@given(st.dictionaries(TEXT, JSON))
def test_an_entry_comes_back_unchanged_from_plain_ascii(entry: dict[str, Any]) -> None:
    (row,) = to_rows("Store", [entry], None)
    assert row.body.isascii()
    assert "\0" not in row.body
    back = from_body("Store", row.body)
    assert repr(back) == repr(entry)


@given(TEXT)
def test_a_name_comes_back_unchanged_from_plain_ascii(name: str) -> None:
    quoted = quote_name(name)
    assert quoted.isascii()
    assert not set(quoted) & set(":\0 '\"\\")
    assert unquote_name(quoted) == name


@given(TEXT, TEXT)
def test_different_uuids_stay_different(one: str, other: str) -> None:
    same = uuid_of({"uuid": one * 50}) == uuid_of({"uuid": other * 50})
    assert same == (one == other)
