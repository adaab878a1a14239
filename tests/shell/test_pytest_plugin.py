"""The plugin in a pytest of its own: its fixtures, and clear words where a CLI is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridle.testing.pytest_plugin import TEST_CLIS

pytest_plugins = ["pytester"]

# Under one name only, whether or not this installation announces the plugin by itself.
LOADED = ("-p", "no:bridle", "-p", "bridle.testing.pytest_plugin", "-p", "no:cacheprovider")

REAL = """
    def test_it(real_cli):
        assert real_cli.is_file()
"""


@pytest.fixture
def clis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two executables, announced as CLIs."""
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv(TEST_CLIS, os.pathsep.join(map(str, paths)))
    return paths


def test_a_test_runs_once_with_each_cli(pytester: pytest.Pytester, clis: list[Path]) -> None:
    """R418, R433."""
    pytester.makepyfile(REAL)
    result = pytester.runpytest_inprocess(*LOADED, "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_it?cli0?*", "*test_it?cli1?*"])


@pytest.mark.requirement("S107")
def test_a_test_without_a_cli_is_skipped_and_says_why(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R433."""
    monkeypatch.delenv(TEST_CLIS, raising=False)
    pytester.makepyfile(REAL)
    result = pytester.runpytest_inprocess(*LOADED, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*no CLI to test with: set {TEST_CLIS}*"])


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_program_that_is_not_a_cli_stops_the_run(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_CLIS, str(pytester.path / name))
    pytester.makepyfile(REAL)
    result = pytester.runpytest_inprocess(*LOADED)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{TEST_CLIS}: * is not an executable file*"])


def test_a_model_runs_for_the_test_and_fails_it_if_its_script_does(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import urllib.error, urllib.request
        import pytest
        from bridle.testing import text

        MODELS = []

        def ask(model):
            body = (b'{"model": "m", "max_tokens": 9, '
                    b'"messages": [{"role": "user", "content": "hi"}]}')
            request = urllib.request.Request(model.url + "/v1/messages", body, {"x-api-key": "x"})
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            return opener.open(request, timeout=10).read()

        def test_good(scripted_model):
            models = [scripted_model([[text("hi")]]), scripted_model([], retries=1)]
            assert b'"hi"' in ask(models[0])
            assert models[1].env["CLAUDE_CODE_MAX_RETRIES"] == "1"
            MODELS.extend(models)

        def test_models_of_earlier_tests_are_closed():
            for model in MODELS:
                with pytest.raises(RuntimeError):
                    model.url

        def test_bad(scripted_model):
            model = scripted_model([])
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(model)
            caught.value.close()
        """
    )
    result = pytester.runpytest_inprocess(*LOADED)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*ScriptFailure: the script has no turn for request 0*"])


def test_the_fixture_is_a_fake_cli_that_can_be_scripted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os

        def test_it(fake_cli):
            told = fake_cli.expect_initialize().exit(0)
            assert os.access(told.path, os.X_OK)
        """
    )
    pytester.runpytest_inprocess(*LOADED).assert_outcomes(passed=1)


def test_a_fake_cli_without_a_script_says_so_at_once(pytester: pytest.Pytester) -> None:
    """Who drops what a method returns has told nothing, and waits for no timeout to hear it."""
    pytester.makepyfile(
        """
        import bridle
        from bridle import sync

        def test_it(fake_cli):
            fake_cli.expect_initialize().turn("dropped")
            sync.run("x", cli=bridle.CliOptions(cli_path=fake_cli.path))
        """
    )
    result = pytester.runpytest_inprocess(*LOADED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*CliExitedDuringInit*", "*use the returned one*"])


# ------------------------------------------------------------------------- cassettes

TALK = """
    import asyncio, os
    import pytest
    import bridle
    from bridle import sync
    from bridle.testing import FakeCli

    def ask(cassette, prompt="SAY hello"):
        with FakeCli.auto() as cli:
            options = bridle.CliOptions(cli_path=cli.path)
            return sync.run(prompt, cli=options, sdk=bridle.SdkOptions(recorder=cassette)).text
