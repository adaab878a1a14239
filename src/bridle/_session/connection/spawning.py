"""Start the CLI of a session or a query: find it, check it, record it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import cast

from msgspec import Struct

from bridle._engine.engine import Engine
from bridle._observe.known_secrets import KnownSecrets
from bridle._observe.observer import traced
from bridle._process.launch.facts import launch_facts
from bridle._process.launch.plan import Launch, redact
from bridle._process.launch.real_api import keep_on_loopback
from bridle._process.locate import find_cli
from bridle._process.parked import ParkedCli
from bridle._process.process import CliProcess
from bridle._process.session_locks import StartLock
from bridle._process.transport import (
    Transport,
    TransportEvents,
    TransportFactory,
    TransportRecorder,
)
from bridle._session.actor import Actor
from bridle._session.preflight import check_version
from bridle.errors import StartError
from bridle.options import CliOptions, SdkOptions


class Spawner(Struct, frozen=True):
    """Starts the CLI of one session or query."""

    cli: CliOptions
    sdk: SdkOptions
    launch: Launch
    secrets: KnownSecrets
    engine: Engine
    #: Whether a CLI that does not report its version is rejected.
    strict: bool = False
    #: A process that was started before, to use in place of a new one.
    parked: ParkedCli | None = None
    #: The lock of the conversation to resume, for the process.
    lock: StartLock | None = None

    def spawn(self, actor: Actor, factory: TransportFactory | None = None) -> Transport:
        """Start the CLI, or what ``factory`` makes in place of it. Record it if that is wanted."""
        factory = factory or partial(self._spawn_process, actor)
        recorder = cast("TransportRecorder | None", self.sdk.recorder)
        if recorder is not None:
            about = launch_facts(self.launch, self.sdk.limits)
            factory = recorder.wrap(factory, secrets=self.secrets.values, about=about)
        return factory(actor)

    def traced_launch(self, actor: Actor) -> Launch:
        """Return the launch with the variables of the telemetry."""
        return traced(self.launch, actor.observer.environment())

    def _spawn_process(self, actor: Actor, events: TransportEvents) -> Transport:
        launch, engine = self.launch, self.engine
        engine.describe(argv=redact(launch.argv))
        named = self.cli.cli_path
        path = find_cli(None if named is None else os.fspath(named))
        engine.describe(cli_path=path)
        if self.parked is None:
            launched = keep_on_loopback(path, self.traced_launch(actor), os.environ)
            process = CliProcess.spawn(path, launched, events, lock=self.lock)
        else:
            process = self.parked.hand_over(events)
        for part in actor.parts:
            part.started(process)
        if not self.sdk.skip_version_check:
            actor.await_version(
                partial(
                    check_version,
                    path,
                    launch,
                    redact=self.secrets.redact,
                    describe=engine.describe,
                    strict=self.strict,
                )
            )
        return process


def failing(error: StartError) -> Callable[[Actor], Transport]:
    """Return a function that raises the error in place of starting a CLI."""

    def spawn(_: Actor) -> Transport:
        raise error

    return spawn
