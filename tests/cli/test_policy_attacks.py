"""What hostile commands, paths and URLs make of a policy: nothing that its rules do not show."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path
from typing import Literal

import pytest

from bridle import OptionsError
from bridle.approvals._shell_words import literal_words
from bridle.cli._policy.path_patterns import Place
from bridle.cli._policy.policy import Policy, Ruling, parse_policy

Decision = Literal["allow", "deny", "ask"]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a few files, a secret, and links that lead out of it and into it."""
    repo = tmp_path / "repo"
    for directory in ("docs", ".claude", "src", ".git/hooks"):
        (repo / directory).mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name in ("docs/a.md", "src/a.py", ".env", ".claude/notes.md", "../elsewhere/x.md"):
        (repo / name).touch()
    (repo / "out").symlink_to(tmp_path / "elsewhere")
    (repo / "docs/out.md").symlink_to(tmp_path / "elsewhere/x.md")
    (repo / "docs/loop.md").symlink_to("loop.md")
    (repo / "through").symlink_to(f"/proc/self/root{repo}/src")
    (tmp_path / "elsewhere/in.md").symlink_to(repo / "docs/a.md")
    (tmp_path / "alias").symlink_to(repo)
    return repo


def policy(repo: Path, *rules: str) -> Policy:
    """The policy of a run that starts in the repository."""
    text = "".join(f"[[rule]]\n{rule}\n" for rule in rules)
    return parse_policy(text, "policy", Place(str(repo), str(repo.parent / "home")))


def bash(pattern: str, decision: Decision = "allow") -> str:
    """A rule about a command."""
    return f'tool = "Bash"\ninput.command = """{pattern}"""\ndecision = "{decision}"'


def files(pattern: str, decision: Decision = "allow") -> str:
    """A rule about a file."""
    return f'tool = "Read"\ninput.file_path = """{pattern}"""\ndecision = "{decision}"'


# ---------------------------------------------------------------- commands

ALLOWED = (
    *("git status *", "git diff -- *", "cat .claude/*", "wc *", "echo *", "ls docs/*.md"),
    *("grep -e *", "curl https://api.example.com/v1/*", "grep --include=* -r *", "diff * docs"),
    *("rg -n -- *", "sort *", "git log -n 5 *"),
)

FIT = [
    "git status",
    "git status src docs/a.md",
    "git diff -- src/a.py",
    "cat .claude/notes.md",
    "wc 'src/a.py'",
    'wc "src/a.py"',
    "wc src/../docs/a.md",
    "ls docs/a.md",
    "grep -e 'Mend it; do not $ask | why' src/a.py",
    'grep -e "fix: a (b) & c"',
    "curl https://api.example.com/v1/items",
    "grep --include=src -r word src",
    "diff src/a.py docs",
    "rg -n -- word src",
    "sort src/a.py docs/a.md",
    "git log -n 5 src",
    "\twc  src/a.py ",
]


@pytest.mark.parametrize("command", FIT)
def test_plain_commands_are_allowed(repo: Path, command: str) -> None:
    rules = policy(repo, *map(bash, ALLOWED))
    assert rules.decide("Bash", {"command": command}, str(repo)).decision == "allow"


