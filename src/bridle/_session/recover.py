"""`Agent.recover`: finish the prompts of a program that died.

A recovery carries out the steps of its plan one after the other, each in a CLI of its own, as `run`
does with one prompt. After each step it makes a new plan, as a second recovery would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from msgspec import structs

from bridle._observe.known_secrets import KnownSecrets, clean_outcome
from bridle._session.run import OneTurn, StepRun, TurnArguments, turn_plan
from bridle.errors import OptionsError, SessionInUseError, SessionNotFoundError
from bridle.options._checks import is_uuid
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import Outcome
from bridle.sessions._cli_files import CliFiles
from bridle.sessions._crashed_sessions import DeadSession, History, outcome_entry, received_entry
from bridle.sessions._journal import JournalEntry, UnknownEntry
from bridle.sessions._outbox.leases import BorrowedLeases, Leases
from bridle.sessions._recovery import UNFINISHED, Continue, Finished, SendAgain


class Recovery:
    """The recovery of one session of a store.

    Raises:
        OptionsError: an argument is invalid, or the options have no store.
    """

    def __init__(
        self,
        session_id: str,
        options: ResolvedOptions,
        output_type: Any = None,
        **arguments: Unpack[TurnArguments],
    ) -> None:
        if options.sdk.store is None:
            fix = "Use the store that the session had: Agent(store=...)."
            raise OptionsError("store", "is not set, but a recovery needs one", fix=fix)
        if not is_uuid(session_id):
            problem = f"must be the id of a session, got {session_id!r:.80}"
            raise OptionsError("session_id", problem, fix="Use session.id or outcome.session_id.")
        self._session_id = session_id.lower()
        self._options = options
        self._output_type = output_type
        self._arguments = arguments
        #: Called with each session before it starts. The blocking door shows tools another one.
        self.show: Callable[[OneTurn], object] | None = None
        self._running: StepRun | None = None
        self._is_left_open = False
        self._lost: SessionInUseError | None = None
        # Prompts that another recovery has to finish.
        self._left_open: set[str] = set()
        self._plan = turn_plan(self._options_for(History([], None)), output_type, **arguments)
        # It has the environment of the CLI.
        self._launch = self._plan.check()

    def leave_open(self) -> None:
        """Let another recovery find the same outcomes: they do not count as received."""
        self._is_left_open = True

    async def outcomes(self) -> list[Outcome[Any]]:
        """Return one outcome for each prompt whose outcome the program never received."""
        dead = self._dead_session()
        try:
            await dead.take_over()
            found = await self._finish(dead)
            if self._lost is not None:
                raise self._lost
            if not self._is_left_open:
                await dead.write(received_entry(one) for one in found if one not in self._left_open)
        finally:
            await dead.aclose()
        return list(found.values())

    async def journal(self) -> list[JournalEntry | UnknownEntry]:
        """Return the journal. Entries in spool files of this machine go to the store first."""
        dead = self._dead_session()
        try:
            await dead.take_over()
            return (await dead.load()).journal
        except SessionNotFoundError:
            return []
        finally:
            await dead.aclose()

    def _dead_session(self) -> DeadSession:
        store = self._plan.store
        assert store is not None, "a recovery has a store"
        files = CliFiles(self._launch)
        timeout = self._options.sdk.load_timeout
        leases = Leases(store, self._on_lost, timeout)
        return DeadSession(store, self._session_id, files, timeout, leases)

    async def _finish(self, dead: DeadSession) -> dict[str, Outcome[Any]]:
        """Return the outcomes by prompt, in the order of the prompts.

        A step that another recovery has to finish is the last one. The prompts after it stay open.
        """
        order: dict[str, None] = {}
        found: dict[str, Outcome[Any]] = {}
        while self._lost is None:
            history = await dead.load()
            plan = await history.plan()
            order |= dict.fromkeys(one for step in plan.steps for one in step.prompts)
            for one in plan.steps:
                if isinstance(one, Finished):
                    found.setdefault(one.prompt, self._converted(one.outcome))
            to_do = (one for one in plan.steps if not isinstance(one, Finished))
            step = next((one for one in to_do if not found.keys() >= set(one.prompts)), None)
            if step is None:
                break
            held_back = {
                prompt: outcome
                for prompt in order
                if prompt not in found
                and (outcome := plan.held_back(prompt, self._session_id)) is not None
            }
            if held_back:
                self._left_open.update(held_back)
                found |= held_back
                break
            outcome = await self._carry_out(step, history, dead)
            for prompt in step.prompts:
                others = tuple(one for one in step.prompts if one != prompt)
                found[prompt] = structs.replace(outcome, uuid=prompt, merged_with=others)
            # The session has written the outcome of the first prompt.
            await dead.write(outcome_entry(one, found[one]) for one in step.prompts[1:])
            if outcome.reason in UNFINISHED:
                self._left_open.update(step.prompts)
                break  # the next prompt would be sent without a notice of the calls of this one
        return {prompt: found[prompt] for prompt in order if prompt in found}

    async def _carry_out(
        self, step: Continue | SendAgain, history: History, dead: DeadSession
    ) -> Outcome[Any]:
        if history.is_new:
            await dead.remove_unused_file()
        run = self._running = self._make(step, history, dead.lend())
        run.show = self.show or run.show
        shown = run.show(run)  # keeps it alive
        try:
            return await run.outcome()
        finally:
            del shown
            self._running = None

    def _make(
        self, step: Continue | SendAgain, history: History, leases: BorrowedLeases
    ) -> StepRun:
        return StepRun(
            step,
            history.journal,
            self._options_for(history),
            self._output_type,
            leases=leases,
            is_recovery=True,
            **self._arguments,
        )

    def _options_for(self, history: History) -> ResolvedOptions:
        """Return the options of a session that continues this history."""
        chosen = "session_id" if history.is_new else "resume_session_id"
        changes: dict[str, Any] = {chosen: self._session_id}
        if history.directory is not None:
            changes["cwd"] = history.directory
        return structs.replace(self._options, cli=self._options.cli.replace(**changes))

    def _converted(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Return an outcome with the output as the requested type, and with masked secrets."""
        output = self._plan.output
        if output is not None:
            outcome = output.convert_stored(outcome)
        return clean_outcome(outcome, KnownSecrets(self._launch).redact)

    def _on_lost(self, error: SessionInUseError) -> None:
        """End the recovery, because another program has taken the session over."""
        self._lost = error
        if self._running is not None:
            self._running.fail(error)
