"""The secrets of a session: from its launch, from the files it names, from the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.processes import plan

from bridle._engine.versions import Version
from bridle._observe.known_secrets import KnownSecrets, clean, clean_answer
from bridle._process.locate import Failed, TimedOut, Unreadable, VersionAnswer
from bridle.errors import BridleError, ControlRejected, OptionsError


def test_secrets_come_from_everywhere_they_are_given(tmp_path: Path) -> None:
    settings, servers = tmp_path / "settings.json", tmp_path / "servers.json"
    settings.write_text(json.dumps({"env": {"A": "marker-settings"}}))
    servers.write_text(json.dumps({"mcpServers": {"x": {"headers": {"B": "marker-servers"}}}}))
    launch = plan(
        argv=(f"--settings={settings}", f"--mcp-config={servers}"), env={"C": "marker-given"}
    )
    known = KnownSecrets(launch, {"D_TOKEN": "marker-token", "E": "marker-other"})
    expected = {"marker-settings", "marker-servers", "marker-given", "marker-token"}
    assert known.values == expected
    assert known.redact("marker-given, marker-other") == "***, marker-other"
    assert known.redact("") == ""


def test_a_path_that_is_not_a_file_is_left_to_the_cli(tmp_path: Path) -> None:
    deep, broken = tmp_path / "deep.json", tmp_path / "broken.json"
    deep.write_text("[" * 100_000)
    broken.write_bytes(b"\xff{")
    for path in (deep, broken, tmp_path / "nowhere.json", tmp_path):
        assert KnownSecrets(plan(argv=(f"--settings={path}",)), {}).values == frozenset()


def test_errors_in_the_words_of_the_cli_are_cleaned() -> None:
    def hush(text: str) -> str:
        return text.replace("secret", "***")

    quoting = ControlRejected("set_model", "req_1", "no secret model", "code")
    clean(quoting, hush)
    assert (quoting.message, quoting.operation) == ("no *** model", "set_model")
    assert "secret" not in str(quoting)
    ours: BridleError = OptionsError("secret", "is ours")
    for error in (ours, ValueError("secret"), None):
        clean(error, hush)
    assert ours.args == ("secret is ours.",)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Failed("a secret reason"), Failed("a *** reason")),
        (Unreadable("no secret"), Unreadable("no ***")),
        (TimedOut(2.0), TimedOut(2.0)),
        (Version(2, 1, 0), Version(2, 1, 0)),
    ],
)
def test_answers_about_the_version_are_cleaned(
    answer: VersionAnswer, expected: VersionAnswer
) -> None:
    assert clean_answer(answer, lambda text: text.replace("secret", "***")) == expected
