"""Information about a CLI process: how it ended, what that usually means, and its last stderr."""

from __future__ import annotations

import msgspec

from bridle.errors._redaction import redact_argument, redact_text

# Signals with the same number on Linux and macOS. Pure modules do not import `signal`.
_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 8: "SIGFPE",
    9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
}  # fmt: skip

_HINTS: dict[int | str, str] = {
    1: "Read the stderr lines above. If they do not explain it, check the login with `claude`.",
    2: "The CLI rejected its arguments: check extra_args and the CLI's version.",
    126: "The file is not executable: check its permissions, or reinstall the CLI.",
    127: "The CLI or its interpreter is missing: reinstall it, or set cli_path.",
    "SIGKILL": "Another process killed the CLI. The usual cause is a lack of memory.",
    "SIGTERM": "Another process sent SIGTERM to the CLI. Check the supervisor of this program.",
    "SIGHUP": "The terminal or the supervisor of the CLI has closed.",
    "SIGSEGV": "The CLI crashed: update it, or try another version.",
    "SIGABRT": "The CLI crashed: update it, or try another version.",
}
_HINT_SILENT_1 = (
    "The CLI wrote nothing to stderr. The usual cause is that it is not logged in: run `claude` "
    "once."
)

_SHOWN_LINES = 10
_SHOWN_WIDTH = 300


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Information about the CLI process that an error is about.

    Credentials in `stderr_tail` and `argv` are masked on construction, so the record can be logged,
    pickled and shown.
    """

    #: The exit code of the process: negative if a signal ended it, None while it runs or if the
    #: code is unknown.
    exit_code: int | None = None
    #: The last part of what the CLI wrote to stderr.
    stderr_tail: str = ""
    cli_path: str | None = None
    cli_version: str | None = None
    argv: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "stderr_tail", redact_text(self.stderr_tail))
        msgspec.structs.force_setattr(self, "argv", tuple(map(redact_argument, self.argv)))

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the process. None if no signal ended it.

        An exit code of 128 plus the number of a signal counts too: the CLI reports some signals in
        this way.
        """
        code = self.exit_code
        if code is None:
            return None
        if code < 0:
            return _SIGNALS.get(-code, f"signal {-code}")
        return _SIGNALS.get(code - 128)

    @property
    def ending(self) -> str:
        """How the process ended, as text; empty if that is not known."""
        if self.exit_code is None:
            return ""
        code = f"exit code {self.exit_code}"
        return f"{self.signal} ({code})" if self.signal else code

    @property
    def hint(self) -> str:
        """What this exit code or signal usually means; empty if there is no typical cause."""
        if self.exit_code == 1 and not self.stderr_tail.strip():
            return _HINT_SILENT_1
        return _HINTS.get(self.signal or self.exit_code or 0, "")

    def __str__(self) -> str:
        cli = self.cli_path or ("claude" if self.cli_version else "")
        version = f" (version {self.cli_version})" if self.cli_version else ""
        ended = f"Ended with {self.ending}." if self.ending else ""
        last = [line.rstrip()[:_SHOWN_WIDTH] for line in self.stderr_tail.splitlines()]
        shown = [line for line in last if line][-_SHOWN_LINES:]
        stderr = "\n  | ".join(["Last lines of stderr:", *shown]) if shown else ""
        return "\n".join(filter(None, [cli and f"CLI: {cli}{version}", ended, stderr]))