ATTACKS = [
    # other commands beside it
    "git status; touch pwned",
    "git status && touch pwned",
    "git status || touch pwned",
    "git status & touch pwned",
    "git status | sh",
    "git status |& sh",
    "git status\ntouch pwned",
    "git status\r\ntouch pwned",
    "git status\\\n; touch pwned",
    "(git status)",
    "{ git status; }",
    "! git status",
    "time git status",
    "if git status; then touch pwned; fi",
    # expansions
    "git status $(touch pwned)",
    "git status `touch pwned`",
    'git status "$(touch pwned)"',
    'git status "`touch pwned`"',
    "git status <(touch pwned)",
    "git status $HOME",
    'git status "${x:=y}"',
    "git status $((1))",
    "git status $'\\x2e\\x2e'",
    "git status {a,/etc}",
    "git status ~/x",
    "git status ~root/x",
    "wc src/*.py",
    "wc src/?.py",
    "wc [a-z]",
    "wc =ls",
    "git status sr\\c",
    # redirections
    "git status > docs/a.md",
    "git status >docs/a.md",
    "git status 2>&1",
    "cat .claude/notes.md < /etc/passwd",
    "echo x >> src/a.py",
    "git status <<< x",
    "git status <<X\nX",
    # assignments and other programs
    "GIT_EXTERNAL_DIFF=x git status",
    "PATH=. git status",
    "A+=1 git status",
    "/repo/evil/git status",
    "./git status",
    "gitstatus",
    "git 'status touch'",
    # options that nobody named
    "git -c alias.x='!touch pwned' x",
    "git -c core.fsmonitor=touch status",
    "git status -c x",
    "git status --porcelain",
    "git -C /etc status",
    "git --exec-path=/tmp status",
    "wc --files0-from=x",
    "wc -",
    "wc -- x",
    "wc '-c'",
    "git diff --output=x -- src/a.py",
    "git config alias.x '!touch pwned'",
    "git",
    # paths that lead out, or to hidden files
    "cat .claude/'..'/.env",
    'cat .claude/".."/.env',
    "cat .claude/../.env",
    "cat .claude/../../elsewhere/x.md",
    "cat .claude/'../../elsewhere/x.md'",
    "cat .claude",
    "wc ..",
    "wc /etc/passwd",
    "wc //etc/passwd",
    "wc '/etc/passwd'",
    "wc '~/x'",
    "wc .env",
    "wc src/../.env",
    "wc .git/config",
    "wc out/x.md",
    "wc docs/out.md",
    "wc out/../x",
    "ls docs/out.md",
    "echo if=/etc/passwd",
    "echo of=../x",
    "echo host:/etc/passwd",
    "echo a,/etc/passwd",
    "echo @/etc/passwd",
    "echo HEAD:.env",
    "grep --include=/etc -r word",
    "grep --include=../x -r word",
    "grep --include= -r word",
    "grep --includex=a -r word",
    "diff /etc/passwd docs",
    "diff src/a.py docs extra",
    "diff docs",
    "rg -n --pre=x word",
    "rg -n --pre x -- word",
    "sort -o src/a.py",
    "sort --compress-program=x src/a.py",
    "git log -n 5 --output=x",
    # URLs
    "curl https://api.example.com/v1/../admin",
    "curl https://api.example.com/v1/%2e%2e/admin",
    "curl 'https://api.example.com/v1/{..}/admin'",
    "curl 'https://api.example.com/v1/{x,..}/admin'",
    "curl 'https://api.example.com/v1/.{.}/admin'",
    "curl 'https://api.example.com/v1/[.-.][.-.]/admin'",
    "curl 'https://api.example.com/v1/x[1-999]'",
    "curl 'https://api.example.com/v1/x?{a,b}'",
    "curl 'https://api.example.com/v1/..;/admin'",
    "curl 'https://api.example.com/v1/..%3b/admin'",
    "curl https://api.example.com/v1/%252e%252e/admin",
    "curl https://api.example.com/v1/%252e%252e%252fadmin",
    "curl 'https://api.example.com/v1/..\\\\admin'",
    "curl https://api.example.com/v1%2f..%2fadmin",
    "curl https://api.example.com@evil.org/v1/x",
    "curl https://api.example.com.evil.org/v1/x",
    "curl https://api.example.com:8080/v1/x",
    "curl http://api.example.com/v1/x",
    "curl file:///etc/passwd",
    "curl evil.com/x",
    "curl https://api.example.com/v1/x evil.com",
    "curl https://api.example.com/v1/x https://evil.com",
    # odd characters
    "git status\x00touch",
    "git status\x0btouch",
    "git status\xa0touch",
    "git status\u2028touch",
    "git\u200bstatus",
    "git status '\ud800'",
    "git status 'unfinished",
    'git status "unfinished',
    "git status # comment",
    "git status !!",
    'git status "!x"',
    "",
    " ",
]


@pytest.mark.parametrize("command", ATTACKS)
def test_hostile_commands_are_not_allowed(repo: Path, command: str) -> None:
    rules = policy(repo, *map(bash, ALLOWED))
    assert rules.decide("Bash", {"command": command}, str(repo)).decision == "ask"


@pytest.mark.parametrize("command", ["wc src/a.py", "cat .claude/notes.md"])
def test_relative_words_need_the_directory_of_the_call(repo: Path, command: str) -> None:
    """The shell of the CLI keeps its directory from one command to the next."""
    rules = policy(repo, *map(bash, ALLOWED))
    assert rules.decide("Bash", {"command": command}, "/etc").decision == "ask"
    assert rules.decide("Bash", {"command": command}, None).decision == "ask"
    assert rules.decide("Bash", {"command": "wc a.py"}, str(repo / "src")).decision == "allow"


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_real_shell_reads_the_words_that_were_compared(shell: str) -> None:
    """Random commands of awkward characters; those the parser accepts are run by the shell."""
    chance = random.Random(7)
    parts = [*"a-='\" \t$`\\~*{,}!#;%^[](:/+@&<?|\n\x01\xa0é", "..", "X=", "--x=", "''"]
    commands = {
        "p " + "".join(chance.choices(parts, k=chance.randint(1, 7))) for _ in range(20_000)
    }
    read = {
        command: words
        for command in sorted(commands)
        if (words := literal_words(command)) is not None
    }
    assert len(read) > 300
    script = """
        p() { for word; do printf '%s\\0' "$word"; done; printf '\\n\\0'; }
        for command; do eval "$command"; done
    """
    ran = subprocess.run([shell, "-c", script, shell, *read], capture_output=True, check=True)
    said = ran.stdout.decode().split("\n\0")[:-1]
    assert [("p", *one.split("\0")[:-1]) for one in said] == list(read.values())
    assert ran.stderr == b""


