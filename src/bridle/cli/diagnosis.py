"""Turn facts about a machine into findings, advice and one exit code for ``bridle doctor``.

This module is pure: ``doctor.py`` collects the :class:`Facts`. :func:`diagnose` checks them in
the order of their dependencies. A problem prevents all sessions or turns; a warning may affect
some of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from bridle._spi import Version
from bridle.cli._screens.shown import counted, dollars, joined, seconds
from bridle.errors import (
    BridleError,
    CliExitedDuringInit,
    CliNotFoundError,
    OptionsError,
    SpawnError,
    UnsupportedCliVersionError,
)
from bridle.options import Limits, SdkOptions
from bridle.outcomes import OutcomeReason

if TYPE_CHECKING:
    from bridle.testing.verifications import Verification  # loads the test kit


class Problem(IntEnum):
    """A problem that prevents sessions. Its number is the exit code of ``bridle doctor``."""

    OPTIONS = 2
    NO_CLI = 10
    CLI_DOES_NOT_RUN = 11
    CLI_TOO_OLD = 12
    CLI_DOES_NOT_ANSWER = 13
    UNWRITABLE = 14
    ROOT = 15
    LOGIN = 16
    NO_ANSWER = 17

    @property
    def meaning(self) -> str:
        """Describe the problem in one line."""
        return _MEANINGS[self]


_MEANINGS: Mapping[Problem, str] = {
    Problem.OPTIONS: "an argument, a variable or the configuration file is wrong",
    Problem.NO_CLI: "no CLI was found",
    Problem.CLI_DOES_NOT_RUN: "the CLI cannot be run, or exits at once",
    Problem.CLI_TOO_OLD: "the CLI is too old",
    Problem.CLI_DOES_NOT_ANSWER: "the CLI runs but does not complete the handshake",
    Problem.UNWRITABLE: "the CLI cannot write to one of its directories",
    Problem.ROOT: "the CLI refuses bypassPermissions for root",
    Problem.LOGIN: "the CLI is not logged in",
    Problem.NO_ANSWER: "the model did not answer (with --live)",
}

_ADVICE: Mapping[Problem, str] = {
    Problem.NO_CLI: "Install it with `pip install claude-agent-sdk` or `npm install -g "
    "@anthropic-ai/claude-code`, or name it with --cli or BRIDLE_CLI.",
    Problem.CLI_DOES_NOT_RUN: "Run the CLI with --version in a shell. If that fails too, reinstall "
    "it, or name another one with --cli or BRIDLE_CLI.",
    Problem.CLI_TOO_OLD: "Update it with `claude update`. Or run `pip install -U claude-agent-sdk` "
    "and name the CLI of that package with --cli or BRIDLE_CLI.",
    Problem.CLI_DOES_NOT_ANSWER: "Check that this program is Claude Code. If it is only slow, "
    "give it more time with --timeout.",
    Problem.UNWRITABLE: "Make the directory writable, or set CLAUDE_CONFIG_DIR to a writable one.",
    Problem.ROOT: "Use another permission mode, or run as another user. In a disposable container "
    "you can set IS_SANDBOX=1.",
    Problem.LOGIN: "Log in by running `claude` once, or set ANTHROPIC_API_KEY.",
    Problem.NO_ANSWER: "Check the connection, the proxy variables, ANTHROPIC_BASE_URL and the "
    "model name. If the server is only busy, try again.",
}

BYPASS = "bypassPermissions"
_ROOT_REFUSED = "root/sudo privileges"
"""Part of the CLI's message when it refuses to run as root."""


class Place(msgspec.Struct, frozen=True):
    """A place where Bridle searched for a CLI."""

    path: str
    origin: str
    is_there: bool


class Directory(msgspec.Struct, frozen=True):
    """A directory that the CLI writes to, and the problem with writing there, if any."""

    path: str
    use: str
    problem: str = ""


class NoVersion(msgspec.Struct, frozen=True):
    """Why the version of the CLI is not known."""

    text: str
    has_failed: bool = False


