"""Where the CLI keeps its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridle._process.config_directory import config_directory


def test_the_configuration_directory_is_that_of_the_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/of this process")
    assert config_directory({"CLAUDE_CONFIG_DIR": "/c", "HOME": "/h"}) == "/c"
    assert config_directory({"CLAUDE_CONFIG_DIR": "", "HOME": "/h"}) == "/h/.claude"
    assert config_directory({"CLAUDE_CONFIG_DIR": "here"}) == f"{tmp_path}/here"
    assert config_directory({"HOME": "here"}) == f"{tmp_path}/here/.claude"
    assert config_directory({}) == "/of this process/.claude"


def test_a_relative_configuration_directory_is_in_the_directory_of_the_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    monkeypatch.chdir(tmp_path)
    environment = {"CLAUDE_CONFIG_DIR": "../here"}
    assert config_directory(environment, "/srv/place") == "/srv/here"
    assert config_directory(environment, "a/b") == f"{tmp_path}/a/here"
    assert config_directory(environment, "link") == f"{tmp_path}/a/here"
    assert config_directory({"HOME": "."}, "/srv") == "/srv/.claude"
    assert config_directory({"HOME": "/h"}, "/srv") == "/h/.claude"
