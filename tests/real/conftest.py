"""Sessions on the real CLI: the newest and an older one, offline, with a scripted model.

The newest CLI is the one inside the installed wheel, the older one is fetched by `make`. Every
test that asks for ``cli_path`` runs on both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bridle import CliOptions, SdkOptions
from bridle._process.locate import candidates
from bridle.testing import ScriptedModel

OLDER = Path(__file__).parents[2] / ".clis" / "2.1.197" / "claude"


def newest() -> Path | None:
    """The CLI of the wheel the development environment installs."""
    wheels = (Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk")
    return next((path for path in wheels if path.exists()), None)


@pytest.fixture(params=["newest", "2.1.197"])
def cli_path(request: pytest.FixtureRequest) -> str:
    """The path of a real CLI."""
    path = newest() if request.param == "newest" else OLDER
    if path is None or not path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it (the older one needs npm)")
    return str(path)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The directory the CLI works in."""
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


class Lab:
    """The options of a session that talks to a scripted model and to nobody else."""

    def __init__(self, cli_path: str, work: Path) -> None:
        self.cli_path = cli_path
        self.work = work
        self.sdk = SdkOptions(inherit_env=["PATH"])

    def cli(self, model: ScriptedModel, /, **options: object) -> CliOptions:
        """Options of the CLI, on top of what every test needs."""
        base = CliOptions(
            cli_path=self.cli_path, env=model.env, cwd=str(self.work), model="claude-sonnet-4-5"
        )
        return base.replace(**options)

    @property
    def is_newest(self) -> bool:
        """Whether this is the newest CLI."""
        return self.cli_path != str(OLDER)


@pytest.fixture
def lab(cli_path: str, work: Path) -> Lab:
    """Where a test is done."""
    return Lab(cli_path, work)
