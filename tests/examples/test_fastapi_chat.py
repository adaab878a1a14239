"""The chat service of the examples, under uvicorn, on the real CLI, with an HTTP client.

The answers, the approvals and the end of the service run on every tested CLI, because the CLI takes
part in them. The rest is code of the service and runs on the newest CLI.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import pytest
from tests.examples.stage import Stage
from tests.support.processes import LIMIT, wait_until

from bridle.testing import ModelRequest, Reply, ScriptedModel, error, text, tool_use
from bridle.testing.pytest_plugin import named_clis
from bridle.testing.script import Answer

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHON = (sys.executable, "-W", "error")
PROGRAM = (*PYTHON, str(EXAMPLES / "fastapi_chat.py"))
OPTIONS = ("--app-dir", str(EXAMPLES), "--port", "0", "--no-access-log")
UVICORN = (*PYTHON, "-m", "uvicorn", *OPTIONS, "fastapi_chat:app")

HELD = Reply(blocks=(text("one two", chunks=["one ", "two"]),), hold=True, hold_after=4)

Event = dict[str, Any]


def by_prompt(request: ModelRequest) -> Answer:
    if request.last_tool_result is not None:
        return [text("Done.")]
    answers: dict[str, Answer] = {
        "greet": [text("Hello.")],
        "wait": HELD,
        "touch": [tool_use("Bash", command="touch made")],
        "fail": error(400),
    }
    return answers[request.last_user_text]


class Service:
    """A running service, and a client of it."""

    def __init__(self, client: httpx.Client, process: Popen[str], stage: Stage) -> None:
        self.client = client
        self.process = process
        self.stage = stage

    def start(self) -> Conversation:
        response = self.client.post("/conversations")
        assert response.status_code == 201, response.text
        return Conversation(self.client, f"/conversations/{response.json()['id']}")

    def wait_for_end(self) -> int:
        """Wait for the end of the service and of its CLIs. Return the exit code.

        Everything that it has written to stderr must be information.
        """
        code = self.process.wait(LIMIT)
        assert self.stage.clis() == []
        assert self.process.stderr is not None
        assert self.process.stdout is not None
        lines = self.process.stderr.read().splitlines()
        assert [line for line in lines if not line.startswith("INFO:")] == []
        assert self.process.stdout.read() == ""  # an access log would contain ids
        return code


class Conversation:
    def __init__(self, client: httpx.Client, path: str) -> None:
        self.client = client
        self.path = path

    @contextmanager
    def prompt(self, words: str) -> Iterator[Iterator[Event]]:
        """Send a prompt. Yield the events of the response while they arrive."""
        with self.client.stream("POST", f"{self.path}/prompts", json={"prompt": words}) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            yield (
                json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line
            )

    def answer(self, words: str) -> str:
        """Send a prompt and return the text of its outcome."""
        with self.prompt(words) as events:
            *_, last = events
        return str(last["outcome"]["text"])

    def post(self, path: str, body: object = None) -> int:
        return self.client.post(self.path + path, json=body).status_code


def until(kind: str, events: Iterator[Event]) -> Event:
    """Read up to the next event of a kind, and return it."""
    return next(event for event in events if event["type"] == kind)


@contextmanager
def serving(
    model: ScriptedModel,
    cli: Path,
    directory: Path,
    command: tuple[str, ...] = PROGRAM,
    **variables: str,
) -> Iterator[Service]:
    """Run the service on a free port. It must leave no process and no file behind."""
    stage = Stage(model, cli, directory)
    with stage.running(*command, PORT="0", **variables) as process:
        assert process.stderr is not None
        read: list[str] = []
        for line in process.stderr:
            read.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            pytest.fail("".join(read))
        with httpx.Client(base_url=found[0], timeout=LIMIT) as client:
            yield Service(client, process, stage)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(by_prompt) as model:
        yield model


@pytest.fixture
def newest_cli() -> Path:
    clis = named_clis()
    if not clis:
        pytest.skip("no CLI is installed: `make setup` installs it")
    return clis[0]


@pytest.fixture
def service(model: ScriptedModel, newest_cli: Path, tmp_path: Path) -> Iterator[Service]:
    with serving(model, newest_cli, tmp_path) as service:
        yield service


@pytest.fixture
def each_service(model: ScriptedModel, real_cli: Path, tmp_path: Path) -> Iterator[Service]:
    """The service, once with each CLI."""
    with serving(model, real_cli, tmp_path) as service:
        yield service


# ---------------------------------------------------------------- events


def test_text_arrives_while_the_model_writes(model: ScriptedModel, each_service: Service) -> None:
    service = each_service
    conversation = service.start()
    with conversation.prompt("wait") as events:
        assert until("text_delta", events)["text"] == "one "
        model.release()  # only now does the model write the rest
        *rest, last = events
    assert [event["text"] for event in rest if event["type"] == "text_delta"] == ["two"]
    assert last["type"] == "turn_ended"
    assert last["outcome"] | {"cost_usd": 0} == {
        "reason": "completed",
        "text": "one two",
        "cost_usd": 0,
    }
    assert last["outcome"]["cost_usd"] > 0

    assert conversation.answer("greet") == "Hello."
    assert len(service.stage.clis()) == 1  # one session for the whole conversation


@pytest.mark.longer
def test_a_prompt_that_names_a_file_does_not_attach_it(newest_cli: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    with ScriptedModel([[text("No.")]]) as model, serving(model, newest_cli, tmp_path) as service:
        assert service.start().answer(f"look at @{secret}") == "No."
        assert str(secret) in str(model.requests[0].messages)
        assert "top secret" not in str(model.requests[0].messages)


@pytest.mark.longer
def test_a_failed_turn_ends_with_its_reason(service: Service) -> None:
    with service.start().prompt("fail") as events:
        assert until("turn_ended", events)["outcome"]["reason"] == "api_error"


# ---------------------------------------------------------------- approvals


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("allow", [True, False])
def test_another_request_answers_an_approval(
    model: ScriptedModel, each_service: Service, allow: bool
) -> None:
    service = each_service
    made = service.stage.directory / "made"
    conversation = service.start()
    with conversation.prompt("touch") as events:
        asked = until("approval", events)
        assert (asked["tool"], asked["input"]) == ("Bash", {"command": "touch made"})
        assert not made.exists()
        assert conversation.post(f"/approvals/{asked['id']}", {"allow": allow}) == 204
        assert until("tool_ended", events)["is_error"] is not allow
        assert until("turn_ended", events)["outcome"]["reason"] == "completed"
    assert made.exists() is allow
    told = model.requests[-1].last_tool_result
    assert told is not None
    assert ("The user denied it." in told) is not allow
    # The approval has been answered.
    assert conversation.post(f"/approvals/{asked['id']}", {"allow": True}) == 404


@pytest.mark.longer
def test_an_approval_without_an_answer_is_denied(
    model: ScriptedModel, newest_cli: Path, tmp_path: Path
) -> None:
    with serving(model, newest_cli, tmp_path, APPROVAL_TIMEOUT="0.2") as service:
        conversation = service.start()
        with conversation.prompt("touch") as events:
            asked = until("approval", events)
            assert until("tool_ended", events)["is_error"]
            assert until("turn_ended", events)["outcome"]["reason"] == "completed"
        assert conversation.post(f"/approvals/{asked['id']}", {"allow": True}) == 404
        service.process.terminate()
        service.wait_for_end()
    assert "did not answer in time" in str(model.requests[-1].last_tool_result)
    assert not (tmp_path / "made").exists()


@pytest.mark.longer
def test_a_page_of_another_site_cannot_start_a_conversation(service: Service) -> None:
    client = service.client
    own = f"{client.base_url.scheme}://{client.base_url.netloc.decode()}"
    statuses = [
        client.post("/conversations", headers={"Origin": origin}).status_code
        for origin in ("https://example.com", "null", own)
    ]
    assert statuses == [403, 403, 201]


@pytest.mark.longer
def test_a_conversation_answers_only_its_own_approvals(service: Service) -> None:
    one, other = service.start(), service.start()
    with one.prompt("touch") as events:
        asked = until("approval", events)["id"]
        allow = {"allow": True}
        assert one.post("/approvals/unknown", allow) == 404
        assert other.post(f"/approvals/{asked}", allow) == 404
        assert Conversation(one.client, "/conversations/none").post("/interrupt") == 404
        assert not (service.stage.directory / "made").exists()
        assert one.post(f"/approvals/{asked}", {"allow": False}) == 204
        assert until("turn_ended", events)["outcome"]["reason"] == "completed"


# ---------------------------------------------------------------- the end of a turn


@pytest.mark.longer
def test_an_interrupt_ends_the_turn_and_the_conversation_goes_on(service: Service) -> None:
    conversation = service.start()
    assert conversation.post("/interrupt") == 204  # nothing to interrupt
    with conversation.prompt("wait") as events:
        until("text_delta", events)
        assert conversation.post("/prompts", {"prompt": "greet"}) == 409
        assert conversation.post("/interrupt") == 204
        assert until("turn_ended", events)["outcome"]["reason"] == "interrupted"
    assert conversation.answer("greet") == "Hello."


@pytest.mark.longer
@pytest.mark.parametrize(("words", "kind"), [("wait", "text_delta"), ("touch", "approval")])
def test_a_client_that_disconnects_interrupts_its_turn(
    service: Service, words: str, kind: str
) -> None:
    conversation = service.start()
    with conversation.prompt(words) as events:
        until(kind, events)
    # The turn would never end by itself, and a running turn means 409.
    body = {"prompt": "greet"}
    wait_until(lambda: conversation.post("/prompts", body) == 200)
    assert len(service.stage.clis()) == 1
    assert not (service.stage.directory / "made").exists()
    service.process.terminate()
    assert service.wait_for_end() == 0


# ---------------------------------------------------------------- conversations


@pytest.mark.longer
def test_a_new_conversation_replaces_an_idle_one_at_the_limit(
    model: ScriptedModel, newest_cli: Path, tmp_path: Path
) -> None:
    with serving(model, newest_cli, tmp_path, MAX_CONVERSATIONS="2") as service:
        first, second = service.start(), service.start()
        assert first.answer("greet") == "Hello."
        third = service.start()
        assert second.post("/interrupt") == 404  # the least recently used one was closed
        assert len(service.stage.clis()) == 2
        with first.prompt("wait") as one, third.prompt("wait") as other:
            until("text_delta", one)
            until("text_delta", other)
            assert service.client.post("/conversations").status_code == 503
        assert len(service.stage.clis()) == 2


@pytest.mark.longer
def test_a_conversation_whose_cli_died_has_ended(service: Service) -> None:
    conversation = service.start()
    with conversation.prompt("wait") as events:
        until("text_delta", events)
        for pid in service.stage.clis():
            os.kill(pid, signal.SIGKILL)
        assert until("turn_ended", events)["outcome"]["reason"] == "cli_exited"
    wait_until(lambda: conversation.post("/interrupt") == 404)
    assert service.start().answer("greet") == "Hello."


def test_a_session_that_does_not_start_is_an_error_without_details(
    model: ScriptedModel, tmp_path: Path
) -> None:
    with serving(model, tmp_path / "missing", tmp_path) as service:
        response = service.client.post("/conversations")
        assert (response.status_code, response.json()) == (503, {"detail": "CliNotFoundError"})


@pytest.mark.longer
def test_requests_for_another_host_are_rejected(service: Service) -> None:
    response = service.client.post("/conversations", headers={"host": "rebound.example"})
    assert response.status_code == 400


# ---------------------------------------------------------------- the end of the service


@pytest.mark.longer
@pytest.mark.parametrize(
    ("command", "sent", "code", "words", "kind"),
    [
        (PROGRAM, signal.SIGTERM, 0, "wait", "text_delta"),
        (PROGRAM, signal.SIGINT, 0, "touch", "approval"),
        # uvicorn ends itself by the signal.
        (UVICORN, signal.SIGTERM, -signal.SIGTERM, "wait", "text_delta"),
        (UVICORN, signal.SIGTERM, -signal.SIGTERM, "touch", "approval"),
    ],
    ids=["program-text", "program-approval", "uvicorn-text", "uvicorn-approval"],
)
def test_clients_get_the_outcome_before_the_service_ends(
    model: ScriptedModel,
    real_cli: Path,
    tmp_path: Path,
    command: tuple[str, ...],
    sent: signal.Signals,
    code: int,
    words: str,
    kind: str,
) -> None:
    with serving(model, real_cli, tmp_path, command) as service:
        service.start()  # an idle conversation
        with service.start().prompt(words) as events:
            until(kind, events)
            assert len(service.stage.clis()) == 2
            service.process.send_signal(sent)
            # A CLI that does not answer within seconds is terminated: then it is "stopped".
            assert until("turn_ended", events)["outcome"]["reason"] in {"interrupted", "stopped"}
            assert list(events) == []
        assert service.wait_for_end() == code
    assert not (tmp_path / "made").exists()