def test_a_command_outside_the_sandbox_must_be_named(repo: Path) -> None:
    call = {"command": "git status", "dangerouslyDisableSandbox": True}
    named = bash("git status") + '\ninput.dangerouslyDisableSandbox = "true"'
    assert policy(repo, bash("git status")).decide("Bash", call).decision == "ask"
    assert policy(repo, named).decide("Bash", call).decision == "allow"


# More than reading what a wildcard names: these run, write, install, reach or change something.
UNBOUNDED = (
    *("git *", "git -C * status", "git push *", "git submodule foreach *", "git hook *"),
    *("git ls-remote *", "git config *", "git commit -m *", "git branch *", "/opt/git status *"),
    *("./cat *", "bin/ls *", "X=1 ls *", "find . -exec *", "find *", "uniq *", "xxd *", "jq *"),
    *("npm run *", "npm add *", "npm run-script *", "npm create *", "npm init *", "yarn add *"),
    *(
        "poetry add *",
        "pip download *",
        "uv pip *",
        "uv pip install *",
        "cargo r *",
        "cargo test *",
    ),
    *("docker container *", "docker ps *", "gh extension *", "gh alias *", "gh pr view *"),
    *("sh *", "python3.12 *", "make *", "gmake *", "env * git", "nodejs *", "pypy3 *", "tclsh *"),
    *("julia *", "sqlite3 *", "pytest *", "cp * docs", "tee *", "date *", "less *", "sed -n *"),
    *("wget *", "wget https://example.com/*", "nc *", "dig *", "ssh *", "ping *", "LS *"),
    *("pip install https://example.com/*", "git clone https://example.com/*"),
)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("*", "leave input.command out"),
        *((pattern, "without wildcards") for pattern in UNBOUNDED),
        ("g?t status", "name the program"),
        ("sort -o *", "write -- before"),
        ("sort --output=*", "write -- before"),
        ("sort --compress-program=*", "write -- before"),
        ("rg --pre *", "write -- before"),
        ("rg --pre=* x", "write -- before"),
        ("git diff --output *", "write -- before"),
        ("git diff --output=*", "write -- before"),
        ("git diff --stat *", "write -- before"),
        ("curl *", "https://"),
        ("curl -o * https://example.com/*", "https://"),
        ("curl https://example.com/* *", "https://"),
        ("curl --proxy=* https://example.com/", "https://"),
        ("ls | wc *", "one simple command"),
        ("ls > *", "one simple command"),
        ("ls $HOME", "one simple command"),
        ("ls ~/*", "one simple command"),
        ("ls --*", "options"),
        ("ls -*", "options"),
        ("grep --incl*=x", "options"),
        ("ls 'a*'b*", "quoted"),
        ("curl https://example.com*", "host"),
        ("curl https://*/x", "host"),
        ("curl ftp://example.com/*", "host"),
        ("cat docs/*/../*", "'..'"),
    ],
)
def test_what_a_rule_cannot_promise_is_refused(repo: Path, pattern: str, what: str) -> None:
    with pytest.raises(OptionsError) as caught:
        policy(repo, bash(pattern))
    assert caught.value.field == "policy, rule 1 (line 1)"
    assert what in caught.value.problem
    assert caught.value.fix
    assert policy(repo, bash(pattern, "ask")).rules, "a rule that asks may be that wide"


@pytest.mark.parametrize(
    "pattern",
    [
        *("git status", "python tools/x.py", "make test", "find . -name '*.py'", "sh x.sh"),
        *("uv pip install x", "git push origin main", "sort -o a b", "curl evil.com/x"),
    ],
)
def test_a_command_that_is_written_out_is_allowed_as_it_is(repo: Path, pattern: str) -> None:
    rules = policy(repo, bash(pattern))
    assert rules.decide("Bash", {"command": pattern}).decision == "allow"
    assert rules.decide("Bash", {"command": f"{pattern} more"}).decision == "ask"


