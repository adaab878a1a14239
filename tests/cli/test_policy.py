"""The policy file of a run: what it allows, and what it says when it is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from bridle import OptionsError
from bridle.cli._policy.path_patterns import Place
from bridle.cli._policy.policy import Policy, Ruling, parse_policy

RULES = """
[[rule]]
tool = "*"
input.file_path = "*.env"
decision = "deny"
reason = "Secrets stay unread."

[[rule]]
tool = ["Read", "mcp__docs__*"]
decision = "allow"

[[rule]]
tool = "Bash"
input = { command = "git status *" }
decision = "allow"

[[rule]]
tool = "Edit"
input.file_path = "/project/?*"
input.replace_all = "false"
decision = "allow"

[[rule]]
tool = "Bash"
input.command = "*rm *"
decision = "ask"
"""

ASK = Ruling("ask")
UNCLEAR = Ruling("ask", 5, "it is unclear whether policy rule 5 matches")
DENIED = Ruling("deny", 1, "Secrets stay unread.")


@pytest.mark.parametrize(
    ("tool", "tool_input", "expected"),
    [
        ("Read", {"file_path": "/project/a.py"}, Ruling("allow", 2)),
        ("Read", {"file_path": "/project/.env"}, DENIED),
        ("Write", {"file_path": "a\nb.env"}, DENIED),
        ("Read", {"file_path": "/project/.env//"}, DENIED),
        ("Grep", {"path": "/project/.env"}, DENIED),
        ("NotebookEdit", {"notebook_path": "/project/.ENV"}, DENIED),
        ("mcp__docs__search", {}, Ruling("allow", 2)),
        ("mcp__shop__buy", {}, ASK),
        ("read", {}, ASK),
        ("Bash", {"command": "git status"}, Ruling("allow", 3)),
        ("Bash", {"command": "git  status 'src'"}, Ruling("allow", 3)),
        ("Bash", {"command": "git log"}, ASK),
        ("Bash", {"command": "gitk"}, ASK),
        ("Bash", {"command": ["git", "status"]}, UNCLEAR),
        ("Bash", {}, ASK),
        ("Edit", {"file_path": "/project/a.py", "replace_all": False}, Ruling("allow", 4)),
        ("Edit", {"file_path": "/project/a.py", "replace_all": True}, ASK),
        ("Edit", {"file_path": "/project/", "replace_all": False}, ASK),
        ("Edit", {"file_path": "/project/../etc/x", "replace_all": False}, ASK),
        ("Bash", {"command": "cd x && rm -rf y"}, Ruling("ask", 5)),
    ],
)
def test_the_first_rule_that_fits_decides(
    tool: str, tool_input: dict[str, Any], expected: Ruling
) -> None:
    policy = parse_policy(RULES, "policy", Place("/project", "/home"))
    assert policy.decide(tool, tool_input, "/project") == expected


@pytest.mark.parametrize("decision", ["allow", "deny", "ask"])
def test_the_default_holds_where_no_rule_fits(decision: str) -> None:
    policy = parse_policy(f'default = "{decision}"', "policy")
    assert policy.decide("Bash", {}) == Ruling(decision)  # type: ignore[arg-type]  # one of three


def test_an_empty_policy_asks() -> None:
    assert parse_policy("", "policy").decide("Bash", {}) == ASK
    assert Policy().decide("Bash", {}) == ASK


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a = [", "policy", "TOML"),
        ('default = "maybe"', "policy, default", "maybe"),
        ("rules = 1", "policy", "rules"),
        ("rule = 1", "policy, rule", "array"),
        ('[[rule]]\ntool = "a"', "policy, rule 1 (line 1)", "decision"),
        (RULES + '\n[[rule]]\ntool = 3\ndecision = "ask"', "policy, rule 6 (line 28), tool", "int"),
        (
            '\n[[ rule ]]\ntool = "a"\ndecision = "alow"',
            "policy, rule 1 (line 2), decision",
            "alow",
        ),
        (
            '[[rule]]\ntool = "a"\ndecision = "ask"\ncommand = "x"',
            "policy, rule 1 (line 1)",
            "command",
        ),
        ('rule = [{ tool = "a" }]', "policy, rule 1", "decision"),
    ],
    ids=["toml", "default", "unknown", "kind", "missing", "late", "word", "member", "inline"],
)
def test_a_wrong_policy_says_where_and_why(text: str, where: str, what: str) -> None:
    with pytest.raises(OptionsError) as caught:
        parse_policy(text, "policy")
    assert caught.value.field == where
    assert what in caught.value.problem
    assert caught.value.fix


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        ('tool = "Bash(git:*)"', 'write tool = "Bash" and input.command = "git *"'),
        ('tool = "Skill(x)"', 'write tool = "Skill"'),
        ('tool = ["Read", "Write(src/*)"]', 'tool = "Write" and input.file_path = "src/*"'),
        ("tool = []", "empty list"),
        ('tool = ""', "name a tool"),
        ('tool = "Write|Edit"', 'write tool = ["Write","Edit"]'),
        ('tool = "Write, Edit"', 'write tool = ["Write","Edit"]'),
        ('tool = "bash"', "write tool = 'Bash'"),
        ('tool = ["Read", "WEBFETCH"]', "write tool = 'WebFetch'"),
        ('tool = "task"', "write tool = 'Task'"),
        ('tool = "Bash"\ninput.cmd = "x"', "write input.command"),
        ('tool = ["Glob", "Read"]\ninput.path = "x"', "write input.file_path"),
    ],
)
def test_a_rule_that_never_fits_is_refused_with_what_was_meant(rule: str, fix: str) -> None:
    with pytest.raises(OptionsError) as caught:
        parse_policy(f'\n[[rule]]\n{rule}\ndecision = "deny"', "policy")
    assert caught.value.field == "policy, rule 1 (line 2)"
    assert fix in caught.value.problem


@pytest.mark.parametrize(
    "rule", ['tool = "bash*"', 'tool = "mcp__bash__read"', 'tool = "Glob"\ninput.path = "x"']
)
def test_a_rule_that_may_fit_is_taken(rule: str) -> None:
    assert parse_policy(f'[[rule]]\n{rule}\ndecision = "deny"', "policy").rules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ('default = "ask"', False),
        ('default = "allow"', True),
        ('default = "deny"', True),
        ('[[rule]]\ntool = "Read"\ndecision = "allow"', True),
    ],
)
def test_a_policy_without_rules_is_as_good_as_none(text: str, expected: bool) -> None:
    assert parse_policy(text, "policy").is_given is expected


@pytest.mark.parametrize("command", ["rm *", "*", "git push"])
@pytest.mark.parametrize("tool", ['"Bash"', '"*"', '["Bash", "Monitor"]'])
def test_a_rule_that_denies_commands_is_refused_with_the_way_to_say_it(
    tool: str, command: str
) -> None:
    """A shell can run a command that no pattern matches, such as `timeout 3 /bin/r[m] x`."""
    rule = f'[[rule]]\ntool = {tool}\ninput.command = "{command}"\ndecision = '
    with pytest.raises(OptionsError) as refused:
        parse_policy(f'{rule}"deny"', "policy")
    assert refused.value.field == "policy, rule 1 (line 1)"
    assert "Allow what may run" in refused.value.problem
    assert 'input.command = "ls *", decision = "allow"' in refused.value.problem
    assert parse_policy(f'{rule}"ask"', "policy").rules
