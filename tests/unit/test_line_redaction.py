"""Secrets in lines of JSON and in texts that come in pieces: masked, and nothing else touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridle.errors._redaction import Redactor
from bridle.testing._lines.line_redaction import LineRedactor, Pieces

KEY = "sk-" + "secret-key-0123456789"


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("nothing to hide", None),
        (f"key {KEY} here", "key *** here"),
        ("the magic word", "the *** word"),
        ('{"spaces": "kept" }', None),
        ('{ "text" :"a magic é" }', '{ "text" :"a *** é" }'),
        # objects
        ('{"env": {"A": "b"}, "n": 1}', '{"env": {"A": "***"}, "n": 1}'),
        ('{"headers":{"X":["y","z"]}}', '{"headers":{"X":["***","***"]}}'),
        ('{"api_key":"x","apiKeySource":"env"}', '{"api_key":"***","apiKeySource":"env"}'),
        ('{"accessToken":"x","tokenSource":"none"}', '{"accessToken":"***","tokenSource":"none"}'),
        ('{"deep":[{"password":"x"}]}', '{"deep":[{"password":"***"}]}'),
        ('{"credentials":{"a":["b",{"c":"d"}]}}', '{"credentials":{"a":["***",{"c":"***"}]}}'),
        ('{"password":""}', None),
        # other values than strings
        ('{"max_tokens":5,"token":5,"secret":null,"password":true}', None),
        ('{"password":12345678}', '{"password":"***"}'),
        ('{"n":998877665544,"m":-1.5e3}', '{"n":"***","m":-1.5e3}'),
        ('{"t":NaN,"token":123456}', '{"t":NaN,"token":"***"}'),
        ('{"tokens":123456,"input_tokens":7654321,"token_count":"many"}', None),
        ('{"tokens":["x",123456,{"y":1234567}]}', '{"tokens":["***",123456,{"y":1234567}]}'),
        ('{"DB_PASS":"x","cache_key":"y"}', '{"DB_PASS":"***","cache_key":"y"}'),
        # lists
        ('{"env":["A","B=b","C: c"]}', '{"env":["A","B=***","C: ***"]}'),
        ('{"headers":[["A","b"]]}', '{"headers":[["A","***"]]}'),
        ('[["Authorization","b"],["A","b"]]', '[["Authorization","***"],["A","b"]]'),
        ('{"argv":["--token","abc","-x","y"]}', '{"argv":["--token","***","-x","y"]}'),
        ('{"argv":["--token","--other"]}', None),
        ('["password","x"]', None),
        # names and values side by side
        ('{"name":"API_KEY","value":"v"}', '{"name":"API_KEY","value":"***"}'),
        ('{"value":"v","name":"API_KEY"}', '{"value":"***","name":"API_KEY"}'),
        ('{"name":"A","value":"v"}', None),
        ('{"headers":[{"name":"A","value":"v"}]}', '{"headers":[{"name":"A","value":"***"}]}'),
        # what a tool could be asked for is no secret
        ('{"properties":{"token":{"type":"string"}},"required":["token"]}', None),
        # strings
        ('{"s":"a \\u006dagic \\ud83d\\ude00"}', '{"s":"a *** 😀"}'),
        ('{"s":"\\"magic\\"\\n\\u0001"}', '{"s":"\\"***\\"\\n\\u0001"}'),
        ('{"magic":1}', '{"***":1}'),
        ('{"s":"x \\/ magic"}', '{"s":"x / ***"}'),
        (
            json.dumps({"argv": [json.dumps({"env": {"A": "b"}})]}),
            json.dumps({"argv": [json.dumps({"env": {"A": "***"}})]}),
        ),
        # what is no JSON, or not all of it
        ("{broken magic Bearer abc", "{broken *** Bearer ***"),
        ('{"password":"hun', '{"password":"***'),
        ('}{"password":"x"}', '}{"password":"***"}'),
        ('{}}{"password":"x"}', '{}}{"password":"***"}'),
        ("[1,2", None),
        ("{\udcff}", None),
    ],
)
def test_secrets_are_masked_and_nothing_else_is_touched(line: str, clean: str | None) -> None:
    redactor = LineRedactor(["magic", "", "998877665544"])
    expected = line if clean is None else clean
    assert redactor.line(line) == expected
    assert redactor.line(expected) == expected
    assert any(redactor.masked.values()) is (clean is not None)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"a":' * 100_000 + '"magic"', "]" * 100_000])
def test_deeply_nested_values_are_redacted(line: str) -> None:
    assert LineRedactor(["magic"]).line(line) == line.replace("magic", "***")


WORDS = st.text(alphabet='ab{}[]":, \\\n1é😀', max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(JSON, WORDS, st.booleans())
def test_json_stays_json_and_what_holds_no_secret_stays_as_it_is(
    value: Any, around: str, in_ascii: bool
) -> None:
    secret = 'x"ö-😀-7'
    redactor = LineRedactor([secret])
    harmless = json.dumps({"a": value}, ensure_ascii=in_ascii)
    assert redactor.line(harmless) == harmless
    planted = {around: [value, f"{around}{secret}{around}", {secret: around}], "token": value}
    masked = redactor.line(json.dumps(planted, ensure_ascii=in_ascii))
    assert secret not in json.dumps(json.loads(masked), ensure_ascii=False)
    assert json.loads(masked)[around][1] == f"{around}***{around}"


GOLDEN = Path(__file__).parent.parent / "wire" / "golden"


@pytest.mark.longer
def test_a_recorded_session_stays_as_it_is_but_for_its_variables() -> None:
    """Usage, models, sources of keys: what every session says is none of its secrets."""
    for path in sorted(GOLDEN.glob("*/*.ndjson")):
        redactor = LineRedactor()
        for row in path.read_text("utf-8").splitlines():
            line = json.loads(row)["line"]
            redacted = redactor.line(line)
            assert redacted == line or '"env"' in line, path.name


# ------------------------------------------------------------------------- pieces

TEXT = (
    "The secret is marker-4711-xyz, API_TOKEN=hunter2secret; key "
    + KEY
    + " and -----BEGIN "
    + "PRIVATE KEY-----\nabc\ndef\n-----END PRIVATE KEY----- but not market-place. End."
)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 20, 50, 1000])
def test_a_secret_in_parts_is_masked_once(size: int) -> None:
    pieces = Pieces(Redactor(["marker-4711-xyz"]))
    shown = [pieces.redact(TEXT[at : at + size]) for at in range(0, len(TEXT), size)]
    whole = "".join(shown)
    for secret in ("4711", "xyz", "hunter", "unter", "secret-key", "0123", "abc", "def"):
        assert secret not in whole
    assert "******" not in whole
    assert whole.startswith("The secret is ")
    assert whole.endswith(" but not market-place. End.") or size < 6
    assert whole.endswith("-place. End.")


def delta(text: str, index: int = 0, **members: object) -> str:
    event = {"type": "content_block_delta", "index": index, "delta": {"text": text}}
    return json.dumps({"type": "stream_event", "event": event, **members})


def text_of(line: str) -> str:
    text: str = json.loads(line)["event"]["delta"]["text"]
    return text


def test_deltas_of_a_block_belong_together() -> None:
    redactor = LineRedactor(["marker-4711"])
    start = '{"type":"stream_event","event":{"type":"message_start"}}'
    lines = [delta("is mark"), delta("is mark", 1), delta("er-4711."), delta("et", 1)]
    shown = [redactor.line(line) for line in lines]
    assert [text_of(one) for one in shown] == ["is ***", "is ***", ".", "et"]
    assert redactor.line(start) == start
    assert text_of(redactor.line(delta("er-4711"))) == "er-4711"


def test_a_subagent_has_blocks_of_its_own() -> None:
    redactor = LineRedactor(["marker-4711"])
    assert text_of(redactor.line(delta("mark"))) == "***"
    assert text_of(redactor.line(delta("er-4711", parent_tool_use_id="t"))) == "er-4711"


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"stream_event"',
        '{"type":"stream_event"}',
        '{"type":"stream_event","event":[]}',
        '{"type":"stream_event","event":{"type":"content_block_delta","delta":null}}',
        '["stream_event"]',
    ],
)
def test_a_line_that_only_resembles_a_delta_is_an_ordinary_line(line: str) -> None:
    assert LineRedactor(["magic"]).line(line) == line