# ---------------------------------------------------------------- commands that are denied


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "rm",
        "rm  -rf   x",
        "/bin/rm x",
        "r\\m x",
        "r''m x",
        '"rm" x',
        "RM x",
        "true; rm x",
        "true && rm x",
        "true | rm x",
        "true & rm x",
        "true\nrm x",
        "r\\\nm x",
        "$(rm x)",
        "`rm x`",
        'echo "$(rm x)"',
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "for i in a; do rm x; done",
        "X=1 rm x",
        "> y rm x",
        ">y rm x",
        "2>/dev/null rm x",
        "sudo rm x",
        "sudo -u root rm x",
        "/usr/bin/env A=b rm x",
        "timeout 5 rm x",
        "xargs -n 1 rm",
        "bash -c 'rm x'",
        "eval 'rm x'",
        "find . -exec rm {} ;",
        "exec rm x",
        "! rm x",
        "time rm x",
        "time -p rm victim",
        "function f { rm victim; }; f",
        "f() { rm victim; }; f",
        "coproc rm x",
        "coproc A { rm x; }",
        "repeat 3 rm x",
        "awk 'BEGIN { system(\"rm x\") }'",
    ],
)
def test_a_command_to_ask_about_is_found_wherever_it_stands(repo: Path, command: str) -> None:
    rules = policy(repo, bash("rm *", "ask"), 'tool = "Bash"\ndecision = "allow"')
    # Without a reason the rule surely matches. Otherwise the reason says that this is unclear.
    assert rules.decide("Bash", {"command": command}) == Ruling("ask", 1)


@pytest.mark.parametrize(
    "command",
    [
        "$X x",
        "$'\\x72m' x",
        "X=rm; $X x",
        "{rm,x}",
        "/bin/r? x",
        "/bin/r[m] x",
        "echo $HOME",
        "sudo " + "-x " * 40 + "rm",
        # programs that run others
        "taskset 1 rm x",
        "chronic rm x",
        "runuser -u root rm x",
        "fakeroot rm x",
        "setpriv --nnp rm x",
        "ltrace rm x",
        "valgrind /bin/rm x",
        "npx rm x",
        "uv run rm x",
        "git rm x",
        'sg root "rm x"',
        'capsh -- -c "rm x"',
        'vim -c "!rm x"',
        'vim -c ":!rm x"',
        'git -c alias.x="!rm x" x',
        'tar --to-command="rm x" -xf a.tar',
        "tar --to-command=rm -xf a.tar",
        "fd -x rm",
        # other names for it
        "alias z=rm; z x",
        "alias z=x",
        "hash -p /bin/rm foo; foo x",
        "hash -p /bin/x foo; foo x",
        "=rm x",
        "ln -s /bin/rm z",
        # what a shell or an interpreter gets is not in the text
        "echo rm x | sh",
        "echo cm0gdmljdGlt | base64 -d | sh",
        "echo cm0gdmljdGlt | base64 -d | /bin/bash -s",
        "echo cm0gdmljdGlt | base64 -d | sudo sh",
        "echo cm0gdmljdGlt | base64 -d | xargs env",
        "echo cm0gdmljdGlt | base64 -d | xargs -n2 env",
        "echo cm0gdmljdGlt | base64 -d | xargs -I % env %",
        "echo cm0gdmljdGlt | base64 -d | taskset 1 sh",
        "echo cm0gdmljdGlt | base64 -d | sudo -u root sh",
        "echo cm0gdmljdGlt | base64 -d | parallel",
        "echo cm0gdmljdGlt | base64 -d | at now",
        "bash x.sh",
        "bash --rcfile x",
        ". ./x.sh",
        "source x.sh",
        "python3.12 -",
        'python -c "import os"',
        "perl -e 1",
        "node x.js",
        "awk -f x",
        "nodejs x.js",
    ],
)
def test_a_command_that_a_rule_cannot_read_is_asked_about(repo: Path, command: str) -> None:
    rules = policy(repo, bash("rm *", "ask"), 'tool = "Bash"\ndecision = "allow"')
    ruling = rules.decide("Bash", {"command": command})
    assert (ruling.decision, ruling.rule, ruling.is_binding) == ("ask", 1, True)


