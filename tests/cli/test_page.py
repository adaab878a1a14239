"""The page of a recording: whole, alone in the world, and safe whatever was recorded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import NAMES, Page, browser, executable

from bridle.cli._timeline.page import page
from bridle.cli._timeline.timeline import timeline
from bridle.testing.recording import Entry, Recording, read_recording

GOLDEN = Path(__file__).parent.parent / "wire" / "golden" / "2.1.326"
HOOKED = GOLDEN / "hook_and_permission.ndjson"

EVIL = (
    '</script><script>document.title="owned"</script><img src=x onerror=\'document.title="owned"\'>'
)
"""What a page must show and not do."""


def recording(*rows: tuple[float, str, object]) -> list[Entry]:
    return [
        Entry(t, direction, line if isinstance(line, str) else json.dumps(line))  # type: ignore[arg-type]  # a table of plain strings
        for t, direction, line in rows
    ]


INITIALIZE = {"subtype": "initialize"}
INITIALIZED = {"subtype": "success", "request_id": "i", "response": {"capabilities": ["x"]}}
USE = {"type": "tool_use", "id": "t", "name": EVIL, "input": {EVIL: EVIL}}
EVILS = recording(
    (0.0, "meta", {"argv": [EVIL], "started": EVIL}),
    (0.1, "in", {"type": "control_request", "request_id": EVIL, "request": {"subtype": EVIL}}),
    (0.2, "in", {"type": "control_request", "request_id": "i", "request": INITIALIZE}),
    (0.3, "out", {"type": "control_response", "response": INITIALIZED}),
    (0.4, "in", {"type": "user", "uuid": "u", "message": {"role": "user", "content": EVIL}}),
    (0.5, "out", {"type": "system", "subtype": "init", "model": EVIL, "cwd": EVIL}),
    (0.6, "out", {"type": EVIL, "subtype": EVIL}),
    (0.7, "out", {"type": "assistant", "message": {"id": "m", "model": EVIL, "content": [USE]}}),
    (0.8, "out", EVIL),
    (0.9, "err", EVIL + "\u2028\udcff"),
    (1.0, "out", {"type": "result", "subtype": "success", "is_error": False, "result": EVIL}),
    (1.1, "meta", {"exit": 0}),
)


def html_of(entries: Sequence[Entry], name: str = "session.ndjson", gap: str = "") -> str:
    return page(timeline(entries, gap=gap), name)


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def data_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


# ------------------------------------------------------------------------- the file


@pytest.mark.parametrize("path", [HOOKED, GOLDEN / "agent_background.ndjson"])
def test_the_page_holds_exactly_the_frames_of_the_recording(path: Path) -> None:
    entries = read_recording(path)
    held = data_of(html_of(entries))
    assert [one["l"] for one in held["frames"]] == [entry.line for entry in entries]
    assert [(one["t"], one["d"]) for one in held["frames"]] == [
        (entry.t, entry.direction) for entry in entries
    ]
    lanes = {lane["id"] for lane in held["lanes"]}
    assert {span["lane"] for span in held["spans"]} <= lanes
    groups = {group["id"] for group in held["groups"]}
    assert {frame["g"] for frame in held["frames"]} <= groups


def test_the_page_reaches_for_nothing_outside_itself() -> None:
    whole = html_of(read_recording(HOOKED))
    elements = Elements(whole)
    places = [
        value
        for _, attributes in elements.found
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset", "data")
    ]
    assert sorted(filter(None, places)) == ["#list", "data:,"]
    (policy,) = (
        one["content"] or ""
        for one in elements.named("meta")
        if one.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for kind in ("script", "style"):
        (text,) = re.findall(f"<{kind}>(.*?)</{kind}>", whole, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_what_was_recorded_cannot_become_a_part_of_the_page() -> None:
    harmless = Elements(html_of(read_recording(HOOKED)))
    text = html_of(EVILS, name=EVIL, gap=EVIL)
    assert [tag for tag, _ in Elements(text).found] == [tag for tag, _ in harmless.found]
    assert [one["l"] for one in data_of(text)["frames"]] == [entry.line for entry in EVILS]
    assert data_of(text)["gap"] == EVIL
    text.encode("utf-8")


def test_marks_of_the_template_in_a_recording_are_text() -> None:
    entries = recording((0.0, "err", "{script} {data} {title}"))
    assert data_of(html_of(entries, name="{style}"))["frames"][0]["l"] == "{script} {data} {title}"


# ------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a real browser."""
    if executable() is None:
        pytest.skip(f"no browser to look at the page with: none of {', '.join(NAMES)} is on PATH")
    with browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture
