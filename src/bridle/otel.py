"""OpenTelemetry for sessions and queries: ``SdkOptions(telemetry=OpenTelemetry())``.

Spans and metrics use the names of the semantic conventions for generative AI. Names that the
conventions do not define begin with ``bridle.``. A turn or a query is an ``invoke_agent`` span, and
a child of the span that was current when the turn or query started. It contains an ``execute_tool``
span for each tool call of the model, and a span for each callback or tool of the program.

Spans contain no prompts, answers, tool inputs or outputs, and no error messages.

This module needs the extra ``otel``, which installs only the OpenTelemetry API. The OpenTelemetry
SDK that the program configures decides where spans go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Span, SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as problem:
    raise ImportError(
        f"bridle.otel needs OpenTelemetry, which cannot be imported ({problem}). "
        "Install it with `pip install bridle[otel]`.",
        name=problem.name,
    ) from problem

from bridle.events import ApiRetry, RateLimited, SdkWarning, WarningKind
from bridle.telemetry import (
    Began,
    CallBegan,
    CallEnded,
    Ended,
    Happened,
    Observation,
    OperationBegan,
    OperationEnded,
    QueryBegan,
    QueryEnded,
    ToolUseBegan,
    ToolUseEnded,
    TurnBegan,
    TurnEnded,
)

if TYPE_CHECKING:
    from bridle.messages import ResultMessage, Usage
    from bridle.outcomes import Outcome

__all__ = ["OpenTelemetry"]

Attributes = Mapping[str, str | int | float | None]

# Names of the semantic conventions. Their Python package is still unstable, so it is not used.
_OPERATION = "gen_ai.operation.name"
_PROVIDER = "gen_ai.provider.name"
_CONVERSATION = "gen_ai.conversation.id"
_REQUEST_MODEL = "gen_ai.request.model"
_RESPONSE_MODEL = "gen_ai.response.model"
_TOOL = "gen_ai.tool.name"
_TOOL_CALL = "gen_ai.tool.call.id"
_TOKEN_TYPE = "gen_ai.token.type"
_INPUT_TOKENS = "gen_ai.usage.input_tokens"
_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
_CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
_CACHE_CREATION = "gen_ai.usage.cache_creation.input_tokens"
_ERROR = "error.type"
_STATUS_CODE = "http.response.status_code"

_INVOKE_AGENT = "invoke_agent"
_EXECUTE_TOOL = "execute_tool"
_AGENT = {_OPERATION: _INVOKE_AGENT, _PROVIDER: "anthropic"}

# Buckets of the conventions. Those for seconds go beyond 82, because turns can take hours.
_SECONDS = [0.01 * 2**step for step in range(20)]
_TOKENS = [4.0**step for step in range(14)]

_HOOK_FAILURES = frozenset({WarningKind.HOOK_FAILED, WarningKind.HOOK_TIMED_OUT})


class OpenTelemetry:
    """Create spans and metrics from observations. Several sessions can share one object.

    Args:
        tracer_provider: provider for spans. Default: the global one.
        meter_provider: provider for metrics. Default: the global one.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("bridle", tracer_provider=tracer_provider)
        meter = metrics.get_meter("bridle", meter_provider=meter_provider)
        # Open spans, by the id of their activity. Ids are unique in the process.
        self._spans: dict[int, Span] = {}
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of turns, queries and tool calls.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of turns and queries.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._cost = meter.create_counter("bridle.cost", "USD", "Cost of turns and queries.")
        self._turns = meter.create_counter(
            "bridle.turns", "{turn}", "Turns, by reason of the outcome."
        )
        self._hook_failures = meter.create_counter(
            "bridle.hook.failures", "{failure}", "Hooks that raised or timed out."
        )
        self._retries = meter.create_counter(
            "bridle.api.retries", "{retry}", "Repeated requests to the model API."
        )
        self._warnings = meter.create_counter("bridle.warnings", "{warning}", "Warnings, by kind.")

    # -- interface for Bridle ----------------------------------------------------------------------

    def observe(self, observation: Observation, /) -> None:
        """Start or end the span of an observation, and update metrics."""
        handle = self._HANDLERS.get(type(observation))
        if handle is not None:
            handle(self, observation)

    def environment(self) -> Mapping[str, str]:
        """Return the W3C trace context of the current span, as variables for the CLI."""
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return {name.upper(): value for name, value in carrier.items()}

    # -- turns and queries -------------------------------------------------------------------------

    def _on_turn_began(self, began: TurnBegan) -> None:
        about: Attributes = {**_AGENT, _REQUEST_MODEL: began.model, "bridle.turn.uuid": began.uuid}
        self._begin(began, _INVOKE_AGENT, about, SpanKind.CLIENT)

    def _on_turn_ended(self, ended: TurnEnded) -> None:
        outcome = ended.outcome
        about: Attributes = {"bridle.outcome.reason": outcome.reason.value}
        spent = _Spent()
        if _is_first_of_merged(outcome):
            spent = _Spent([outcome.usage], outcome.cost_usd)
        self._turns.add(1, about)
        self._end_agent(ended, ended.model, spent, ended.failure, about)

    def _on_query_began(self, began: QueryBegan) -> None:
        span = self._begin(
            began, _INVOKE_AGENT, {**_AGENT, _REQUEST_MODEL: began.model}, SpanKind.CLIENT
        )
        # The query has its own context, in which its CLI is started.
        otel_context.attach(trace.set_span_in_context(span))

    def _on_query_ended(self, ended: QueryEnded) -> None:
        last = ended.results[-1] if ended.results else None
        cost = None if last is None else last.total_cost_usd
        spent = _Spent([result.usage for result in ended.results], cost)
        failure = ended.failure or (None if last is None else _result_failure(last))
        self._end_agent(ended, ended.model, spent, failure, {})

    def _end_agent(
        self,
        ended: TurnEnded | QueryEnded,
        model: str | None,
        spent: _Spent,
        failure: str | None,
        about: Attributes,
    ) -> None:
        models = {_REQUEST_MODEL: ended.began.model, _RESPONSE_MODEL: model}
        measured = _known({**_AGENT, **models})
        self._durations.record(ended.duration, _known({**measured, _ERROR: failure}))
        for kind, tokens in (("input", spent.input), ("output", spent.output)):
            if tokens is not None:
                self._tokens.record(tokens, {**measured, _TOKEN_TYPE: kind})
        if spent.cost is not None:
            self._cost.add(spent.cost, measured)
        conversation = ended.session_id or None
        attributes = {
            _CONVERSATION: conversation,
            _RESPONSE_MODEL: model,
            **spent.attributes(),
            **about,
        }
        self._end(ended, attributes, failure)

    # -- tools, callbacks, events ------------------------------------------------------------------

    def _on_tool_use_began(self, began: ToolUseBegan) -> None:
        about = {_OPERATION: _EXECUTE_TOOL, _TOOL: began.tool, _TOOL_CALL: began.tool_use_id}
        self._begin(began, f"{_EXECUTE_TOOL} {began.tool}", about)

    def _on_tool_use_ended(self, ended: ToolUseEnded) -> None:
        measured = {_OPERATION: _EXECUTE_TOOL, _TOOL: ended.began.tool, _ERROR: ended.failure}
        self._durations.record(ended.duration, _known(measured))
        self._end(ended, {}, ended.failure)

    def _on_call_began(self, began: CallBegan) -> None:
        about = {
            "bridle.call.kind": began.kind,
            _TOOL: began.tool,
            _TOOL_CALL: began.tool_use_id,
        }
        span = self._begin(began, began.label, about)
        # The function runs in this context, so its own spans become children of this one.
        otel_context.attach(trace.set_span_in_context(span))

    def _on_operation_began(self, began: OperationBegan) -> None:
        if began.operation != "send_user_message":  # the turn has its own span
            about = {"bridle.operation": began.operation}
            self._begin(began, f"session {began.operation}", about, prefers_caller=True)

    def _on_plain_end(self, ended: CallEnded | OperationEnded) -> None:
        self._end(ended, {}, ended.failure)

    def _on_happened(self, seen: Happened) -> None:
        event, span = seen.event, self._spans.get(seen.parent or 0, trace.INVALID_SPAN)
        if isinstance(event, ApiRetry):
            status = _known({_STATUS_CODE: event.error_status})
            self._retries.add(1, status)
            tried = {"bridle.attempt": event.attempt, "bridle.delay": event.delay}
            span.add_event("bridle.api_retry", {**status, **tried})
        elif isinstance(event, RateLimited):
            span.add_event("bridle.rate_limited", {"bridle.rate_limit.status": event.status})
        elif isinstance(event, SdkWarning):
            kind = {"bridle.warning.kind": event.kind.value}
            self._warnings.add(event.count, kind)
            span.add_event("bridle.warning", kind)
            if event.kind in _HOOK_FAILURES:
                self._hook_failures.add(event.count, kind)

    # -- spans -------------------------------------------------------------------------------------

    def _begin(
        self,
        began: Began,
        name: str,
        about: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        prefers_caller: bool = False,
    ) -> Span:
        """Start a span as a child of its parent's span, or of the current span."""
        parent = self._spans.get(began.parent or 0)
        if prefers_caller and trace.get_current_span().get_span_context().is_valid:
            parent = None
        span = self._tracer.start_span(
            name,
            context=None if parent is None else trace.set_span_in_context(parent),
            kind=kind,
            attributes=_known({_CONVERSATION: began.session_id or None, **about}),
        )
        self._spans[began.id] = span
        return span

    def _end(self, ended: Ended, about: Attributes, failure: str | None) -> None:
        span = self._spans.pop(ended.began.id, None)
        if span is None:
            return
        span.set_attributes(_known({**about, _ERROR: failure}))
        if failure is not None:
            span.set_status(StatusCode.ERROR)
        span.end()

    _HANDLERS: ClassVar[dict[type[Observation], Callable[[OpenTelemetry, Any], None]]] = {
        TurnBegan: _on_turn_began,
        TurnEnded: _on_turn_ended,
        QueryBegan: _on_query_began,
        QueryEnded: _on_query_ended,
        ToolUseBegan: _on_tool_use_began,
        ToolUseEnded: _on_tool_use_ended,
        CallBegan: _on_call_began,
        CallEnded: _on_plain_end,
        OperationBegan: _on_operation_began,
        OperationEnded: _on_plain_end,
        Happened: _on_happened,
    }


