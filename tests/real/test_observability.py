"""The spans of a session on the real CLI, and the trace its child processes continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.support.processes import run

from bridle import Allow, BidirOptions, Outcome, ToolServer, query, start_session, tool
from bridle.otel import OpenTelemetry
from bridle.testing import ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab

SHOW = 'echo "parent=$TRACEPARENT"'


@tool
def price(article: str) -> float:
    """The price of an article."""
    return 49.0 if article == "bridle" else 310.0


def path_of(span: ReadableSpan, spans: list[ReadableSpan]) -> str:
    """The names from the root to a span."""
    above = {one.context.span_id: one for one in spans if one.context}
    parent = above.get(span.parent.span_id) if span.parent else None
    return span.name if parent is None else f"{path_of(parent, spans)} / {span.name}"


@pytest.mark.longer
def test_a_tool_a_hook_and_a_permission_are_spans_of_the_turn(lab: Lab) -> None:
    """R453: on every CLI the same tree, and commands of the CLI find the trace they are part of."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    script = [
        [tool_use("Bash", command=SHOW)],
        [tool_use("mcp__shop__price", article="bridle")],
        [text("done")],
    ]
    sdk = lab.sdk.replace(telemetry=OpenTelemetry(tracer_provider=provider))
    bidir = BidirOptions(
        on_pre_tool_use=lambda context: None,
        on_can_use_tool=lambda context: Allow(),
        mcp_servers={"shop": ToolServer([price])},
    )

    async def main() -> tuple[Outcome[Any], str | None]:
        async with ScriptedModel(script) as model:
            with provider.get_tracer("app").start_as_current_span("request"):
                async with start_session(lab.cli(model), sdk, bidir) as session:
                    outcome = await (await session.send_user_message("go"))
            return outcome, model.requests[1].last_tool_result

    outcome, shown = run(main)
    assert outcome.ok
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    paths = [path_of(span, spans) for span in spans]
    turn = "request / invoke_agent"
    bash, shop = f"{turn} / execute_tool Bash", f"{turn} / execute_tool mcp__shop__price"
    wanted = {
        "request",
        "request / session start",
        turn,
        bash,
        f"{bash} / PreToolUse hook",
        f"{bash} / permission for Bash",
        shop,
        f"{shop} / PreToolUse hook",
        f"{shop} / permission for mcp__shop__price",
        f"{shop} / tool price of MCP server shop",
    }
    assert sorted(paths) == sorted(wanted)
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}

    root, agent = spans[0], next(span for span in spans if span.name == "invoke_agent")
    assert root.context is not None
    ids = f"{root.context.trace_id:032x}-{root.context.span_id:016x}"
    assert shown == f"parent=00-{ids}-{root.context.trace_flags:02x}"
    attributes = agent.attributes or {}
    assert outcome.usage is not None
    assert attributes["gen_ai.conversation.id"] == outcome.session_id
    assert attributes["gen_ai.usage.output_tokens"] == outcome.usage.output_tokens
    assert attributes["gen_ai.request.model"] == "claude-sonnet-4-5"
    assert str(attributes["gen_ai.response.model"]).startswith("claude-sonnet-4-5")


@pytest.mark.longer
async def test_a_query_is_one_span_that_its_commands_continue(lab: Lab) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sdk = lab.sdk.replace(telemetry=OpenTelemetry(tracer_provider=provider))
    script = [[tool_use("Bash", command=SHOW)], [text("done")]]
    async with ScriptedModel(script) as model:
        async for _ in query("go", lab.cli(model, allowed_tools=["Bash"]), sdk):
            pass
        shown = model.requests[1].last_tool_result
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    assert [path_of(span, spans) for span in spans] == [
        "invoke_agent",
        "invoke_agent / execute_tool Bash",
    ]
    root = spans[0].context
    assert root is not None
    ids = f"{root.trace_id:032x}-{root.span_id:016x}"
    assert shown == f"parent=00-{ids}-{root.trace_flags:02x}"
