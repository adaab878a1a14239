"""Spans and metrics as the OpenTelemetry SDK records them, of sessions on the fake CLI."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes, http_attributes
from opentelemetry.trace import SpanKind, StatusCode
from tests.soak.sessions import options
from tests.support.processes import run, until

import bridle
from bridle import (
    Allow,
    BidirOptions,
    CliOptions,
    Outcome,
    OutcomeReason,
    SdkOptions,
    Session,
    ToolServer,
    otel,
    query,
    start_session,
    tool,
)
from bridle.messages import Usage
from bridle.otel import OpenTelemetry
from bridle.telemetry import Observation, TracingTelemetry, TurnBegan, TurnEnded
from bridle.testing import FakeCli, tool_use

SECRET = "SECRET-MARKER"
in_turn = FakeCli().expect_initialize().start_turn()


class Laboratory:
    """An SDK that keeps everything in memory, and telemetry that goes there."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        meters = MeterProvider([self._reader])
        self.tracer = provider.get_tracer("the application")
        self.telemetry = OpenTelemetry(tracer_provider=provider, meter_provider=meters)
        self.sdk = SdkOptions(telemetry=self.telemetry, skip_version_check=True)

    @property
    def spans(self) -> list[ReadableSpan]:
        """Every span that has ended, in the order they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def span(self, name: str) -> ReadableSpan:
        """The one span of that name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def tree(self) -> list[str]:
        """The names of all spans, each below its parent and further in."""
        return list(branches(self.spans, None, ""))

    def points(self, name: str) -> dict[frozenset[tuple[str, Any]], float]:
        """What a metric measured, by attributes: sums, or totals of histograms."""
        data = self._reader.get_metrics_data()
        found: dict[frozenset[tuple[str, Any]], float] = {}
        for resource in data.resource_metrics if data else []:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points if metric.name == name else []:
                        value: float = getattr(point, "sum", 0) or getattr(point, "value", 0)
                        found[frozenset((point.attributes or {}).items())] = value
        return found


def branches(spans: Sequence[ReadableSpan], parent: int | None, indent: str) -> list[str]:
    known = {span.context.span_id for span in spans if span.context}
    lines: list[str] = []
    for span in spans:
        above = span.parent.span_id if span.parent and span.parent.span_id in known else None
        if above == parent and span.context:
            lines += [f"{indent}{span.name}"]
            lines += branches(spans, span.context.span_id, indent + "  ")
    return lines


def about(**members: object) -> frozenset[tuple[str, object]]:
    """Attributes, with dots for double underscores."""
    return frozenset((name.replace("__", "."), value) for name, value in members.items())


AGENT = {"gen_ai__operation__name": "invoke_agent", "gen_ai__provider__name": "anthropic"}
MODELS = {"gen_ai__request__model": "opus", "gen_ai__response__model": "claude-opus-5-5"}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def slow(_: object) -> Any:
    await asyncio.sleep(60)


# ---------------------------------------------------------------- spans


async def test_a_turn_is_a_span_of_its_sender_with_tools_and_calls_inside() -> None:
    """R453: the tree, and what the conventions say of it."""
    laboratory = Laboratory()
    seen: list[str] = []

    def look(_: object) -> None:
        seen.append(getattr(trace.get_current_span(), "name", "none"))

    bidir = BidirOptions(
        on_pre_tool_use=look,
        on_can_use_tool=lambda _: Allow(),
        mcp_servers={"calc": ToolServer([add])},
    )
    with FakeCli.auto() as cli:
        async with start_session(options(cli, model="opus"), laboratory.sdk, bidir) as talk:
            with laboratory.tracer.start_as_current_span("request"):
                prompt = 'BASH ls\nCALL mcp__calc__add {"a": 1, "b": 2}'
                turn = await talk.send_user_message(prompt)
                await talk.ping()
            outcome = await turn
    assert laboratory.tree() == [
        "session start",
        "request",
        "  invoke_agent",
        "    execute_tool Bash",
        "      PreToolUse hook",
        "      permission for Bash",
        "    execute_tool mcp__calc__add",
        "      PreToolUse hook",
        "      permission for mcp__calc__add",
        "      tool add of MCP server calc",
        "  session mcp_status",
    ]
    assert seen == ["PreToolUse hook"] * 2
    agent = laboratory.span("invoke_agent")
    usage = outcome.usage
    assert usage is not None
    assert agent.kind is SpanKind.CLIENT
    assert agent.status.status_code is StatusCode.UNSET
    assert dict(agent.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.conversation.id": outcome.session_id,
        "gen_ai.request.model": "opus",
        "gen_ai.response.model": "claude-opus-5-5",
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "bridle.cost_usd": outcome.cost_usd,
        "bridle.outcome.reason": "completed",
        "bridle.turn.uuid": outcome.uuid,
    }
    executed = laboratory.span("execute_tool mcp__calc__add")
    called = laboratory.span("tool add of MCP server calc")
    assert executed.kind is called.kind is SpanKind.INTERNAL
    assert executed.attributes is not None
    assert called.attributes is not None
    assert executed.attributes["gen_ai.operation.name"] == "execute_tool"
    assert executed.attributes["gen_ai.tool.name"] == "mcp__calc__add"
    assert called.attributes["gen_ai.tool.call.id"] == executed.attributes["gen_ai.tool.call.id"]
    assert (called.attributes["bridle.call.kind"], called.attributes["gen_ai.tool.name"]) == (
        "tool",
        "add",
    )


