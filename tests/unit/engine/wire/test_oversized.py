"""The shallow scan: which strings of a line it finds, and what it leaves alone."""

from __future__ import annotations

import pytest

from bridle._engine.wire.oversized import LineIdentity, ShallowScan

NOTHING = LineIdentity()


def scan(*pieces: bytes | bytearray) -> LineIdentity:
    scanner = ShallowScan()
    for piece in pieces:
        scanner.feed(piece)
    return scanner.identity()


def test_the_identifying_strings_of_the_top_level_are_found() -> None:
    """R175."""
    line = (
        b'{"type":"assistant","uuid":"u","user_message_uuid":"p","parent_tool_use_id":"t",'
        b'"subtype":"s","request_id":"r","session_id":"x","n":1,"ok":true,"none":null}'
    )
    assert scan(line) == LineIdentity(
        type="assistant",
        subtype="s",
        request_id="r",
        uuid="u",
        user_message_uuid="p",
        parent_tool_use_id="t",
    )


@pytest.mark.parametrize(
    ("line", "identity"),
    [
        pytest.param(
            b'{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback"}}',
            LineIdentity(type="control_request", subtype="hook_callback", request_id="r"),
            id="request",
        ),
        pytest.param(
            b'{"request":{"request_id":"no","x":{"subtype":"no"},"subtype":"mcp_message"},'
            b'"subtype":"no","request_id":"r","type":"control_request"}',
            LineIdentity(type="control_request", subtype="mcp_message", request_id="r"),
            id="request, any order, misleading keys",
        ),
        pytest.param(
            b'{"type":"control_response","response":{"response":{"subtype":"no","request_id":"no"},'
            b'"request_id":"r","subtype":"success"}}',
            LineIdentity(type="control_response", subtype="success", request_id="r"),
            id="response",
        ),
        pytest.param(
            b'{"type":"control_response","request_id":"r","response":{"subtype":"error"}}',
            LineIdentity(type="control_response", subtype="error", request_id="r"),
            id="response with the id at the top",
        ),
        pytest.param(
            b'{"type":"control_cancel_request","request_id":"r"}',
            LineIdentity(type="control_cancel_request", request_id="r"),
            id="cancel",
        ),
        pytest.param(
            b'{"type":"user","request":{"subtype":"no"},"response":{"request_id":"no"}}',
            LineIdentity(type="user"),
            id="bodies count in control frames only",
        ),
        pytest.param(
            b'{"type":"control_request","request":["subtype",{"subtype":"no"}],"request_id":"r"}',
            LineIdentity(type="control_request", request_id="r"),
            id="a body that is no object",
        ),
    ],
)
def test_a_control_frame_is_resolved_to_its_subtype_and_request_id(
    line: bytes, identity: LineIdentity
) -> None:
    """R175: enough to answer a dropped request or settle a dropped response."""
    assert scan(line) == identity
    assert scan(*(bytes([byte]) for byte in line)) == identity


@pytest.mark.parametrize(
    "line",
    [
        b'{"message":{"type":"no","request":{"subtype":"no"}},"type":"yes"}',
        b'{"a":["type","no",{"type":"no"},[["type"]]],"type":"yes"}',
        b'{"a":"\\"type\\":\\"no\\"","type":"yes"}',
        b'{"a":"}],{\\\\","type":"yes"}',
        b'{"a":["}]\\"[{\\\\","\\\\\\""],"type":"yes"}',
        b'{"type":"no","type":"yes"}',
        b'{"type":["no"],"type":"yes"}',
        b' {\t"type"\r :  "yes" , "type2" : "no" } ',
        b'{"a":{},"b":[],"c":{"d":[{}]},"type":"yes"}',
        b'{"type":"yes"} {"type":"no"}',
        '{"ключ":"é\u2028","type":"yes"}'.encode(),
    ],
    ids=range(11),
)
def test_only_the_line_s_own_keys_count(line: bytes) -> None:
    """R175: equal keys deeper down or inside strings do not."""
    assert scan(line) == LineIdentity(type="yes")
    assert scan(*(bytes([byte]) for byte in line)) == LineIdentity(type="yes")


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":5}',
        b'{"type":null}',
        b'{"type":{"type":"no"}}',
        b'{"type":"no","type":5}',
        b'{"type":["no"]}',
    ],
    ids=range(5),
)
def test_a_value_that_is_not_a_string_is_absent(line: bytes) -> None:
    """R175: of equal keys the last one counts."""
    assert scan(line) == NOTHING