@pytest.mark.parametrize(
    "command",
    [
        *("ls", "cat src/*.py", "[ -f x ]", "ls 2>/dev/null", "git status", "echo farm arm"),
        *("bash -c 'ls -l'", "sudo ls", "time ls", "echo a | wc -l", "npx tsc"),
    ],
)
def test_other_commands_are_not_asked_about(repo: Path, command: str) -> None:
    rules = policy(repo, bash("rm *", "ask"), 'tool = "Bash"\ndecision = "allow"')
    assert rules.decide("Bash", {"command": command}).decision == "allow"


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("git push origin main", "ask"),
        ("git -C . push", "ask"),
        ("git -c a=b push origin", "ask"),
        ("chronic git push", "ask"),
        ("git status", "allow"),
        ("echo push git", "allow"),
    ],
)
def test_a_subcommand_to_ask_about_is_found_behind_options(
    repo: Path, command: str, decision: Decision
) -> None:
    rules = policy(repo, bash("git push *", "ask"), 'tool = "Bash"\ndecision = "allow"')
    assert rules.decide("Bash", {"command": command}).decision == decision


def test_a_doubt_does_not_weaken_what_is_denied_anyway(repo: Path) -> None:
    doubt, rest = bash("rm *", "ask"), 'tool = "*"\ndecision = "deny"'
    assert policy(repo, doubt, rest).decide("Bash", {"command": "$X"}).rule == 2


def test_a_huge_command_is_decided_in_no_time(repo: Path) -> None:
    """Time grows with the length, not with a power of it."""
    rules = policy(repo, bash("*rm*-rf*/*x", "ask"), bash("wc *"), files("/*a*a*a*b"))
    begun = time.process_time()
    rules.decide("Bash", {"command": "rm -rf / " * 30_000}, str(repo))
    rules.decide("Bash", {"command": "sudo " * 30_000}, str(repo))
    rules.decide("Bash", {"command": "wc " + "'a'" * 30_000}, str(repo))
    rules.decide("Read", {"file_path": "/" + "a" * 30_000}, str(repo))
    denied = f'tool = "WebFetch"\ninput.url = "{EVIL}"\ndecision = "deny"'
    for url in ("https://a/" + "%25" * 30_000, "https://" + "a@" * 30_000, "https://a/../" * 9_000):
        policy(repo, denied).decide("WebFetch", {"url": url}, str(repo))
    assert time.process_time() - begun < 5


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("docs/*.md", "docs/a.md"),
        ("docs/*.md", "{repo}/docs/a.md"),
        ("docs/*.md", "{repo}/src/../docs/./a.md"),
        ("{repo}/*", "{repo}/src/a.py"),
        ("{repo}/*", "{repo}/new/file"),
        ("{repo}/.claude/*", "{repo}/.claude/notes.md"),
        ("{repo}/.*", "{repo}/.env"),
        ("{alias}/docs/*", "{alias}/docs/a.md"),
        ("{alias}/docs/*", "{repo}/docs/a.md"),
        ("../elsewhere/*", "../elsewhere/x.md"),
        ("~/*", "~/x"),
        ("docs/a.md", "docs/a.md"),
        ("docs/", "docs"),
        ("/*", "/etc/passwd"),
    ],
)
def test_paths_below_the_named_directory_are_allowed(repo: Path, pattern: str, path: str) -> None:
    names = {"repo": repo, "alias": repo.parent / "alias"}
    rules = policy(repo, files(pattern.format(**names)))
    ruling = rules.decide("Read", {"file_path": path.format(**names)}, str(repo))
    assert ruling.decision == "allow"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("{repo}/*.md", "{repo}/docs/out.md"),
        ("{repo}/*.md", "{repo}/out/x.md"),
        ("{repo}/*.md", "{repo}/docs/loop.md/../../../elsewhere/x.md"),
        ("{repo}/*", "{repo}/../elsewhere/x.md"),
        ("{repo}/*", "{repo}/docs/../../elsewhere/x.md"),
        ("{repo}/*", "{repo}/out/../x"),
        ("{repo}/*", "{repo}"),
        ("{repo}/*", "{repo}/.env"),
        ("{repo}/*", "{repo}/.git/hooks/pre-commit"),
        ("{repo}/*", "{repo}/.claude/settings.json"),
        ("{repo}/*", "{repo}/docs/.hidden"),
        ("{repo}/.*", "{repo}/../elsewhere/x.md"),
        ("{repo}/.*", "{repo}/.."),
        ("{repo}/.*", "{repo}/src/a.py"),
        ("{repo}/docs/*", "{repo}/docs-private/x"),
        ("{repo}/docs/?", "{repo}/docs//"),
        ("*", "/etc/passwd"),
        ("*", "//etc/passwd"),
        ("*", " /etc/passwd"),
        ("*", "/etc/passwd "),
        ("*", "~/x"),
        ("*", "~root/x"),
        ("*", "~"),
        ("*", "..\x00"),
        ("*", ""),
        ("*", "e\u0301"),
        ("*.md", "/elsewhere/x.md"),
        ("docs/a.md", "{repo}/../elsewhere/in.md"),
        ("docs/out.md", "docs/out.md"),
        ("~/*", "~/../elsewhere/x.md"),
        ("/proc/self/*", "/proc/self/cwd/x"),
        ("/proc/*", "/proc/cpuinfo"),
        ("/*", "/proc/self/environ"),
        ("/*", "/proc/../etc/passwd"),
        ("/*", "/dev/fd/0"),
        ("/*", "/dev/stdin"),
        ("{repo}/*", "/proc/self/root{repo}/src/a.py"),
        ("{repo}/*", "{repo}/through/a.py"),
    ],
)
def test_hostile_paths_are_not_allowed(repo: Path, pattern: str, path: str) -> None:
    rules = policy(repo, files(pattern.format(repo=repo)))
    ruling = rules.decide("Read", {"file_path": path.format(repo=repo)}, str(repo))
    assert ruling.decision == "ask"


