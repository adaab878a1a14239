"""Turn what happens in a session or query into observations for the log and the telemetry.

Sessions and queries report events here. This module finds out what each observation is a part of,
so that telemetry does not have to. Telemetry cannot harm a session: it is called after the fact,
its exceptions are caught, and the first one is logged.

Messages are examined only if there is telemetry. Observations that are neither logged nor passed to
telemetry are not built.
"""

from __future__ import annotations

import contextvars
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, TypeVar, cast

from msgspec import Struct, structs

from bridle._engine.actions import Call
from bridle._engine.incoming.mcp.tool_server import tool_use_of
from bridle._engine.turns.model_text import SYNTHETIC
from bridle._observe.log_records import QUERY, SESSION, Journal
from bridle._process.launch.plan import Launch
from bridle._records.fields import is_mapping
from bridle._records.raw_line import JsonObject
from bridle.content import ToolResultBlock, ToolUseBlock
from bridle.events import ApiRetry, RateLimited, SdkWarning, SessionEvent
from bridle.messages import AssistantMessage, InitMessage, Message, ResultMessage, UserMessage
from bridle.outcomes import Outcome
from bridle.telemetry import (
    CANCELLED,
    TIMED_OUT,
    UNFINISHED,
    CallBegan,
    CallEnded,
    Happened,
    Observation,
    OperationBegan,
    OperationEnded,
    QueryBegan,
    QueryEnded,
    Telemetry,
    ToolUseBegan,
    ToolUseEnded,
    TracingTelemetry,
    TurnBegan,
    TurnEnded,
)
from bridle.tools import ToolContext

Clock = Callable[[], float]
_T = TypeVar("_T")

_ids = count(1)


def traced(launch: Launch, variables: Mapping[str, str]) -> Launch:
    """Return the launch with these variables added, unless the application set one of them."""
    if any(name in launch.env for name in variables):
        return launch
    return structs.replace(launch, env={**launch.env, **variables})


def _variables(told: Mapping[Any, object]) -> dict[str, str]:
    """Check and return the variables that a telemetry object gave."""
    variables: dict[str, str] = {}
    for name, value in told.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError("environment() must return names and values that are strings")
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(
                "environment() returned a name or value that is not valid in an environment"
            )
        variables[name] = value
    return variables


def _always() -> bool:
    return True


def _log(write: Callable[[_T], None], what: _T) -> None:
    """Log something. If a log handler of the application raises, print the traceback to stderr."""
    try:
        write(what)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        with suppress(Exception):
            traceback.print_exception(error)


class Teller:
    """Passes observations to the log and to the telemetry."""

    def __init__(self, telemetry: Telemetry | None, journal: Journal) -> None:
        self.telemetry = telemetry
        self._journal = journal
        self._has_failed = False

    def tell(self, observation: Observation, context: contextvars.Context | None = None) -> None:
        """Log an observation and pass it to the telemetry, in ``context`` or in the current one."""
        _log(self._journal.write, observation)
        if self.telemetry is None:
            return
        try:
            if context is None:
                self.telemetry.observe(observation)
            else:
                context.run(self.telemetry.observe, observation)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # telemetry must not fail or cancel a session
            self._note(error)

    def ear_for(self, kind: type[Observation]) -> Callable[[], bool]:
        """Return a function that says whether this kind is logged or passed to telemetry now."""
        return self._journal.ear_for(kind) if self.telemetry is None else _always

    def environment(self) -> Mapping[str, str]:
        """Return the variables that the telemetry adds to the environment of the CLI."""
        if not isinstance(self.telemetry, TracingTelemetry):
            return {}
        try:
            return _variables(self.telemetry.environment())
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._note(error)
            return {}

    def _note(self, error: BaseException) -> None:
        if not self._has_failed:
            self._has_failed = True
            _log(self._journal.write_failure, error)