class Handshake(msgspec.Struct, frozen=True):
    """The duration of the handshake, and the CLI's response."""

    duration: float
    info: Mapping[str, Any]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one real call to the model."""

    reason: OutcomeReason
    duration: float = 0.0
    detail: str = ""
    model: str = ""
    cost_usd: float | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts that ``bridle doctor`` collected."""

    bridle: str
    platform: str
    cli: str | BridleError
    named_by: str | None = None
    places: Sequence[Place] = ()
    version: Version | NoVersion | None = None
    #: What `bridle verify` found out about this CLI; None if it was not run.
    verification: Verification | None = None
    #: The time, in seconds since 1970.
    now: float = 0.0
    directories: Sequence[Directory] = ()
    is_root: bool = False
    is_sandbox: bool = False
    permission_mode: str | None = None
    handshake: Handshake | BridleError | None = None
    #: Variables and files that may hold a login; names only.
    credentials: Sequence[str] = ()
    #: Settings files that name a credential or a helper. The doctor does not run their commands.
    helpers: Sequence[str] = ()
    #: With --live: the result of the prompt.
    answer: Answer | BridleError | None = None
    sdk: SdkOptions
    open_files: int | None = None
    #: Ignored settings that could weaken hooks or permissions, each with what to do instead.
    ignored: Sequence[str] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    check: str
    state: Literal["ok", "note", "warning", "problem"]
    text: str
    details: Sequence[str] = ()
    problem: Problem | None = None

    @property
    def advice(self) -> str:
        """Say how to fix the problem."""
        return "" if self.problem is None else _ADVICE.get(self.problem, "")


def diagnose(facts: Facts) -> list[Finding]:
    """Return the findings. A finding comes before those that depend on it."""
    return [
        Finding(check="bridle", state="ok", text=f"{facts.bridle} on {facts.platform}"),
        *(Finding(check="options", state="warning", text=text) for text in facts.ignored),
        _cli(facts),
        *_version(facts),
        *_verified(facts),
        *map(_directory, facts.directories),
        _root(facts),
        *_handshake(facts),
        *_login(facts),
        *_answer(facts),
        _limits(facts),
    ]


def misconfigured(error: OptionsError) -> list[Finding]:
    """Return the findings for invalid options."""
    what, *how = str(error).splitlines()
    return [_problem("options", Problem.OPTIONS, what, how)]