def show(shown: Page, tmp_path: Path) -> Iterator[Any]:
    """Shows recordings; what the page complains of fails the test."""
    shown.complaints.clear()
    shown.requested.clear()

    def show_it(entries: Sequence[Entry], *, tab: str = "frames", **window: int) -> Page:
        target = tmp_path / "page.html"
        gap = entries.gap if isinstance(entries, Recording) else ""
        target.write_text(html_of(entries, gap=gap), "utf-8")
        shown.open(target, **window)
        if tab == "frames":  # all of them, deltas included
            shown.click("#tab-frames")
            shown.value("document.querySelector('#groups [aria-pressed=false]')?.click()")
        return shown

    yield show_it
    assert shown.complaints == []
    assert {url.partition(":")[0] for url in shown.requested} <= {"file", "data"}


def texts(one: Page, selector: str) -> list[str]:
    found: list[str] = one.value(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
    )
    return found


STREAMED = GOLDEN / "background_partial.ndjson"


def test_the_page_opens_with_the_conversation(show: Any) -> None:
    one = show(read_recording(HOOKED), tab="conversation")
    assert texts(one, ".tabs [aria-selected=true]") == ["Conversation"]
    assert one.value("document.getElementById('rows').getClientRects().length") == 0
    assert texts(one, ".said header b") == ["You", "Tool", "Model", "Outcome"]
    assert texts(one, ".said .words") == ["ALPHA", "went on", "✓ completed · $0.0002"]
    assert texts(one, ".said summary") == ["✓ Bashtouch made.txt"]
    called, result = texts(one, ".said .code")
    assert json.loads(called) == {"command": "touch made.txt", "description": "run a command"}
    assert result == "(Bash completed with no output)"
    one.click(".said.tool header button")
    assert texts(one, "#detail h3") == ["assistant"]
    one.press("f")
    assert texts(one, ".tabs [aria-selected=true]") == ["Frames"]
    one.press("c")
    assert texts(one, ".tabs [aria-selected=true]") == ["Conversation"]


def test_deltas_are_folded_away_until_asked_for(show: Any) -> None:
    entries = read_recording(STREAMED)
    deltas = sum(frame.group == "stream" for frame in timeline(entries).frames)
    one = show(entries, tab="conversation", height=2000)
    one.click("#tab-frames")
    assert texts(one, "#count") == [f"{len(entries) - deltas} of {len(entries)} frames"]
    assert "stream_event" not in "".join(texts(one, ".row .k"))
    one.click("#groups [aria-pressed=false]")
    assert texts(one, "#count") == [f"{len(entries)} frames"]


def test_a_long_conversation_is_drawn_in_parts(show: Any) -> None:
    content = [{"type": "text", "text": "x" * 30_000}]
    line = {"type": "assistant", "message": {"content": content}}
    one = show(recording(*((at, "out", line) for at in range(450))), tab="conversation")
    assert len(texts(one, ".said")) == 200
    assert texts(one, ".said:first-of-type .more") == ["Show all 30000 characters"]
    one.value("document.querySelector('.said .more').click()")
    assert texts(one, ".said .words")[0] == "x" * 30_000
    one.value("document.querySelector('#conversation > .more').click()")
    assert len(texts(one, ".said")) == 400


