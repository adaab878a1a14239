"""The checked options of an agent, for its methods and for their blocking twins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Never, TypedDict, TypeVar, Unpack

from msgspec import Struct, structs

from bridle._session.connection.connection import Connection
from bridle._session.connection.session_plan import SessionPlan
from bridle._session.deps import without_functions
from bridle._session.not_given import NOT_GIVEN, given_or
from bridle._session.preflight import settle_given
from bridle._session.resume import Resumption
from bridle._session.run import Run, turn_plan
from bridle._session.run_many import RunMany, RunProgress
from bridle._session.session import InnerSession
from bridle._session.session_start import check_prompt
from bridle.content import Content
from bridle.options import Limits, Retry
from bridle.options._keywords import Given, conversation, refuse_conversation
from bridle.options._precedence import ResolvedOptions

if TYPE_CHECKING:
    from bridle._session.recover import Recovery

_Run = TypeVar("_Run", bound=Run)

_IN_CALL = "Pass it to the call: agent.run(prompt, {name}=...), or to query or session."
_NOT_MANY = "Use agent.run(prompt, {name}=...) for each of the prompts."


class RecoverArguments(TypedDict):
    """Arguments of `recover`."""

    output_type: Any
    output_retries: int
    retry: Retry | None
    deps: Any


class RunArguments(RecoverArguments):
    """Arguments of `run` and `run_many`."""

    keep_messages: bool


class AgentPlan(Struct, frozen=True, kw_only=True):
    """The options of an agent: as they were given, and resolved."""

    given: Given
    options: ResolvedOptions
    deps: Any
    output_type: Any
    output_retries: int

    @classmethod
    def make(cls, given: Given, deps: Any, output_type: Any, output_retries: int) -> AgentPlan:
        """Resolve and check the options.

        Raises:
            OptionsError: an option is invalid, or chooses a conversation.
        """
        options = settle_given(given)
        refuse_conversation({**options.cli.given(), **options.sdk.given()}, _IN_CALL)
        # Check what only a session uses: hooks, servers, settings, the output type.
        SessionPlan(without_functions(options), None, output_type, output_retries).check()
        return cls(
            given=given,
            options=options,
            deps=deps,
            output_type=output_type,
            output_retries=output_retries,
        )

    @staticmethod
    def left_to_agent(retry: Retry | None) -> RecoverArguments:
        """Return the arguments of a call that takes all but its retries from the agent."""
        given = NOT_GIVEN
        return {"output_type": given, "output_retries": given, "retry": retry, "deps": given}

    def replace(
        self, keywords: Mapping[str, object], deps: Any, output_type: Any, output_retries: int
    ) -> AgentPlan:
        """Return a changed copy.

        Raises:
            OptionsError: as :meth:`make`.
        """
        refuse_keywords(keywords)
        given = self.given.replace(keywords)
        return self.make(given, self.deps_or(deps), *self._output(output_type, output_retries))

    def deps_or(self, deps: Any) -> Any:
        """Return the object for the callbacks of a call: its own, or that of the agent."""
        return given_or(deps, self.deps)

    def chosen(self, keywords: Mapping[str, object]) -> ResolvedOptions:
        """Return the options of a call with these keywords.

        Raises:
            OptionsError: a keyword does not choose a conversation, or is invalid.
        """
        if not (chosen := dict(conversation(keywords))):
            return self.options
        options = self.waiting(chosen.pop("wait", None)).options
        return structs.replace(options, cli=options.cli.replace(**chosen))

    def waiting(self, seconds: Any) -> AgentPlan:
        """Return a copy that waits for a conversation that is in use. None keeps it as it is.

        Raises:
            OptionsError: it is not a number of seconds.
        """
        if seconds is None:
            return self
        sdk = self.options.sdk.replace(wait=seconds)
        return structs.replace(self, options=structs.replace(self.options, sdk=sdk))

    def in_directory(self, cwd: str | PathLike[str] | None) -> AgentPlan:
        """Return a copy whose CLI works in another directory. None keeps the directory.

        Raises:
            OptionsError: it is not a path.
        """
        if cwd is None:
            return self
        cli = self.options.cli.replace(cwd=cwd)
        return structs.replace(self, options=structs.replace(self.options, cli=cli))

    def session(
        self,
        keywords: Mapping[str, object],
        deps: Any,
        output_type: Any,
        output_retries: int,
    ) -> InnerSession:
        """Return a session that is not started.

        Raises:
            OptionsError: an argument is invalid.
        """
        plan = self.session_plan(keywords, deps, output_type, output_retries)
        return InnerSession(Connection(plan))

    def session_plan(
        self,
        keywords: Mapping[str, object],
        deps: Any,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
    ) -> SessionPlan:
        """Return the plan of a session.

        Raises:
            OptionsError: an argument is invalid.
        """
        output_type, output_retries = self._output(output_type, output_retries)
        return SessionPlan(self.chosen(keywords), self.deps_or(deps), output_type, output_retries)

    def _output(self, output_type: Any, output_retries: int) -> tuple[Any, int]:
        """Return the output type and the retries of a call: its own, or those of the agent."""
        return (
            given_or(output_type, self.output_type),
            given_or(output_retries, self.output_retries),
        )

    def _filled(self, arguments: RecoverArguments) -> dict[str, Any]:
        """Return the arguments of a call, with those of the agent in place of missing ones."""
        output_type, output_retries = self._output(
            arguments["output_type"], arguments["output_retries"]
        )
        return {
            **arguments,
            "output_type": output_type,
            "output_retries": output_retries,
            "deps": self.deps_or(arguments["deps"]),
        }

    def run(
        self,
        prompt: Content,
        keywords: Mapping[str, object],
        **arguments: Unpack[RunArguments],
    ) -> Run:
        """Return the run of a prompt.

        Raises:
            OptionsError: an argument or the prompt is invalid.
        """
        return self.run_of(Run, prompt, keywords, **arguments)

    def run_of(
        self,
        kind: type[_Run],
        prompt: Content,
        keywords: Mapping[str, object],
        **arguments: Unpack[RunArguments],
    ) -> _Run:
        """Return the run of a prompt, as an object of this class.

        Raises:
            OptionsError: an argument or the prompt is invalid.
        """
        return kind(prompt, self.chosen(keywords), **self._filled(arguments))

    def check_run(self, prompt: Content, **arguments: Unpack[RunArguments]) -> None:
        """Check the arguments of a run. Functions of its deps are not called.

        Raises:
            OptionsError: an argument or the prompt is invalid.
        """
        check_prompt(prompt)
        turn_plan(without_functions(self.options), **self._filled(arguments)).check()

    def resume(
        self,
        pending: object,
        decision: object,
        limits: Limits | None = NOT_GIVEN,
        wait: float | None = None,
        **arguments: Unpack[RunArguments],
    ) -> Resumption:
        """Return the run that decides about a tool call. ``wait`` is as for :meth:`waiting`.

        Raises:
            OptionsError: an argument is invalid.
        """
        options = self.waiting(wait)._with_limits(limits)
        return Resumption(pending, decision, options, **self._filled(arguments))

    def _with_limits(self, limits: Limits | None) -> ResolvedOptions:
        """Return the options with the limits of a call, if it has its own."""
        options = self.options
        if (limits := given_or(limits, options.sdk.limits)) is options.sdk.limits:
            return options
        return structs.replace(options, sdk=options.sdk.replace(limits=limits))

    def recover(
        self,
        session_id: str,
        limits: Limits | None = NOT_GIVEN,
        **arguments: Unpack[RecoverArguments],
    ) -> Recovery:
        """Return the recovery of a session.

        Raises:
            OptionsError: an argument is invalid, or the agent has no store.
        """
        from bridle._session.recover import Recovery  # few programs use it

        return Recovery(session_id, self._with_limits(limits), **self._filled(arguments))

    def run_many(
        self,
        prompts: Any,
        at_once: int,
        progress: Callable[[RunProgress], object] | None,
        refused: Mapping[str, Never],
        **arguments: Unpack[RunArguments],
    ) -> RunMany:
        """Return the plan of a `run_many`.

        Raises:
            OptionsError: an argument is invalid, or chooses a conversation.
        """
        refuse_conversation(dict.fromkeys(conversation(refused), True), _NOT_MANY)
        # Check the arguments that all runs share. Functions of the deps are not called for that.
        self.check_run("x", **arguments)
        return RunMany(
            prompts=prompts,
            make=lambda prompt: self.run(prompt, {}, **arguments),
            at_once=at_once,
            progress=progress,
        )


def refuse_keywords(keywords: Mapping[str, object]) -> None:
    """Raise OptionsError if a keyword of an agent chooses a conversation."""
    refuse_conversation(keywords, _IN_CALL)
