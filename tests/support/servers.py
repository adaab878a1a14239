"""Start PostgreSQL and Redis servers for tests, from the binaries of the distribution."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

PASSWORD = "correct-horse-battery-9"
"""The password of both servers. Tests check that it is shown nowhere."""

_START_TIMEOUT = 60.0


def _find(program: str) -> str | None:
    """Return the path of a server's program. Debian keeps those of PostgreSQL out of PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    return shutil.which(program) or (str(versions[-1]) if versions else None)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server(ABC):
    """A server on a free port of the loopback interface, in a temporary directory."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="bridle-server-"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # The servers refuse to run as root, or should not.
        self._account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._account is not None:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)

    @property
    @abstractmethod
    def url(self) -> str:
        """The url with the password."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _is_ready(self) -> bool: ...

    def _popen(self, command: list[str]) -> subprocess.Popen[bytes]:
        account = self._account
        log = (self.directory / "log").open("ab")
        with log:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"},
                start_new_session=True,  # Ctrl-C in the terminal is for pytest
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
            )

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        self._process = self._popen(self._command())
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self.directory / "log").read_text("utf-8", "replace")
                raise RuntimeError(f"{type(self).__name__} did not start:\n{log[-2000:]}")
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End the server at once."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def pause(self) -> None:
        """Stop all processes of the server, so that its connections hang."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the processes of the server go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        assert self._process is not None, "the server runs"
        pid = self._process.pid
        os.kill(pid, number)  # first, so that it starts no further process
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(int(child), number)

    @property
    def pid(self) -> int | None:
        """The process id. None if the server does not run."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        """End the server and remove its files."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


S = TypeVar("S", bound=Server)


class PostgresServer(Server):
    """PostgreSQL, with one database ``postgres`` and the user ``bridle``."""

    def __init__(self, initdb: str, postgres: str) -> None:
        super().__init__()
        self._postgres = postgres
        password = self.directory / "password"
        password.write_text(PASSWORD)
        data = str(self.directory / "data")
        made = self._popen(
            [
                *(initdb, "--pgdata", data, "--username", "bridle", "--pwfile", str(password)),
                *("--auth", "scram-sha-256", "--encoding", "UTF8", "--no-sync", "--no-locale"),
            ]
        )
        assert made.wait(_START_TIMEOUT) == 0, (self.directory / "log").read_text()

    @property
    def url(self) -> str:
        return f"postgresql://bridle:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """End the server at once. SIGKILL would leave its shared memory and children."""
        super().stop(number)

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "16MB",
        }
        pairs = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self._postgres, "-D", str(self.directory / "data"), *pairs]

    def _is_ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


class RedisServer(Server):
    """Redis without persistence: a restart empties it."""

    def __init__(self, redis_server: str) -> None:
        super().__init__()
        self._redis_server = redis_server

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        return [
            *(self._redis_server, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
            *("--appendonly", "no", "--requirepass", PASSWORD, "--dir", str(self.directory)),
        ]

    def _is_ready(self) -> bool:
        import redis

        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


def run_postgres() -> Iterator[PostgresServer]:
    """Yield a running PostgreSQL server. Skip the test if it is not installed."""
    pytest.importorskip("psycopg", reason="needs the extra 'postgres' (psycopg)")
    initdb, postgres = _find("initdb"), _find("postgres")
    if initdb is None or postgres is None:
        pytest.skip("needs the PostgreSQL server (Debian package postgresql)")
    yield from _run(PostgresServer(initdb, postgres))


def run_redis() -> Iterator[RedisServer]:
    """Yield a running Redis server. Skip the test if it is not installed."""
    pytest.importorskip("redis", reason="needs the extra 'redis' (redis-py)")
    redis_server = _find("redis-server")
    if redis_server is None:
        pytest.skip("needs the Redis server (Debian package redis-server)")
    yield from _run(RedisServer(redis_server))


def _run(server: S) -> Iterator[S]:
    try:
        server.start()
        yield server
    finally:
        server.close()