def test_every_frame_is_listed_and_every_span_drawn(show: Any) -> None:
    entries = read_recording(HOOKED)
    one = show(entries, height=2000)
    assert texts(one, "#count") == [f"{len(entries)} frames"]
    assert len(texts(one, ".row")) == len(entries)
    assert one.value("document.querySelector('.row').getAttribute('aria-setsize')") == str(
        len(entries)
    )
    assert len(texts(one, ".bar")) == len(timeline(entries).spans)
    assert texts(one, ".lane-name")[0] == "Turns1"


def test_a_click_on_a_bar_shows_its_frames(show: Any) -> None:
    one = show(read_recording(HOOKED))
    spans = timeline(read_recording(HOOKED)).spans
    index = next(number for number, span in enumerate(spans) if span.lane == "permissions")
    one.click(f"[data-span='{index}']")
    assert texts(one, "#detail-title") == ["Permissions"]
    assert texts(one, "#detail h3") == ["Bash"]
    boxes = one.value(
        "[...document.querySelectorAll('#detail details')].map(e => Number(e.dataset.frame))"
    )
    assert boxes == spans[index].frames
    shown = [json.loads(text) for text in texts(one, "#detail pre")]
    entries = read_recording(HOOKED)
    assert shown == [entries[number].members for number in boxes]
    assert one.value("location.hash") == f"#s{index + 1}"
    one.click("#detail .links button")
    assert texts(one, "#count") == [f"{len(boxes)} of {len(entries)} frames"]
    one.press("Escape")
    assert texts(one, "#count") == [f"{len(entries)} frames"]


def test_the_list_is_searched_and_filtered(show: Any) -> None:
    entries = read_recording(HOOKED)
    one = show(entries)
    one.press("/")
    one.call("Input.insertText", text="PreToolUse touch")
    wanted = [
        number
        for number, entry in enumerate(entries)
        if "pretooluse" in entry.line.lower() and "touch" in entry.line.lower()
    ]
    one.until(f"document.querySelector('#count').textContent.startsWith('{len(wanted)} of')")
    listed = one.value("[...document.querySelectorAll('.row')].map(e => Number(e.dataset.frame))")
    assert sorted(listed) == wanted
    one.until("document.querySelectorAll('.bar.dim').length > 0")
    one.press("Escape")
    one.until("document.querySelectorAll('.bar.dim').length === 0")
    one.click("#groups button")
    assert one.value("document.querySelector('#groups button').ariaPressed") == "false"
    messages = sum(frame.group == "messages" for frame in timeline(entries).frames)
    assert texts(one, "#count") == [f"{len(entries) - messages} of {len(entries)} frames"]


def test_the_page_is_worked_by_keys(show: Any) -> None:
    entries = read_recording(HOOKED)
    one = show(entries)
    one.value("document.getElementById('rows').focus()")
    one.press("ArrowDown", "ArrowDown")
    assert texts(one, "#detail-title") == [f"Frame 2 of {len(entries)}"]
    active = "document.getElementById('rows').getAttribute('aria-activedescendant')"
    assert one.value(active) == "frame-1"
    one.press("End")
    assert texts(one, "#detail-title") == [f"Frame {len(entries)} of {len(entries)}"]
    one.press("Escape")
    assert texts(one, "#detail-title") == ["Session"]
    one.press("]", "]")
    spans = timeline(entries).spans
    assert texts(one, "#detail h3") == [spans[1].title]
    # The page draws a moment after the key, so the first bar may still look selected.
    one.until("document.querySelector('.bar.selected')?.dataset.span === '1'")
    one.value("document.querySelector('.bar.selected').focus()")
    one.press("ArrowDown")
    assert one.value("document.activeElement.className").startswith("bar")
    assert texts(one, "#detail-title") != ["Model"]
    one.press("?")
    assert one.value("document.getElementById('keys').open") is True
    one.press("Escape")
    one.until("!document.getElementById('keys').open")
    one.click("#help")
    one.click("#keys button")
    one.until("!document.getElementById('keys').open")


