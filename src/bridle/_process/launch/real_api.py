"""Keep a CLI from calling a real API, if BRIDLE_FORBID_REAL_API is set.

Settings files may set the variables that decide which API the CLI calls. The settings that Bridle
passes with a flag take precedence over those of the user, the project and the directory. So Bridle
repeats these variables there. Only the settings of an administrator take precedence over the flag.
Bridle reads them, and refuses to start a CLI if they set such a variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec
from msgspec import structs

from bridle._process.launch.plan import Launch, LaunchFile, anchored_settings, named_documents
from bridle._records.fields import is_mapping
from bridle.errors import OptionsError
from bridle.options import CliOptions

FORBID_REAL_API = "BRIDLE_FORBID_REAL_API"
"""If set to 1 in the environment of this process, the CLI may use only an API on loopback."""

CALLS_NOBODY: set[str] = set()
"""Paths of fake CLIs in use. They call no API."""

_BASE_URL = "ANTHROPIC_BASE_URL"
_LOOPBACK = "http://localhost"
"""Stands for the address of a CLI that was started, which is on loopback."""

# Each of these makes the CLI send requests elsewhere and ignore the base URL.
_ELSEWHERE = (
    "ANTHROPIC_UNIX_SOCKET",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)
_ROUTES = (
    _BASE_URL,
    *_ELSEWHERE,
    "CLAUDE_CODE_API_BASE_URL",
    "CLAUDE_CODE_PROXY_URL",
    *("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
    *("all_proxy", "https_proxy", "http_proxy", "no_proxy"),
)
"""The variables that decide where the CLI sends its requests. An empty one counts as absent."""

_SETTINGS = CliOptions.fields["settings"].channel.name
_TOKEN = f"\0{_SETTINGS}"

MANAGED = (
    "/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code"
)
"""The directory of the settings of an administrator."""


def keep_on_loopback(path: str, launch: Launch, environ: Mapping[str, str]) -> Launch:
    """Return a launch with which the CLI cannot call a real API, whatever settings files say.

    Return ``launch`` itself if BRIDLE_FORBID_REAL_API is not set, or if the CLI is a fake.

    Raises:
        OptionsError: the CLI would call an API that is not on loopback, or a settings file cannot
            be read.
    """
    if not _is_forbidden(environ) or path in CALLS_NOBODY:
        return launch
    settings = _settings_of(launch)
    variables = launch.environment(environ) | _env_of(settings)
    if (why := _beyond_loopback(variables)) is not None:
        raise _forbidden("env", why)
    routes = {name: variables.get(name, "") for name in _ROUTES}
    for file, managed in _managed_settings(variables):
        for name, value in _env_of(managed).items():
            if name in routes and value != routes[name]:
                raise _forbidden("env", f"the managed settings in {file} set {name}")
    pinned = {**settings, "env": {**_env_of(settings), **routes}}
    return structs.replace(
        launch,
        argv=(
            *(arg for arg in launch.argv if not arg.startswith(f"{_SETTINGS}=")),
            f"{_SETTINGS}={_TOKEN}",
        ),
        files=(
            *(file for file in launch.files if file.token != _TOKEN),
            LaunchFile(_TOKEN, ".json", msgspec.json.encode(pinned)),
        ),
    )


def check_applied(settings: Mapping[str, object], environ: Mapping[str, str]) -> None:
    """Check settings that a running CLI gets.

    Raises:
        OptionsError: BRIDLE_FORBID_REAL_API is set, and they change where the CLI sends requests to
            something that is not on loopback.
    """
    if not _is_forbidden(environ):
        return
    given = _env_of(settings)
    why = _beyond_loopback({_BASE_URL: _LOOPBACK, **given})
    if why is None and any(given.get(name) for name in _ROUTES if name != _BASE_URL):
        why = "they set a proxy or another address"
    if why is not None:
        raise _forbidden("settings", why)


def _is_forbidden(environ: Mapping[str, str]) -> bool:
    return environ.get(FORBID_REAL_API, "") not in ("", "0")


def _settings_of(launch: Launch) -> Mapping[str, object]:
    """Return the settings that the CLI gets with its flag."""
    for file in launch.files:
        if file.token == _TOKEN:
            return _object(file.content, "settings")
    path = named_documents(launch).get(_SETTINGS)
    if path is None:
        return {}
    directory = os.path.dirname(os.path.abspath(path))
    return _object(anchored_settings(_read(path), directory), path)


def _managed_settings(variables: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the files with settings of an administrator that the CLI reads."""
    directory = variables.get("CLAUDE_CODE_MANAGED_SETTINGS_PATH") or MANAGED
    home = variables.get("CLAUDE_CONFIG_DIR") or os.path.join(variables.get("HOME", ""), ".claude")
    more = os.path.join(directory, "managed-settings.d")
    names = sorted(os.listdir(more)) if os.path.isdir(more) else []
    for path in (
        os.path.join(directory, "managed-settings.json"),
        *(os.path.join(more, name) for name in names if name.endswith(".json")),
        os.path.join(home, "remote-settings.json"),  # those that the CLI has fetched
    ):
        if os.path.lexists(path):
            yield path, _object(_read(path), path)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise _forbidden("settings", f"{path} cannot be read ({error.strerror})") from None


def _object(text: bytes, path: str) -> Mapping[str, object]:
    try:
        value: object = msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf") or b"{}")
    except msgspec.DecodeError:
        value = None
    if not is_mapping(value):
        raise _forbidden("settings", f"{path} is not a JSON object")
    return cast("Mapping[str, object]", value)


def _env_of(settings: Mapping[str, object]) -> dict[str, str]:
    env = settings.get("env")
    return {str(name): str(value) for name, value in env.items()} if is_mapping(env) else {}


def _beyond_loopback(variables: Mapping[str, str]) -> str | None:
    for name in _ELSEWHERE:
        if variables.get(name):
            return f"{name} is set"
    url = variables.get(_BASE_URL, "")
    if not url:
        return f"{_BASE_URL} is not set"
    from ipaddress import ip_address  # asyncio loads neither, and only tests need them
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname or ""
        here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        here = False
    return None if here else f"{_BASE_URL} is not on loopback"


def _forbidden(field: str, why: str) -> OptionsError:
    return OptionsError(
        field,
        f"is not allowed: {why}, and {FORBID_REAL_API} forbids calls of a real API",
        fix=f"Set CliOptions(env=model.env) of a ScriptedModel, or unset {FORBID_REAL_API}.",
    )
