"""Every example does what it says, as it is, on the real CLIs, offline.

An example is run the way a reader runs it, as a program with a CLI and a login of its own; only
that the environment names the CLI to find, and a scripted model as the API to talk to.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import signal
import sys
import time
from itertools import zip_longest
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
from tests.examples.stage import Stage, fits
from tests.support.processes import LIMIT, until

from bridle.testing import (
    ModelRequest,
    Reply,
    ScriptedModel,
    error,
    rate_limit_headers,
    text,
    thinking,
    tool_use,
)
from bridle.testing.script import Answer, Script

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHON = (sys.executable, "-W", "error")
PYTEST = (*PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider")

# Runs the cells of a notebook in a kernel of its own, and prints what stands below them then.
NOTEBOOK = (
    sys.executable,
    "-c",
    """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
quietly = ["--log-level=ERROR"]  # it warns that loopback is not encrypted
nbclient.NotebookClient(notebook, timeout=60, extra_arguments=quietly).execute()
for cell in notebook.cells:
    if cell.cell_type == "code":
        print(*(one.get("text") or one.data["text/plain"] for one in cell.outputs), sep="")
""",
)


# ---------------------------------------------------------------- models that keep count


class Pair:
    """A model that answers when two ask at once, and fails when more do."""

    def __init__(self) -> None:
        self.came = self.present = 0

    async def __call__(self, request: ModelRequest) -> Answer:
        self.came += 1
        self.present += 1
        await until(lambda: self.came >= 2)
        await asyncio.sleep(0.2)  # long enough for a third, if there were one
        assert self.present <= 2, "more than two sessions at once"
        self.present -= 1
        return error(529) if "Peru" in request.last_user_text else [text("Wet")]


class Limited:
    """A model that warns of its limit, works without end, and is over its limit for a second."""

    def __init__(self) -> None:
        self.was_over = False

    def __call__(self, request: ModelRequest) -> Answer:
        if "2 + 2" in request.last_user_text:
            near = rate_limit_headers("allowed_warning", utilization=0.9, threshold=0.9)
            return Reply(blocks=(text("4"),), headers=near)
        if "3 + 3" not in request.last_user_text:
            return [tool_use("Bash", command="echo a file")]
        if self.was_over:
            return [text("6")]
        self.was_over = True
        return error(429, headers=rate_limit_headers("rejected", resets_at=int(time.time()) + 3))


def plan_file(request: ModelRequest) -> Answer:
    """The model writes its plan where the CLI told it to."""
    paths = re.findall(r'[^\s"\\`]+/plans/[^\s"\\`]+\.md', json.dumps(request.raw))
    return [tool_use("Write", file_path=paths[0], content="1. Neigh.")]


# ---------------------------------------------------------------- the table


class Case(NamedTuple):
    """What the model says to an example, and what comes of it; an ellipsis stands for anything."""

    #: A class is made anew for each run.
    script: Script | type[Pair | Limited]
    #: What the example prints, line by line.
    printed: str
    #: What the requests to the model end with.
    told: tuple[str, ...]
    typed: str = ""
    command: tuple[str, ...] = PYTHON
    login: Any = "api_key"


FORM = {
    "question": "Which form?",
    "header": "Form",
    "multiSelect": False,
    "options": [
        {"label": "Haiku", "description": "short"},
        {"label": "Ode", "description": "long"},
    ],
}
LINES = [
    {"article": "saddle", "count": 3, "unit_price": 310.0},
    {"article": "bridle", "count": 1, "unit_price": 49.0},
]
HELD = Reply(blocks=(text("Once upon a time, " * 60, chunks=60),), hold=True, hold_after=50)

CASES = {
    "quickstart.py": Case(
        [[text("4")]],
        """
        4
        completed in … s for $0.…
        """,
        ("'What is 2 + 2? …",),
    ),
    "typed_output.py": Case(
        [
            [tool_use("StructuredOutput", name="Ada Lovelace", born=1815)],
            [tool_use("StructuredOutput", lines=LINES)],
        ],
        """
        Ada Lovelace, born 1815
        2 lines, 979.0 euros in all
        """,
        ("'Who wrote this?…", "'What is ordered here?…"),
    ),
    "hooks_guard.py": Case(
        [
            [tool_use("Bash", command="echo hello")],
            [tool_use("Bash", command="rm -rf ./build")],
            [text("One of two.")],
        ],
        """
        ran: Bash {'command': 'echo hello'} in … ms
        blocked: rm -rf ./build
        One of two.
        """,
        ("'With Bash: …", "tool result 'hello'", "tool result …This command is not…"),
    ),
    "permission_policy.py": Case(
        [
            [tool_use("mcp__calendar__today")],
            [tool_use("mcp__calendar__today")],
            [tool_use("Write", file_path="today.py", content="print('a day')")],
            [tool_use("Write", file_path="../today.py", content="print('elsewhere')")],
            [tool_use("Write", file_path="notes.txt", content="words")],
            [tool_use("Bash", command="make test")],
            [tool_use("Bash", command="make test; touch evidence")],
            [text("Some of it worked.")],
        ],
        """
        mcp__calendar__today: AllowAll
        Write: Edit
        Write: Deny
        Write: Deny
        Bash: Allow
        Bash: Deny
        Some of it worked.
        --- today.py
        # Written by an agent: review before use.
        print('a day')
        """,
        (
            "…Write today.py, …",
            "tool result '20…-…-…'",
            "tool result 'File created …",
            "tool result …Only Python files of this project…",
            "tool result …No rule to make target…",
        ),
    ),
    "in_process_tools.py": Case(
        [
            [tool_use("mcp__tools__price", article="saddle")],
            [tool_use("mcp__tools__order", article="saddle")],
            [tool_use("mcp__tools__order", article="horse")],
            [tool_use("mcp__tools__order", article="bridle", count=2)],
            [text("Two bridles are on their way.")],
        ],
        """
        tools: 2 x bridle, call toolu_…
        Two bridles are on their way.
        """,
        (
            "'What does a saddle cost? …",
            "tool result '310'",
            "tool result 'Only 0 left. Offer something else.…",
            "tool result …Invalid arguments for order…",
            """tool result '{"article":"bridle","count":2,"total":98}'""",
        ),
    ),
    "raw_mcp_server.py": Case(
        [
            [tool_use("mcp__calculator__add", a=40, b=2)],
            [tool_use("mcp__echo__echo", text="forty-two")],
            [tool_use("mcp__echo__echo", text=42)],
            [text("It said so.")],
        ],
        """
        It said so.
        """,
        (
            "'Add 40 and 2 …",
            "tool result …42…",
            "tool result 'forty-two'",
            "tool result …tools/call is not known here…",
        ),
    ),
    "streaming_text.py": Case(
        [HELD, [text("They lived.")]],
        """
        Once upon a time, …
        [interrupted after 4… characters]
        They lived.
        [completed]
        """,
        ("'Tell me a long story …", "'Thank you. …"),
    ),
    "terminal_ui.py": Case(
        [[thinking("Hm."), text("I look."), tool_use("Bash", command="echo hay")], [text("Hay.")]],
        """
        > Hm.
        I look.
        * Bash {"command": "echo hay"}
          -> hay
        Hay.
        (completed, … s, $0.…)
        >…
        """,
        ("'What is for dinner?'", "tool result 'hay'"),
        typed="What is for dinner?\n",
    ),
    "many_sessions.py": Case(
        Pair,
        """
        Name a river in France. One word.  completed    … s  Wet
        Name a river in Peru. One word.    api_error    … s  …529…
        Name a river in India. One word.   completed    … s  Wet
        $0.… in all
        """,
        ("'Name a river in France.…", "'Name a river in Peru.…", "'Name a river in India.…"),
    ),
    "sync_script.py": Case(
        [[text("7")], [text("I will.")], [text("14")]],
        """
        I will.  [completed]
        14  [completed]
        """,
        ("'Pick a number …", "'Remember the number 7.'", "'What is it, doubled?'"),
    ),
    "one_way_query.py": Case(
        [[tool_use("Glob", pattern="*.py")], [text("None.")]],
        """
        model …, … tools
        -> Glob {'pattern': '*.py'}
        None.
        success after 2 model calls
        """,
        ("'How many Python files …", "tool result 'No files found'"),
    ),
    "limits_and_failures.py": Case(
        Limited,
        """
        ! 90% of the five_hour limit is used
        What is 2 + 2? 4
        List this directory, one file at a time. gave up, …3…
        ! …limit…
        What is 3 + 3? 6
        """,
        (
            "'What is 2 + 2?'",
            "'List this directory, …",
            "tool result 'a file'",
            "'What is 3 + 3?'",
        ),
        login="oauth",
    ),
    "testing_your_agent.py": Case(
        [],
        """
        ....…
        4 passed in …s
        """,
        (),
        command=PYTEST,
    ),
    "notebook.ipynb": Case(
        [[text("4")], [text("They have four legs.")], [text("6")]],
        """
        '4'
        sync.Session(…, running, pid=…)
        They have four legs.
        Outcome(completed, text='They have four legs.', …)
        '6'
        """,
        ("'What is 2 + 2? …", "'Tell me about horses, …", "'And 3 + 3?'"),
        command=NOTEBOOK,
    ),
}
"""The examples that end by themselves."""

SERVICE = "fastapi_chat.py"
"""The one that does not end by itself. Its tests are in test_fastapi_chat.py."""

ON_TERMINAL = "questions_and_plans.py"
"""The one that asks the user on a terminal. It has a test of its own."""

MOST_LINES = {"terminal_ui.py": 120, "fastapi_chat.py": 200}
"""The limits of the examples that are complete programs."""

PROGRAMS = [name for name in (*CASES, ON_TERMINAL, SERVICE) if name.endswith(".py")]


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("name", CASES)
def test_an_example_does_what_it_says(name: str, real_cli: Path, tmp_path: Path) -> None:
    """R444: tools and servers in the process are among them."""
    case = CASES[name]
    script: Script = case.script() if isinstance(case.script, type) else case.script
    with ScriptedModel(script, login=case.login) as model:
        stage = Stage(model, real_cli, tmp_path)
        lines = stage.run(*case.command, str(EXAMPLES / name), typed=case.typed)
        ends = [str(request).partition(", last: ")[2][:-1] for request in model.requests]
    expected = dedent(case.printed).strip().splitlines()
    pairs = zip_longest(expected, lines, fillvalue="")
    assert [shape if fits(shape, line) else line for shape, line in pairs] == expected
    assert [end for end in ends if not any(fits(shape, end) for shape in case.told)] == []
    assert [shape for shape in case.told if not any(fits(shape, end) for end in ends)] == []


# ---------------------------------------------------------------- the terminal


@pytest.mark.longer
def test_questions_and_plans_are_answered_on_the_terminal(real_cli: Path, tmp_path: Path) -> None:
    script: Script = [
        [tool_use("AskUserQuestion", questions=[FORM])],
        plan_file,
        [tool_use("ExitPlanMode")],
        [tool_use("ExitPlanMode")],
        [text("Hay, hay, hooray.")],
    ]
    program = str(EXAMPLES / ON_TERMINAL)
    with ScriptedModel(script) as model:
        stage = Stage(model, real_cli, tmp_path)
        with stage.on_terminal(*PYTHON, program) as seen:
            seen.expect("own words >")
            assert "Which form?" in seen.screen.text
            seen.send("2\n")
            seen.expect("[y]es, do it")
            assert "1. Neigh." in seen.screen.text
            seen.send("n Neigh twice.\n")
            seen.expect("[y]es, do it", 2)
            seen.send("y\n")
            seen.expect("Hay, hay, hooray.")
            assert seen.wait() == 0
        results = [request.last_tool_result or "" for request in model.requests]
    assert '"Which form?"="Ode"' in results[1]
    assert "Neigh twice." in results[3]
    assert "User has approved your plan." in results[4]


@pytest.mark.longer
def test_ctrl_c_at_a_question_of_the_model_ends_the_example(real_cli: Path, tmp_path: Path) -> None:
    with ScriptedModel([[tool_use("AskUserQuestion", questions=[FORM])]]) as model:
        stage = Stage(model, real_cli, tmp_path)
        with stage.on_terminal(*PYTHON, str(EXAMPLES / ON_TERMINAL)) as seen:
            seen.expect("own words >")
            seen.send("\x03")
            assert seen.wait() == -signal.SIGINT
            assert seen.is_echoing()


@pytest.mark.longer
def test_the_demo_of_the_terminal_chat_needs_no_model(real_cli: Path, tmp_path: Path) -> None:
    with ScriptedModel([]) as model:
        stage = Stage(model, real_cli, tmp_path)
        program = str(EXAMPLES / "terminal_ui.py")
        lines = stage.run(*PYTHON, program, "--demo", typed="How are the horses?\n")
        assert not model.requests
    expected = """
        > A helper can count them.
        I will have somebody look.
        * Task {…
        [general-purpose: count horses]
          * Bash {"command": "echo Ada and Bob"}
            -> Ada and Bob
          Two of them.
        [general-purpose: completed]
          -> …
        There are two horses, both well.
        (completed, … s, $0.…)
        >…
        """
    shapes = dedent(expected).strip().splitlines()
    pairs = zip_longest(shapes, lines, fillvalue="")
    assert [shape if fits(shape, line) else line for shape, line in pairs] == shapes


@pytest.mark.longer
def test_an_interrupt_from_the_keyboard_ends_the_turn_and_the_chat_goes_on(
    real_cli: Path, tmp_path: Path
) -> None:
    held = Reply(blocks=(text("one two", chunks=["one ", "two"]),), hold=True, hold_after=4)
    with ScriptedModel([held, [text("Still here.")]]) as model:
        stage = Stage(model, real_cli, tmp_path)
        with stage.running(*PYTHON, "-u", str(EXAMPLES / "terminal_ui.py")) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("Count.\n")
            process.stdin.flush()
            assert process.stdout.read(len("> one ")) == "> one "
            process.send_signal(signal.SIGINT)
            output, complaints = process.communicate("And now?\n", timeout=3 * LIMIT)
        assert (process.returncode, complaints) == (0, "")
    shape = "…(interrupted, … s, $0.…)…> Still here.…(completed, … s, $0.…)…"
    assert fits(shape, output), output


# ---------------------------------------------------------------- the directory


def test_every_example_is_tested_and_listed() -> None:
    found = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {"README.md"}
    assert found == {*CASES, ON_TERMINAL, SERVICE}
    readme = (EXAMPLES / "README.md").read_text("utf-8")
    assert set(re.findall(r"^\| \[`(.+?)`\]\(\1\) \|", readme, re.MULTILINE)) == found


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_is_short_and_says_how_to_run_it(name: str) -> None:
    source = (EXAMPLES / name).read_text("utf-8")
    said = ast.get_docstring(ast.parse(source), clean=False) or ""
    assert re.search(rf"^\$ (python|pytest) examples/{name}$", said, re.MULTILINE)
    code = [line.strip() for line in source.replace(said, "").splitlines()]
    lines = [line for line in code if line and not line.startswith("#")]
    assert len(lines) <= MOST_LINES.get(name, 60)


def test_the_notebook_is_kept_without_what_came_of_it() -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text("utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


def test_importing_an_example_does_nothing(tmp_path: Path) -> None:
    names = ", ".join(name.removesuffix(".py") for name in PROGRAMS)
    program = f"import sys; sys.path.append({str(EXAMPLES)!r}); import {names}"
    with ScriptedModel([]) as model:
        stage = Stage(model, Path("no CLI is needed"), tmp_path)
        assert stage.run(*PYTHON, "-c", program) == []
