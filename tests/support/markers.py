"""Secrets that can be recognized wherever they turn up, whole or in part."""

from __future__ import annotations

import base64
import hashlib

PLACES = (
    "api_key",
    "process_variable",
    "cli_variable",
    "settings_variable",
    "settings_file",
    "server_variable",
    "server_header",
    "extra_argument",
    "tool_output",
    "hook_input",
    "stderr_line",
    "prompt",
)
"""Where secrets are planted."""

MARKERS = {place: "zq7" + hashlib.sha256(place.encode()).hexdigest()[:25] for place in PLACES}

_LONG_ENOUGH = 8
"""So many characters of a secret in a row are a leak."""


def leaks(text: str) -> list[str]:
    """The places whose secrets are in a text, or pieces of them, or encodings."""
    return [place for place, marker in MARKERS.items() if any(one in text for one in _seen(marker))]


def _seen(marker: str) -> list[str]:
    pieces = [marker[at : at + _LONG_ENOUGH] for at in range(len(marker) - _LONG_ENOUGH + 1)]
    return [*pieces, base64.b64encode(marker.encode()).decode()[:16]]
