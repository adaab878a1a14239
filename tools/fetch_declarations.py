"""Download the type declarations of the official npm packages for `tools/surface.py`.

`tools/surface.toml` pins the version and the checksum of each package. Only the declaration file
and ``package.json`` are kept, in ``.clis/<package>-<version>/``; nothing in a package is run.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fetch_cli import pack, unpack

REPOSITORY = Path(__file__).resolve().parent.parent
KEPT_IN = REPOSITORY / ".clis"
LISTS = REPOSITORY / "tools/surface.toml"
DONE = KEPT_IN / "declarations"
"""Tells `make` that all packages are there."""


@dataclass(frozen=True)
class Package:
    """An npm package, and the declaration file that is read from it."""

    name: str
    version: str
    integrity: str
    file: str

    def directory(self, version: str | None = None) -> Path:
        """Return the directory in which the files of this package are kept."""
        short = self.name.removeprefix("@").replace("/", "-")
        return KEPT_IN / f"{short}-{version or self.version}"

    def declarations(self, version: str | None = None) -> Path:
        """Return the path of the declaration file."""
        return self.directory(version) / Path(self.file).name


def packages() -> dict[str, Package]:
    """Return the pinned packages, by the name that `tools/surface.toml` gives them."""
    lists: dict[str, Any] = tomllib.loads(LISTS.read_text("utf-8"))
    return {key: Package(**pinned) for key, pinned in lists["packages"].items()}


def integrity_of(archive: Path) -> str:
    """Return the checksum of an archive, as the npm registry writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()


def fetch(package: Package, version: str | None = None) -> Path:
    """Download a package, unless its files exist, and return the path of its declarations.

    Without ``version`` it is the pinned one, and its checksum must be the pinned one too. Another
    version, such as "latest", is always downloaded again.
    """
    target = package.declarations(version)
    if version is None and target.exists():
        return target
    directory = package.directory(version)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT_IN) as scratch:
        archive = pack(f"{package.name}@{version or package.version}", scratch)
        if version is None and integrity_of(archive) != package.integrity:
            raise SystemExit(f"{package.name} {package.version} does not have the pinned checksum")
        with tarfile.open(archive) as contents:
            # The declarations come last: if they exist, the directory is complete.
            for member in ("package.json", package.file):
                file = unpack(contents, f"package/{member}", Path(scratch))
                file.replace(directory / file.name)
    return target


def main() -> int:
    """Download the pinned packages. Return 0 even without npm: then the test is skipped."""
    if shutil.which("npm") is None:
        print("no npm: the comparison with the official packages is skipped", file=sys.stderr)
        return 0
    for package in packages().values():
        print(fetch(package))
    DONE.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
