"""The rules of `approve`: what waits, and what is let through."""

from __future__ import annotations

from typing import Any

import pytest

from bridle import OptionsError
from bridle.approvals._rules import read_rule, rules_of


def waits(rule: str, tool: str, tool_input: Any, *, is_known: bool = True) -> bool:
    (one,) = rules_of([read_rule("approve[0]", rule)])
    return one.concerns((tool,), tool_input, is_known=is_known)


ATTACKS = [
    "rm x",
    "  rm   x",
    "RM x",
    "/bin/rm x",
    "../../bin/rm x",
    "'rm' x",
    'r"m" x',
    "r''m x",
    r"r\m x",
    "\\rm x",
    "$'\\x72m' x",
    "`echo rm` x",
    "$(echo rm) x",
    "$RM x",
    "${0%%x}rm x",
    "timeout 3 /bin/r[m] x",
    "/bin/r? x",
    "/bin/*m x",
    "{rm,x}",
    "~/bin/rm x",
    "=rm x",
    "A=1 rm x",
    "PATH=. ls",
    "> x",
    "ls > x",
    "ls & rm x",
    "ls; rm x",
    "ls;rm x",
    "ls && rm x",
    "ls || rm x",
    "ls | rm x",
    "ls\nrm x",
    "ls \\\nrm",
    "(rm x)",
    "{ rm x; }",
    "! rm x",
    "if true; then rm x; fi",
    "f() { rm x; }; f",
    "time rm x",
    "command rm x",
    "builtin command rm x",
    "env rm x",
    'env -S"rm x"',
    "env -i /bin/rm x",
    "env -iSrm x",
    "sudo rm x",
    "nohup rm x",
    "nice -n 5 rm x",
    "timeout 3 rm x",
    "stdbuf -o0 rm x",
    "busybox rm x",
    "xargs rm",
    "echo x | xargs rm",
    "echo r m | tr -d ' ' | xargs -I% % x",
    "find . -name x -exec rm {} +",
    "find . -exec rm x +",
    "bash -c 'rm x'",
    "sh script",
    "eval rm x",
    "eval r m",
    "exec rm x",
    ". ./script",
    "source script",
    "python3 -c 'import os; os.remove(1)'",
    "python3.11 x.py",
    "perl -e 'exec q/r/.q/m/,q/x/'",
    "node -e 1",
    "awk 'BEGIN{system(\"rm x\")}'",
    "sed 1erm x",
    "echo cm0geA== | base64 -d | sh",
    "echo x | ed",
    "echo x | ./run",
    "git -c alias.x='!r\\m y' x",
    "git -c core.pager='rm x' log",
    "tar -cf a b --checkpoint-action=exec=rm",
    "rsync -e rm a b:c",
    "ssh host rm x",
    "watch 'rm x'",
    "env -iiiiiiiiiiiiiiiiiiiiiSrm x",
    "env -iiiiiiiiiiiiiiiiiiiiiSperl -e 'exec q,r,.q,m,,q,x,'",
    "env perl -e 'exec q,r,.q,m,,q,x,'",
    "watch 'perl5.36 -e unlink'",
    "nice sed -e 's/z/r m x/' -e 's/ //' -e e one",
    "nice xargs -I% -a file r% x",
    "nice parallel -I% r% x ::: m",
    "ssh -oProxyCommand='/bin/r%h x' m",
    "git -c core.sshCommand='ssh -oProxyCommand=r%n' fetch",
    "echo rx | tr x m | sort -S 1 --compress-program=sh",
    "echo x | ./grep",
    "alias l=rm",
    "trap 'rm x' EXIT",
    "cp /bin/rm y && ./y x",
    "./clean.sh",
    "../clean",
    "/tmp/clean",
    "sudo ./x",
    "timeout 3 ../x",
    "env -i /tmp/x",
    "go run x.go",
    "R -f x",
    "docker run image",
    "sudo podman run image",
    "uv run x",
    "ipython x",
    "echo 'a' # rm",
    "r\u200bm x",
    "rm\u00a0x",
    "ls \x00rm",
    "ls \ud800",
    "ls 'unclosed",
    "",
    "   ",
]


@pytest.mark.parametrize("rule", ["Bash", "Bash(*)"])
@pytest.mark.parametrize("tool", ["Bash", "Monitor", "PowerShell", "REPL"])
def test_a_rule_for_bash_applies_to_all_tools_that_run_commands(rule: str, tool: str) -> None:
    assert waits(rule, tool, {"command": "ls"})
    assert not waits(rule, "Write", {})
    assert not waits("Monitor", "Bash", {"command": "ls"})


