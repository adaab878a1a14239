"""Each kind of frame has one taker."""

from __future__ import annotations

import pytest
from tests.support import cli

from bridle._core.routing import Route, route_incoming
from bridle._core.wire import decode_line


@pytest.mark.parametrize(
    ("line", "route"),
    [
        (cli.hook_callback("r"), Route.HOOK),
        (cli.can_use_tool("r"), Route.PERMISSION),
        (cli.mcp_message("r", {}), Route.MCP),
        (cli.elicitation("r"), Route.ELICITATION),
        (cli.request("r", "request_user_dialog"), Route.REFUSAL),
        (cli.request("r", "initialize"), Route.REFUSAL),
        (cli.withdrawal("r"), Route.WITHDRAWAL),
        (cli.success("req_0"), Route.RESPONSE),
        (cli.failure("req_0", "no"), Route.RESPONSE),
        (cli.init(), Route.SUBSCRIBERS),
        (cli.assistant(), Route.SUBSCRIBERS),
        (cli.user("hi"), Route.SUBSCRIBERS),
        (cli.result(), Route.SUBSCRIBERS),
        (cli.lifecycle("u", "queued"), Route.SUBSCRIBERS),
        (cli.system("from_the_future"), Route.SUBSCRIBERS),
        (cli.line(type="from_the_future"), Route.SUBSCRIBERS),
        (b"[]\n", Route.REPORT),
    ],
)
def test_a_frame_goes_to_its_taker(line: bytes, route: Route) -> None:
    """R214, R215, R372, R426."""
    assert route_incoming(decode_line(line.rstrip(b"\n"))) is route
