"""Bytes to lines: what comes out for which bytes, and where the reports stand."""

from __future__ import annotations

import pytest

from bridle._engine.wire.framing import (
    MAX_LINE,
    WARN_AT,
    Item,
    LineFramer,
    LongLine,
    OversizedLine,
    PartialLine,
)


def frame(framer: LineFramer, *chunks: bytes) -> list[Item]:
    """Everything that comes out for these chunks and the end of the stream."""
    items = [item for chunk in chunks for item in framer.feed(chunk)]
    return [*items, *framer.finish()]


def test_one_line_per_newline_comes_out() -> None:
    """R169: newline-delimited JSON."""
    assert list(LineFramer().feed(b'{"a":1}\n')) == [b'{"a":1}\n']


def test_an_unfinished_line_stays_until_its_newline() -> None:
    """R170, R421: only complete lines come out of the buffer."""
    framer = LineFramer()
    assert list(framer.feed(b'{"a":')) == []
    assert list(framer.feed(b"1}")) == []
    assert list(framer.feed(b"\n")) == [b'{"a":1}\n']


def test_a_line_split_over_several_reads_comes_out_once_and_whole() -> None:
    """R171, R421."""
    line = b'{"text":"' + b"x" * 5000 + b'"}\n'
    chunks = [line[:1], line[1:3], line[3:4000], line[4000:-1], b"\n"]
    assert frame(LineFramer(), *chunks) == [line]


def test_several_lines_in_one_read_come_out_in_order_and_the_rest_stays() -> None:
    """R172, R382, R421."""
    framer = LineFramer()
    assert list(framer.feed(b"one\ntwo\nthr")) == [b"one\n", b"two\n"]
    assert list(framer.feed(b"ee\nfour\n")) == [b"three\n", b"four\n"]
    assert list(framer.finish()) == []


@pytest.mark.requirement("S112")
def test_reads_without_content_change_nothing() -> None:
    """R170."""
    assert frame(LineFramer(), b"", b"on", b"", b"e\n", b"") == [b"one\n"]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"one\r\ntwo\r\n"], {b"one\r\n": 3, b"two\r\n": 3}, id="crlf"),
        pytest.param([b"one\r", b"\ntwo\n"], {b"one\r\n": 3, b"two\n": 3}, id="split inside"),
        pytest.param([b"one", b"\r\n"], {b"one\r\n": 3}, id="both in the next read"),
        pytest.param([b"one", b"\r", b"\n"], {b"one\r\n": 3}, id="each in its own read"),
        pytest.param([b"one\r\r\n"], {b"one\r\r\n": 4}, id="one return, not two"),
        pytest.param([b"one\r", b"\r\n"], {b"one\r\r\n": 4}, id="nor two over two reads"),
        pytest.param([b"o\rne\n"], {b"o\rne\n": 4}, id="a return inside a line is content"),
        pytest.param([b"one\r", b"two\n"], {b"one\rtwo\n": 7}, id="also at the end of a read"),
    ],
)
@pytest.mark.requirement("S112")
def test_a_carriage_return_before_the_newline_belongs_to_the_ending(
    chunks: list[bytes], lines: dict[bytes, int]
) -> None:
    """S010, C56: CRLF is one ending, a pair split over two reads included; endings do not count."""
    assert frame(LineFramer(), *chunks) == [*lines]
    assert frame(LineFramer(warn_at=0), *chunks)[1::2] == [*lines]
    assert frame(LineFramer(max_line=0), *chunks) == [OversizedLine(n) for n in lines.values()]


@pytest.mark.parametrize(
    "separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\u0a0a"], ids=ascii
)
def test_only_byte_0x0a_ends_a_line(separator: str) -> None:
    """S010: other line separators of Unicode are content."""
    line = f'{{"text":"a{separator}b"}}\n'.encode()
    assert frame(LineFramer(), line) == [line]
    assert frame(LineFramer(), line + line) == [line, line]


def test_a_character_split_over_two_reads_is_intact_and_bad_utf8_is_not_judged() -> None:
    """S010: decoding is per complete line, so framing never looks at characters."""
    line, bad = '{"text":"é\u2028😀"}\n'.encode(), b"\xff\xfe\n"
    for cut in range(len(line)):
        assert frame(LineFramer(), line[:cut], line[cut:] + bad) == [line, bad]


@pytest.mark.parametrize(
    "chunks",
    [
        [b"\n\none\n\r\n\n\ntwo\n\n"],
        [b"\n", b"\n", b"one\n\r", b"\n\n", b"\ntwo\n", b"\r\n"],
    ],
    ids=["one read", "many reads"],
)
def test_empty_lines_are_dropped(chunks: list[bytes]) -> None:
    """R170."""
    assert frame(LineFramer(), *chunks) == [b"one\n", b"two\n"]
    assert frame(LineFramer(max_line=0), *chunks) == [OversizedLine(3), OversizedLine(3)]


def test_a_line_that_is_not_json_comes_out_like_any_other() -> None:
    """R177, R178: framing passes it on and goes on; the decoder judges it."""
    assert frame(LineFramer(), b'panic!\n{"a":1}\n') == [b"panic!\n", b'{"a":1}\n']


def test_the_limits_are_16_mib_and_1_mib_unless_given() -> None:
    """R173, R174, C25."""
    assert (MAX_LINE, WARN_AT) == (16 * 2**20, 2**20)
    framer = LineFramer()
    assert list(framer.feed(b"x" * MAX_LINE)) == [LongLine(MAX_LINE)]
    assert list(framer.feed(b"\n")) == [b"x" * MAX_LINE + b"\n"]
    assert list(framer.feed(b"x" * (MAX_LINE + 1) + b"\n")) == [
        LongLine(MAX_LINE + 1),
        OversizedLine(MAX_LINE + 1),
    ]
    assert list(framer.feed(b"x" * WARN_AT + b"\n")) == [b"x" * WARN_AT + b"\n"]
    assert list(framer.feed(b"x" * (WARN_AT + 1))) == [LongLine(WARN_AT + 1)]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("size", range(1, 12))
