"""A web service: one endpoint returns the outcome, another streams the text while it is written.

If a client disconnects, its CLI is shut down. The same happens when the service ends.

$ pip install fastapi uvicorn
$ python examples/fastapi_app.py
$ curl localhost:8000/ask -H 'content-type: application/json' -d '{"prompt": "What is 2 + 2?"}'
$ curl -N localhost:8000/stream -H 'content-type: application/json' -d '{"prompt": "A story!"}'
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import bridle

# The prompts come from untrusted users, so allow no tools and load no settings files.
LIMITS = bridle.Limits(total=120.0, usd=0.10)
agent = bridle.Agent(tools=[], setting_sources=[], include_partial_messages=True, limits=LIMITS)

sessions: set[bridle.Session] = set()


class Prompt(BaseModel):
    prompt: str


class Answer(BaseModel, from_attributes=True):
    reason: bridle.OutcomeReason
    detail: str
    text: str
    cost_usd: float | None


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await asyncio.gather(*(session.aclose() for session in sessions))


app = FastAPI(lifespan=lifespan)


@asynccontextmanager
async def session_for(request: Request) -> AsyncIterator[bridle.Session]:
    """Open a session and close it when the client disconnects."""

    async def stop_when_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        await session.stop()

    async with agent.session() as session:
        sessions.add(session)
        watching = asyncio.create_task(stop_when_gone())
        try:
            yield session
        finally:
            watching.cancel()
            sessions.discard(session)


@app.post("/ask")
async def ask(body: Prompt, request: Request, response: Response) -> Answer:
    async with session_for(request) as session:
        turn = await session.send_user_message(body.prompt)
        outcome = await turn
    response.status_code = 200 if outcome.ok else 502
    return Answer.model_validate(outcome)


@app.post("/stream")
async def stream(body: Prompt, request: Request) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        async with session_for(request) as session:
            turn = await session.send_user_message(body.prompt)
            async for delta in turn.text_stream():
                yield f"data: {json.dumps(delta)}\n\n"
            answer = Answer.model_validate(await turn)
            yield f"event: outcome\ndata: {answer.model_dump_json()}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=8000, timeout_graceful_shutdown=5)