@pytest.mark.parametrize("rule", ["Bash", "Bash(rm *)"])
@pytest.mark.parametrize("tool_input", [{"command": "ls"}, {"code": "1"}, {}, None])
def test_a_tool_that_bridle_does_not_know_may_run_commands(rule: str, tool_input: Any) -> None:
    assert waits(rule, "RunScript", tool_input, is_known=False)
    assert not waits("Write", "RunScript", tool_input, is_known=False)


@pytest.mark.parametrize("command", ATTACKS)
def test_a_command_that_may_run_the_program_waits(command: str) -> None:
    assert waits("Bash(rm *)", "Bash", {"command": command})


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls -la src",
        "cd src && ls; git status || echo none",
        "npm run format",
        "pytest -x tests/unit",
        "git commit -m 'Warm up the form'",
        "cat a.txt | grep -n alarm | sort | head -5",
        "make clean",
        "ls ./src ../other /tmp/x",
        "sudo ls src/x",
        'echo "a b" c',
        "grep -rn python src | head",
        "ls -lash node_modules src/java/x",
        "git add index.php x.sh docs/python.md && git clone ssh://host/x",
        "pip install python-dotenv --confirm",
    ],
)
def test_a_command_that_names_only_other_programs_is_let_through(command: str) -> None:
    assert not waits("Bash(rm *)", "Bash", {"command": command})


@pytest.mark.parametrize(
    ("rule", "command", "expected"),
    [
        ("Bash(git push *)", "git push origin main", True),
        ("Bash(git push:*)", "git -C x push", True),
        ("Bash(git push)", "/usr/lib/git-core/git-push", True),
        ("Bash(git push *)", "git status", False),
        ("Bash(./deploy.sh *)", "bash deploy.sh", True),
        ("Bash(./deploy.sh *)", "../x/deploy.sh now", True),
        ("Bash(./deploy.sh *)", "bin/deployXsh", False),
        ("Bash(git push *)", "push git", False),
        ("Bash(git push *)", "git " * 50_000, False),
        ("Bash", "ls", True),
        ("Bash(*)", "ls", True),
    ],
)
def test_the_words_of_a_rule_are_found_in_their_order(
    rule: str, command: str, *, expected: bool
) -> None:
    assert waits(rule, "Bash", {"command": command}) is expected


@pytest.mark.parametrize(
    ("tool", "tool_input", "expected"),
    [
        ("Monitor", {"command": "tail -f log"}, False),
        ("Monitor", {"command": "rm x"}, True),
        ("PowerShell", {"command": "ls"}, True),
        ("REPL", {"code": "1"}, True),
        ("Bash", {"command": 7}, True),
        ("Bash", {}, True),
        ("Bash", None, True),
        ("Write", {"file_path": "rm"}, False),
    ],
)
def test_a_rule_for_commands_holds_for_every_tool_that_runs_commands(
    tool: str, tool_input: Any, *, expected: bool
) -> None:
    assert waits("Bash(rm *)", tool, tool_input) is expected


@pytest.mark.parametrize(
    ("rule", "tool", "expected"),
    [
        ("Write", "Write", True),
        ("Write", "WriteFile", False),
        ("mcp__tools__refund", "mcp__tools__refund", True),
        ("mcp__tools__refund", "mcp__tools__refund_all", False),
        ("mcp__tools", "mcp__tools__refund", True),
        ("mcp__tools__*", "mcp__tools__refund", True),
        ("mcp__tools", "mcp__tools2__refund", False),
    ],
)
def test_a_rule_without_a_pattern_is_about_every_call(
    rule: str, tool: str, *, expected: bool
) -> None:
    assert waits(rule, tool, {}) is expected


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "rm *",
        "Bash(",
        "Bash()",
        "Bash(r*)",
        "Bash(rm -rf *)",
        "Bash(git push --force *)",
        "Bash(rm; ls)",
        "Bash(a|b)",
        "Bash(-rf)",
        "Write(*.env)",
        "Read(./secrets/**)",
        "mcp__tools__refund(x)",
        "Ba*",
        7,
        None,
    ],
)
def test_another_text_is_not_a_rule(rule: Any) -> None:
    with pytest.raises(OptionsError) as caught:
        read_rule("approve[2]", rule)
    assert str(caught.value).startswith("approve[2] ")
    assert caught.value.fix
