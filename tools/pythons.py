"""List the other Pythons on this machine that Bridle is tested on: ``python tools/pythons.py``.

Prints a line for each version: `3.12=/path/to/python3.12`. The versions are those of the
classifiers in pyproject.toml, without the one that runs this program. Looks on PATH and among the
versions that pyenv has installed. Names a version that it does not find on stderr.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CLASSIFIER = "Programming Language :: Python :: 3."


def versions_to_test(repository: Path = REPOSITORY) -> list[str]:
    """Return the versions that the classifiers name, such as "3.12"."""
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    minors = (one.removeprefix(CLASSIFIER) for one in project["classifiers"])
    return [f"3.{minor}" for minor in minors if minor.isdecimal()]


def find(version: str, pyenv: Path) -> Path | None:
    """Return the interpreter of a version: the newest one of pyenv, or the one on PATH."""
    installed = sorted(
        pyenv.glob(f"versions/{version}.*/bin/python{version}"),
        key=lambda path: [int(n) for n in path.parts[-3].split(".") if n.isdecimal()],
    )
    on_path = shutil.which(f"python{version}")
    return installed[-1] if installed else Path(on_path) if on_path else None


def main() -> None:
    """Print the Pythons that are there."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in versions_to_test():
        if version == own:
            continue
        path = find(version, pyenv)
        if path is None:
            print(f"Python {version} is not on this machine: not tested", file=sys.stderr)
        else:
            print(f"{version}={path}")


if __name__ == "__main__":
    main()