"""


def test_each_test_has_a_cassette_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_talk=TALK
        + """
    class TestHello:
        @pytest.mark.parametrize("word", ["a", "b/c", "b c"])
        def test_word(self, cassette, word):
            assert ask(cassette, f"SAY {word}") == word

    def test_two_sessions(cassette):
        assert [ask(cassette, "SAY one"), ask(cassette, "SAY two")] == ["one", "two"]

    def test_query(cassette):
        with FakeCli.auto() as cli:
            options = bridle.CliOptions(cli_path=cli.path)
            sdk = bridle.SdkOptions(recorder=cassette)
            assert "result" in [m.type for m in sync.query("SAY hi", options, sdk)]
    """
    )
    pytester.runpytest_inprocess(*LOADED).assert_outcomes(passed=5)
    directory = pytester.path / "cassettes" / "test_talk"
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    plain = {name for name in before if not name.startswith("TestHello.test_word[b_c]-")}
    assert plain == {
        "TestHello.test_word[a].ndjson",
        "test_query.ndjson",
        "test_two_sessions-2.ndjson",
        "test_two_sessions.ndjson",
    }
    assert len(before) == 6
    pytester.runpytest_inprocess(*LOADED).assert_outcomes(passed=5)
    assert before == {path.name: path.read_bytes() for path in directory.iterdir()}


SESSIONS = (
    TALK
    + """
    def test_it(cassette):
        for number in range(int(os.environ["SESSIONS"])):
            assert ask(cassette, f"SAY {number}") == str(number)
"""
)


def test_the_number_of_sessions_is_compared(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_talk=SESSIONS)
    directory = pytester.path / "cassettes" / "test_talk"

    def run(sessions: int, *arguments: str) -> pytest.RunResult:
        monkeypatch.setenv("SESSIONS", str(sessions))
        return pytester.runpytest_inprocess(*LOADED, *arguments)

    run(2).assert_outcomes(passed=1)
    fewer = run(1)
    fewer.assert_outcomes(passed=1, errors=1)
    fewer.stdout.fnmatch_lines(["*session 2: recorded: started, now: nothing*"])
    more = run(3)
    more.assert_outcomes(failed=1, errors=1)
    more.stdout.fnmatch_lines(["*session 3: recorded: nothing, now: started*"])
    run(1, "--bridle-record").assert_outcomes(passed=1)
    assert [path.name for path in directory.iterdir()] == ["test_it.ndjson"]


def test_a_cassette_that_no_session_got_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(cassette): pass")
    result = pytester.runpytest_inprocess(*LOADED)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*CassetteError: Nothing was recorded in *"])


def test_a_session_that_is_still_open_is_not_recorded(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_talk=TALK
        + """
    @pytest.fixture
    def later():
        cleanup = []
        yield cleanup.append
        for one in cleanup:
            one()

    def test_it(later, cassette):
        cli = FakeCli.auto()
        options = bridle.CliOptions(cli_path=cli.path)
        session = sync.start_session(options, bridle.SdkOptions(recorder=cassette))
        later(cli.close)
        later(session.stop)
    """
    )
    result = pytester.runpytest_inprocess(*LOADED)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*CassetteError: The recording of session 1 is incomplete*"])
    assert not (pytester.path / "cassettes").exists()


def test_a_missing_recording_without_a_cli_says_what_to_do(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import bridle
        from bridle import sync

        def test_it(cassette):
            cli = bridle.CliOptions(cli_path="/nowhere/claude")
            sync.run("Hello?", cli=cli, sdk=bridle.SdkOptions(recorder=cassette))
        """
    )
    result = pytester.runpytest_inprocess(*LOADED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*CliNotFoundError*", "*The cassette *test_it.ndjson does not exist*"]
    )
    assert not (pytester.path / "cassettes").exists()
