"""A network namespace with one link to this machine, which can be cut."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest


class Namespace:
    """A network namespace. Programs in it reach this machine at `address`."""

    def __init__(self) -> None:
        number = secrets.randbelow(0x4000)
        self._name = f"bridle-{number:04x}"
        self._link = f"brd{number:04x}"
        place = f"10.213.{number >> 6}.{(number & 0x3F) * 4}".rsplit(".", 1)
        self.address = f"{place[0]}.{int(place[1]) + 1}"
        self._inside = f"{place[0]}.{int(place[1]) + 2}"

    @property
    def prefix(self) -> list[str]:
        """Words before a command that is to run in the namespace."""
        return ["ip", "netns", "exec", self._name]

    def create(self) -> None:
        peer = f"{self._link}p"
        _ip("netns", "add", self._name)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", peer)
        _ip("link", "set", peer, "netns", self._name)
        _ip("addr", "add", f"{self.address}/30", "dev", self._link)
        _ip("link", "set", self._link, "up")
        for words in (
            ("addr", "add", f"{self._inside}/30", "dev", peer),
            ("link", "set", peer, "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", self._name, *words)

    def cut(self) -> None:
        """Lose all packets."""
        _ip("link", "set", self._link, "down")

    def restore(self) -> None:
        """Forward packets again."""
        _ip("link", "set", self._link, "up")

    def remove(self) -> None:
        for words in (("link", "del", self._link), ("netns", "del", self._name)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip(*words)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def namespace() -> Iterator[Namespace]:
    """Create a network namespace. Skip the test where the machine forbids it."""
    if shutil.which("ip") is None:
        pytest.skip("needs the program ip (Debian package iproute2)")
    made = Namespace()
    try:
        try:
            made.create()
        except subprocess.CalledProcessError as error:
            reason = error.stderr.decode(errors="replace").strip()
            who = "" if os.geteuid() == 0 else " without root"
            pytest.skip(f"this machine does not allow network namespaces{who}: {reason}")
        yield made
    finally:
        made.remove()
