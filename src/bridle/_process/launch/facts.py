"""Describe how a CLI is started, for the first line of a recording.

A replay makes the same description and compares it. It contains no secrets: settings are masked
when the recording is written, and the values of variables are replaced here.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping

import msgspec

from bridle._process.launch.plan import Launch, named_documents, redact, secrets
from bridle._records.fields import is_mapping
from bridle.errors._redaction import MASK, is_secret_name, redact_text
from bridle.options import CliOptions, Limits

_SETTINGS = CliOptions.fields["settings"].channel.name

# Variables that depend on the machine or the run: set for root only, or different in every trace.
_OF_THE_RUN = frozenset({"IS_SANDBOX", "TRACEPARENT", "TRACESTATE"})

# An absolute path or a URL, alone or in a longer text.
_PLACE = r"(?:^|[^\w.])~?/"


def launch_facts(launch: Launch, limits: Limits | None = None) -> dict[str, object]:
    """Return the facts about a CLI that a recording contains.

    ``limits`` is None if the limits are not known. Then the facts do not contain them.
    """
    facts: dict[str, object] = {
        "argv": redact(launch.argv),
        "cwd": launch.cwd,
        "settings": _settings(launch),
        "env_variables": _variables(launch.env),
        "inherit_env": launch.inherit_env,
    }
    if limits is not None:
        values = {name: getattr(limits, name) for name in Limits.fields}
        facts["limits"] = {name: one for name, one in values.items() if one is not None}
    return facts


def about_launch(launch: Launch) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the facts about a CLI, and the values that may be secrets, for a replay."""
    return launch_facts(launch), tuple(secrets(launch))


def _settings(launch: Launch) -> dict[str, object]:
    """Return the settings that the program passes to the CLI, including the sandbox."""
    texts = [file.content for file in launch.files if file.token == f"\0{_SETTINGS}"]
    try:
        path = named_documents(launch).get(_SETTINGS)
        if path is not None and os.path.isfile(path):  # a pipe can be read only once
            with open(path, "rb") as file:
                texts.append(file.read())
        settings: object = msgspec.json.decode(texts[0]) if texts else {}
    except (OSError, ValueError, RecursionError):
        return {}  # the CLI reports what is wrong with the file
    if not is_mapping(settings):
        return {}
    facts = {str(name): value for name, value in settings.items() if name != "env"}
    if is_mapping(env := settings.get("env")):
        facts["env_variables"] = _variables({str(name): str(one) for name, one in env.items()})
    return facts


def _variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return, by name, a checksum of each value, or a mask if values are not compared.

    They are not compared if they may be secret, or if they are paths or URLs, which differ from
    machine to machine. The CLI treats an empty variable as absent, so it is left out.
    """
    return {
        name: MASK if _is_hidden(name, value) else f"checksum {_checksum(value)}"
        for name, value in sorted(variables.items())
        if value and name not in _OF_THE_RUN
    }


def _is_hidden(name: str, value: str) -> bool:
    return (
        is_secret_name(name) or re.search(_PLACE, value) is not None or redact_text(value) != value
    )


def _checksum(value: str) -> str:
    """Return 16 bits of a hash: enough to notice a change, too few to identify most values.

    It has no salt, so further recordings of the same value reveal no further bits.
    """
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:4]
