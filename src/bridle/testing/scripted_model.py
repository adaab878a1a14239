"""A scripted model: a server on loopback that replaces the Anthropic API for the real CLI.

It checks every request like the API, records it, and answers with the next turn of the script. If
the script has no turn for a request, the CLI gets an error that it does not retry, and leaving the
model raises ScriptFailure, so that no test passes by accident.

The caller and the server's thread share the state. One lock protects it.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, TypeVar

import msgspec

from bridle.messages import JsonObject
from bridle.testing._model_server import sse
from bridle.testing._model_server.api_checks import authorized, complaint
from bridle.testing._model_server.http1 import HttpRequest, Responder
from bridle.testing._model_server.loopback_server import LoopbackServer
from bridle.testing._model_server.milestones import Milestones
from bridle.testing.environment import Login, cli_environment
from bridle.testing.model_request import ModelRequest, SharedParts, is_object, redacted
from bridle.testing.script import (
    ERROR_TYPES,
    Block,
    Reply,
    Script,
    Switch,
    as_reply,
    error,
    text,
    turns,
)

Found = TypeVar("Found")

_MESSAGES = ("POST", "/v1/messages")
_COUNT_TOKENS = ("POST", "/v1/messages/count_tokens")
_GREETINGS = ("/", "/api/hello")
_STATUSES = {kind: status for status, kind in ERROR_TYPES.items()}
_GLANCE = 0.005  # seconds between two checks of a switch
_TIMEOUT = 10.0


class ScriptFailure(AssertionError):
    """A request had no turn in the script or was invalid, or the script itself failed."""


class Rejection(NamedTuple):
    """A request that the API would reject, and the reason."""

    request: ModelRequest
    status: int
    message: str


class ScriptedModel:
    """Replace the Anthropic API by a script. A context manager, blocking or async.

    `script` is a list of turns, one per request, in order. A turn is a list of blocks, a
    :class:`Reply`, or a function from the request to one of these. The last turn may be
    `repeat(...)`. Instead of a list, `script` can be one function for all requests. Requests of
    subagents take turns, too; `ModelRequest.agent_id` identifies them.

    The CLI also sends requests that are not part of the conversation: token counts, connection
    checks, a title for the session, and probes (`max_tokens` of 1). They take no turn, except
    probes if `count_probes` is True.

    `retries` and `login` determine :attr:`env`. A request that the API would reject fails the test
    unless `tolerate_rejected` is True.
    """

    def __init__(
        self,
        script: Script,
        *,
        retries: int | None = 0,
        login: Login = "api_key",
        count_probes: bool = False,
        tolerate_rejected: bool = False,
    ) -> None:
        self.requests: list[ModelRequest] = []
        """The requests that took a turn, in order."""
        self.side_requests: list[ModelRequest] = []
        """All other requests that were answered."""
        self.rejected: list[Rejection] = []
        """The requests that the API would reject."""
        self._turns = turns(script)
        self._retries = retries
        self._login: Login = login
        self._count_probes = count_probes
        self._tolerate_rejected = tolerate_rejected
        self._failures: list[ScriptFailure] = []
        self._holds = 0
        self._released = 0  # the number of holds that were released
        self._shared = SharedParts()
        self._made = 0
        self._token = secrets.token_hex(5)  # keeps ids unique if a session uses two models
        self._milestones = Milestones(self._came)
        self._lock = self._milestones.lock
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._server = LoopbackServer(self._handle)
        self._state: Literal["new", "running", "ended"] = "new"

    # ------------------------------------------------------------ how to reach it

    @property
    def url(self) -> str:
        """The base URL of the API."""
        self._must_run()
        return self._server.url

    @property
    def home(self) -> Path:
        """A home directory for the CLI, created on first use and deleted with the model."""
        self._must_run()
        with self._lock:
            if self._home is None:
                # A CLI that is exiting may still write while the directory is deleted.
                self._home = tempfile.TemporaryDirectory(
                    prefix="bridle-", ignore_cleanup_errors=True
                )
            return Path(self._home.name)

    @property
    def env(self) -> dict[str, str]:
        """Variables for `CliOptions.env`: the CLI uses this model, a placeholder key and `home`."""
        return cli_environment(self.url, self.home, login=self._login, retries=self._retries)

    @property
    def settings(self) -> dict[str, object]:
        """Settings for `CliOptions.settings`. Use them, beside :attr:`env`, in a real project.

        Variables in a project's settings override the environment. These settings override both.
        """
        return {"env": self.env}

    # ------------------------------------------------------------ checks and waiting

    def check(self) -> None:
        """Raise the first failure, if any. Leaving the model does the same."""
        with self._lock:
            if self._failures:
                raise self._failures[0]

    async def wait_for_request(self, index: int = 0, timeout: float = _TIMEOUT) -> ModelRequest:
        """Wait for the request with this index in :attr:`requests`, and return it.

        Raises TimeoutError after `timeout` seconds, or the error of :meth:`check`.
        """
        await self._milestones.wait(self._has_request(index), f"request {index}", timeout)
        return self.requests[index]

    def wait_for_request_sync(self, index: int = 0, timeout: float = _TIMEOUT) -> ModelRequest:
        """Do the same as :meth:`wait_for_request`, for blocking code."""
        self._milestones.wait_sync(self._has_request(index), f"request {index}", timeout)
        return self.requests[index]

    async def wait_for_hold(self, count: int = 1, timeout: float = _TIMEOUT) -> None:
        """Wait until `count` replies, counted from the start, have reached their hold."""
        await self._milestones.wait(self._has_held(count), f"hold number {count}", timeout)

    def wait_for_hold_sync(self, count: int = 1, timeout: float = _TIMEOUT) -> None:
        """Do the same as :meth:`wait_for_hold`, for blocking code."""
        self._milestones.wait_sync(self._has_held(count), f"hold number {count}", timeout)

    def _has_request(self, index: int) -> Callable[[], bool]:
        return lambda: len(self.requests) > index

    def _has_held(self, count: int) -> Callable[[], bool]:
        return lambda: self._holds >= count

    def _came(self) -> str:
        listed = [f"\n  {number}: {one}" for number, one in enumerate(self.requests)]
        return "".join(listed) or "no request"

    def release(self) -> None:
        """Continue all replies that are held with `hold=True`. Call :meth:`wait_for_hold` first.

        It continues all of them, because an interrupted CLI may leave an earlier request open,
        which is then still held.
        """
        with self._lock:
            if self._released == self._holds:
                raise RuntimeError("no reply is held: call wait_for_hold() first")
            self._released = self._holds

    # ------------------------------------------------------------ start and stop

    def __enter__(self) -> ScriptedModel:
        """Start the server. Block until it listens."""
        self._begin().result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, clean up, and raise what :meth:`check` would."""
        self._server.stop().result()
        self._end(problem)

    async def __aenter__(self) -> ScriptedModel:
        """Start the server."""
        listening = self._begin()
        try:
            await asyncio.shield(asyncio.wrap_future(listening))
        except asyncio.CancelledError:
            self._server.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, clean up, and raise what :meth:`check` would."""
        try:
            await asyncio.shield(asyncio.wrap_future(self._server.stop()))
        finally:
            self._end(problem)

    def _begin(self) -> Future[int]:
        if self._state != "new":
            raise RuntimeError("a ScriptedModel can be started only once: create another one")
        self._state = "running"
        return self._server.start()

    def _end(self, problem: BaseException | None) -> None:
        self._state = "ended"
        self._server.join()
        if self._home is not None:
            self._home.cleanup()
        if problem is None:
            self.check()
        elif self._failures:  # the failure is often the cause of the exception
            problem.add_note(f"ScriptedModel: {self._failures[0]}")

    def _must_run(self) -> None:
        if self._state != "running":
            raise RuntimeError("the model is not running: use it in a `with` or `async with` block")

    # ------------------------------------------------------------ answering, in the server's thread

    async def _handle(self, http: HttpRequest, out: Responder) -> None:
        request = ModelRequest(
            method=http.method,
            path=http.path,
            headers=redacted(http.headers),
            raw=self._shared.body(_json_object(http.body)),
        )
        if (request.method, request.path) == _MESSAGES:
            await self._send(self._numbered(await self._reply(request)), request, out)
        else:
            self._record(self.side_requests, request)
            status, payload = _beside(request)
            await out.answer(status, msgspec.json.encode(payload), self._headers({}))

    async def _reply(self, request: ModelRequest) -> Reply:
        refused = complaint(request)
        if refused is not None:
            rejection = Rejection(request, *refused)
            self._record(self.rejected, rejection)
            if not self._tolerate_rejected:
                self._fail(f"the API would reject this request: {rejection.message}: {request}")
            return error(rejection.status, message=rejection.message)
        reply = self._side_reply(request)
        if reply is not None:
            self._record(self.side_requests, request)
            return reply
        self._record(self.requests, request)
        try:
            return await self._play(request)
        except ScriptFailure as failure:
            return error(400, message=f"ScriptedModel: {failure}")

    def _side_reply(self, request: ModelRequest) -> Reply | None:
        if request.max_tokens == 1 and not self._count_probes:
            return Reply(blocks=(text("o"),), stop_reason="max_tokens")
        output = request.raw.get("output_config")
        if not request.tools and is_object(output) and "format" in output:
            return Reply(blocks=(text('{"title": "Scripted session"}'),))
        return None

    async def _play(self, request: ModelRequest) -> Reply:
        """Return the reply of the next turn. Raise ScriptFailure if there is none."""
        turn = next(self._turns, None)
        if turn is None:
            raise self._fail(
                f"the script has no turn for request {len(self.requests) - 1}: {request}"
            )
        try:
            answer = turn(request) if callable(turn) else turn
            reply = as_reply(await answer if inspect.isawaitable(answer) else answer)
        except Exception as problem:
            raise self._fail(f"the script failed: {problem!r}, for {request}", problem) from problem
        events = sum(1 for _ in sse.events(reply, "", ""))
        if reply.status == 200 and max(reply.hold_after, reply.cut_after or 0) > events:
            raise self._fail(f"hold_after or cut_after is beyond the {events} events of {reply}")
        return reply

    def _fail(self, what: str, cause: Exception | None = None) -> ScriptFailure:
        failure = ScriptFailure(what)
        failure.__cause__ = cause
        with self._lock:
            self._failures.append(failure)
            self._milestones.fail(failure)
        return failure

    def _record(self, where: list[Found], what: Found) -> None:
        with self._lock:
            where.append(what)
            self._milestones.changed()

    # ------------------------------------------------------------ sending

    async def _send(self, reply: Reply, request: ModelRequest, out: Responder) -> None:
        await asyncio.sleep(reply.delay)
        streamed = request.stream and reply.status == 200
        if reply.hold is not False and (reply.hold_after == 0 or not streamed):
            await self._hold(reply.hold, out)
        if reply.cut_after is not None and (reply.cut_after == 0 or not streamed):
            out.drop()
        elif streamed:
            await self._stream(reply, request, out)
        else:
            await self._whole(reply, request, out)

    async def _whole(self, reply: Reply, request: ModelRequest, out: Responder) -> None:
        status, payload = reply.status, sse.message(reply, self._new_id("msg_"), request.model)
        headers = self._headers(reply.headers)
        if reply.error is not None:
            if status == 200:  # there is no stream in which to send the error
                status = _STATUSES.get(str(reply.error["type"]), 500)
            payload = {"type": "error", "error": reply.error, "request_id": headers["request-id"]}
        await out.answer(status, msgspec.json.encode(payload), headers)

    async def _stream(self, reply: Reply, request: ModelRequest, out: Responder) -> None:
        events = list(sse.events(reply, self._new_id("msg_"), request.model))
        await out.begin({**self._headers(reply.headers), "content-type": "text/event-stream"})
        for sent, event in enumerate(events, 1):
            if event["type"] == "content_block_delta":
                await asyncio.sleep(reply.chunk_delay)
            await out.send(sse.encode(event))
            if reply.hold is not False and sent == reply.hold_after:
                await self._hold(reply.hold, out)
            if sent == reply.cut_after:
                out.drop()
                return
        await out.end()

    async def _hold(self, switch: bool | Switch, out: Responder) -> None:  # noqa: FBT001
        """Wait for the switch, or for a release.

        This polls, because the switch may belong to another thread or event loop, and the client
        may close the connection meanwhile.
        """
        with self._lock:
            self._holds += 1
            number = self._holds
            self._milestones.changed()
        while not (self._released >= number if isinstance(switch, bool) else switch.is_set()):
            if out.hung_up:
                raise ConnectionResetError
            await asyncio.sleep(_GLANCE)

    def _headers(self, extra: Mapping[str, str]) -> dict[str, str]:
        ours = {"content-type": "application/json", "request-id": self._new_id("req_")}
        return {**ours, **extra}

    def _numbered(self, reply: Reply) -> Reply:
        """Return the reply with an id for every tool call that has none."""
        return msgspec.structs.replace(reply, blocks=tuple(map(self._with_id, reply.blocks)))

    def _with_id(self, block: Block) -> Block:
        if block.content["type"] != "tool_use" or "id" in block.content:
            return block
        named: JsonObject = {"type": "tool_use", "id": self._new_id("toolu_"), **block.content}
        return msgspec.structs.replace(block, content=named)

    def _new_id(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}01{self._token}{self._made:012d}"


def _beside(request: ModelRequest) -> tuple[int, JsonObject]:
    """Return the answer to a request for another path than messages."""
    route = (request.method, request.path)
    if route == _COUNT_TOKENS:
        fault = authorized(request)
        if fault is not None:
            return 401, _error(401, fault)
        return 200, {"input_tokens": len(msgspec.json.encode(request.raw)) // 4}
    if request.path in _GREETINGS and request.method in ("GET", "HEAD"):
        return 200, {"message": "hello"}
    return 404, _error(404, f"{request.method} {request.path} is not part of a scripted model")


def _error(status: int, message: str) -> JsonObject:
    return {"type": "error", "error": {"type": ERROR_TYPES[status], "message": message}}


def _json_object(body: bytes) -> dict[str, object]:
    """Return the body as an object; empty if it is not an object, which the checks reject."""
    try:
        value: object = msgspec.json.decode(body or b"{}")
    except msgspec.DecodeError:
        return {}
    return value if is_object(value) else {}