def verdict(findings: Sequence[Finding]) -> str:
    """Summarize the findings in one line."""
    problems = [finding.problem for finding in findings if finding.problem]
    if problems:
        first = min(problems)
        more = "" if len(problems) == 1 else ". Fix this one first"
        return f"{counted(len(problems), 'problem')}{more}: {first.meaning} (exit code {first})."
    warnings = sum(finding.state == "warning" for finding in findings)
    return f"Healthy, with {counted(warnings, 'warning')}." if warnings else "Healthy."


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 0 if there is no problem, else the code of the problem to fix first."""
    return min((finding.problem for finding in findings if finding.problem), default=0)


def _problem(check: str, problem: Problem, text: str, details: Sequence[str] = ()) -> Finding:
    return Finding(check=check, state="problem", text=text, details=details, problem=problem)


# ---------------------------------------------------------------- the CLI


def _cli(facts: Facts) -> Finding:
    named = f" (named by {facts.named_by})" if facts.named_by else ""
    if isinstance(facts.cli, CliNotFoundError):
        if facts.named_by:
            return _problem("cli", Problem.NO_CLI, f"not found: {facts.cli.searched[0]}{named}")
        places = [f"not at {place.path} ({place.origin})" for place in facts.places]
        return _problem("cli", Problem.NO_CLI, "not found", places)
    if isinstance(facts.cli, BridleError):
        reason = facts.cli.os_error if isinstance(facts.cli, SpawnError) else str(facts.cli)
        return _problem("cli", Problem.CLI_DOES_NOT_RUN, f"{reason}{named}")
    others = [place for place in facts.places if place.path != facts.cli]
    origin = next((place.origin for place in facts.places if place.path == facts.cli), "")
    found = [f"also at {place.path} ({place.origin})" for place in others if place.is_there]
    missing = counted(sum(not place.is_there for place in others), "other place")
    where = named or (f" ({origin})" if origin else "")
    looked = [] if facts.named_by else [f"no CLI in {missing}"]
    return Finding(check="cli", state="ok", text=f"{facts.cli}{where}", details=[*found, *looked])


def _version(facts: Facts) -> Iterator[Finding]:
    floor = f"Bridle needs {Version.MINIMUM} or newer"
    match facts.version:
        case Version() as version if version < Version.MINIMUM:
            yield _problem("version", Problem.CLI_TOO_OLD, f"{version} is too old: {floor}")
        case Version() as version:
            yield Finding(check="version", state="ok", text=f"{version} ({floor})")
        case NoVersion(text, has_failed=True):
            yield _problem("version", Problem.CLI_DOES_NOT_RUN, text)
        case NoVersion(text):
            yield Finding(check="version", state="warning", text=text)
        case None:
            return


def _verified(facts: Facts) -> Iterator[Finding]:
    if not isinstance(facts.cli, str):
        return
    found = facts.verification
    if found is None:
        newer = ""
        if isinstance(facts.version, Version) and facts.version > Version.TESTED:
            newer = f" CLI {facts.version} is newer than {Version.TESTED}, the newest tested one."
        text = f"not yet.{newer} To try Bridle's promises on this CLI: bridle verify"
        yield Finding(check="verified", state="note", text=text)
        return
    count = len(found.promises)
    when = f"{seconds(facts.now - found.at)} ago"
    if found.holds:
        yield Finding(check="verified", state="ok", text=f"all {count} promises hold ({when})")
        return
    text = f"{len(found.failed)} of {count} promises do not hold ({when})"
    details = [f"{one.state}: {one.id}: {one.sentence}" for one in found.failed]
    yield Finding(check="verified", state="warning", text=text, details=details)


def _handshake(facts: Facts) -> Iterator[Finding]:
    match facts.handshake:
        case None:
            return
        case Handshake(duration, info):
            yield Finding(
                check="handshake",
                state="ok",
                text=f"{seconds(duration)}, no request sent to the API",
            )
            yield _capabilities(info)
        case OptionsError() as error:
            yield _problem("handshake", Problem.OPTIONS, "not tried", str(error).splitlines())
        case BridleError() as error if _ROOT_REFUSED in error.stderr_tail:
            return  # the check `user` reports it
        case BridleError() as error:
            kind = _kind_of_failure(error)
            yield _problem(
                "handshake", kind, str(error.args[0]), str(error.process or "").splitlines()
            )


def _kind_of_failure(error: BridleError) -> Problem:
    if isinstance(error, UnsupportedCliVersionError):
        return Problem.CLI_TOO_OLD
    if isinstance(error, CliExitedDuringInit | SpawnError):
        return Problem.CLI_DOES_NOT_RUN
    return Problem.CLI_DOES_NOT_ANSWER


def advice_on(error: BridleError, version: object) -> str:
    """Say how to fix a session that did not start. Return "" if that is not known."""
    if _ROOT_REFUSED in error.stderr_tail:
        return f"The CLI refuses {BYPASS} for root. {_ADVICE[Problem.ROOT]}"
    if isinstance(version, Version) and version < Version.MINIMUM:
        advice = _ADVICE[Problem.CLI_TOO_OLD]
        return f"The CLI is {version}, but {Version.MINIMUM} or newer is needed. {advice}"
    return ""


def _capabilities(info: Mapping[str, Any]) -> Finding:
    named = info.get("capabilities")
    counts = [
        counted(len(cast("list[object]", info[key])), key.removesuffix("s"))
        for key in ("models", "commands", "agents")
        if isinstance(info.get(key), list)
    ]
    if not isinstance(named, list):
        text = joined(["not listed by this CLI (older versions do not list them)", *counts])
        return Finding(check="capabilities", state="note", text=text)
    listed = cast("list[object]", named)
    words = joined([f"{len(listed)} named", *counts])
    details = [", ".join(map(str, listed))] if listed else []
    return Finding(check="capabilities", state="ok", text=words, details=details)


# ---------------------------------------------------------------- where it runs


def _directory(directory: Directory) -> Finding:
    if directory.problem:
        text = f"{directory.path} cannot be written to: {directory.problem}"
        return _problem(directory.use, Problem.UNWRITABLE, text)
    return Finding(check=directory.use, state="ok", text=f"{directory.path} is writable")


def _root(facts: Facts) -> Finding:
    refused = isinstance(facts.handshake, BridleError) and (
        _ROOT_REFUSED in facts.handshake.stderr_tail
    )
    is_bare = facts.is_root and not facts.is_sandbox
    if refused or (is_bare and facts.permission_mode == BYPASS):
        source = "" if facts.permission_mode == BYPASS else " (set in its settings)"
        return _problem("user", Problem.ROOT, f"root: the CLI refuses {BYPASS}{source}")
    if is_bare:
        text = f"root: the CLI would refuse {BYPASS} (set IS_SANDBOX=1 to permit it)"
        return Finding(check="user", state="note", text=text)
    return Finding(
        check="user", state="ok", text="root, in a sandbox" if facts.is_root else "not root"
    )


def _login(facts: Facts) -> Iterator[Finding]:
    if not isinstance(facts.handshake, Handshake):
        return
    account = facts.handshake.info.get("account")
    if not isinstance(account, Mapping):
        yield Finding(
            check="login",
            state="warning",
            text="unknown: the CLI does not report it",
            details=facts.credentials,
        )
        return
    told = cast("Mapping[str, object]", account)
    provider = told.get("apiProvider", "firstParty")
    sources = [told.get(name) for name in ("apiKeySource", "tokenSource")]
    named = [str(source) for source in sources if source not in (None, "none")]
    if provider != "firstParty":
        text = f"through {provider} (its credentials are not checked)"
        yield Finding(check="login", state="note", text=text)
    elif named:
        text = f"by {' and '.join(dict.fromkeys(named))}"
        others = [said for said in facts.credentials if not said.startswith(tuple(named))]
        yield Finding(check="login", state="ok", text=text, details=others)
    elif isinstance(facts.answer, Answer) and facts.answer.reason is OutcomeReason.COMPLETED:
        text = "the CLI reports no login, but the model answered"
        yield Finding(check="login", state="ok", text=text, details=facts.helpers)
    elif facts.helpers:
        text = "unknown: settings name a login, but the doctor does not load settings"
        yield Finding(check="login", state="note", text=text, details=facts.helpers)
    else:
        yield _problem("login", Problem.LOGIN, "not logged in", facts.credentials)


def _answer(facts: Facts) -> Iterator[Finding]:
    match facts.answer:
        case None:
            return
        case BridleError() as error:
            yield _problem("model", Problem.NO_ANSWER, "prompt not sent", str(error).splitlines())
        case Answer(reason=OutcomeReason.COMPLETED) as answer:
            facts_told = [seconds(answer.duration), answer.model, dollars(answer.cost_usd)]
            text = joined(["answered one prompt", *facts_told])
            yield Finding(check="model", state="ok", text=text)
        case Answer() as answer:
            is_login = answer.reason is OutcomeReason.AUTH_FAILED
            kind = Problem.LOGIN if is_login else Problem.NO_ANSWER
            words = str(answer.reason).replace("_", " ")
            text = joined([f"no answer: {words}", seconds(answer.duration)])
            yield _problem("model", kind, text, answer.detail.splitlines())


def _limits(facts: Facts) -> Finding:
    sdk = facts.sdk
    mebibyte = 1024 * 1024
    set_limits = {name: getattr(sdk.limits, name) for name in Limits.fields}
    said = [f"{name} {value:g}" for name, value in set_limits.items() if value is not None]
    details = [
        f"handshake: {sdk.init_timeout:g} s, control requests: {sdk.control_timeout:g} s",
        f"one line: {sdk.max_buffer_size / mebibyte:g} MiB, "
        f"unread messages: {sdk.max_unread_bytes / mebibyte:g} MiB",
    ]
    if facts.open_files is not None:
        details.append(f"open files: {facts.open_files}")
    text = f"turn: {', '.join(said)}" if said else "turn: no limits set"
    return Finding(check="limits", state="note", text=text, details=details)