def test_a_directory_of_a_rule_is_resolved_before_anything_runs(repo: Path) -> None:
    rules = policy(repo, files("docs/*"))
    os.rename(repo / "docs", repo / "old")
    (repo / "docs").symlink_to(repo.parent / "elsewhere")
    assert rules.decide("Read", {"file_path": "docs/x.md"}, str(repo)).decision == "ask"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.env", "{repo}/.env"),
        ("*.env", "{repo}/.ENV"),
        ("*.env", ".env"),
        (".env", "{repo}/.env"),
        (".env", "docs/../.env"),
        (".env", "./.env"),
        ("{repo}/.env", ".env"),
        ("{repo}/.env", "{alias}/.env"),
        ("{repo}/.env", " {repo}/.env"),
        ("{alias}/.env", "{repo}/.env"),
        ("{repo}/src/*", "{repo}/src"),
        ("{repo}/src", "{repo}/src/a.py"),
        ("../elsewhere/*", "{repo}/docs/out.md"),
        ("../elsewhere/*", "{repo}/out/x.md"),
        ("out", "{repo}/../elsewhere/x.md"),
        ("~/.ssh/*", "~/.ssh/id"),
        ("~/.ssh/*", "../home/.ssh/id"),
    ],
)
def test_a_denied_path_is_found_under_every_name(repo: Path, pattern: str, path: str) -> None:
    names = {"repo": repo, "alias": repo.parent / "alias"}
    rules = policy(repo, files(pattern.format(**names), "deny"), 'tool = "*"\ndecision = "allow"')
    ruling = rules.decide("Read", {"file_path": path.format(**names)}, str(repo))
    assert ruling.decision == "deny"


@pytest.mark.parametrize(
    "path", ["/proc/self/cwd/.env", "/proc/1/cwd/x", "/dev/fd/9", "{repo}/through/x"]
)
def test_a_path_of_another_process_is_asked_about(repo: Path, path: str) -> None:
    """Such a path leads somewhere else in the CLI than in this process."""
    rules = policy(repo, files(".env", "deny"), 'tool = "*"\ndecision = "allow"')
    ruling = rules.decide("Read", {"file_path": path.format(repo=repo)}, str(repo))
    assert (ruling.decision, ruling.rule) == ("ask", 1)


# ---------------------------------------------------------------- URLs and names of tools


@pytest.mark.parametrize(
    ("pattern", "url", "decision"),
    [
        ("https://example.com/*", "https://example.com/a?b#c", "allow"),
        ("https://example.com/*", "HTTPS://Example.COM", "allow"),
        ("https://example.com", "https://example.com/", "allow"),
        ("https://*.example.com/*", "https://docs.example.com/a", "allow"),
        ("https://*.example.com/*", "https://example.com/a", "ask"),
        ("https://*.example.com/*", "https://evil.org/.example.com/a", "ask"),
        ("https://example.com/docs/*", "https://example.com/docs/../a", "ask"),
        ("https://example.com/*", "https://example.com.evil.org/", "ask"),
        ("https://example.com/*", "https://x@example.com/", "ask"),
        ("https://example.com/*", "https://example.com\\@evil.org/", "ask"),
        ("https://example.com/*", "https://example.com:1/", "ask"),
        ("https://example.com/*", " https://example.com/", "ask"),
        ("https://example.com/*", "https://example.com/\n", "ask"),
        ("https://example.com", "https://example.com/a", "ask"),
    ],
)
def test_urls_are_compared_by_their_parts(
    repo: Path, pattern: str, url: str, decision: Decision
) -> None:
    rules = policy(repo, f'tool = "WebFetch"\ninput.url = "{pattern}"\ndecision = "allow"')
    assert rules.decide("WebFetch", {"url": url}).decision == decision