async def test_metrics_of_a_turn() -> None:
    """R453."""
    laboratory = Laboratory()
    with FakeCli.auto() as cli:
        async with start_session(options(cli, model="opus"), laboratory.sdk) as talk:
            outcome = await (await talk.send_user_message("hello"))
    assert outcome.usage is not None
    agent = about(**AGENT, **MODELS)
    assert laboratory.points("bridle.turns") == {about(bridle__outcome__reason="completed"): 1}
    assert laboratory.points("bridle.cost") == {agent: outcome.cost_usd}
    assert laboratory.points("gen_ai.client.token.usage") == {
        agent | about(gen_ai__token__type="input"): outcome.usage.input_tokens,
        agent | about(gen_ai__token__type="output"): outcome.usage.output_tokens,
    }
    ((attributes, seconds),) = laboratory.points("gen_ai.client.operation.duration").items()
    assert (attributes, seconds > 0) == (agent, True)


async def test_failures_are_errors_with_a_type_and_no_words() -> None:
    laboratory = Laboratory()

    def broken(_: object) -> None:
        raise ValueError(SECRET)

    script = (
        in_turn.assistant(tool_use("Bash", command="ls"))
        .ask_hook("PreToolUse", tool_name="Bash")
        .expect_continue()
        .tool_result("no", is_error=True)
        .expect_request("set_model")
        .refuse(SECRET)
        .exit(3)
    )
    bidir = BidirOptions(on_pre_tool_use=broken)
    with script as cli:
        async with start_session(options(cli), laboratory.sdk, bidir) as talk:
            turn = await talk.send_user_message("go")
            with pytest.raises(bridle.ControlRejected):
                await talk.set_model("haiku")
            assert (await turn).reason is OutcomeReason.CLI_EXITED
    failures = {
        span.name: (span.attributes or {}).get("error.type")
        for span in laboratory.spans
        if span.status.status_code is StatusCode.ERROR
    }
    assert failures == {
        "invoke_agent": "cli_exited",
        "execute_tool Bash": "error",
        "PreToolUse hook": "ValueError",
        "session set_model": "ControlRejected",
    }
    assert [span.status.description for span in laboratory.spans] == [None] * 5
    hook = about(bridle__warning__kind="hook_failed")
    assert laboratory.points("bridle.hook.failures") == {hook: 1}
    assert laboratory.points("bridle.warnings") == {hook: 1}
    assert laboratory.points("bridle.turns") == {about(bridle__outcome__reason="cli_exited"): 1}
    # Without a span of the application's, what is asked during a turn belongs to the turn.
    assert laboratory.tree() == [
        "session start",
        "invoke_agent",
        "  session set_model",
        "  execute_tool Bash",
        "  PreToolUse hook",
    ]


RETRY = {
    "type": "system",
    "subtype": "api_retry",
    "attempt": 2,
    "max_retries": 10,
    "retry_delay_ms": 500,
    "error_status": 529,
    "error": SECRET,
}
LIMITED = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed_warning"}}


async def test_retries_limits_and_warnings_are_events_of_the_turn() -> None:
    laboratory = Laboratory()
    with in_turn.emit(RETRY, LIMITED).garbage().result() as cli:
        async with start_session(options(cli), laboratory.sdk) as talk:
            await (await talk.send_user_message("go"))
    events = [
        (event.name, dict(event.attributes or {}))
        for event in laboratory.span("invoke_agent").events
    ]
    assert events == [
        (
            "bridle.api_retry",
            {"http.response.status_code": 529, "bridle.attempt": 2, "bridle.delay": 0.5},
        ),
        ("bridle.rate_limited", {"bridle.rate_limit.status": "allowed_warning"}),
        ("bridle.warning", {"bridle.warning.kind": "malformed_line"}),
    ]
    assert laboratory.points("bridle.api.retries") == {about(http__response__status_code=529): 1}


