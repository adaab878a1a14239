"""The environment variables of a CLI under test.

A CLI inherits the variables of the shell that runs the tests: a login, a proxy, another provider,
a default model. A mapping cannot remove a variable, but it can set it to an empty string. The CLI
treats an empty variable as absent, for all names listed here. The exception is its base URL: if it
is empty, the CLI uses the real API.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Literal

FORBID_REAL_API = "BRIDLE_FORBID_REAL_API"
"""If set to 1, a CLI may use only an API on loopback."""

Login = Literal["api_key", "oauth"]

_LOOPBACK = "127.0.0.1,localhost,::1"
_CREDENTIAL = "scripted"

# Variables to set to an empty string, grouped by what they change:
MASKED = (
    # the login
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE", "ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR",
    "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR", "CLAUDE_CODE_HOST_CREDS_FILE",
    "CLAUDE_CODE_OAUTH_REFRESH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR", "CLAUDE_CODE_SESSION_ACCESS_TOKEN",
    # the provider and its URL
    "ANTHROPIC_UNIX_SOCKET", "CLAUDE_CODE_API_BASE_URL", "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS", "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE", "CLAUDE_CODE_USE_VERTEX",
    # the network
    "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy",
    "CLAUDE_CODE_PROXY_URL",
    # the model and its requests
    "ANTHROPIC_BETAS", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_DEFAULT_FABLE_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
    "API_TIMEOUT_MS", "CLAUDE_CODE_ATTRIBUTION_HEADER", "CLAUDE_CODE_EFFORT_LEVEL",
    "CLAUDE_CODE_EXTRA_BODY", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_MAX_TURNS",
    "CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SUBAGENT_MODEL", "DISABLE_PROMPT_CACHING",
    "MAX_THINKING_TOKENS",
    # the host program, and telemetry
    "CLAUDE_CODE_ENABLE_TELEMETRY", "CLAUDE_CODE_REMOTE",
    # its directories
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
)  # fmt: skip

_ALONE = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "NO_PROXY": _LOOPBACK,
    "no_proxy": _LOOPBACK,
}


def cli_environment(
    url: str, home: Path, *, login: Login = "api_key", retries: int | None = 0
) -> dict[str, str]:
    """Return variables for `CliOptions.env` that make the CLI use the API at `url` and no other.

    `login` is the kind of login that the CLI finds; the credential is a placeholder. `retries` is
    how often the CLI repeats a failed request; None keeps the default of the CLI.
    """
    credential = "ANTHROPIC_API_KEY" if login == "api_key" else "CLAUDE_CODE_OAUTH_TOKEN"
    environment = {
        **dict.fromkeys(MASKED, ""),
        **_ALONE,
        "ANTHROPIC_BASE_URL": url,
        "CLAUDE_CODE_MAX_RETRIES": "" if retries is None else str(retries),
        # Otherwise the CLI leaves a directory in /tmp. Older CLIs use TMPDIR for some files.
        "CLAUDE_CODE_TMPDIR": str(home),
        "TMPDIR": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "HOME": str(home),
        credential: _CREDENTIAL,
    }
    if os.getuid() == 0:
        environment["IS_SANDBOX"] = "1"  # otherwise the CLI refuses some modes for root
    return environment


@contextlib.contextmanager
def forbid_real_api() -> Generator[None]:
    """Make Bridle refuse to start a CLI whose API is not on loopback.

    Settings files of the user and the project cannot send the CLI to another API. If managed
    settings of an administrator would do that, Bridle refuses to start the CLI, too.

    It applies to this process and to processes that inherit its environment. Use it as a context
    manager or as a decorator. In `conftest.py`, use it in a fixture with `autouse=True` to protect
    every test.
    """
    before: Mapping[str, str] = {k: v for k, v in os.environ.items() if k == FORBID_REAL_API}
    os.environ[FORBID_REAL_API] = "1"
    try:
        yield
    finally:
        del os.environ[FORBID_REAL_API]
        os.environ.update(before)
