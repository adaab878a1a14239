"""What can happen: events of a session, operations of the application, and faults, each as a table.

To add a fault, write a function of the world that does the harm, and decorate it with
``@fault(weight)``. It may return False to say that it does not apply now; then it is not counted.
What it breaks on purpose it has to tell the model (see the flags of
:class:`~tests.simulation.model.Cli`); the promises that are left are checked all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from tests.simulation import lines as wire
from tests.simulation.lines import Question
from tests.simulation.settings import MAX_LINE
from tests.simulation.world import Event, Events, World

from bridle._engine.incoming.mcp.messages_of_servers import MAX_EARLY
from bridle._engine.state import TERMINAL, Lifecycle
from bridle._engine.wire.framing import WARN_AT

Action = Callable[[World], bool | None]

FAULTS: dict[str, tuple[float, Action]] = {}
OPERATIONS: dict[str, tuple[float, Action]] = {}
EVENTS: dict[str, tuple[float, Event]] = {}


def fault(weight: float) -> Callable[[Action], Action]:
    """Enter a fault into its table."""

    def enter(action: Action) -> Action:
        FAULTS[action.__name__] = (weight, action)
        return action

    return enter


def operation(weight: float) -> Callable[[Action], Action]:
    """Enter something the application does into its table."""

    def enter(action: Action) -> Action:
        OPERATIONS[action.__name__] = (weight, action)
        return action

    return enter


def event(weight: float) -> Callable[[Event], Event]:
    """Enter an event into its table."""

    def enter(action: Event) -> Event:
        EVENTS[action.__name__] = (weight, action)
        return action

    return enter


# ---------------------------------------------------------------- operations


@operation(24)
def send_text(world: World) -> None:
    world.send("do this")


@operation(2)
def send_two(world: World) -> None:
    world.send("do this")
    world.send("and that")


@operation(3)
def send_command(world: World) -> None:
    world.send(("/context", "/compact", "/no")[int(world.chance() * 3)])


@operation(0.5)
def send_the_unencodable(world: World) -> None:
    world.send([{"type": "text", "text": object()}])


@operation(4)
def interrupt(world: World) -> None:
    world.submit("interrupt", {"cancel_queued": True} if world.chance() < 0.4 else {})


@operation(2)
def set_model(world: World) -> None:
    world.submit("set_model", {"model": "opus"})


@operation(3)
def set_mode(world: World) -> None:
    world.submit("set_permission_mode", {"mode": "plan"}, timeout=5.0)


@operation(2)
def ask_something_new(world: World) -> None:
    world.submit("brand_new_operation", {"x": [1, None]})


@operation(4)
def stop_task(world: World) -> bool | None:
    if not world.cli.tasks:
        return False
    world.submit("stop_task", {"task_id": "t"})
    return None


@operation(1)
def rewind(world: World) -> None:
    world.submit("rewind_files", {"user_message_id": "u"})


@operation(5)
def withdraw_prompt(world: World) -> bool | None:
    turns = [uuid for uuid, state in world.turns.items() if state == "open"]
    if not turns:
        return False
    key = world.submit("cancel_async_message", {"message_uuid": turns[-1]}, timeout=10.0)
    if world.chance() < 0.1 and world.keys[key] == "open":
        world.cancel(key)
    return None


@operation(1)
def submit_nonsense(world: World) -> None:
    way = world.chance()
    if way < 0.4:
        world.submit("set_model", {"model": 7})
    elif way < 0.7:
        world.submit("initialize", {})
    else:
        world.submit("brand_new_operation", {"x": object()})


@operation(0.3)
def leave(world: World) -> None:
    world.submit("end_session", {})


@operation(3)
def cancel(world: World) -> bool | None:
    waiting = [key for key, state in world.keys.items() if state == "open"]
    if not waiting:
        return False
    world.cancel(waiting[int(world.chance() * len(waiting))])
    return None


@operation(0.25)
def end_input(world: World) -> None:
    world.end_input()


@operation(0.35)
def close(world: World) -> None:
    world.close()


@operation(0.15)
def stop(world: World) -> None:
    world.stop()


@operation(0.1)
def break_off(world: World) -> None:
    world.break_off()


# ---------------------------------------------------------------- faults


@fault(4)
def junk_line(world: World) -> None:
    kinds = (b"not json", b"[1,2]", b'{"type":"us', b"\xff\xfe", b"null", b'"text"', b"7")
    world.cli.junk(kinds[int(world.chance() * len(kinds))])


@fault(3)
def odd_message(world: World) -> None:
    kinds = (
        b'{"type":"stream_event","event":{"type":"brand_new"}}',
        b'{"type":"assistant","message":{"content":[{"type":"brand_new"}]},'
        b'"parent_tool_use_id":"toolu_none"}',
        b'{"type":7,"x":1}',
        b"{}",
    )
    world.cli.say(kinds[int(world.chance() * len(kinds))])


@fault(2)
def empty_lines(world: World) -> bool | None:
    if world.cli.is_mute:
        return False
    world.cli.blank()
    return None


def _too_long(world: World, sort: str) -> bool | None:
    if world.setting.max_line > MAX_LINE:
        return False
    world.cli.too_long = sort
    return None


@fault(2)
def oversized_message(world: World) -> bool | None:
    return _too_long(world, "message")


@fault(2)
def oversized_echo(world: World) -> bool | None:
    return _too_long(world, "echo")


@fault(3)
def oversized_result(world: World) -> bool | None:
    return _too_long(world, "result")


@fault(2)
def oversized_request(world: World) -> bool | None:
    return _too_long(world, "request")


@fault(2)
def oversized_response(world: World) -> bool | None:
    return _too_long(world, "response")


@fault(10)
def long_line(world: World) -> bool | None:
    """Long enough for a warning, not too long to be kept."""
    if world.setting.max_line == MAX_LINE:
        return False
    world.cli.say(b'{"type":"keep_alive","x":"%s"}' % (b"x" * (WARN_AT + 9)))
    return None


@fault(2)
def garbled_line(world: World) -> None:
    sorts = ("message", "echo", "result", "request", "response")
    world.cli.garbled = sorts[int(world.chance() * len(sorts))]


@fault(3)
def orphan_response(world: World) -> None:
    world.cli.control(wire.ACK % b"nobody_asked")


@fault(2)
def never_issued_response(world: World) -> None:
    world.cli.control(wire.ACK % b"req_99999")


@fault(1)
def response_without_id(world: World) -> None:
    world.cli.control(b'{"type":"control_response","response":{"subtype":"success"}}')


@fault(3)
def unanswered_request(world: World) -> None:
    world.cli.spoil.append("ignore")


@fault(3)
def refused_request(world: World) -> None:
    world.cli.spoil.append("refuse")


@fault(3)
def repeated_answer(world: World) -> None:
    world.cli.spoil.append("repeat")


@fault(3)
def late_answer(world: World) -> None:
    world.cli.spoil.append("postpone")


@fault(3)
def unknown_request(world: World) -> None:
    world.cli.ask("odd", instant=frozenset({"error"}))


@fault(2)
def malformed_request(world: World) -> None:
    question = Question(f"q{world.cli.next_id()}", "permission", instant=frozenset({"error"}))
    world.cli.put_question(question, wire.MALFORMED_REQUEST % question.request_id.encode())


@fault(1)
def request_without_id(world: World) -> None:
    world.cli.control(
        b'{"type":"control_request","request":{"subtype":"can_use_tool","tool_name":"B","input":{}}}'
    )


@fault(2)
def unknown_callback(world: World) -> None:
    world.cli.ask("hook", "Nowhere", instant=frozenset({"go"}))


@fault(2)
def unknown_server(world: World) -> None:
    world.cli.ask("mcp", "nobody", instant=frozenset({"failed"}))


@fault(3)
def repeated_question(world: World) -> bool | None:
    """The CLI puts a question again, in the same words, while the first is still open or after."""
    if "request" in (world.cli.too_long, world.cli.garbled):
        return False
    for line in reversed(world.cli.lines):
        if line.asks is not None and line.kind is wire.Kind.CONTROL:
            world.cli.put_question(line.asks, line.data)
            return None
    return False


@fault(4)
def withdrawn_question(world: World) -> bool | None:
    for question in reversed(world.cli.asked.values()):
        if not question.verdict and question.kind != "odd":
            world.cli.withdraw(question)
            return None
    return False


@fault(1)
def stray_withdrawal(world: World) -> None:
    world.cli.control(wire.CANCEL % b"nobody_asked")


@fault(0.5)
def flood_of_permissions(world: World) -> bool | None:
    if world.engine.lifecycle is not Lifecycle.RUNNING:
        return False
    for _ in range(40):
        world.cli.ask("permission")
    return None


@fault(0.5)
def flood_of_hooks(world: World) -> bool | None:
    """Ask for hooks at any time.

    Not for those of UserPromptSubmit: a CLI asks for them between turns, or before it adds a prompt
    to a turn of the model. While a slash command runs, 2.1.197 and 2.1.327 let prompts and
    notifications wait.
    """
    if world.engine.lifecycle is not Lifecycle.RUNNING:
        return False
    for _ in range(40):
        world.cli.ask("hook", ("PreToolUse", "Stop", "PostToolUse")[int(world.chance() * 3)])
    return None


@fault(0.4)
def flood_of_operations(world: World) -> None:
    for _ in range(20 if world.engine.lifecycle is not Lifecycle.RUNNING else 70):
        world.submit("set_permission_mode", {"mode": "plan"})


@fault(3)
def flood_of_early_mcp(world: World) -> bool | None:
    if world.engine.lifecycle is not Lifecycle.INIT_SENT or world.cli.is_mute:
        return False
    for _ in range(MAX_EARLY + 5):
        world.cli.ask("mcp", "call")
    return None


@fault(0.5)
def broken_input(world: World) -> None:
    world.cli.is_deaf = True
    world.fail_writes()
    if world.chance() < 0.5:
        world.cli.die(1)


@fault(0.4)
def deaf(world: World) -> None:
    """Its reader dies; only a signal ends it."""
    world.cli.is_deaf = True


@fault(1.5)
def hung(world: World) -> None:
    """It stops in the middle of whatever it does, or with two new prompts, without a word."""
    if world.chance() < 0.5:
        send_two(world)
    world.cli.is_hung = True


@fault(4)
def stale_result(world: World) -> bool | None:
    """A result comes again, when its prompts have ended."""
    return world.cli.repeat_result() or False


@fault(0.6)
def ignored_sigterm(world: World) -> None:
    world.cli.ignores_sigterm = True


@fault(0.4)
def closed_output(world: World) -> None:
    """The output ends, the process does not."""
    world.cli.is_mute = True


@fault(0.6)
def held_output(world: World) -> None:
    """A child that inherited the output keeps it open beyond the end of the process."""
    world.output_held = True


@fault(0.6)
def crash(world: World) -> None:
    world.cli.die(1)


@fault(0.6)
def kill_9(world: World) -> None:
    world.cli.die(-9)
    world.cli.lose_output(int(world.chance() * len(world.cli.output)))


@fault(0.4)
def two_reads_in_one(world: World) -> None:
    """Everything that is there, at once."""
    world.chunk = 100_000


# ---------------------------------------------------------------- the handshake's own


@fault(4)
def odd_handshake(world: World) -> bool | None:
    if world.cli.initialized:
        return False
    ways = ("refuse", "ignore", "hook", "permission")
    world.cli.handshake = ways[int(world.chance() * len(ways))]
    return None


# ---------------------------------------------------------------- events


@event(46)
def deliver(world: World) -> None:
    world.deliver()


@event(22)
def step(world: World) -> None:
    if world.cli.can_step and world.spawned:
        world.cli.step()


@event(12)
def read(world: World) -> None:
    if world.cli.has_input:
        world.cli.read()


@event(7)
def complete_call(world: World) -> None:
    if world.calls:
        waiting = list(world.calls)
        world.complete_call(waiting[int(world.chance() * len(waiting))])


@event(4)
def time_passes(world: World) -> None:
    way = world.chance()
    if way < 0.9:
        world.now += 0.3 * way
        deadline = world.engine.next_deadline
        if deadline is not None and deadline <= world.now:
            world.advance()
    elif way < 0.93:
        world.advance()
    elif way < 0.985:
        world.advance_to_deadline()
    else:
        world.now += 100.0
        world.advance()


@event(3)
def tasks(world: World) -> None:
    cli = world.cli
    if cli.tasks and cli.is_alive:
        if world.chance() < 0.85:
            cli.talk_in_task()
        else:
            cli.end_task()


@event(1)
def early_mcp(world: World) -> None:
    """The CLI opens our MCP servers when it likes, also before it answers the handshake."""
    if world.cli.is_alive and world.spawned:
        world.cli.ask("mcp", ("call", "notify")[int(world.chance() * 2)])


@event(0.3)
def notify(world: World) -> None:
    """The CLI tells a hook something that cannot be blocked."""
    if world.cli.is_alive and world.cli.initialized:
        world.cli.ask("hook", "Notification")


@event(9)
def readers(world: World) -> None:
    if world.has_readers:
        world.readers.do_something()


@event(3)
def process(world: World) -> None:
    cli = world.cli
    if cli.is_alive and not cli.is_mute:
        return
    if world.chance() < 0.5:
        world.report_exit()
    elif not cli.output and not world.output_held:
        world.report_output_end()


@event(0.5)
def catch_up(world: World) -> None:
    if world.cli.postponed and world.cli.is_alive:
        world.cli.catch_up()


def _pick(table: dict[str, tuple[float, Action]]) -> tuple[list[str], list[float]]:
    return list(table), list(accumulate(weight for weight, _ in table.values()))


_OPERATIONS = _pick(OPERATIONS)
_FAULTS = _pick(FAULTS)


@event(5)
def operate(world: World) -> None:
    """The application does something."""
    names, weights = _OPERATIONS
    name = world.rng.choices(names, cum_weights=weights)[0]
    if OPERATIONS[name][1](world) is not False:
        world.coverage.operations[name] += 1


@event(0.8)
def misfortune(world: World) -> None:
    """Something goes wrong."""
    if world.spawned and world.cli.is_alive and world.engine.lifecycle not in TERMINAL:
        names, weights = _FAULTS
        _strike(world, world.rng.choices(names, cum_weights=weights)[0])


def _strike(world: World, name: str) -> None:
    if world.trace:
        world.trace(f"            fault: {name}")
    if FAULTS[name][1](world) is not False:
        world.coverage.faults[name] += 1


def _events(**factors: float) -> Events:
    """The table of events, some of them more or less frequent than usual."""
    weights = (weight * factors.get(name, 1.0) for name, (weight, _) in EVENTS.items())
    return list(accumulate(weights)), [action for _, action in EVENTS.values()]


MOODS: tuple[Events, ...] = (
    _events(),
    _events(),
    # Nothing is lost, so every message and every outcome can be held against the truth.
    _events(misfortune=0.0),
    _events(misfortune=5.0, time_passes=2.0),
    _events(misfortune=0.2, tasks=7.0, operate=1.5),
)


def simulate(world: World) -> None:
    """Run a world with everything that can happen."""
    mood = MOODS[int(world.chance() * len(MOODS))]
    if world.chance() < 0.08:
        _strike(world, "odd_handshake")
    world.run(mood, operate)