class _Spent:
    """Tokens and cost of a turn or a query; None where unknown."""

    def __init__(self, usages: Sequence[Usage | None] = (), cost: float | None = None) -> None:
        known = [usage for usage in usages if usage is not None]
        self.cost = cost
        self.input: int | None = None
        self.output: int | None = None
        self._read = sum(usage.cache_read_input_tokens or 0 for usage in known)
        self._created = sum(usage.cache_creation_input_tokens or 0 for usage in known)
        if known:
            # The conventions count cached tokens as input tokens. The API does not.
            self.input = sum(usage.input_tokens for usage in known) + self._read + self._created
            self.output = sum(usage.output_tokens for usage in known)

    def attributes(self) -> Attributes:
        """Return span attributes."""
        return {
            _INPUT_TOKENS: self.input,
            _OUTPUT_TOKENS: self.output,
            _CACHE_READ: self._read or None,
            _CACHE_CREATION: self._created or None,
            "bridle.cost_usd": self.cost,
        }


def _is_first_of_merged(outcome: Outcome[Any]) -> bool:
    """Return True for one of several merged prompts: the one that counts tokens and cost."""
    return outcome.uuid is None or outcome.uuid == min([outcome.uuid, *outcome.merged_with])


def _result_failure(result: ResultMessage) -> str | None:
    if not result.is_error:
        return None
    return "api_error" if result.subtype == "success" else result.subtype


def _known(about: Attributes) -> dict[str, str | int | float]:
    return {name: value for name, value in about.items() if value is not None}
