"""Download an older Claude Code CLI for tests: ``python tools/fetch_cli.py 2.1.197 .clis``.

The development environment contains the newest CLI, inside a wheel. Older ones are npm packages,
one per platform. npm only downloads and verifies the archive; nothing in it is run. The result is
``<directory>/<version>/claude``.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def package_name() -> str:
    """Return the npm package with the binary for this machine."""
    system = platform.system().lower()
    machine = _MACHINES.get(platform.machine().lower(), platform.machine().lower())
    return f"@anthropic-ai/claude-code-{system}-{machine}"


def pack(package: str, scratch: str) -> Path:
    """Download the archive of an npm package, such as ``name@1.2.3``, and return its path."""
    command = ["npm", "pack", package, "--pack-destination", scratch]
    fetched = subprocess.run(command, check=False, capture_output=True, text=True)
    if fetched.returncode:
        raise SystemExit(fetched.stderr)
    [archive] = Path(scratch).glob("*.tgz")
    return archive


def unpack(archive: tarfile.TarFile, member: str, directory: Path) -> Path:
    """Write one file of an archive to ``directory``, under its last name, and return its path.

    Python 3.11.4 added extraction that is safe from links and absolute paths. This needs none.
    """
    source = archive.extractfile(member)
    if source is None:
        raise SystemExit(f"{member} in the archive is not a file")
    target = directory / Path(member).name
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    return target


def fetch(version: str, directory: Path) -> Path:
    """Download the CLI of this version to ``directory``, unless it exists there."""
    target = directory / version / "claude"
    if target.exists():
        return target
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        with tarfile.open(pack(f"{package_name()}@{version}", scratch)) as package:
            binary = unpack(package, "package/claude", Path(scratch))
        binary.chmod(0o755)
        # At the end: `make` takes the directory of the version for the proof that it is complete.
        target.parent.mkdir(exist_ok=True)
        binary.replace(target)
    return target


def main() -> int:
    """Download the CLI. Return 0 even without npm, because tests without their CLI are skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    if shutil.which("npm") is None:
        print(f"no npm: tests on CLI {options.version} will be skipped", file=sys.stderr)
        return 0
    print(fetch(options.version, options.directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
