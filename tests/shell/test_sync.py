"""The blocking door: what is its own. That it does what the other door does is shown elsewhere."""

from __future__ import annotations

import contextvars
import gc
import itertools
import linecache
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.support.processes import LIMIT, is_alive, wait_until

import bridle
from bridle import (
    Allow,
    AssistantMessage,
    BidirOptions,
    CliOptions,
    ConsumerTooSlow,
    OptionsError,
    OutcomeReason,
    ResultMessage,
    SdkOptions,
    SessionStopped,
    ToolContext,
    ToolServer,
    sync,
)
from bridle.sync._portal import Portal
from bridle.testing import FakeCli


def options(cli: FakeCli, **more: Any) -> CliOptions:
    return CliOptions(cli_path=cli.path, **more)


@pytest.fixture
def cli() -> Iterator[FakeCli]:
    with FakeCli.auto() as fake:
        yield fake


# ---------------------------------------------------------------- who may call


def by_run(cli: FakeCli, prompt: str) -> str:
    return sync.run(prompt, cli=options(cli)).text


def by_query(cli: FakeCli, prompt: str) -> str:
    messages = sync.query(prompt, options(cli))
    return "".join(
        message.result or "" for message in messages if isinstance(message, ResultMessage)
    )


def by_session(cli: FakeCli, prompt: str) -> str:
    with sync.start_session(options(cli)) as session:
        return session.send_user_message(prompt).outcome().text


EVERY_WAY = pytest.mark.parametrize("ask", [by_run, by_query, by_session])
Ask = Callable[[FakeCli, str], str]


@EVERY_WAY
async def test_it_works_while_an_event_loop_runs_in_the_thread(cli: FakeCli, ask: Ask) -> None:
    """C50: as in a notebook: the calling thread blocks, and with it the loop it runs."""
    assert ask(cli, "hello") == "You said: hello"


@EVERY_WAY
def test_eight_threads_ask_at_once(cli: FakeCli, ask: Ask) -> None:
    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda number: ask(cli, f"{number}"), range(8)))
    assert told == [f"You said: {number}" for number in range(8)]


def test_eight_threads_share_a_session(cli: FakeCli) -> None:
    with sync.start_session(options(cli)) as session, ThreadPoolExecutor(8) as threads:
        pings = list(threads.map(lambda _: session.ping(), range(40)))
        turns = list(threads.map(lambda n: session.send_user_message(f"{n}"), range(8)))
        outcomes = list(threads.map(lambda turn: turn.outcome(), turns))
    assert all(ping > 0.0 for ping in pings)
    assert all(outcome.ok for outcome in outcomes)


def test_a_session_is_at_home_in_one_background_thread(cli: FakeCli) -> None:
    with sync.start_session(options(cli)), sync.start_session(options(cli)):
        names = [thread.name for thread in threading.enumerate()]
    assert names.count("bridle-sync") == 1


@EVERY_WAY
def test_a_trio_program_comes_in_through_a_thread(cli: FakeCli, ask: Ask) -> None:
    trio = pytest.importorskip("trio", reason="trio is not installed")

    async def main() -> str:
        return str(await trio.to_thread.run_sync(ask, cli, "hello"))

    assert trio.run(main) == "You said: hello"


# ---------------------------------------------------------------- callbacks


def test_a_plain_callback_may_use_the_session(cli: FakeCli) -> None:
    """It has a thread of its own, so there is nothing to deadlock with."""

    def interrupt(_: object) -> None:
        session.interrupt()

    bidir = BidirOptions(on_pre_tool_use=interrupt)
    with sync.start_session(options(cli), bidir=bidir) as session:
        outcome = session.send_user_message("BASH ls").outcome()
        assert outcome.reason is OutcomeReason.INTERRUPTED
        assert session.send_user_message("again").outcome().ok


@bridle.tool
def interrupting(ctx: ToolContext) -> str:
    """Has had enough."""
    ctx.session.interrupt()
    return "too late"


IMPATIENT = BidirOptions(
    mcp_servers={"self": ToolServer([interrupting])}, on_can_use_tool=lambda _: Allow()
)
CALL = "CALL mcp__self__interrupting"