def test_one_looks_closer_and_quiet_times_can_be_folded(show: Any) -> None:
    rows = recording(
        (0.0, "err", "a"),
        (1.0, "err", "b"),
        (4001.0, "err", "c"),
        (4002.0, "meta", {"exit": 0}),
    )
    one = show(rows)
    left = (
        "[...document.querySelectorAll('.bar')].map(e => Math.round(e.getBoundingClientRect().x))"
    )
    folded = one.value(left)
    assert one.value("document.getElementById('fold').checked") is True
    assert folded[1] - folded[0] > 200  # a second of four thousand, and still seen
    one.click("#fold")
    one.until(f"JSON.stringify({left}) !== '{json.dumps(folded, separators=(',', ':'))}'")
    assert len(one.value(left)) < 4  # what cannot be told apart is drawn once
    for _ in range(14):
        one.click("#zoom-in")
    one.until("document.querySelectorAll('.bar').length === 1")
    one.click("#zoom-fit")
    one.until("document.querySelectorAll('.bar').length > 1")


def test_evil_frames_are_shown_and_do_nothing(show: Any) -> None:
    one = show(EVILS, tab="conversation", height=2000)
    assert len(texts(one, ".said")) == 3
    one.value("document.querySelectorAll('.said details').forEach(e => { e.open = true; })")
    one = show(EVILS, height=2000)
    assert len(texts(one, ".row")) == len(EVILS)
    for number in range(len(EVILS)):
        one.value(f"document.getElementById('frame-{number}').click()")
        assert "owned" in texts(one, "#detail pre")[0] or number in (2, 3, 11)
    for number in range(len(timeline(EVILS).spans)):
        one.value(f"document.querySelector('[data-span=\"{number}\"]')?.click()")
    assert one.value("document.title") == "session.ndjson · Bridle"
    assert one.value("document.images.length") == 0
    assert one.value("document.scripts.length") == 2


def test_thousands_of_frames_are_not_all_drawn(show: Any) -> None:
    rows = recording(*((at / 100, "out", {"type": "x", "n": at}) for at in range(5000)))
    one = show(rows)
    assert texts(one, "#count") == ["5000 frames"]
    assert len(texts(one, ".row")) < 100
    one.value("document.getElementById('rows').focus()")
    one.press("End")
    assert json.loads(texts(one, "#detail pre")[0]) == {"type": "x", "n": 4999}
    assert (
        one.value("document.getElementById('frame-4999').getAttribute('aria-posinset')") == "5000"
    )


def test_a_partial_recording_says_so(show: Any, tmp_path: Path) -> None:
    path = tmp_path / "crash.ndjson"
    whole = HOOKED.read_bytes()
    path.write_bytes(whole[:-30])
    one = show(read_recording(path))
    (notice,) = texts(one, "#gap:not([hidden])")
    last = len(whole.splitlines())
    assert f"damaged or incomplete: line {last} was cut off" in notice


def test_nothing_recorded_is_shown_as_such(show: Any) -> None:
    one = show([])
    assert texts(one, "#count") == ["0 frames"]
    assert texts(one, ".bar") == []


