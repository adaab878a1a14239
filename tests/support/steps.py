"""Steps of the shell that a test delays, watches or makes fail, by what they do."""

from __future__ import annotations

from typing import Any

import pytest

STEPS = {
    # Processes and threads.
    "claim_version": "bridle._pool.pool_work.version_of",
    "close_servers": "bridle._session.changes.servers.Servers.close",
    "connect_pooled": "bridle._pool.pooled.PooledSession.connect",
    "connect_session": "bridle._session.session.InnerSession.connect",
    "end_process_tree": "bridle._process.process.CliProcess._end_tree",
    "make_blocking_call": "bridle.sync._portal._Call",
    "read_proc": "bridle._process.tree._read",
    "run_in_thread": "bridle._runtime.workers.WORKERS.run",
    "send_request": "bridle._session.actor.Actor.submit",
    "signal_all": "bridle._process.tree.signal_all",
    "signal_process": "bridle._process.tree._signal",
    "spawn": "bridle._process.process.CliProcess.spawn",
    "start_verifier": "bridle.testing._verify._running.runner._Place.start_worker",
    "take_thread": "bridle._runtime.workers.WORKERS.take",
    "watchdog": "bridle._process.watchdog.shared",
    # Calls of the system.
    "system_lock": "fcntl.fcntl",
    "system_pwrite": "os.pwrite",
    # Transcripts and spool files.
    "decode_entry": "bridle.sessions._transcripts.transcript.entry_of_line",
    "find_conversation": "bridle.sessions._transcripts.new_messages.conversation",
    "list_transcripts": "bridle.sessions._transcripts.files.TranscriptFiles.list",
    "list_sessions_of_store": "bridle.sessions.MemoryStore.list",
    "read_ends": "bridle.sessions._transcripts.files._ends",
    "read_spool": "bridle.sessions._outbox.spool.LeftSpool.batches",
    "mark_spool_sent": "bridle.sessions._outbox.spool.LeftSpool.mark_done",
    "remove_spool": "bridle.sessions._outbox.spool.LeftSpool.remove",
    "remove_unused_files": "bridle.sessions._cli_files.CliFiles.remove_unused",
    # Files.
    "find_own_transcript": "bridle.sessions._transcripts.files.TranscriptFiles._find",
    "load_command": "bridle.cli.import_module",
    "open_transcript": "bridle.sessions._transcripts.files._opened",
    "read_cli_files": "bridle.sessions._cli_files.CliFiles.read",
    "redact_line": "bridle.testing._lines.line_redaction.LineRedactor.line",
    "release_session_lock": "bridle._process.session_locks.SessionLock.release",
    "spool_rejected": "bridle.sessions._outbox.spool.Spool.write_rejected",
    "take_session_lock": "bridle._process.session_locks.lock_session",
    "take_session_locks": "bridle._process.session_locks.SessionLocks.take",
    "take_spool": "bridle.sessions._outbox.spool.LeftSpool.take",
    "write_fork": "bridle.sessions._transcripts.files.write_transcript",
    "write_loaded_transcript": "bridle.sessions._loading.write_transcript",
    # Recovery and fleets.
    "begin_call": "bridle.sessions._begun_calls.BegunCall._create",
    "decide_about_run": "bridle.fleet._fleet_run.Run._add_next",
    "shorten_prompt": "bridle.fleet._queue.rows.head_of",
    "renew_lease_in_postgres": "bridle.sessions._stores.postgres._Postgres._renew",
    "confirm_lock": "bridle.fleet._locks.FileLock.confirm",
    "find_waiting_call": "bridle.sessions._waiting_calls.waiting_in_file",
    "lend_leases": "bridle.sessions._crashed_sessions.DeadSession.lend",
    "load_crashed_session": "bridle.sessions._crashed_sessions.CrashedSession.load",
    "load_dead_session": "bridle.sessions._crashed_sessions.DeadSession.load",
    "read_queue_row": "bridle.fleet._queue.dbos_queue.row_of",
    "store_of_fleet_append": "bridle.fleet._store.FleetStore.append",
    "wait_until": "bridle._runtime.timer.until",
    "work_on_run": "bridle.fleet._worker._Term._attempt",
}


class ReplaceSteps:
    """Replaces steps until the end of a test: ``replace_steps(take_thread=refuse)``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __call__(self, **functions: Any) -> None:
        """Replace these steps; a name without a row in STEPS is a KeyError."""
        for name, function in functions.items():
            self._patch.setattr(STEPS[name], function)
