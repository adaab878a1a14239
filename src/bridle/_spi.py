"""The names that annexes use beside the public ones: at most 40. No other module imports this one.

The annexes are `cli`, `testing`, `compat`, `fleet` and `terminal`. A name is loaded at its first
use, so that an annex loads only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle._engine import actions as actions  # what an engine does: the steps of a replay
    from bridle._engine.config import EngineConfig as EngineConfig  # how a replay answers
    from bridle._engine.delivery.text_stream import TextStream as TextStream  # joins text deltas
    from bridle._engine.engine_replay import EngineReplay as EngineReplay  # without a process
    from bridle._engine.outgoing.prompts import UncheckedMessage as UncheckedMessage  # as it is
    from bridle._engine.versions import Version as Version  # compares CLIs
    from bridle._process.byte_locks import lock_byte as lock_byte  # the lock of a worker
    from bridle._process.config_directory import config_directory as config_directory  # of the CLI
    from bridle._process.launch.facts import about_launch as about_launch  # what a recording keeps
    from bridle._process.launch.plan import Launch as Launch  # how a CLI is started
    from bridle._process.launch.plan import LaunchFile as LaunchFile  # a file for the CLI
    from bridle._process.launch.real_api import CALLS_NOBODY as CALLS_NOBODY  # the fake CLIs
    from bridle._process.locate import candidates as candidates  # where a CLI may be
    from bridle._process.locate import find_cli as find_cli  # which CLI a session starts
    from bridle._process.locate import version_of as version_of  # asks a CLI
    from bridle._process.transport import Transport as Transport  # stands for a process
    from bridle._process.transport import TransportEvents as TransportEvents  # what it reports
    from bridle._process.transport import TransportFactory as TransportFactory  # makes one
    from bridle._session.agent_plan import AgentPlan as AgentPlan  # runs what a worker has claimed
    from bridle._session.answers.typed_output import OutputType as OutputType  # schema, conversion
    from bridle._session.changes.mcp_adapter import protocol_server as protocol_server  # of `mcp`
    from bridle._session.feed import Feed as Feed  # messages in batches, for another loop
    from bridle._session.one_way.query import stream as stream  # a query with resolved options
    from bridle._session.one_way.query_session import QuerySession as QuerySession  # with callbacks
    from bridle._session.preflight import settle_options as settle_options  # from all sources
    from bridle._session.run import OneTurn as OneTurn  # a run that a worker can kill
    from bridle._session.run import Run as Run  # a run with a view of its messages
    from bridle._session.segments import SegmentRun as SegmentRun  # runs what a worker has claimed
    from bridle._session.session import InnerSession as InnerSession  # with resolved options
    from bridle.approvals._shell_reading import ShellCommand as ShellCommand  # for policies
    from bridle.options._checks import is_uuid as is_uuid  # tells ids from titles
    from bridle.sessions._journal import StoredOutcome as StoredOutcome  # an outcome as JSON
    from bridle.sessions._stored_transcripts import StoredMessages as StoredMessages  # new ones
    from bridle.sessions._stores.accept import StoreMethods as StoreMethods  # the optional ones
    from bridle.sessions._stores.drivers import load_driver as load_driver  # names the extra
    from bridle.sessions._stores.sqlite import SqliteFile as SqliteFile  # may be replaced
    from bridle.sessions._transcripts.summaries import seconds_of as seconds_of  # of a timestamp
    from bridle.sessions._transcripts.texts import UserText as UserText  # prompts, commands
    from bridle.sync._portal import portal as portal  # the event loop for trio programs
    from bridle.tools._cli_tools import names_of as names_of  # of a tool, old and new

if not TYPE_CHECKING:
    _HOMES = {
        "bridle._engine.actions": "actions",
        "bridle._engine.config": "EngineConfig",
        "bridle._engine.delivery.text_stream": "TextStream",
        "bridle._engine.engine_replay": "EngineReplay",
        "bridle._engine.outgoing.prompts": "UncheckedMessage",
        "bridle._engine.versions": "Version",
        "bridle._process.byte_locks": "lock_byte",
        "bridle._process.config_directory": "config_directory",
        "bridle._process.launch.facts": "about_launch",
        "bridle._process.launch.plan": "Launch LaunchFile",
        "bridle._process.launch.real_api": "CALLS_NOBODY",
        "bridle._process.locate": "candidates find_cli version_of",
        "bridle._process.transport": "Transport TransportEvents TransportFactory",
        "bridle._session.agent_plan": "AgentPlan",
        "bridle._session.answers.typed_output": "OutputType",
        "bridle._session.changes.mcp_adapter": "protocol_server",
        "bridle._session.feed": "Feed",
        "bridle._session.one_way.query": "stream",
        "bridle._session.one_way.query_session": "QuerySession",
        "bridle._session.preflight": "settle_options",
        "bridle._session.run": "OneTurn Run",
        "bridle._session.segments": "SegmentRun",
        "bridle._session.session": "InnerSession",
        "bridle.approvals._shell_reading": "ShellCommand",
        "bridle.options._checks": "is_uuid",
        "bridle.sessions._journal": "StoredOutcome",
        "bridle.sessions._stored_transcripts": "StoredMessages",
        "bridle.sessions._stores.accept": "StoreMethods",
        "bridle.sessions._stores.drivers": "load_driver",
        "bridle.sessions._stores.sqlite": "SqliteFile",
        "bridle.sessions._transcripts.summaries": "seconds_of",
        "bridle.sessions._transcripts.texts": "UserText",
        "bridle.sync._portal": "portal",
        "bridle.tools._cli_tools": "names_of",
    }

    def __getattr__(name: str) -> object:
        """Load a name at its first use."""
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names.split():
                module = import_module(home)
                globals()[name] = value = module if name == "actions" else getattr(module, name)
                return value
        raise AttributeError(f"module 'bridle._spi' has no attribute {name!r}")
