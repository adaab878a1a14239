"""The HTML page of a timeline: one file that loads nothing else.

The recording is data on the page, never markup: it is in a JSON block that cannot close the
script element, and the script inserts it as text. The Content-Security-Policy of the page permits
only its own script and style, and no network requests.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files

import msgspec

from bridle.cli._timeline.spans import Lane
from bridle.cli._timeline.timeline import Timeline

# The label of each lane and the hue of its bars. "none" is grey.
_LANES: dict[Lane, tuple[str, str]] = {
    Lane.TURNS: ("Turns", "222"),
    Lane.MODEL: ("Model", "268"),
    Lane.RETRIES: ("API retries", "14"),
    Lane.TOOLS: ("Tools", "158"),
    Lane.SUBAGENTS: ("Subagents", "186"),
    Lane.HOOKS: ("Hooks", "42"),
    Lane.PERMISSIONS: ("Permissions", "326"),
    Lane.SERVERS: ("MCP", "204"),
    Lane.CONTROL: ("Control", "242"),
    Lane.PROCESS: ("Process", "none"),
}
_SCRIPTS = ("words.js", "conversation.js", "page.js")
_GROUPS = {
    "messages": "messages",
    "stream": "stream",
    "control": "control",
    "stderr": "stderr",
    "process": "process",
}


def page(model: Timeline, name: str) -> str:
    """Return the page as HTML."""
    style, script = _asset("page.css"), "".join(map(_asset, _SCRIPTS))
    parts = {
        "title": html.escape(f"{name} · Bridle"),
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "style": style,
        "data": _data(model, name),
        "script": script,
    }
    return re.sub(r"\{(\w+)\}", lambda mark: parts[mark[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return files("bridle.cli._timeline").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(model: Timeline, name: str) -> str:
    """Return the model as JSON that is safe inside a script element."""
    told = {
        "name": name,
        "duration": model.duration,
        "gap": model.gap,
        "facts": model.facts,
        "quiet": model.quiet,
        "lanes": [
            {"id": lane, "label": label, "hue": hue} for lane, (label, hue) in _LANES.items()
        ],
        "groups": [{"id": group, "label": label} for group, label in _GROUPS.items()],
        "frames": [
            {
                "t": frame.t,
                "d": frame.direction,
                "k": frame.kind,
                "s": frame.summary,
                "g": frame.group,
                "l": frame.line,
                "n": frame.times,
                "p": frame.partial,
            }
            for frame in model.frames
        ],
        "spans": msgspec.to_builtins(model.spans),
        "conversation": msgspec.to_builtins(model.conversation),
    }
    text = json.dumps(told, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