@pytest.mark.parametrize("pattern", ["*", "*example.com*", "https://example.com*", "example.com/*"])
def test_a_url_pattern_without_a_host_is_refused(repo: Path, pattern: str) -> None:
    with pytest.raises(OptionsError):
        policy(repo, f'tool = "WebFetch"\ninput.url = "{pattern}"\ndecision = "allow"')


EVIL = "https://evil.com/*"


@pytest.mark.parametrize(
    ("pattern", "url", "decision"),
    [
        (EVIL, "https://evil.com/x", "deny"),
        (EVIL, "https://evil.com:443/x", "deny"),
        (EVIL, "https://evil.com:8443/x", "deny"),
        (EVIL, "https://evil.com:/x", "deny"),
        (EVIL, "https://evil.com./x", "deny"),
        (EVIL, "https://a@evil.com/x", "deny"),
        (EVIL, "https://a:b@c@evil.com/x", "deny"),
        (EVIL, " https://evil.com/x", "deny"),
        (EVIL, "\x00https://evil.com/x", "deny"),
        (EVIL, "https://evil.com", "deny"),
        (EVIL, "https://evil.com?x", "deny"),
        (EVIL, "https://evil.com#x", "deny"),
        (EVIL, "https://e%76il.com/x", "deny"),
        (EVIL, "https://e%2576il.com/x", "deny"),
        (EVIL, "https:\\\\evil.com\\x", "deny"),
        (EVIL, "https:/evil.com/x", "deny"),
        (EVIL, "https:evil.com/x", "deny"),
        (EVIL, "https:////evil.com/x", "deny"),
        (EVIL, "https://ev\til.com/x", "deny"),
        (EVIL, "ht\ntps://evil.com/x", "deny"),
        (EVIL, "http://evil.com/x", "deny"),
        (EVIL, "HTTPS://EVIL.com/x", "deny"),
        (EVIL, "https://\uff45vil\u3002com/x", "deny"),
        (EVIL, "ev\u00adil.com/x", "deny"),
        (EVIL, "evil.com/x", "deny"),
        (EVIL, "//evil.com/x", "deny"),
        (EVIL, "evil.com:443/x", "deny"),
        (EVIL, "https://good.com\\@evil.com/x", "deny"),
        (EVIL, "https://good.com/x", "allow"),
        (EVIL, "https://notevil.com/x", "allow"),
        (EVIL, "https://evil.com.good.com/x", "allow"),
        (EVIL, "https://good.com/evil.com/x", "allow"),
        (EVIL, "http://localhost:8080/", "allow"),
        (EVIL, "http://127.0.0.1:80/", "allow"),
        (EVIL, "good.com/x", "ask"),
        (EVIL, "", "ask"),
        (EVIL, "https://", "ask"),
        (EVIL, "https:///", "ask"),
        (EVIL, "file:///etc/passwd", "ask"),
        (EVIL, "https://good.com:x/", "ask"),
        (EVIL, "https://good.com:80:80/", "ask"),
        (EVIL, "https://go%2Fod.com/", "ask"),
        (EVIL, "https://xn--e1awd7f.com/", "ask"),
        (EVIL, "https://\u0435vil.com/x", "ask"),
        (EVIL, "https://[::1]/", "ask"),
        (EVIL, "https://good.com\\x", "ask"),
        ("http://127.0.0.1/*", "http://127.0.0.1:8080/x", "deny"),
        ("http://127.0.0.1/*", "http://2130706433/x", "ask"),
        ("http://127.0.0.1/*", "http://0x7f.0.0.1/x", "ask"),
        ("http://127.0.0.1/*", "http://0177.0.0.1/x", "ask"),
        ("http://127.0.0.1/*", "http://127.1/x", "ask"),
        ("http://127.0.0.1/*", "http://[::ffff:127.0.0.1]/x", "ask"),
        ("https://evil.com", "https://evil.com/x", "deny"),
        ("https://evil.com", "http://evil.com", "deny"),
        ("https://evil.com:8443/*", "https://evil.com:8443/x", "deny"),
        ("https://evil.com:443/*", "https://evil.com/x", "deny"),
        ("https://evil.com:8443/*", "https://evil.com/x", "allow"),
        ("https://*.evil.com/*", "https://a.evil.com./x", "deny"),
        ("https://*.evil.com/*", "https://evil.com/x", "deny"),
        ("https://evil.com/admin/*", "https://evil.com/%61dmin/x", "deny"),
        ("https://evil.com/admin/*", "https://evil.com/a/../admin/x", "deny"),
        ("https://evil.com/admin/*", "https://evil.com/a/%2e%2e/admin/x", "deny"),
        ("https://evil.com/admin/*", "https://evil.com//admin/x", "deny"),
        ("https://evil.com/admin/*", "https://evil.com/ADMIN/x", "deny"),
        ("https://evil.com/admin/*", "https://evil.com/admin", "deny"),
        ("https://evil.com/admin/*", "https://evil.com/news", "allow"),
        ("*evil.com*", "https://e%76il.com/x", "deny"),
        ("evil.com/*", "https://evil.com/x", "deny"),
        ("evil.com", "https://evil.com/x", "deny"),
        ("*", "anything", "deny"),
    ],
)
def test_a_denied_url_is_found_in_every_spelling(
    repo: Path, pattern: str, url: str, decision: Decision
) -> None:
    denied = f'tool = "WebFetch"\ninput.url = "{pattern}"\ndecision = "deny"'
    rules = policy(repo, denied, 'tool = "*"\ndecision = "allow"')
    assert rules.decide("WebFetch", {"url": url}).decision == decision