class ToolUses:
    """Tool uses of the model that have begun and not ended, as the messages show them."""

    def __init__(self, teller: Teller, clock: Clock) -> None:
        self._tell = teller.tell
        self._clock = clock
        self._open: dict[str, ToolUseBegan] = {}

    def id_of(self, tool_use_id: str | None) -> int | None:
        """Return the observation id of a tool use that has not ended, or None."""
        began = self._open.get(tool_use_id or "")
        return None if began is None else began.id

    def see(self, message: Message, parent: int | None, session_id: str) -> None:
        """Observe the tool uses that begin or end in a message. They are parts of ``parent``."""
        if isinstance(message, AssistantMessage):
            if message.parent_tool_use_id is not None:
                # A message of a subagent. If the tool use that started it has ended, it has no
                # parent.
                parent = self.id_of(message.parent_tool_use_id)
            for block in message.content:
                if isinstance(block, ToolUseBlock) and block.id not in self._open:
                    self._begin(block, parent, session_id)
        elif isinstance(message, UserMessage):
            for part in message.content:
                if isinstance(part, ToolResultBlock):
                    self._end(part.tool_use_id, "error" if part.is_error else None)

    def end_all(self, parent: int | None = None) -> None:
        """End the open tool uses that are parts of ``parent``, or all of them."""
        for tool_use_id, began in list(self._open.items()):
            if parent is None or began.parent == parent:
                self.end_all(began.id)
                self._end(tool_use_id, UNFINISHED)

    def _begin(self, block: ToolUseBlock, parent: int | None, session_id: str) -> None:
        self._open[block.id] = began = ToolUseBegan(
            at=self._clock(),
            session_id=session_id,
            id=next(_ids),
            parent=parent,
            tool=block.name,
            tool_use_id=block.id,
        )
        self._tell(began)

    def _end(self, tool_use_id: str, failure: str | None) -> None:
        began = self._open.pop(tool_use_id, None)
        if began is not None:
            session_id = began.session_id
            self._tell(
                ToolUseEnded(at=self._clock(), session_id=session_id, began=began, failure=failure)
            )


class _OpenTurn(Struct):
    began: TurnBegan
    #: The model of its last answer.
    model: str | None = None