@pytest.mark.parametrize("second", [b'"request":{}', b'"request":5'], ids=["empty", "no object"])
def test_a_second_body_replaces_the_first(second: bytes) -> None:
    """R175."""
    line = b'{"type":"control_request","request":{"subtype":"no"},' + second + b"}"
    assert scan(line) == LineIdentity(type="control_request")


def test_escapes_in_keys_and_values_are_decoded() -> None:
    """R175."""
    line = rb'{"ty\u0070e":"a\"b\\","\u0075uid":"\ud83d\ude00\/"}'
    identity = LineIdentity(type='a"b\\', uuid="😀/")
    for cut in range(len(line)):
        assert scan(line[:cut], line[cut:]) == identity


def test_a_captured_string_has_at_most_256_bytes() -> None:
    """R175: memory is bounded by what an identifier can be."""
    line = b'{"type":"%s","uuid":"%s","subtype":"s"}' % (b"t" * 256, b"u" * 257)
    identity = LineIdentity(type="t" * 256, subtype="s")
    assert scan(line) == identity
    assert scan(*(bytes([byte]) for byte in line)) == identity
    assert scan(b'{"%s":1,"type":"t"}' % (b"k" * 1000)) == LineIdentity(type="t")


@pytest.mark.parametrize(
    "filling",
    [
        pytest.param(b'"' + b"iVBORw0K" * 40_000 + b'"', id="one string"),
        pytest.param(b'"' + b'{\\"type\\": \\\\\\"no\\\\\\"}' * 20_000 + b'"', id="escaped JSON"),
        pytest.param(b'"' + b"\\\\" * 100_001 + b'"', id="backslashes"),
        pytest.param(b"[" + b'{"type":"no","a":[1,"]"]},' * 20_000 + b"0]", id="small objects"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="deep"),
        pytest.param(b"[" + (b"[" * 40 + b"]" * 40 + b",") * 2_000 + b"0]", id="often deep"),
        pytest.param(b'{"a":' * 50_000 + b'"type"' + b"}" * 50_000, id="deep objects"),
    ],
)
@pytest.mark.parametrize("size", [997, 65_536, 10**9])
def test_identity_behind_a_huge_value_is_found(filling: bytes, size: int) -> None:
    """R175: whatever fills the line, the keys behind it count."""
    line = b'{"type":"user","message":' + filling + b',"uuid":"u"}'
    pieces = [line[start : start + size] for start in range(0, len(line), size)]
    assert scan(*pieces) == LineIdentity(type="user", uuid="u")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   ",
        b"null",
        b"12",
        b'"type"',
        b'["type","no"]',
        b'[{"type":"no"}]',
        b'"x":{"type":"no"}',
        b'"x"{"type":"no"}',
        b"}",
        b']{"type":"no"}',
        b"{",
        b'{"type',
        b'{"type"',
        b'{"type":',
        b'{"type":"no',
        b'{"type":"no\\"',
        b'{"type":"\\x"}',
        b'{"type":"\xff"}',
        b'{"type":"\\ud800"}',
        b'{"\xff":"type"}',
        b'{{"type":"no"}}',
        b"{:}",
        b'{:"no"}',
        b"\\" * 9,
    ],
    ids=ascii,
)
def test_malformed_or_foreign_lines_have_no_identity_and_do_no_harm(line: bytes) -> None:
    """R178: best effort, never an exception."""
    assert scan(line) == NOTHING
    assert scan(*(bytes([byte]) for byte in line)) == NOTHING


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"t"',
        b'{"type":"t"]]]',
        b'{"type":"t",,:,}',
        b'{"type":"t","a":[}',
        b'{"type":"t"}}',
    ],
    ids=ascii,
)
def test_what_was_found_before_the_damage_stays(line: bytes) -> None:
    """R178."""
    assert scan(line) == LineIdentity(type="t")


def test_a_stray_backslash_hides_no_bracket_wherever_the_line_is_cut() -> None:
    """R178."""
    line = b'\\{"type":"t"}'
    for cut in range(len(line)):
        assert scan(line[:cut], line[cut:]) == LineIdentity(type="t")


def test_mutable_buffers_may_be_fed() -> None:
    """R175: the framer's own pieces are such."""
    assert scan(b'{"type":', bytearray(b'"t"}')) == LineIdentity(type="t")
