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
    """R418, R432, R433, C47."""
    pytester.makepyfile(REAL)
    result = pytester.runpytest_inprocess(*LOADED, "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_it?cli0?*", "*test_it?cli1?*"])


def test_a_test_without_a_cli_is_skipped_and_says_why(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R418, R432, R433, C47."""
    monkeypatch.delenv(TEST_CLIS, raising=False)
    pytester.makepyfile(REAL)
    result = pytester.runpytest_inprocess(*LOADED, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*no CLI to test with: set {TEST_CLIS}*"])


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_cli_that_is_none_stops_the_run(
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

        def test_they_are_gone():
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


def test_a_fake_cli_is_ready_to_be_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os

        def test_it(fake_cli):
            told = fake_cli.expect_initialize().exit(0)
            assert os.access(told.path, os.X_OK)
        """
    )
    pytester.runpytest_inprocess(*LOADED).assert_outcomes(passed=1)


def test_a_fake_cli_that_was_told_nothing_says_so_at_once(pytester: pytest.Pytester) -> None:
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
    result.stdout.fnmatch_lines(["*CliExitedDuringInit*", "*so use what it returns*"])
    assert result.duration < 20, "the timeout is 60 s"