class SessionObserver:
    """Observes one session.

    ``session_id`` returns the current session id, which may change. ``model`` is the requested
    model.
    """

    def __init__(
        self,
        telemetry: Telemetry | None,
        *,
        clock: Clock,
        session_id: Callable[[], str],
        model: str | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._teller = Teller(telemetry, journal or Journal(SESSION))
        self._tell = self._teller.tell
        # Skip building observations that are neither logged nor passed to telemetry.
        self._hears_turns = self._teller.ear_for(TurnBegan)
        self._hears_calls = self._teller.ear_for(CallBegan)
        self._hears_operations = self._teller.ear_for(OperationBegan)
        self._clock = clock
        self._session_id = session_id
        self._model = model
        # Open turns, the oldest first. The CLI works on the oldest.
        self._turns: dict[str, _OpenTurn] = {}
        self._calls: dict[int, CallBegan] = {}
        self._tools = ToolUses(self._teller, clock)

    @property
    def reads(self) -> bool:
        """Whether messages are examined, because there is telemetry."""
        return self._teller.telemetry is not None

    def environment(self) -> Mapping[str, str]:
        """Return the variables of the telemetry for the environment of the CLI."""
        return self._teller.environment()

    def happened(self, event: SessionEvent) -> None:
        """Observe an event or a warning of the session."""
        self._tell(Happened(**self._now(), event=event, parent=self._current_turn()))

    # -- turns -------------------------------------------------------------------------------------

    def turn_began(self, uuid: str, context: contextvars.Context) -> None:
        """Observe that a prompt was sent. ``context`` is a copy of the context of its sender."""
        if not self._hears_turns():
            return
        began = TurnBegan(**self._start(), uuid=uuid, model=self._model)
        self._turns[uuid] = _OpenTurn(began)
        self._tell(began, context)

    def turn_ended(self, uuid: str, outcome: Outcome[Any]) -> None:
        """Observe the outcome of a turn."""
        turn = self._turns.pop(uuid, None)
        if turn is None:
            return
        self._tools.end_all(turn.began.id)
        self._tell(
            TurnEnded(
                **self._now(),
                began=turn.began,
                failure=None if outcome.ok else outcome.reason.value,
                outcome=outcome,
                model=turn.model,
            )
        )

    def delivered(self, messages: Sequence[Message], turns: Sequence[str]) -> None:
        """Observe messages that belong to these turns."""
        known = [self._turns[uuid] for uuid in turns if uuid in self._turns]
        turn = known[0].began.id if known else self._current_turn()
        session_id = self._session_id()
        for message in messages:
            if isinstance(message, InitMessage):
                self._model = message.model or self._model
            elif isinstance(message, AssistantMessage) and message.model not in (None, SYNTHETIC):
                for one in known:
                    one.model = message.model
            self._tools.see(message, turn, session_id)

    def _current_turn(self) -> int | None:
        oldest = next(iter(self._turns.values()), None)
        return None if oldest is None else oldest.began.id

    # -- calls -------------------------------------------------------------------------------------

    def call_began(self, call: Call, context: contextvars.Context) -> None:
        """Observe that a callback is about to be called in this context."""
        if not self._hears_calls():
            return
        tool, tool_use_id = _tool_of(call.argument)
        inside = self._tools.id_of(tool_use_id)
        self._calls[call.call_id] = began = CallBegan(
            **self._start(self._current_turn() if inside is None else inside),
            kind=call.kind.value,
            label=call.label,
            tool=tool,
            tool_use_id=tool_use_id,
        )
        self._tell(began, context)

    def call_ended(self, call_id: int, error: BaseException | None = None) -> None:
        """Observe that a callback returned or raised."""
        if self._calls:
            self._end_call(call_id, None if error is None else type(error).__name__, error)

    def call_cancelled(self, call_id: int, *, timed_out: bool) -> None:
        """Observe that a callback timed out, or that its result is no longer needed."""
        self._end_call(call_id, TIMED_OUT if timed_out else CANCELLED, None)

    def _end_call(self, call_id: int, failure: str | None, error: BaseException | None) -> None:
        began = self._calls.pop(call_id, None)
        if began is not None:
            self._tell(CallEnded(**self._now(), began=began, failure=failure, error=error))

    # -- operations --------------------------------------------------------------------------------

    @contextmanager
    def operation(self, name: str) -> Generator[None, None, None]:
        """Observe an operation of the application that runs inside the ``with`` block."""
        at = self._clock()
        began = self.operation_began(name, at)
        try:
            yield
        except BaseException as error:
            self.operation_failed(name, at, began, error)
            raise
        if began is not None:
            self.operation_ended(began)

    # The same in separate steps, without a context manager, for frequent operations.

    def operation_began(self, name: str, at: float) -> OperationBegan | None:
        """Observe the begin of an operation. Return None if begins are not observed."""
        return self._tell_operation(name, at) if self._hears_operations() else None

    def operation_ended(self, began: OperationBegan) -> None:
        """Observe the success of an operation."""
        self._tell(OperationEnded(**self._now(), began=began))

    def operation_failed(
        self, name: str, at: float, began: OperationBegan | None, error: BaseException | None
    ) -> None:
        """Observe the failure of an operation, or its cancellation if there is no error.

        Failures are observed even if the begin was not.
        """
        began = began or self._tell_operation(name, at)
        if error is None or isinstance(error, CancelledError):
            failure, error = CANCELLED, None
        else:
            failure = type(error).__name__
        self._tell(OperationEnded(**self._now(), began=began, failure=failure, error=error))

    def _tell_operation(self, name: str, at: float) -> OperationBegan:
        start: dict[str, Any] = {**self._start(self._current_turn()), "at": at}
        began = OperationBegan(**start, operation=name)
        self._tell(began)
        return began

    def finished(self) -> None:
        """Observe the end of the session."""
        self._tools.end_all()

    def _now(self) -> dict[str, Any]:
        return {"at": self._clock(), "session_id": self._session_id()}

    def _start(self, parent: int | None = None) -> dict[str, Any]:
        return {**self._now(), "id": next(_ids), "parent": parent}


def _tool_of(argument: object) -> tuple[str | None, str | None]:
    """Return the name and the tool use id of the tool that a callback is called about."""
    if isinstance(argument, ToolContext):
        return argument.name, argument.tool_use_id
    if is_mapping(argument):  # the argument of an MCP handler is a message
        params = argument.get("params")
        return None, tool_use_of(cast("JsonObject", params)) if is_mapping(params) else None
    return getattr(argument, "tool_name", None), getattr(argument, "tool_use_id", None)


class QueryObserver(SessionObserver):
    """Observes one query: one operation with the tools used in it."""

    def __init__(
        self, telemetry: Telemetry | None, *, clock: Clock, model: str | None = None
    ) -> None:
        super().__init__(
            telemetry, clock=clock, session_id=lambda: self._conversation, journal=Journal(QUERY)
        )
        self._conversation = ""
        self._model_used: str | None = None
        self._results: list[ResultMessage] = []
        #: Returns the error that ended the query, or None.
        self.error: Callable[[], BaseException | None] = lambda: None
        # Telemetry may set context variables when the query begins. They hold when the CLI starts.
        self._context = contextvars.copy_context()
        self._began = QueryBegan(at=clock(), id=next(_ids), model=model)
        self._tell(self._began, self._context)

    def environment(self) -> Mapping[str, str]:
        """Return variables for the CLI about to start."""
        return self._context.run(self._teller.environment)

    def happened(self, event: SessionEvent) -> None:
        """Observe an event of the query, other than its begin and its end."""
        if isinstance(event, (ApiRetry, RateLimited, SdkWarning)):
            self._tell(Happened(**self._now(), event=event, parent=self._began.id))

    def delivered(self, messages: Sequence[Message], turns: Sequence[str]) -> None:
        """Observe messages; a query has no turns."""
        for message in messages:
            self._conversation = message.session_id or self._conversation
            if isinstance(message, ResultMessage):
                self._results.append(message)
            elif isinstance(message, AssistantMessage) and message.model != SYNTHETIC:
                self._model_used = message.model or self._model_used
            self._tools.see(message, self._began.id, self._conversation)

    def finished(self) -> None:
        """Observe the end of the query."""
        super().finished()
        error = self.error()
        self._tell(
            QueryEnded(
                **self._now(),
                began=self._began,
                failure=None if error is None else type(error).__name__,
                error=error,
                results=tuple(self._results),
                model=self._model_used,
            )
        )