def test_a_plain_tool_may_use_its_session(cli: FakeCli) -> None:
    """It gets the blocking one, in a thread where that can block: its own."""
    with sync.start_session(options(cli), bidir=IMPATIENT) as session:
        assert session.send_user_message(CALL).outcome().reason is OutcomeReason.INTERRUPTED
        assert session.send_user_message("again").outcome().ok
    outcome = sync.run(CALL, cli=options(cli), bidir=IMPATIENT)
    assert outcome.reason is OutcomeReason.INTERRUPTED


def test_an_async_callback_that_would_block_the_loop_is_reported(cli: FakeCli) -> None:
    caught: list[Exception] = []

    async def judge(_: object) -> Allow:
        for blocking in (session.ping, turns[0].outcome, messages.__next__):
            try:
                blocking()
            except RuntimeError as error:
                caught.append(error)
        messages.close()
        return Allow()

    with sync.start_session(options(cli), bidir=BidirOptions(on_can_use_tool=judge)) as session:
        messages = session.messages()
        turns = [session.send_user_message("SAY hello")]
        turns[0].outcome()
        assert session.send_user_message("BASH ls").outcome().ok
    assert [str(error).partition(" was called")[0] for error in caught] == [
        "bridle.sync: ping",
        "bridle.sync: outcome",
        "bridle.sync: messages",
    ]
    assert "Make the callback a plain function" in str(caught[0])


def test_callbacks_see_the_context_of_the_starter_of_the_session(cli: FakeCli) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")
    seen: list[str] = []

    def plain(_: object) -> None:
        seen.append(f"plain {user.get()}")

    async def judge(_: object) -> Allow:
        seen.append(f"async {user.get()}")
        return Allow()

    def talk() -> None:
        user.set("ann")
        bidir = BidirOptions(on_pre_tool_use=plain, on_can_use_tool=judge)
        with sync.start_session(options(cli), bidir=bidir) as session:
            session.send_user_message("BASH ls").outcome()

    contextvars.copy_context().run(talk)
    assert seen == ["plain ann", "async ann"]


# ---------------------------------------------------------------- Ctrl-C


class Impatience(BaseException):
    """What the signal handler of these tests raises; KeyboardInterrupt would end the test run."""