def test_a_query_is_one_span_that_its_cli_continues() -> None:
    """R453."""
    laboratory = Laboratory()
    script = FakeCli().expect_initialize().turn("Hi.", tools=[("Bash", {"command": "ls"}, "x")])

    async def main() -> None:
        with laboratory.tracer.start_as_current_span("request"):
            stream = query("go", CliOptions(cli_path=cli.path, model="opus"), laboratory.sdk)
            _ = [message async for message in stream]
            assert trace.get_current_span() is not trace.INVALID_SPAN

    with script as cli:
        run(main)
        traceparent = cli.environ["TRACEPARENT"]
    assert laboratory.tree() == ["request", "  invoke_agent", "    execute_tool Bash"]
    agent = laboratory.span("invoke_agent")
    assert agent.context is not None
    ids = f"{agent.context.trace_id:032x}-{agent.context.span_id:016x}"
    assert traceparent == f"00-{ids}-{agent.context.trace_flags:02x}"
    attributes = agent.attributes or {}
    assert attributes["gen_ai.conversation.id"]
    assert attributes["gen_ai.usage.output_tokens"]
    assert attributes["gen_ai.response.model"] == "claude-opus-5-5"
    assert (agent.status.status_code, agent.kind) == (StatusCode.UNSET, SpanKind.CLIENT)


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        (in_turn.result("no", is_error=True, subtype="error_max_turns"), "error_max_turns"),
        (in_turn.result("no", is_error=True), "api_error"),
        (in_turn.exit(3), "TransportError"),
    ],
    ids=["result", "api", "crash"],
)
async def test_a_query_that_went_wrong_is_an_error(script: FakeCli, failure: str) -> None:
    laboratory = Laboratory()
    with script as cli:
        try:
            async for _ in query("go", CliOptions(cli_path=cli.path), laboratory.sdk):
                pass
        except bridle.TransportError:
            assert failure == "TransportError"
    span = laboratory.span("invoke_agent")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == failure


# ---------------------------------------------------------------- the CLI's part


def test_a_cli_continues_the_trace_of_its_caller() -> None:
    """R453: W3C trace context, with the state if there is one; nothing without a span."""
    laboratory = Laboratory()
    assert isinstance(laboratory.telemetry, TracingTelemetry)

    def started(inside: trace.Span, **env: str) -> dict[str, str]:
        async def main() -> None:
            with trace.use_span(inside):
                async with start_session(options(cli, env=env), laboratory.sdk):
                    pass

        with FakeCli.auto() as cli:
            run(main)
            return {name: value for name, value in cli.environ.items() if name.startswith("TRACE")}

    context = trace.SpanContext(
        0xABC,
        0xDEF,
        is_remote=True,
        trace_flags=trace.TraceFlags(1),
        trace_state=trace.TraceState([("vendor", "x")]),
    )
    span = trace.NonRecordingSpan(context)
    parent = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert started(span) == {"TRACEPARENT": parent, "TRACESTATE": "vendor=x"}
    assert started(span, TRACEPARENT="mine") == {"TRACEPARENT": "mine"}
    assert started(trace.INVALID_SPAN) == {}


# ---------------------------------------------------------------- odds and ends


def ended(uuid: str, *others: str) -> TurnEnded:
    usage = Usage(
        input_tokens=1, output_tokens=2, cache_read_input_tokens=10, cache_creation_input_tokens=100
    )
    outcome: Outcome = Outcome(
        reason=OutcomeReason.COMPLETED, uuid=uuid, merged_with=others, usage=usage, cost_usd=0.5
    )
    return TurnEnded(at=2.0, began=TurnBegan(at=1.0, id=ord(uuid), uuid=uuid), outcome=outcome)


def test_what_merged_prompts_took_is_counted_once() -> None:
    laboratory = Laboratory()
    ends = [ended("b", "a"), ended("a", "b")]
    for end in ends:
        laboratory.telemetry.observe(end.began)
    for end in ends:
        laboratory.telemetry.observe(end)
    assert laboratory.points("bridle.cost") == {about(**AGENT): 0.5}
    spent = [(span.attributes or {}).get("bridle.cost_usd") for span in laboratory.spans]
    assert sorted(map(str, spent)) == ["0.5", "None"]


