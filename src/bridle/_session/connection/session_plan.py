"""What a session is to do: its checked options, and the start and the engine that they make.

Making a plan checks all options that a session has. It starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridle._engine.config import EngineConfig
from bridle._engine.delivery.unread import DeliveryConfig
from bridle._engine.engine import Engine
from bridle._engine.incoming.dispatch import IncomingConfig
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.mcp.tool_server import manifest
from bridle._engine.incoming.waiting_call import PRE_TOOL_USE, Approval
from bridle._process.launch.plan import Launch, ResumedCall, plan_session
from bridle._records.callables import named
from bridle._records.session_store import SessionStore, has_journals
from bridle._session.answers.attempts import checked_retries, with_schema
from bridle._session.answers.typed_output import OutputType
from bridle._session.changes.servers import Servers
from bridle._session.deps import with_prompts
from bridle._session.parts.waiting_part import refuse_waiting
from bridle._session.preflight import option_warnings, settings_text
from bridle.approvals import PendingApproval
from bridle.approvals._rules import rules_of
from bridle.options import Retry
from bridle.options._precedence import ResolvedOptions
from bridle.options._unknown_values import wanted_tools

if TYPE_CHECKING:
    from bridle.sessions._journal_writer import SessionJournal


class SessionPlan:
    """The checked options of one session.

    Args:
        options: the options.
        deps: the object for the callbacks.
        output_type: the type of the outputs, or None.
        output_retries: how often an invalid output goes back to the model.
        retry: how often to continue after a temporary failure.
        keeps_messages: whether the outcome has all messages.
        awaits_follow_ups: whether a turn ends only after its background work.
        approval: the decision that the CLI gets about the call that waits.

    Raises:
        OptionsError: an option is invalid, or contradicts another one.
    """

    def __init__(
        self,
        options: ResolvedOptions,
        deps: Any = None,
        output_type: Any = None,
        output_retries: int = 1,
        *,
        retry: Retry | None = None,
        keeps_messages: bool = False,
        awaits_follow_ups: bool = False,
        approval: Approval | None = None,
    ) -> None:
        self.output = None if output_type is None else OutputType(output_type)
        options = with_schema(with_prompts(options, deps), self.output)
        self.deps = deps
        self.output_retries = checked_retries(output_retries)
        self.retry = retry
        self.keeps_messages = keeps_messages
        self.cli, self.sdk, self.bidir = options.cli, options.sdk, options.bidir
        self.store = _checked_store(self.sdk.store)
        self.warnings = option_warnings(options)
        self.approval = approval
        self._awaits_follow_ups = awaits_follow_ups
        #: Seconds to wait while another session or program uses the conversation.
        self.wait = self.sdk.wait or 0.0
        #: Gets the call that waits in the conversation to resume, or None. It may raise.
        self.admit: Callable[[PendingApproval | None], None] = refuse_waiting

    @property
    def is_journaled(self) -> bool:
        """Whether the store has journals."""
        return self.store is not None and has_journals(self.store)

    @property
    def is_real(self) -> bool:
        """Whether a CLI is started, and not a transport of the application."""
        return self.bidir.transport_factory is None

    @property
    def looks_first(self) -> bool:
        """Whether there is a store, or files of the CLI with the conversation to resume."""
        resumes = self.cli.resume_session_id is not None or self.cli.continue_session
        return self.store is not None or (resumes and self.is_real)

    def new_journal(self) -> SessionJournal | None:
        """Return a journal for a session that can be recovered or retried, else None."""
        if not self.is_journaled and self.retry is None:
            return None
        from bridle.sessions._journal_writer import SessionJournal  # few sessions have one

        return SessionJournal(self.sdk.control_timeout, keeps_entries=self.retry is not None)

    def hooks(self, journal: SessionJournal | None) -> HookPlan:
        """Return the hooks, with that of the journal as the last one."""
        bidir = self.bidir
        return HookPlan.from_options(
            bidir.all_hooks(),
            bidir.callback_timeout,
            bidir.hook_timeouts,
            PRE_TOOL_USE if bidir.defers_calls() or self.approval is not None else None,
            last=None if journal is None else journal.hook(),
            parallel=bidir.parallel_hooks,
        )

    def launch(self, hooks: HookPlan, resumed: ResumedCall | None = None) -> Launch:
        """Return how the CLI is started, with a new id for the session."""
        payload = hooks.initialize_payload()
        return plan_session(
            self.cli,
            self.sdk,
            self.bidir,
            session_id=str(uuid4()),
            hooks=payload,
            manifests={
                name: manifest(name, server) for name, server in self.bidir.tool_servers().items()
            },
            settings_text=settings_text(self.cli, self.bidir, hooks=payload),
            resumed=resumed,
        )

    def engine(self, hooks: HookPlan, launch: Launch, servers: Servers) -> Engine:
        """Return the engine of a session with this start."""
        cli, sdk, bidir, approval = self.cli, self.sdk, self.bidir, self.approval
        config = EngineConfig(
            initialize=launch.initialize,
            incoming=IncomingConfig(
                hooks=hooks,
                can_use_tool=named(bidir.on_can_use_tool),
                question=named(bidir.on_question),
                plan=named(bidir.on_plan),
                elicitation=named(bidir.on_elicitation),
                dialog=named(bidir.on_user_dialog),
                dialog_kinds=tuple(bidir.supported_dialog_kinds or ()),
                mcp_handlers=servers.handlers,
                tool_servers=servers.tool_servers,
                approve=rules_of(bidir.approve or ()),
                approval=approval,
                permission_timeout=bidir.permission_timeout,
            ),
            delivery=DeliveryConfig(max_unread=sdk.max_unread_bytes),
            session_id=(
                (launch.session_id or "") if approval is None else approval.pending.session_id
            ),
            control_timeout=sdk.control_timeout,
            init_timeout=sdk.init_timeout,
            max_line=sdk.max_buffer_size,
            limits=sdk.limits,
            wants_output=cli.json_schema is not None,
            tools=tuple(wanted_tools(cli)),
            has_store=self.store is not None,
            checkpointing=bidir.file_checkpointing_enabled,
            verbatim_prompts=cli.verbatim_prompts,
            awaits_follow_ups=self._awaits_follow_ups,
        )
        return Engine(config)

    def servers(self, forward: Callable[[str, Any], None]) -> Servers:
        """Return the servers. ``forward`` sends a notification of one to the CLI."""
        return Servers(dict(self.bidir.mcp_servers or {}), forward)

    def check(self) -> Launch:
        """Check what a session would make of the options, and return how it would be started.

        Raises:
            OptionsError: an option is invalid, or contradicts another one.
        """
        hooks = self.hooks(self.new_journal())
        launch = self.launch(hooks)
        self.engine(hooks, launch, self.servers(_forward_nothing))
        return launch


def _forward_nothing(server: str, message: object) -> None:
    """Do nothing: there is no session."""


def _checked_store(store: object) -> SessionStore | None:
    """Return the store of the options, adapted if it follows the official SDK's protocol."""
    if store is None:
        return None
    from bridle.sessions._stores.accept import as_store  # few sessions have a store

    return as_store(store)
