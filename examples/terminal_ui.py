"""A chat in the terminal, built on `turn.events()` alone.

Text is printed while the model writes it. Tool calls and subagents are indented below the agent
that started them. Ctrl-C interrupts the answer; at the prompt it ends the program, as Ctrl-D does.

$ python examples/terminal_ui.py
$ python examples/terminal_ui.py --demo     # without a login: a scripted model answers
"""

import json
import sys

import bridle
from bridle import events as ev
from bridle import sync
from bridle.messages import AgentPath
from bridle.testing import Answer, ModelRequest, ScriptedModel, text, thinking, tool_use

WIDTH = 72  # characters of a tool's input or result


class Screen:
    """Prints the events of a turn. Lines of a subagent are indented."""

    def __init__(self) -> None:
        self.color = sys.stdout.isatty()
        # The agent whose text is at the end of the last line, or None at the start of a line.
        self.writing: AgentPath | None = None

    def style(self, code: int, words: str) -> str:
        return f"\033[{code}m{words}\033[0m" if self.color else words

    def line(self, path: AgentPath, words: str) -> None:
        """Print a line below everything so far."""
        self.end_line()
        print("  " * len(path) + words, flush=True)

    def end_line(self) -> None:
        if self.writing is not None:
            print()
            self.writing = None

    def write(self, path: AgentPath, words: str, *, dim: bool = False) -> None:
        """Continue the text of an agent."""
        indent = "  " * len(path)
        if self.writing != path:
            self.end_line()
            print(indent, end="")
        words = words.replace("\n", "\n" + indent)
        print(self.style(2, words) if dim else words, end="", flush=True)
        self.writing = path

    def show(self, event: ev.TurnEvent) -> None:
        path = event.agent_path
        match event:
            case ev.TextDelta(words):
                self.write(path, words)
            case ev.ThinkingDelta(words):
                self.write(path, words, dim=True)
            case ev.BlockEnded(abandoned=True):
                self.line(path, self.style(2, "(the connection was lost; ignore the lines above)"))
            case ev.BlockEnded():
                self.end_line()
            case ev.ToolInput(name=name, input=given):
                self.line(path, f"{self.style(36, '* ' + name)} {short(json.dumps(given))}")
            case ev.ToolEnded(is_error=failed):
                mark = self.style(31, "failed:") if failed else "->"
                self.line(path, f"  {mark} {short(event.text)}")
            case ev.SubagentStarted(description=description):
                self.line(path[:-1], self.style(35, f"[{path[-1].type}: {description}]"))
            case ev.SubagentEnded(status=status):
                self.line(path[:-1], self.style(35, f"[{path[-1].type}: {status}]"))
            case ev.RetryScheduled(delay=delay, error=problem):
                self.line(path, self.style(33, f"({problem}, next try in {delay:.0f} s)"))
            case ev.TurnEnded(outcome):
                self.end_line()
                cost = outcome.cost_usd or 0.0
                ending = f"{outcome.reason}, {outcome.duration:.1f} s, ${cost:.4f}"
                self.line((), self.style(2 if outcome.ok else 31, f"({ending})"))
            case ev.ToolStarted():
                pass  # its input follows


def short(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= WIDTH else words[: WIDTH - 1] + "…"


def answer(session: sync.Session, prompt: str, screen: Screen) -> None:
    """Send a prompt and show its turn. Ctrl-C interrupts the turn."""
    turn = session.send_user_message(prompt)
    events = turn.events()
    while True:
        try:
            for event in events:
                screen.show(event)
            return
        except KeyboardInterrupt:
            turn.interrupt()  # the rest of its events follows


def chat(cli: bridle.CliOptions) -> None:
    options = cli.replace(include_partial_messages=True, forward_subagent_text=True)
    screen = Screen()
    with sync.start_session(options) as session:
        while prompt := ask():
            answer(session, prompt, screen)


def ask() -> str:
    """Return the next prompt. An empty line, Ctrl-C or Ctrl-D ends the chat."""
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return ""


# ---------------------------------------------------------------- the demo


def scripted(request: ModelRequest) -> Answer:
    """Answer as a model that uses a tool and a subagent."""
    inside = "Find the horses" in str(request.messages[0])
    if request.last_tool_result:
        return [text("Two of them." if inside else "There are two horses, both well.")]
    if inside:
        return [tool_use("Bash", command="echo Ada and Bob")]
    return [
        thinking("A helper can count them."),
        text("I will have somebody look."),
        tool_use(
            "Task",
            description="count horses",
            prompt="Find the horses.",
            subagent_type="general-purpose",
            run_in_background=False,
        ),
    ]


def main() -> None:
    if "--demo" not in sys.argv[1:]:
        chat(bridle.CliOptions())
        return
    with ScriptedModel(scripted) as model:
        chat(bridle.CliOptions(env=model.env))


if __name__ == "__main__":
    main()
