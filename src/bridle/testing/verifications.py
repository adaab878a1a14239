"""What `bridle verify` found out about a CLI, and the file on this machine that keeps it.

A result holds for one CLI and one version of Bridle. The CLI is identified by the content of what
is run, so a new CLI at the same path has no result yet.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
from typing import Literal, Protocol

import msgspec

State = Literal["held", "broken", "unsupported"]

_LONGEST = 1 << 20
"""Bytes of a stored result that are read. It has about 20 KB."""

_SCRIPT = 64 << 10
"""Bytes of a script in which the names of other files are searched."""

_DEPTH = 3
_CHUNK = 1 << 20
_WORDS = re.compile(rb"[^\s\"'`;|&<>()=,]+")
_PLACE = re.compile(rb"^(?:\$\w+|\$\{\w+\})(?=/)")


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """A promise of Bridle, and whether it held on a CLI."""

    #: A short name, such as ``guard.block``.
    id: str
    #: What is promised, in one sentence.
    sentence: str
    #: ``held``, ``broken``, or ``unsupported`` if the CLI is older than the feature.
    state: Literal["held", "broken", "unsupported"]
    #: What happened when it was tried.
    observed: str
    #: The parts of Bridle that rest on it.
    depends: str
    #: Seconds that trying it took.
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        """Return whether the promise held. An unsupported one did not."""
        return self.state == "held"


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """All promises, tried on one CLI."""

    cli_path: str
    #: None if the CLI did not tell it.
    cli_version: str | None
    #: See :func:`identity`.
    cli_sha256: str
    bridle_version: str
    #: When it ended, in seconds since 1970.
    at: float
    seconds: float
    promises: tuple[Promise, ...]

    @property
    def holds(self) -> bool:
        """Return whether every promise held, and there was at least one."""
        return bool(self.promises) and all(promise.held for promise in self.promises)

    @property
    def failed(self) -> tuple[Promise, ...]:
        """Return the promises that did not hold."""
        return tuple(promise for promise in self.promises if not promise.held)


def bridle_version() -> str:
    """Return the version of the installed Bridle."""
    from importlib.metadata import version  # slow to import

    return version("bridle")


# ---------------------------------------------------------------- which CLI it is


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def identity(path: str) -> str:
    """Return the SHA-256 of what is run when the executable at ``path`` is run.

    Links are followed. For a script it covers the files and programs that the script names, and the
    scripts among them likewise: the launcher of a CLI for Node.js says little about the CLI.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    _add(digest, os.path.realpath(path), set(), _DEPTH)
    return digest.hexdigest()


def _add(digest: _Digest, path: str, seen: set[str], depth: int) -> None:
    seen.add(path)
    begin = b""
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            begin = begin or chunk[: _SCRIPT + 1]
            digest.update(chunk)
    if depth and _is_script(begin):
        for name in _named_files(begin, os.path.dirname(path)):
            if name not in seen:
                _add(digest, name, seen, depth - 1)


def _is_script(begin: bytes) -> bool:
    return begin.startswith(b"#!") and len(begin) <= _SCRIPT


def _is_known(path: str) -> bool:
    """Return False for a script that names no file: what it runs may change unnoticed."""
    with open(path, "rb") as file:
        begin = file.read(_SCRIPT + 1)
    return not _is_script(begin) or bool(_named_files(begin, os.path.dirname(path)))


def _named_files(script: bytes, directory: str) -> list[str]:
    """Return the files that a script names, in order. A variable stands for its directory."""
    found: list[str] = []
    for word in dict.fromkeys(_WORDS.findall(script.partition(b"\n")[2])):
        name = os.path.expanduser(os.fsdecode(_PLACE.sub(lambda _: os.fsencode(directory), word)))
        try:
            # A bare word may be a program, which is found through PATH.
            path = os.path.join(directory, name) if "/" in name else shutil.which(name)
            is_file = path is not None and stat.S_ISREG(os.stat(path).st_mode)
        except (OSError, ValueError):
            continue
        if path is not None and is_file and os.access(path, os.R_OK):
            found.append(os.path.realpath(path))
    return found


# ---------------------------------------------------------------- the file


def cache_directory() -> str:
    """Return the directory of the stored results of this user."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "bridle", "verified")


decode_verification = msgspec.json.Decoder(Verification).decode
"""Built here, before threads use it."""


def stored_verification(path: str) -> Verification | None:
    """Return what is stored about the CLI at ``path`` for this version of Bridle, or None.

    A file that is damaged, or that another user could have written, is ignored. So is the result
    for a script that names no file.
    """
    try:
        sha256 = identity(path)
        content = _read(_file_of(sha256)) if _is_known(os.path.realpath(path)) else b""
        found = decode_verification(content)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    is_same = (found.cli_sha256, found.bridle_version) == (sha256, bridle_version())
    return found if is_same and found.promises and found.at <= time.time() + 60 else None


def store_verification(verification: Verification) -> None:
    """Store a result, readable by this user only.

    Raises:
        OSError: the file cannot be written.
    """
    directory = cache_directory()
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = _file_of(verification.cli_sha256)
    temporary = f"{path}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(verification))
        os.replace(temporary, path)
    except OSError:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def _file_of(sha256: str) -> str:
    return os.path.join(cache_directory(), f"{sha256}.json")


def _read(path: str) -> bytes:
    """Return the content of a file that only this user can write.

    Raises:
        OSError: it cannot be read, or others may write it.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or stat.S_IMODE(status.st_mode) & 0o022:
            raise PermissionError(f"not a file of this user alone: {path}")
        return file.read(_LONGEST)