@pytest.mark.parametrize("decision", ["allow", "deny", "ask"])
@pytest.mark.parametrize(
    ("written", "called"),
    [
        ("Task", "Agent"),
        ("Agent", "Task"),
        ("KillShell", "TaskStop"),
        ("KillBash", "KillShell"),
        ("BashOutput", "TaskOutput"),
        ("ListMcpResources", "ListMcpResourcesTool"),
    ],
)
def test_old_and_new_names_of_a_tool_are_the_same(
    repo: Path, written: str, called: str, decision: Decision
) -> None:
    rules = policy(repo, f'tool = "{written}"\ndecision = "{decision}"')
    assert rules.decide(called, {}).rule == 1


def test_a_wildcard_reaches_an_old_name_only_to_deny(repo: Path) -> None:
    assert policy(repo, 'tool = "Ta*k"\ndecision = "deny"').decide("Agent", {}).rule == 1
    assert policy(repo, 'tool = "Ta*k"\ndecision = "allow"').decide("Agent", {}).rule == 0


@pytest.mark.parametrize("tool", ["Glob", "Gl*", "*", "?lob"])
def test_a_rule_that_allows_by_the_pattern_of_glob_is_refused(repo: Path, tool: str) -> None:
    with pytest.raises(OptionsError, match=r"input\.path"):
        policy(repo, f'tool = ["Read", "{tool}"]\ninput.pattern = "*.py"\ndecision = "allow"')


@pytest.mark.parametrize(
    ("pattern", "decision"),
    [
        ("*.py", "allow"),
        ("**/*.{py,md}", "allow"),
        ("sub/[ab]*.py", "allow"),
        ("/etc/host*", "ask"),
        (" /etc/host*", "ask"),
        ("[/]etc/host*", "ask"),
        ("{/etc,x}/host*", "ask"),
        ("{x,/etc}/host*", "ask"),
        ("{,x}/etc/host*", "ask"),
        ("!/etc/host*", "ask"),
        ("~/*", "ask"),
        ("\\\\host\\x", "ask"),
        ("C:/x", "ask"),
        ("../*", "ask"),
        ("sub/../../*", "ask"),
        (".{.,x}/*", "ask"),
        ("[.][.]/*", "ask"),
        (".\\./*", "ask"),
        ("", "ask"),
        (["*"], "ask"),
        (None, "ask"),
    ],
)
@pytest.mark.parametrize("tool", ["Glob", "Gl*", "*"])
def test_a_glob_is_allowed_only_below_its_path(
    repo: Path, tool: str, pattern: object, decision: Decision
) -> None:
    rules = policy(repo, f'tool = "{tool}"\ninput.path = "src/*"\ndecision = "allow"')
    call = {"path": str(repo / "src/x"), "pattern": pattern}
    assert rules.decide("Glob", call, str(repo)).decision == decision


def test_a_rule_without_members_allows_every_glob(repo: Path) -> None:
    rules = policy(repo, 'tool = "Glob"\ndecision = "allow"')
    assert rules.decide("Glob", {"pattern": "/etc/*"}, str(repo)).decision == "allow"


def test_a_denied_path_is_found_in_the_pattern_of_a_glob(repo: Path) -> None:
    denied = 'tool = "Glob"\ninput.path = "/etc/*"\ndecision = "deny"'
    rules = policy(repo, denied, 'tool = "*"\ndecision = "allow"')
    assert rules.decide("Glob", {"pattern": "/etc/host*"}, str(repo)).decision == "deny"
    assert rules.decide("Glob", {"pattern": "*.py"}, str(repo)).decision == "allow"
