"""Other limits and clocks for a test. A test names what is limited, not where that is kept."""

from __future__ import annotations

from typing import Any

import pytest

LIMITS = {
    # Time that a callback, tool, CLI or session has, in seconds.
    "closing_input": "bridle.compat.claude_agent_sdk._transport._GRACE",
    "closing_mcp_server": "bridle._session.changes.mcp_adapter._GRACE",
    "closing_pool": "bridle._pool.pool_work._DRAIN",
    "ready_in_pool": "bridle._pool.pooled._READY_TIMEOUT",
    "reporting_version": "bridle._session.preflight.VERSION_TIMEOUT",
    "unkillable_process": "bridle._session.actor._UNKILLABLE",
    "verifying": "bridle.fleet._verified._TIMEOUT",
    "verifying_grace": "bridle.fleet._verified._GRACE",
    "watchdog_linger": "bridle._process.reaper._LINGER",
    "closing_session": "bridle._session.resume._CLOSING",
    "closing_process": "bridle._process.process._CLOSE_LIMIT",
    "pause_after_crash": "bridle._session.answers.attempt_plan.AnswerPlan.pause_after_crash",
    "lost_input": "bridle._engine.shutdown.OUTPUT_GRACE",
    "shutdown_steps": "bridle._engine.shutdown.HOLD",
    # Stores, in seconds.
    "append": "bridle.sessions._outbox.store_writer.APPEND_TIMEOUT "
    "bridle.sessions._outbox.leases.APPEND_TIMEOUT",
    "append_linger": "bridle.sessions._outbox.store_writer.LINGER",
    "append_outage": "bridle.sessions._outbox.store_writer.MAX_FAILING",
    "closing_store": "bridle.sessions._store_session.CLOSE_TIMEOUT",
    "follow_pause": "bridle.sessions._store_session._FOLLOW_PAUSE",
    "journal_wait": "bridle.sessions._journal_writer.WAIT",
    "lease": "bridle.sessions._outbox.leases.LEASE",
    "lease_check": "bridle.testing._store_checks.lease_checks._LEASE_LIMIT",
    "resend": "bridle.sessions._outbox.spool_sending.APPEND_TIMEOUT",
    "resend_outage": "bridle.sessions._outbox.spool_sending.MAX_FAILING",
    "stopping_store": "bridle.sessions._store_session.STOP_TIMEOUT",
    # Fleets, in seconds.
    "follow_run_pause": "bridle.fleet._fleet_run._POLL",
    "cost_report_pause": "bridle.fleet._jobs._REPORTING",
    "freed_run_pause": "bridle.fleet._queue.dbos_queue._freed",
    "lock_confirmation_pause": "bridle.fleet._locks.PING",
    "pause_until_affordable": "bridle.fleet._costs.seconds_until_affordable",
    "ending": "bridle.fleet._queue.claims._ENDING",
    "overdue_run": "bridle.fleet._queue.claims._OVERDUE",
    "worker_closing": "bridle.fleet._worker._CLOSING",
    "worker_longest_pause": "bridle.fleet._worker._LONGEST_PAUSE",
    "worker_outage": "bridle.fleet._worker._PATIENCE",
    "worker_stall": "bridle.fleet._worker.STALL",
    # Sizes: bytes and numbers of things.
    "longest_recorded_line": "bridle.testing.recording._LONGEST",
    "part_of_conversation": "bridle.sessions._stored_transcripts._PART",
    "parked_processes": "bridle._process.parked._MAX_KEPT",
    "unstored_memory": "bridle.sessions._backlog.MAX_MEMORY",
    "page_of_queue": "bridle.fleet._queue.dbos_queue._PAGE",
    "page_of_runs": "bridle.fleet._fleet._PAGE",
    # What this machine has.
    "has_proc": "bridle._process.tree.PROC",
    "loopback_address": "bridle.testing._model_server.loopback_server._HOST",
    "platform": "sys.platform",
    "python": "sys.executable",
    "python_prefix": "sys.base_exec_prefix",
    "temporary_directory": "tempfile.tempdir",
    "managed_settings": "bridle._process.launch.real_api.MANAGED",
    "usual_places_of_cli": "bridle._process.locate._USUAL",
    # What this program has reported once.
    "reported_versions": "bridle._session.preflight._told",
    # SQL.
    "end_idle_transaction": "bridle.sessions._stores.postgres._END_IF_IDLE",
    # Clocks: functions that return seconds.
    "clock": "time.time",
    "key_clock": "bridle._pool.keys._now",
    "lease_clock": "bridle.sessions._outbox.leases._now",
}


class SetLimits:
    """Replaces limits until the end of a test: ``set_limits(lease=0.2)``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __call__(self, **values: Any) -> None:
        """Set these limits; a name without a row in LIMITS is a KeyError."""
        for name, value in values.items():
            for place in LIMITS[name].split():
                self._patch.setattr(place, value)
