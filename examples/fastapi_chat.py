"""A chat service: events stream to the client, and the client approves tool calls.

Start a conversation, then send prompts. Each response is a stream of server-sent events. An event
`approval` waits for the answer in another request; without one, the call is denied. A client that
disconnects interrupts its turn. On SIGTERM and Ctrl-C, clients get the outcome before the end.

There is no login: a client that knows the id of a conversation controls it. Add one before you let
anybody else connect.

$ pip install fastapi uvicorn
$ python examples/fastapi_chat.py
$ curl -X POST localhost:8000/conversations
$ curl -N localhost:8000/conversations/ID/prompts --json '{"prompt": "Create a file."}'
$ curl localhost:8000/conversations/ID/approvals/APPROVAL --json '{"allow": true}'
$ curl -X POST localhost:8000/conversations/ID/interrupt
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

import bridle
from bridle import events

APPROVAL_TIMEOUT = float(os.environ.get("APPROVAL_TIMEOUT", "120"))  # seconds
MAX_CONVERSATIONS = int(os.environ.get("MAX_CONVERSATIONS", "8"))  # each has a CLI process

# ---------------------------------------------------------------- conversations


class Approval(msgspec.Struct, tag_field="type", tag="approval"):
    """An event: the client is asked whether a tool may run."""

    id: str
    tool: str
    input: dict[str, Any]


class Stream:
    """The events for the client of one prompt, and its open approvals."""

    turn: bridle.Turn

    def __init__(self) -> None:
        # Short: if the client reads slowly, unread events stay in the session, which limits them.
        self.queue: asyncio.Queue[events.TurnEvent | Approval | None] = asyncio.Queue(16)
        self.approvals: dict[str, asyncio.Future[bool]] = {}

    async def copy_events(self) -> None:
        try:
            with suppress(bridle.ConsumerTooSlow):
                async for event in self.turn.events():
                    await self.queue.put(event)
            await self.queue.put(None)
        finally:  # the client reads no more: deny what is still open, for background tasks
            for answer in self.approvals.values():
                if not answer.done():
                    answer.set_result(False)

    async def ask(self, tool: str, given: dict[str, Any]) -> bool:
        """Ask the client. Raises TimeoutError if it does not answer."""
        approval = Approval(uuid4().hex, tool, given)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.approvals[approval.id] = answer
        try:
            async with asyncio.timeout(APPROVAL_TIMEOUT):
                await self.queue.put(approval)
                return await answer
        finally:
            del self.approvals[approval.id]


class Conversation:
    def __init__(self, session: bridle.Session) -> None:
        self.session = session
        self.sending = asyncio.Lock()
        self.stream: Stream | None = None  # of the newest prompt

    @property
    def is_idle(self) -> bool:
        return not self.sending.locked() and (self.stream is None or self.stream.turn.done)

    async def send(self, prompt: str) -> Stream:
        async with self.sending:
            stream = Stream()
            stream.turn = await self.session.send_user_message(prompt, deps=stream)
            self.stream = stream
        return stream

    async def end(self, stream: Stream) -> None:
        """End the turn of a stream whose client has gone. Do nothing if it has ended."""
        try:
            await stream.turn.interrupt()
        except bridle.ControlError:
            await self.session.stop()
        await stream.turn


async def ask_client(request: bridle.CanUseToolContext) -> bridle.PermissionResult:
    stream: Stream = request.deps  # of the prompt that the tool call belongs to
    if stream.turn.done:  # a background task asks, and the client has stopped reading
        return bridle.Deny("No client is connected.")
    try:
        allowed = await stream.ask(request.tool_name, request.tool_input)
    except TimeoutError:
        return bridle.Deny("The user did not answer in time.")
    return bridle.AllowOnce() if allowed else bridle.Deny("The user denied it.")


agent = bridle.Agent(
    tools=["Bash", "Read", "Write"],
    setting_sources=[],  # the rules of your own settings are not for clients
    strict_mcp_config=True,
    verbatim_prompts=True,  # a prompt that names @/etc/passwd does not attach that file
    include_partial_messages=True,
    on_can_use_tool=ask_client,
    limits=bridle.Limits(total=600.0, usd=1.00),
)
conversations: dict[str, Conversation] = {}  # the least recently used is the first
starting = asyncio.Lock()


# ---------------------------------------------------------------- the end of the service


@contextmanager
def before_shutdown(callback: Callable[[], object]) -> Iterator[None]:
    """Call `callback` on SIGINT and SIGTERM, in addition to the server's own handler."""
    if threading.current_thread() is not threading.main_thread():  # a test client
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in handlers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