def test_a_line_of_exactly_the_limit_passes_and_the_ending_does_not_count(
    size: int, ending: bytes
) -> None:
    """R173, S010: the limit is the caller's; the newline is not part of the line."""
    line = b"x" * size + ending
    expected: list[Item] = [line if size <= 8 else OversizedLine(size), b"next\n"]
    stream = line + b"next\n"
    assert frame(LineFramer(max_line=8), stream) == expected
    assert frame(LineFramer(max_line=8), *(bytes([byte]) for byte in stream)) == expected


def test_a_return_at_the_limit_counts_once_it_proves_to_be_content() -> None:
    """R173, S010."""
    assert frame(LineFramer(max_line=3), b"abc\r", b"\n") == [b"abc\r\n"]
    assert frame(LineFramer(max_line=3), b"abc\r", b"\r\n") == [OversizedLine(4)]
    assert frame(LineFramer(max_line=3), b"abc\r", b"d\n") == [OversizedLine(5)]


@pytest.mark.requirement("S112")
def test_an_oversized_line_is_reported_in_its_place_and_framing_resumes() -> None:
    """R175, C25: the bytes up to the newline are gone, the lines around it are not."""
    long = b'{"type":"result","subtype":"success","uuid":"u-1","result":"' + b"x" * 99 + b'"}'
    report = OversizedLine(len(long), type="result", subtype="success", uuid="u-1")
    framer = LineFramer(max_line=64)
    expected = [b"before\n", report, b"after\n"]
    assert frame(framer, b"before\n" + long + b"\nafter\n") == expected
    assert frame(framer, b"before\n" + long[:50], long[50:], b"\nafter\n") == expected


def test_an_oversized_control_request_can_still_be_answered() -> None:
    """R175: the report names the request."""
    long = (
        b'{"request":{"input":{"request_id":"no"},"subtype":"can_use_tool"},"pad":"'
        + b"x" * 99
        + b'","request_id":"r-7","type":"control_request"}\r\n'
    )
    assert frame(LineFramer(max_line=64), long[:80], long[80:]) == [
        OversizedLine(
            len(long) - 2, type="control_request", subtype="can_use_tool", request_id="r-7"
        )
    ]


def test_a_long_line_is_reported_once_while_it_is_still_growing() -> None:
    """R174: a warning before the newline comes, and only one."""
    framer = LineFramer(max_line=64, warn_at=4)
    assert list(framer.feed(b"1234")) == []
    assert list(framer.feed(b"56")) == [LongLine(6)]
    assert list(framer.feed(b"78")) == []
    assert list(framer.feed(b"\nabc\n12345")) == [b"12345678\n", b"abc\n", LongLine(5)]
    assert list(framer.feed(b"\n")) == [b"12345\n"]


def test_a_long_line_is_reported_also_when_it_comes_in_one_read() -> None:
    """R174: the same bytes give the same reports, however they are cut."""
    assert frame(LineFramer(warn_at=4), b"1234\r\n12345\n1\n") == [
        b"1234\r\n",
        LongLine(5),
        b"12345\n",
        b"1\n",
    ]


def test_an_oversized_line_is_announced_as_long_first() -> None:
    """R174, R175."""
    assert frame(LineFramer(max_line=8, warn_at=4), b"123456", b"789", b"0\n") == [
        LongLine(6),
        OversizedLine(10),
    ]


@pytest.mark.parametrize("warn_at", [8, 9, 100])
def test_a_warning_size_not_below_the_limit_never_warns(warn_at: int) -> None:
    """R174: more than that is never buffered."""
    framer = LineFramer(max_line=8, warn_at=warn_at)
    assert frame(framer, b"12345678\n", b"x" * 200 + b"\n") == [b"12345678\n", OversizedLine(200)]


@pytest.mark.parametrize(
    ("stream", "left"),
    [
        pytest.param(b"one\n", [], id="nothing after the last newline"),
        pytest.param(b"one\n\r", [], id="nothing but a return"),
        pytest.param(b'one\n{"a":1}', [PartialLine(b'{"a":1}')], id="whole without newline"),
        pytest.param(b'one\n{"a":1}\r', [PartialLine(b'{"a":1}')], id="whole with a return"),
        pytest.param(b'one\n{"a', [PartialLine(b'{"a')], id="cut"),
        pytest.param(b"one\n123456789", [OversizedLine(9)], id="oversized"),
        pytest.param(b"one\n123456789\r", [OversizedLine(9)], id="oversized with a return"),
    ],
)
def test_the_end_of_the_stream_gives_up_what_is_left(stream: bytes, left: list[Item]) -> None:
    """R170: a last line without newline is a line; a cut one is marked as such."""
    framer = LineFramer(max_line=8)
    assert list(framer.feed(stream)) == [b"one\n"]
    assert list(framer.finish()) == left
    assert list(framer.finish()) == []


def test_a_plain_line_is_exactly_bytes_however_it_was_assembled() -> None:
    """R170: `type(item) is bytes` is how the engine tells lines from reports."""
    items = frame(LineFramer(), b"a", b"b\n", b"c\nd", b"x" * 5000, b"\n")
    assert [type(item) for item in items] == [bytes, bytes, bytes]