@contextmanager
def broken_off(is_time: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Have a signal handler raise in this thread, the main one, once it waits and it is time."""
    main = threading.get_ident()
    is_over = threading.Event()

    def is_waiting() -> bool:
        frame = sys._current_frames()[main]
        here = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        return is_over.is_set() or bool(
            "/bridle/sync/" in frame.f_code.co_filename
            and re.search(r"\.get(\(\)$|, \(True)", here.strip())
        )

    def interrupt() -> None:
        wait_until(lambda: is_over.is_set() or is_time())
        wait_until(is_waiting)
        signal.pthread_kill(main, signal.SIGUSR1)

    def raise_it(*_: object) -> None:
        raise Impatience

    before = signal.signal(signal.SIGUSR1, raise_it)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(Impatience):
            yield
    finally:
        is_over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "wait",
    [lambda turn: turn.outcome(), list, lambda turn: list(turn.text_stream())],
    ids=["outcome", "messages", "text"],
)
def test_breaking_off_the_wait_for_a_turn_interrupts_it(
    wait: Callable[[sync.Turn], object], cli: FakeCli
) -> None:
    with sync.start_session(options(cli)) as session:
        turn = session.send_user_message("SLOW")
        with broken_off():
            wait(turn)
        assert turn.outcome().reason is OutcomeReason.INTERRUPTED
        assert session.send_user_message("again").outcome().text == "You said: again"


def test_breaking_off_the_wait_for_a_message_loses_none(cli: FakeCli) -> None:
    with sync.start_session(options(cli)) as session:
        messages = session.messages()
        with broken_off():
            next(messages)
        assert session.send_user_message("hello").outcome().ok
        assert any(isinstance(message, ResultMessage) for message in messages)


def test_breaking_off_an_operation_withdraws_it() -> None:
    script = FakeCli().expect_initialize().expect_request("mcp_status").ignore().turn()
    with script as cli, sync.start_session(options(cli)) as session:
        with broken_off(lambda: len(cli.received) > 1):  # the CLI has read the request
            session.ping()
        assert session.send_user_message("go").outcome().ok


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "during the handshake"])
def test_breaking_off_a_start_stops_it(is_late: bool) -> None:
    with FakeCli().silence() as cli:
        session = sync.Session(options(cli))
        with broken_off(lambda: not is_late or bool(cli.received)):
            session.connect()
        session.stop()
        assert session.lifecycle == "stopped"
        assert (session.pid is None) <= (not is_late)
        assert session.pid is None or not is_alive(session.pid)


def test_breaking_off_a_run_ends_the_cli(cli: FakeCli) -> None:
    with broken_off(lambda: any(line["type"] == "user" for line in cli.received)):
        sync.run("SLOW", cli=options(cli))
    pid = cli.pid
    assert pid is not None
    wait_until(lambda: not is_alive(pid))


def test_breaking_off_the_end_does_not_stop_it() -> None:
    with FakeCli().ignore_sigterm().expect_initialize().silence() as cli:
        session = sync.start_session(options(cli))
        with broken_off():
            session.stop()
        assert session.pid is not None
        os.kill(session.pid, signal.SIGKILL)
        session.stop()
        assert session.lifecycle == "stopped"


# ---------------------------------------------------------------- iterating


def unread(session: sync.Session) -> list[object]:
    """Return the queues of a session's subscriptions to messages."""
    subscriptions = session._session._actor.subscriptions
    early_events = subscriptions._first_events
    readers = [reader for reader, each in subscriptions._queues.items() if each is not early_events]
    return [reader for reader in readers if isinstance(reader, int)]


def test_leaving_an_iteration_ends_the_subscription(cli: FakeCli) -> None:
    with sync.start_session(options(cli)) as session:
        turn = session.send_user_message("hello")
        for _ in session.messages():
            break
        gc.collect()
        wait_until(lambda: unread(session) == [])
        with session.messages() as messages:
            wait_until(lambda: len(unread(session)) == 1)
        wait_until(lambda: unread(session) == [])
        assert list(messages) == []
        pieces = session.text_stream()
        pieces.close()
        assert list(pieces) == []
        assert turn.outcome().ok


def test_a_turn_can_be_read_again_after_it_was_left(cli: FakeCli) -> None:
    with sync.start_session(options(cli)) as session:
        turn = session.send_user_message("SLOW")
        for _ in turn:
            break
        rest = iter(turn)
        session.interrupt()
        assert isinstance(list(rest)[-1], ResultMessage)


@pytest.mark.parametrize("when", ["running", "over"])
def test_a_loop_over_a_turn_that_is_left_early_loses_nothing(cli: FakeCli, when: str) -> None:
    """Not even what was read ahead."""
    with sync.start_session(options(cli)) as session:
        turn = session.send_user_message("SAY some words")
        whole = session.messages()
        if when == "over":
            wait_until(lambda: turn.done)
        read: list[object] = []
        while not read or not isinstance(read[-1], ResultMessage):
            for message in turn:
                read.append(message)
                break
        assert read == list(itertools.islice(whole, len(read)))


def test_a_loop_over_a_turn_takes_over_from_the_one_before_with_all_it_has_read_ahead(
    cli: FakeCli,
) -> None:
    with sync.start_session(options(cli)) as session:
        turn = session.send_user_message("SAY mine")
        whole = session.messages()
        wait_until(lambda: turn.done)
        first = iter(turn)
        read = [next(first), *turn]
        assert read == list(itertools.islice(whole, len(read)))
        assert isinstance(read[-1], ResultMessage)
        with pytest.raises(RuntimeError, match="Another loop"):
            next(first)
        last = iter(turn)
        assert [list(last), list(turn), list(last)] == [[], [], []]


def test_taking_over_while_the_outcome_is_awaited_lets_nothing_go(cli: FakeCli) -> None:
    """There is no moment in between at which nobody iterates."""
    given = options(cli, include_partial_messages=True)
    with sync.start_session(given) as session, ThreadPoolExecutor(1) as threads:
        whole = session.messages()
        turn = session.send_user_message("STREAM 2000")
        loops = [iter(turn)]
        outcome = threads.submit(turn.outcome)
        read: list[object] = []
        while not outcome.done():
            loops.append(iter(turn))
            read.append(next(loops[-1]))
        read += turn
        assert read == list(itertools.islice(whole, len(read)))
        assert isinstance(read[-1], ResultMessage)


def test_a_loop_that_was_broken_off_can_be_taken_up_where_it_was(cli: FakeCli) -> None:
    with sync.start_session(options(cli)) as session:
        turn = session.send_user_message("SLOW")
        whole = session.messages()
        read: list[object] = []
        try:
            with broken_off(lambda: bool(read)):
                for message in turn:
                    read.append(message)
        finally:
            read += turn
        assert read == list(itertools.islice(whole, len(read)))
        assert isinstance(read[-1], ResultMessage)


def test_closing_a_subscription_wakes_its_waiter(cli: FakeCli) -> None:
    with sync.start_session(options(cli)) as session, ThreadPoolExecutor(2) as threads:
        messages = session.messages()
        waiting = [threads.submit(list[object], messages) for _ in range(2)]
        messages.close()
        assert [one.result(LIMIT) for one in waiting] == [[], []]


def test_many_messages_come_whole_and_in_order() -> None:
    """More than are read ahead, by number and by size, to a thread that starts late."""
    script = FakeCli().expect_initialize().start_turn()
    for size, count in ((0, 5000), (200_000, 12)):
        script = script.emit(*(assistant(f"{number}{' ' * size}") for number in range(count)))
    with script.result() as cli, sync.start_session(options(cli)) as session:
        turn = session.send_user_message("go")
        messages = iter(turn)
        wait_until(lambda: turn.done)
        texts = [message.text for message in messages if isinstance(message, AssistantMessage)]
        assert [int(text) for text in texts] == [*range(5000), *range(12)]


def assistant(text: str) -> dict[str, object]:
    """A line of the model's."""
    content = [{"type": "text", "text": text}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": content}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, "uuid": text[:36]}


def test_what_is_read_ahead_is_bounded_and_the_rest_is_unread() -> None:
    """A thread that never reads is a slow consumer, as a task would be."""
    script = FakeCli().expect_initialize().start_turn()
    script = script.emit(assistant("x" * 100_000)).repeat(60).result()
    sdk = SdkOptions(max_unread_bytes=500_000)
    with script as cli, sync.start_session(options(cli), sdk) as session:
        messages = session.messages()
        outcome = session.send_user_message("go").outcome()
        assert outcome.reason is OutcomeReason.STOPPED or not outcome.ok
        kept: list[object] = []
        with pytest.raises(ConsumerTooSlow):
            kept.extend(messages)
        assert 10 <= len(kept) < 60
        with pytest.raises(ConsumerTooSlow):
            next(messages)


def test_a_query_is_read_to_its_end(cli: FakeCli) -> None:
    with sync.query("hello", options(cli)) as stream:
        [result] = [message for message in stream if isinstance(message, ResultMessage)]
    assert (result.result, stream.warnings) == ("You said: hello", ())
    assert stream.pid is not None


def test_a_query_that_is_refused_starts_nothing() -> None:
    with pytest.raises(OptionsError):
        sync.query(5)  # type: ignore[arg-type]  # that is what is refused


def test_a_plain_iterator_of_prompts_has_threads_of_its_own(cli: FakeCli) -> None:
    """It may block, and may use the blocking door."""

    def prompts() -> Iterator[str]:
        with FakeCli.auto() as another, sync.start_session(options(another)) as session:
            yield session.send_user_message("hello").outcome().text
        yield threading.current_thread().name

    list(sync.query(prompts(), options(cli)))
    sent = [line["message"]["content"] for line in cli.received if line["type"] == "user"]
    assert sent == ["You said: hello", "bridle-callback"]


def test_leaving_a_stream_waits_until_its_cli_has_ended(cli: FakeCli) -> None:
    with sync.query("SLOW", options(cli)) as stream:
        next(stream)
        pid = stream.pid
        assert pid is not None
        assert is_alive(pid)
    assert not is_alive(pid)
    assert list(stream) == []
    stream.close()


# ---------------------------------------------------------------- the end


def test_aclose_is_close_under_the_name_of_the_async_session(cli: FakeCli) -> None:
    session = sync.start_session(options(cli))
    messages, text = session.messages(), session.text_stream()
    pid = session.pid
    assert pid is not None
    messages.aclose()
    text.aclose()
    assert list(messages) == []
    assert session.alive
    session.aclose()
    assert session.lifecycle == "stopped"
    assert not is_alive(pid)
    stream = sync.query("hello", options(cli))
    stream.aclose()
    assert list(stream) == []


def test_a_session_that_is_dropped_is_stopped(cli: FakeCli) -> None:
    session = sync.start_session(options(cli), prompt="SLOW")
    turn = session.send_user_message("hello")
    pid = session.pid
    assert pid is not None
    del session
    gc.collect()
    assert turn.outcome().reason is OutcomeReason.STOPPED
    wait_until(lambda: not is_alive(pid))


def test_a_prompt_that_cannot_be_sent_starts_nothing(cli: FakeCli) -> None:
    with pytest.raises(OptionsError):
        sync.start_session(options(cli), prompt=[{"type": object()}])
    assert cli.runs == []


def test_the_representations_tell_which_door_it_is(cli: FakeCli) -> None:
    with sync.start_session(options(cli)) as session:
        turn = session.send_user_message("hello")
        turn.outcome()
        assert repr(session) == f"sync.Session({session.id}, running, pid={session.pid})"
        assert repr(turn).startswith(f"sync.Turn('{turn.uuid}', Outcome(")


def test_a_portal_that_is_over_refuses_everything() -> None:
    home = Portal()
    ran: list[str] = []

    async def never() -> None:
        ran.append("on a loop that is over")

    home.close()
    for is_over in (True, False):  # False: as it was for whoever looked just before
        home.is_over = is_over
        home.start(never)
        with pytest.raises(SessionStopped, match="late"):
            home.call("late", never)
    assert ran == []


# ---------------------------------------------------------------- whole programs

STRICT = ("-X", "dev", "-W", "error", "-W", "ignore:This process:DeprecationWarning")

PROGRAM = """
import os, signal, sys, threading, time
from bridle import Allow, BidirOptions, CliOptions, SessionStopped, sync

options = CliOptions(cli_path=sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits none
"""


def program(cli: FakeCli, text: str) -> subprocess.Popen[str]:
    """A program of its own, with every warning an error."""
    return subprocess.Popen(
        [sys.executable, *STRICT, "-c", PROGRAM + textwrap.dedent(text), cli.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ends_well(process: subprocess.Popen[str], exit_code: int = 0) -> list[str]:
    """What a program printed; it must leave in time and complain of nothing."""
    try:
        output, errors = process.communicate(timeout=LIMIT)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # The loop of the development mode remarks on a machine that is slow.
    complaints = [line for line in errors.splitlines() if not line.startswith("Executing <")]
    assert (complaints, process.returncode) == ([], exit_code)
    return output.split()


@pytest.mark.longer(after=2)
@pytest.mark.parametrize(
    "leave",
    [
        "pass",
        "session.send_user_message('SLOW')",
        "turn = iter(session.send_user_message('SLOW')); next(turn)",
        "messages = session.messages(); "
        "threading.Thread(target=list, args=(messages,), daemon=True).start()",
        "threading.Thread(target=session.send_user_message('SLOW').outcome, daemon=True).start()",
        "session.close()",
        "del session",
    ],
    ids=["idle", "in a turn", "iterating", "a thread reads", "a thread waits", "closed", "dropped"],
)
def test_the_interpreter_exits_and_leaves_nothing(leave: str, cli: FakeCli) -> None:
    process = program(
        cli,
        f"""
        session = sync.start_session(options)
        print(session.pid)
        {leave}
        """,
    )
    (pid,) = ends_well(process)
    assert not is_alive(int(pid))


def test_an_async_callback_that_would_end_the_program_ends_nothing_but_itself(
    cli: FakeCli,
) -> None:
    process = program(
        cli,
        """
        import logging
        from bridle import ToolServer, tool
        logging.disable()

        @tool
        async def leave(n: int) -> int:
            \"\"\"Leave.\"\"\"
            sys.exit(n)

        bidir = BidirOptions(
            mcp_servers={"c": ToolServer([leave])}, on_can_use_tool=lambda _: Allow()
        )
        for _ in range(3):
            outcome = sync.run('CALL mcp__c__leave {"n": 3}', cli=options, bidir=bidir)
            print(outcome.reason)
        """,
    )
    assert ends_well(process) == ["completed"] * 3


def test_an_async_callback_that_cancels_every_task_does_not_end_the_blocking_door(
    cli: FakeCli,
) -> None:
    process = program(
        cli,
        """
        import asyncio, logging
        logging.disable()

        async def cancel_all(_):
            for task in asyncio.all_tasks():
                task.cancel()
            asyncio.get_running_loop().stop()
            return Allow()

        bidir = BidirOptions(on_can_use_tool=cancel_all)
        try:
            sync.run("BASH ls", cli=options, bidir=bidir)
        except BaseException as error:
            print(type(error).__name__)
        print(sync.run("SAY again", cli=options).text)
        """,
    )
    assert ends_well(process) == ["CancelledError", "again"]


def leaving() -> Iterator[str]:
    yield "hello"
    sys.exit(5)


async def leaving_async() -> AsyncIterator[str]:
    yield "hello"
    sys.exit(5)


class Exhausted:
    """Has nothing to give, and says so in the wrong place."""

    def __iter__(self) -> Iterator[str]:
        raise StopIteration


@pytest.mark.parametrize(
    ("make", "error"),
    [(leaving, SystemExit), (leaving_async, SystemExit), (Exhausted, RuntimeError)],
    ids=["a generator", "an async generator", "no iterator"],
)
def test_what_prompts_raise_reaches_their_thread_and_the_door_stays_open(
    make: Callable[[], Any], error: type[BaseException], cli: FakeCli
) -> None:
    with pytest.raises(error):
        list(sync.query(make(), options(cli)))
    assert sync.run("hello", cli=options(cli)).ok


def test_importing_the_door_starts_nothing(cli: FakeCli) -> None:
    assert ends_well(program(cli, "print(threading.active_count())")) == ["1"]


def test_ctrl_c_leaves_a_program_at_once(cli: FakeCli) -> None:
    process = program(
        cli,
        """
        session = sync.start_session(options)
        try:
            with session:
                for message in session.send_user_message("SLOW"):
                    print(session.pid, flush=True)
        except KeyboardInterrupt:
            print(session.lifecycle)
            sys.exit(130)
        """,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    assert ends_well(process, 130)[-1] == "stopped"
    assert not is_alive(pid)


FORK = """
session = sync.start_session(options)
messages, turn = session.messages(), session.send_user_message("SLOW")
child = os.fork()
if not child:
    {child}
    sys.exit(7)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
session.interrupt()
print(status, turn.outcome().reason.value, session.send_user_message("hello").outcome().ok)
session.close()
print(session.lifecycle.value)
"""


def forked(cli: FakeCli, child: str) -> list[str]:
    """A program that forks with a session open, and goes on with it afterwards."""
    indented = textwrap.indent(textwrap.dedent(child), "    ").strip()
    printed = ends_well(program(cli, FORK.format(child=indented)))
    assert printed[-4:] == ["7", "interrupted", "True", "stopped"]
    return printed[:-4]


def test_a_forked_child_gets_an_error_that_the_session_is_not_its_own(cli: FakeCli) -> None:
    printed = forked(
        cli,
        """
        print(session.alive, session.lifecycle.value)
        for use in (session.ping, session.messages, messages.__next__, turn.outcome, turn.__iter__):
            try:
                use()
            except SessionStopped:
                print("refused")
        session.close(); session.stop(); messages.close()
        del session, messages, turn
        """,
    )
    assert printed == ["False", "stopped", *["refused"] * 5]


def test_a_forked_child_has_sessions_of_its_own(cli: FakeCli) -> None:
    printed = forked(
        cli,
        """
        with sync.start_session(options) as own:
            print(own.send_user_message("hello").outcome().ok)
        sync.start_session(options)
        """,
    )
    assert printed == ["True"]


def test_a_forked_child_may_leave_a_with_block_of_the_parent(cli: FakeCli) -> None:
    assert (
        forked(
            cli,
            """
            session.__exit__(None, None, None)
            """,
        )
        == []
    )


def test_a_session_made_before_a_fork_connects_after_it(cli: FakeCli) -> None:
    process = program(
        cli,
        """
        session = sync.Session(options)
        child = os.fork()
        with session:
            text = session.send_user_message("hello").outcome().text
        if child:
            os.waitpid(child, 0)
        print(text, flush=True)
        """,
    )
    assert ends_well(process) == ["You", "said:", "hello"] * 2


def test_callbacks_of_a_forked_child_are_called(cli: FakeCli) -> None:
    """Threads that waited for work in the parent do not exist in the child."""
    process = program(
        cli,
        """
        calls = []
        def note(ctx):
            calls.append(os.getpid())
        bidir = BidirOptions(on_pre_tool_use=note, on_can_use_tool=lambda ctx: Allow())
        with sync.start_session(options, bidir=bidir) as session:
            session.send_user_message("BASH ls").outcome()
        child = os.fork()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        with sync.start_session(options, bidir=bidir) as session:
            session.send_user_message("BASH ls").outcome()
        print(calls == [os.getppid(), os.getpid()])
        """,
    )
    assert ends_well(process) == ["True"]