def test_cached_tokens_count_as_input() -> None:
    laboratory = Laboratory()
    end = ended("a")
    laboratory.telemetry.observe(end.began)
    laboratory.telemetry.observe(end)
    attributes = laboratory.span("invoke_agent").attributes or {}
    found = {name: value for name, value in attributes.items() if "tokens" in name}
    assert found == {
        "gen_ai.usage.input_tokens": 111,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 10,
        "gen_ai.usage.cache_creation.input_tokens": 100,
    }


def test_what_is_new_or_never_began_is_ignored() -> None:
    class Novelty(Observation, frozen=True):
        """From a later version."""

    laboratory = Laboratory()
    laboratory.telemetry.observe(Novelty(at=0.0))
    laboratory.telemetry.observe(ended("a"))
    assert laboratory.spans == []


async def test_a_span_ends_for_whatever_began() -> None:
    """Nothing is kept of a session that is over."""
    laboratory = Laboratory()
    script = in_turn.assistant(tool_use("Bash", command="ls")).ask_permission("Bash").silence()
    with script as cli:
        bidir = BidirOptions(on_can_use_tool=slow)
        talk = Session(options(cli), laboratory.sdk, bidir)
        await talk.connect()
        _ = await talk.send_user_message("go")
        await until(lambda: len(laboratory.telemetry._spans) == 3)
        await talk.stop()
    assert laboratory.telemetry._spans == {}
    names = {span.name for span in laboratory.spans}
    assert names == {"session start", "invoke_agent", "execute_tool Bash", "permission for Bash"}


def test_the_names_are_those_of_the_conventions() -> None:
    ours = {
        otel._OPERATION: gen_ai.GEN_AI_OPERATION_NAME,
        otel._PROVIDER: gen_ai.GEN_AI_PROVIDER_NAME,
        otel._CONVERSATION: gen_ai.GEN_AI_CONVERSATION_ID,
        otel._REQUEST_MODEL: gen_ai.GEN_AI_REQUEST_MODEL,
        otel._RESPONSE_MODEL: gen_ai.GEN_AI_RESPONSE_MODEL,
        otel._TOOL: gen_ai.GEN_AI_TOOL_NAME,
        otel._TOOL_CALL: gen_ai.GEN_AI_TOOL_CALL_ID,
        otel._TOKEN_TYPE: gen_ai.GEN_AI_TOKEN_TYPE,
        otel._INPUT_TOKENS: gen_ai.GEN_AI_USAGE_INPUT_TOKENS,
        otel._OUTPUT_TOKENS: gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS,
        otel._CACHE_READ: gen_ai.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS,
        otel._CACHE_CREATION: gen_ai.GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS,
        otel._ERROR: error_attributes.ERROR_TYPE,
        otel._STATUS_CODE: http_attributes.HTTP_RESPONSE_STATUS_CODE,
        "gen_ai.client.operation.duration": gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION,
        "gen_ai.client.token.usage": gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE,
    }
    assert list(ours) == list(ours.values())


async def test_nothing_that_was_said_is_in_a_span_or_a_metric() -> None:
    """Prompts, answers, what tools get and give, variables, errors."""
    laboratory = Laboratory()
    script = (
        in_turn.assistant(SECRET, tool_use("Bash", command=SECRET))
        .ask_permission("Bash", command=SECRET)
        .expect_allow()
        .tool_result(SECRET)
        .emit(RETRY)
        .result(SECRET, is_error=True, subtype="error_during_execution", errors=[SECRET])
    )
    bidir = BidirOptions(on_can_use_tool=lambda _: Allow())
    with script as cli:
        chosen = options(cli, env={"TOKEN": SECRET}, system_prompt=SECRET)
        async with start_session(chosen, laboratory.sdk, bidir) as talk:
            await (await talk.send_user_message(SECRET))
            cli.check()
    assert len(laboratory.spans) == 4
    assert SECRET not in "".join(span.to_json() for span in laboratory.spans)
    assert SECRET not in str(laboratory._reader.get_metrics_data())


MISSING = """
import sys
sys.modules["opentelemetry"] = None
try:
    import bridle.otel
except ImportError as error:
    print(error, error.name)
"""


def test_without_the_package_the_error_says_what_to_install() -> None:
    found = subprocess.run(
        [sys.executable, "-c", MISSING], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install bridle[otel]" in found.stdout
