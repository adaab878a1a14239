"""Spans of requests and responses: hooks, permissions, MCP servers, control requests, the process.

Pure. A request and its response have the same id. Both sides send requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridle.cli._timeline.frame_summaries import Json, input_of, part, text
from bridle.cli._timeline.spans import Draft, Follower, Lane, Seen, State

_LANES: Mapping[str, Lane] = {
    "hook_callback": Lane.HOOKS,
    "can_use_tool": Lane.PERMISSIONS,
    "elicitation": Lane.PERMISSIONS,
    "request_user_dialog": Lane.PERMISSIONS,
    "mcp_message": Lane.SERVERS,
}


class Requests(Follower):
    """Control requests of both sides, from the request to its response."""

    def __init__(self) -> None:
        super().__init__()
        # The CLI and its client choose ids independently.
        self._open: dict[tuple[bool, str], Draft] = {}
        self._answered: dict[str, Draft] = {}

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        from_cli = seen.direction == "out"
        if seen.kind == "control_request":
            self._ask(seen, from_cli=from_cli)
        elif seen.kind == "control_response":
            self._answer(seen, from_cli=from_cli)
        elif seen.kind == "control_cancel_request":
            draft = self._open.pop((from_cli, text(seen.frame, "request_id")), None)
            if draft is not None:
                draft.close(seen, State.STOPPED, answer="withdrawn")

    def _ask(self, seen: Seen, *, from_cli: bool) -> None:
        request = part(seen.frame, "request")
        subtype = text(request, "subtype")
        lane = _LANES.get(subtype, Lane.CONTROL) if from_cli else Lane.CONTROL
        describe = _TITLES.get(subtype)
        title = describe(request) if describe is not None else ""
        draft = self.begin(lane, title or subtype or "request", seen)
        self._open[from_cli, text(seen.frame, "request_id")] = draft

    def _answer(self, seen: Seen, *, from_cli: bool) -> None:
        response = part(seen.frame, "response")
        name = text(response, "request_id")
        draft = self._open.pop((not from_cli, name), None)
        if draft is not None:
            payload = part(response, "response")
            failed = response.get("subtype") == "error"
            told = text(response, "error") if failed else input_of(payload)
            draft.close(seen, State.FAILED if failed else _judged(payload), answer=told)
            self._answered[name] = draft
        elif from_cli and name in self._answered:  # the CLI repeats the response
            self._answered.pop(name).add(seen)


def _judged(payload: Json) -> State:
    """Return the state of a response: ok, denied or failed."""
    decision = part(payload, "hookSpecificOutput").get("permissionDecision")
    says_no = (
        payload.get("behavior") == "deny",
        payload.get("decision") == "block",
        decision == "deny",
        payload.get("action") in ("decline", "cancel"),
        payload.get("continue") is False,
    )
    rpc = part(payload, "mcp_response")
    if "error" in rpc or part(rpc, "result").get("isError") is True:
        return State.FAILED
    return State.DENIED if any(says_no) else State.OK


def _hook(request: Json) -> str:
    called = part(request, "input")
    return f"{text(called, 'hook_event_name')} {text(called, 'tool_name')}".strip()


def _message(request: Json) -> str:
    message = part(request, "message")
    what = text(part(message, "params"), "name") or text(message, "method") or "answer"
    return f"{text(request, 'server_name')} {what}"


_TITLES: Mapping[str, Callable[[Json], str]] = {
    "hook_callback": _hook,
    "can_use_tool": lambda request: text(request, "tool_name"),
    "elicitation": lambda request: f"{text(request, 'mcp_server_name')} asks",
    "request_user_dialog": lambda request: f"dialog {text(request, 'dialog_kind')}",
    "mcp_message": _message,
    "set_model": lambda request: f"set_model {text(request, 'model')}",
    "set_permission_mode": lambda request: f"set_permission_mode {text(request, 'mode')}",
}


class CommandHooks(Follower):
    """Hooks in settings files, which the CLI runs itself."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, Draft] = {}

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        name, subtype = text(seen.frame, "hook_id"), seen.subtype
        if subtype == "hook_started":
            self._open[name] = self.begin(Lane.HOOKS, text(seen.frame, "hook_name"), seen)
        elif subtype == "hook_progress" and name in self._open:
            self._open[name].add(seen)
        elif subtype == "hook_response" and name in self._open:
            is_ok = seen.frame.get("outcome") in (None, "success")
            told = text(seen.frame, "output")
            self._open.pop(name).close(seen, State.OK if is_ok else State.FAILED, output=told)


class Process(Follower):
    """Moments of the process: lines on stderr, signals, its end."""

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        if seen.direction == "err":
            self.begin(Lane.PROCESS, seen.line or "stderr", seen).close(seen, State.FAILED)
            return
        if seen.direction != "meta":
            return
        for name, describe in _MOMENTS.items():
            if name in seen.frame:
                title, state = describe(seen.frame[name])
                self.begin(Lane.PROCESS, title, seen).close(seen, state)


_MOMENTS: Mapping[str, Callable[[object], tuple[str, State]]] = {
    "stdin": lambda _: ("end of input", State.OK),
    "signal": lambda name: (str(name), State.STOPPED),
    "input_failed": lambda why: (f"input failed: {why}", State.FAILED),
    "exit": lambda code: (f"exit {code}", State.OK if code == 0 else State.FAILED),
}
