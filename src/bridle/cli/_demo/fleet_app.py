"""The program of the workers of the fleet demo: `bridle work bridle.cli._demo.fleet_app:fleet`."""

from __future__ import annotations

import os

from bridle.agent import Agent
from bridle.fleet import Fleet

_directory = os.environ["BRIDLE_DEMO_DIRECTORY"]

fleet = Fleet(
    Agent(cli_path=os.environ["BRIDLE_DEMO_CLI"], cwd=_directory),
    f"sqlite:///{_directory}/runs.db",
)