async def close_conversations() -> None:
    """Close all sessions. Their turns end, and clients get the outcome."""
    await asyncio.gather(*(one.session.aclose() for one in conversations.values()))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    # The server waits for open streams before it ends the lifespan, so that would be too late to
    # end the turns.
    closing: list[asyncio.Task[None]] = []
    with before_shutdown(lambda: closing.append(asyncio.create_task(close_conversations()))):
        yield
    await asyncio.gather(*closing, close_conversations())


async def refuse_other_sites(request: Request) -> None:
    """A page of another site could send requests with the user's browser."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "Requests from other sites are not allowed.")


app = FastAPI(lifespan=lifespan, dependencies=[Depends(refuse_other_sites)])
# Web pages of other sites must not reach a service on this machine by DNS rebinding.
app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1"])

# ---------------------------------------------------------------- requests


class Prompt(BaseModel):
    prompt: str


class Answer(BaseModel):
    allow: bool


class TurnResponse(StreamingResponse):
    """The events of a turn. The turn ends with the response: it has ended, or the client left."""

    def __init__(self, conversation: Conversation, stream: Stream) -> None:
        super().__init__(self.lines(stream), media_type="text/event-stream")
        self.conversation, self.stream = conversation, stream

    async def lines(self, stream: Stream) -> AsyncIterator[bytes]:
        while event := await stream.queue.get():
            yield b"data: " + encode(event) + b"\n\n"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        copying = asyncio.create_task(self.stream.copy_events())
        try:
            await super().__call__(scope, receive, send)
        finally:
            copying.cancel()
            await self.conversation.end(self.stream)


def encode(event: events.TurnEvent | Approval) -> bytes:
    if isinstance(event, events.TurnEnded):
        # The whole outcome also has details of the process, which are not for clients.
        whole = event.outcome
        outcome = {"reason": whole.reason, "text": whole.text, "cost_usd": whole.cost_usd}
        return msgspec.json.encode({"type": "turn_ended", "outcome": outcome})
    return msgspec.json.encode(event)


async def find(conversation_id: str) -> Conversation:
    conversation = conversations.pop(conversation_id, None)
    if conversation is None or not conversation.session.alive:
        raise HTTPException(404, "There is no such conversation, or it has ended.")
    conversations[conversation_id] = conversation  # now it is the last
    return conversation


Found = Annotated[Conversation, Depends(find)]


@app.post("/conversations", status_code=201)
async def start_conversation() -> dict[str, str]:
    async with starting:
        if len(conversations) >= MAX_CONVERSATIONS:
            idle = [key for key, one in conversations.items() if one.is_idle]
            if not idle:
                raise HTTPException(503, "Too many conversations.")
            await conversations.pop(idle[0]).session.aclose()
        key = uuid4().hex
        conversations[key] = Conversation(await agent.session())
    return {"id": key}


@app.post("/conversations/{conversation_id}/prompts")
async def send_prompt(conversation: Found, body: Prompt) -> TurnResponse:
    if not conversation.is_idle:
        raise HTTPException(409, "A turn is running.")
    return TurnResponse(conversation, await conversation.send(body.prompt))


@app.post("/conversations/{conversation_id}/approvals/{approval_id}", status_code=204)
async def answer_approval(approval_id: str, conversation: Found, body: Answer) -> None:
    stream = conversation.stream
    answer = stream.approvals.get(approval_id) if stream else None
    if answer is None or answer.done():
        raise HTTPException(404, "There is no such approval, or it has been answered.")
    answer.set_result(body.allow)


@app.post("/conversations/{conversation_id}/interrupt", status_code=204)
async def interrupt(conversation: Found) -> None:
    if conversation.stream:
        await conversation.stream.turn.interrupt()


@app.exception_handler(bridle.BridleError)
async def report(_: Request, error: bridle.BridleError) -> JSONResponse:
    logging.getLogger("uvicorn.error").error("%s", error)
    return JSONResponse({"detail": type(error).__name__}, 503)


if __name__ == "__main__":
    import uvicorn

    # uvicorn sends itself SIGTERM again after the shutdown. Ignore that one, for exit code 0.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    port = int(os.environ.get("PORT", "8000"))
    # No access log: the paths contain the ids of the conversations.
    uvicorn.run(app, port=port, access_log=False, timeout_graceful_shutdown=15)