CONTRAST = """
(() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parse = (text) => {
    const pen = document.createElement("canvas").getContext("2d");
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    const words = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    const style = getComputedStyle(node);
    if (!words || !node.getClientRects().length || style.fontSize === "0px") continue;
    const [a, b] = [light(parse(style.color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)}`);
  }
  return faint;
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(show: Any, shown: Page, scheme: str) -> None:
    """The contrast that WCAG 2 asks of text, 4.5 to 1, in both schemes."""
    shown.prefer(scheme)
    for path in (HOOKED, GOLDEN / "api_401.ndjson", GOLDEN / "agent_foreground_forward.ndjson"):
        assert show(read_recording(path), tab="conversation").value(CONTRAST) == []
    one = show(read_recording(GOLDEN / "api_529_once.ndjson"))
    assert one.value(CONTRAST) == []
    one.click("[data-span='0']")
    assert one.value(CONTRAST) == []
    show(read_recording(HOOKED))
    assert one.value(CONTRAST) == []


def test_every_control_has_a_name(show: Any) -> None:
    one = show(read_recording(HOOKED))
    one.click("[data-span='0']")
    nameless = one.value(
        "[...document.querySelectorAll('button, input, [tabindex=\"0\"]')].filter(e => !e.hidden"
        " && !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert nameless == []
    roles = one.value("[document.querySelector('#rows').role, document.querySelector('.row').role]")
    assert roles == ["listbox", "option"]


# ------------------------------------------------------------------------- words

EXACT = (
    '{"type":"system","big":12345678901234567890123,"f":1.0,"e":1E+3,"dup":1,"dup":2,"2":"x","1":0}',
    '{"empty":{},"none":[ ],"deep":[[{"a":[]}],{}],"s":"a \\"b\\\\\\" {c},[d]:\\\\","u":"\\u00e9"}',
    ' [ 1 , -0 , "\\\\\\\\" , true , null ] ',
    '"only text, with: {marks}"',
    "[" * 300 + "]" * 300,
    '{"cut": [1, 2',
    "no  frame { at : all }",
)


def without_space(line: str) -> str:
    """A line without the space between its tokens."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda found: found[1] or "", line)


def test_frames_are_shown_as_they_were_written(show: Any) -> None:
    """Numbers, doubled keys and the order of keys as well; only space is added."""
    one = show(recording(*((number / 10, "out", line) for number, line in enumerate(EXACT))))
    for number, line in enumerate(EXACT):
        one.value(f"document.getElementById('frame-{number}').click()")
        (text,) = texts(one, "#detail pre")
        assert without_space(text) == without_space(line)
    assert one.value('words.indented(\'{"a":[1,{}],"b":"c"}\')') == (
        '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": "c"\n}'
    )


def test_a_big_frame_is_shown(show: Any) -> None:
    """In time that is linear in its size: otherwise the browser would not answer in time."""
    big = json.dumps({"type": "x", "text": '\\"' * 1_000_000, "list": [{"n": 1.0}] * 50_000})
    one = show(recording((0.0, "out", big)))
    lines = one.value(
        "words.indented(JSON.parse(data.textContent).frames[0].l).split('\\n').length"
    )
    assert lines == 3 * 50_000 + 6


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("moment(0)", "0.000 s"),
        ("moment(99.9994)", "99.999 s"),
        ("moment(99.9996)", "1:40.0"),
        ("moment(599.97)", "10:00.0"),
        ("moment(599.94)", "9:59.9"),
        ("moment(3599.97)", "1:00:00"),
        ("moment(7325.6)", "2:02:06"),
        ("span_of_time(0.9996)", "1.00 s"),
        ("span_of_time(9.996)", "10.0 s"),
        ("span_of_time(59.96)", "1 min 0 s"),
        ("span_of_time(119.7)", "2 min 0 s"),
        ("span_of_time(3599.7)", "1 h 0 min"),
        ("span_of_time(7199)", "2 h 0 min"),
        ("on_axis(0, 60)", "0:00"),
        ("on_axis(60, 60)", "1:00"),
        ("on_axis(120, 60)", "2:00"),
        ("on_axis(7200, 3600)", "2:00:00"),
        ("on_axis(90, 10)", "90 s"),
        ("on_axis(110, 10)", "1:50.0"),
        ("on_axis(0.5, 0.1)", "0.5 s"),
        ("on_axis(0.05, 0.05)", "0.05 s"),
        ("on_axis(0.005, 0.005)", "0.005 s"),
    ],
)
def test_times_are_rounded_before_they_are_taken_apart(
    shown: Page, show: Any, call: str, expected: str
) -> None:
    if shown.value("typeof words") == "undefined":
        show(EVILS)
    assert shown.value(f"words.{call}") == expected
